"""The README is up to date; `tests/docs` checks that its code runs."""

from __future__ import annotations

import re

from entity_env.cli.app import COMMANDS
from tests import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]


def test_the_game_is_the_example() -> None:
    assert SNIPPETS[0] == (ROOT / "examples/my_game.py").read_text()


def test_every_command_is_in_the_table() -> None:
    for command in ("games", "play", "train", "eval", "doctor"):
        assert f"| `entity-env {command}" in README
    for command in COMMANDS:
        assert re.search(rf"^\|.*`(entity-env )?{command}\b", README, re.M), command


def test_every_promise_has_its_test() -> None:
    """Each row of the tables of faults is in the list of tests, and these tests exist."""
    page = (ROOT / "docs/reliability.md").read_text()
    tables = re.findall(r"^\| what happens \|.*\n\|---\|---\|\n((?:\|.*\n)+)", page, re.MULTILINE)
    rows = re.findall(r"^\| (.+?) \| .+? \|$", "".join(tables), re.MULTILINE)
    assert len(rows) > 50
    assert len(rows) == "".join(tables).count("\n")
    appendix = (ROOT / "docs/reliability_tests.md").read_text()
    listed = re.findall(r"^- (.+)\n((?:    - `.+`\n)+)", appendix, re.MULTILINE)
    assert [row for row, _ in listed] == rows
    for test in re.findall(r"    - `(.+)`\n", "".join(tests for _, tests in listed)):
        file, *names = test.split("::")
        text = (ROOT / "tests" / file).read_text()
        for name in names:
            assert re.search(rf"^\s*(def|class) {name}\b", text, re.MULTILINE), test
