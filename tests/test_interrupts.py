"""Ctrl-C in the program: at any import, one exit code and no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path

import pytest

from entity_env.interrupts import INTERRUPTED, interruptible
from tests import ROOT
from tests.helpers.children import WAIT_S

HOOK = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["INTERRUPTED_AT"]:
            os.killpg(0, signal.SIGINT)

sys.modules.pop(os.environ["INTERRUPTED_AT"], None)
sys.meta_path.insert(0, Interrupts())
"""
"""Sends SIGINT to a program and all its children when they start to import a module."""


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Installs Python's handler, which processes of pytest-xdist lack."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def interrupted_at(
    module: str, folder: Path, *words: str, program: Sequence[str] = ("-m", "entity_env")
) -> None:
    """Runs the program, which must end by the interrupt, without output and without files."""
    (folder / "hook").mkdir(exist_ok=True)
    (folder / "hook" / "sitecustomize.py").write_text(HOOK)
    path = os.pathsep.join((str(folder / "hook"), str(ROOT)))
    done = subprocess.run(
        [sys.executable, *program, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "INTERRUPTED_AT": module, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.stderr.strip() == ""  # click ends the line on which a terminal shows ^C
    assert done.returncode in (INTERRUPTED, -signal.SIGINT)
    assert [path.name for path in folder.iterdir()] == ["hook"]


@pytest.mark.parametrize("module", ["typing", "entity_env.core"])
def test_before_the_program_is_imported(module: str, tmp_path: Path) -> None:
    interrupted_at(module, tmp_path, "games")


@pytest.mark.slow  # each imports a part of the program, in a separate process
@pytest.mark.parametrize(
    ("module", "words"),
    [
        ("numpy", ["games"]),
        ("rich", ["games"]),
        ("entity_env.cli.commands.info", ["games"]),
        ("cloudpickle", ["verify", str(ROOT / "tests" / "data" / "replays" / "snake.replay")]),
        ("torch", ["train", "snake", "--out", "run"]),
        ("multiprocessing.forkserver", ["eval", "snake", "--num-workers", "2"]),
        ("entity_env.vec.workers.process", ["eval", "snake", "--num-workers", "2"]),
    ],
)
def test_at_an_import(module: str, words: list[str], tmp_path: Path) -> None:
    interrupted_at(module, tmp_path, *words)


@pytest.mark.slow  # the interpreter has to import the package
def test_as_a_script(tmp_path: Path) -> None:
    script = tmp_path / "hook" / "entity-env"
    script.parent.mkdir()
    script.write_text("from entity_env.cli import main\nmain()\n")
    interrupted_at("numpy", tmp_path, "games", program=[str(script)])


def module_of(folder: Path, name: str, text: str) -> None:
    (folder / f"{name}.py").write_text(f"import signal\n{text}\nis_whole = True\n")


SWALLOWING = """
import time
try:
    signal.raise_signal(signal.SIGINT)
    time.sleep(0.1)  # the signal is repeated several times
except BaseException:
    pass
"""


@pytest.mark.usefixtures("ctrl_c")
def test_an_import_is_finished_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module_of(tmp_path, "swallows_interrupts", SWALLOWING)
    monkeypatch.syspath_prepend(tmp_path)
    waiting = threading.Event()
    with pytest.raises(SystemExit) as ended, interruptible():
        waiting.wait(import_module("swallows_interrupts").is_whole * WAIT_S)
    assert ended.value.code == INTERRUPTED
    assert sys.modules.pop("swallows_interrupts").is_whole


@pytest.mark.usefixtures("ctrl_c")
def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module_of(tmp_path, "runs_for_long", "while True:\n    signal.raise_signal(signal.SIGINT)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit) as ended, interruptible():
        import_module("runs_for_long")
    assert ended.value.code == INTERRUPTED


@pytest.mark.usefixtures("ctrl_c")
def test_elsewhere_it_comes_at_once() -> None:
    with interruptible():
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("ctrl_c")
def test_the_handler_of_a_program_that_embeds_this_one_stays() -> None:
    struck = []
    signal.signal(signal.SIGINT, lambda number, frame: struck.append(number))
    try:
        with interruptible():
            signal.raise_signal(signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    assert struck == [signal.SIGINT]
