"""The docs' code with entity-gym and enn-trainer runs: the `py` blocks of their page."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests import ROOT

PAGE = ROOT / "docs" / "tutorials" / "from_entity_gym.md"
SNIPPETS = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)


def test_both_directions_are_shown() -> None:
    assert len(SNIPPETS) == 2


@pytest.mark.timeout(300)
@pytest.mark.parametrize("snippet", SNIPPETS, ids=range(len(SNIPPETS)))
def test_a_snippet_runs(snippet: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(snippet, PAGE.name, "exec"), {})  # noqa: S102 - our own
