"""Pages of games that tests write, serve and open in Chromium."""

import base64
import json
from functools import partial
from pathlib import Path

import pytest

from entity_env.cli.app import main
from entity_env.cli.commands.page import PageFiles
from entity_env.page.pyodide import FILES, cache_folder
from entity_env.replay import Replay
from tests.helpers.chromium import PROGRAM, Chromium, serving

IN_CHROMIUM = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="needs Chromium"),
    pytest.mark.skipif(
        not all((cache_folder() / name).is_file() for name in FILES),
        reason="needs Pyodide: make pyodide",
    ),
]
"""Marks of tests with the real Pyodide."""


def write(out: Path, *words: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["page", *words, "--out", str(out)])
    assert ended.value.code == 0


class SharedFiles(PageFiles):
    """Files that pages of other addresses may read."""

    def end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", "*")
        super().end_headers()


served = partial(serving, handler=PageFiles)
"""Serves the files of a page; yields their address."""


def submit(page: Chromium) -> None:
    page.wait_for("config")
    page.value("document.getElementById('setup').requestSubmit()")


def begin(page: Chromium) -> None:
    submit(page)
    page.wait_for("document.body.classList.contains('begun') && frame?.seats")


def text(page: Chromium, selector: str) -> str:
    found: str = page.value(f"document.querySelector({json.dumps(selector)}).textContent")
    return found


KEEP = """
window.saved = [];
keep = (name, base64) => saved.push([name, base64]);
"""


def saved_replay(page: Chromium) -> Replay:
    page.value(KEEP)
    page.value("document.getElementById('save').click()")
    name, content = page.wait_for("saved[0]")
    assert name.endswith(".replay")
    return Replay.from_bytes(base64.b64decode(content))
