"""What the README shows is what there is; that it runs is checked by `tests/docs`."""

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
    """The rows of the tables of faults name tests that there are."""
    page = (ROOT / "docs/reliability.md").read_text()
    named = re.findall(r"`((?:\w+/)*test_\w+\.py)(?:::(\w+))?`", page)
    assert len(named) > 50
    for file, name in named:
        assert re.search(rf"^\s*(def|class) {name}", (ROOT / "tests" / file).read_text(), re.M), (
            name
        )
    rows = [line for line in page.splitlines() if re.match(r"\| [^|]*[a-z][^|]*\|.*\|.*\|$", line)]
    promised = page[: page.index("## What was measured")]
    for row in rows:
        assert row not in promised or row.startswith("| fault") or "test_" in row, row
