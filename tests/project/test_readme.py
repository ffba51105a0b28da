"""What the README shows is what there is."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from entity_env.cli import main
from tests import ROOT

README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, flags=re.DOTALL | re.MULTILINE)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
SHELL = [
    line.split("  #")[0].strip()
    for language, text in BLOCKS
    if not language
    for line in text.splitlines()
]
COMMANDS = [line for line in SHELL if line.startswith("entity-env ")]


def test_the_game_is_the_example() -> None:
    assert SNIPPETS[0] == (ROOT / "examples/my_game.py").read_text()


@pytest.mark.parametrize("index", range(1, len(SNIPPETS)))
def test_a_snippet_runs(index: int) -> None:
    code = SNIPPETS[index].replace("total_steps=100_000", "total_steps=2_000")
    exec(compile(code, f"README snippet {index}", "exec"), {})  # noqa: S102 - our own


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_has_the_options_it_is_shown_with(command: str) -> None:
    words = shlex.split(command)[1:]
    shown = CliRunner().invoke(main, [words[0], "--help"])
    assert shown.exit_code == 0
    for word in words:
        if word.startswith("--"):
            assert word in shown.stdout
        if word.endswith(".py"):
            assert (ROOT / word).exists()


def test_every_command_is_in_the_table() -> None:
    for command in ("games", "play", "train", "eval", "doctor"):
        assert f"| `entity-env {command}" in README
    for command in main.commands:
        assert re.search(rf"^\|.*`(entity-env )?{command}\b", README, re.M), command


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = [line.split()[1] for line in SHELL if line.startswith("make ")]
    assert targets
    for target in targets:
        assert re.search(rf"^{target}:", makefile, flags=re.MULTILINE)


def test_links_lead_somewhere() -> None:
    for link in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / link).exists(), link


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
