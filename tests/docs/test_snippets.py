"""Code on the pages runs: Python blocks fully, commands up to their `--help`."""

from __future__ import annotations

import ast
import importlib
import re
import shlex
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from entity_env import Game, check_game
from entity_env.cli import main
from entity_env.cli.app import COMMANDS, command_of
from tests import ROOT
from tests.check.test_likely_mistakes import require_no_hints

PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w/]+\.py)")
_TARGETS = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


class Block(NamedTuple):
    """A fenced block of a page: its language, its text, and its line."""

    language: str
    text: str
    line: int

    @property
    def file(self) -> str:
        """Name of the file with this content; "" if the block is not a file."""
        found = _FILE.fullmatch(self.text.partition("\n")[0])
        return found[1] if found else ""


@cache
def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(match[1], match[2], text[: match.start()].count("\n") + 2)
        for match in _BLOCK.finditer(text)
    ]


def pages_with(language: str) -> list[object]:
    return [
        pytest.param(page, id=page.relative_to(ROOT).as_posix())
        for page in PAGES
        if any(block.language == language for block in blocks(page))
    ]


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Makes an empty current folder, from which pages import their files; cleans up afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for variable in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.setenv(variable, "dummy")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.slow
@pytest.mark.parametrize("page", pages_with("python"))
def test_python_blocks_run(page: Path, empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", script)
    for block in blocks(page):
        if block.language != "python":
            continue
        if block.file:
            (empty_folder / block.file).write_text(block.text)
            importlib.invalidate_caches()
            importlib.import_module(block.file.removesuffix(".py"))
        else:
            code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
            exec(code, vars(script))  # noqa: S102 - our own


GAME_FILES = {
    block.text: pytest.param(page, block.file, id=f"{page.stem}: {block.file}")
    for page in PAGES
    for block in blocks(page)
    if block.language == "python" and block.file and "= Game(" in block.text
}


@pytest.mark.slow
@pytest.mark.parametrize(("page", "file"), GAME_FILES.values())
def test_games_of_the_pages_have_no_likely_mistake(
    page: Path, file: str, empty_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for block in blocks(page):
        if block.language == "python" and block.file:
            (empty_folder / block.file).write_text(block.text)
    importlib.invalidate_caches()
    module = importlib.import_module(file.removesuffix(".py"))
    for game in [value for value in vars(module).values() if isinstance(value, Game)]:
        check_game(game, new_process=False)
    require_no_hints(caplog)


@pytest.mark.parametrize("page", pages_with("py"))
def test_blocks_that_need_more_than_is_here_are_python(page: Path) -> None:
    for block in blocks(page):
        if block.language == "py":
            ast.parse(block.text)


def commands() -> Iterator[object]:
    """Every command in a block, without prompt and comment."""
    for page in PAGES:
        for block in blocks(page):
            if block.language not in ("console", ""):
                continue
            for line in block.text.splitlines():
                if block.language == "console" and not line.startswith("$ "):
                    continue
                command = line.removeprefix("$ ").split("  #")[0].strip()
                if command:
                    yield pytest.param(command, id=f"{page.name}: {command}")


WRITTEN = {block.file for page in PAGES for block in blocks(page)}
"""Files whose content is on a page."""
DESCRIBED = {"rubies.py"}
"""Files that readers write themselves."""


@pytest.mark.parametrize("command", list(commands()))
def test_a_command_exists_with_its_options_and_files(command: str) -> None:
    words = shlex.split(command, comments=True)
    while words and re.fullmatch(r"\w+=\S*", words[0]):  # environment variables
        words = words[1:]
    if not words:
        return
    if words[0] == "make":
        assert {word for word in words[1:] if "=" not in word} <= set(_TARGETS)
    if words[0] == "entity-env" and len(words) > 1:
        check_command(words[1:])
    for part in ",".join(words).split(","):
        path = part.partition(":")[0]
        if path.endswith((".py", ".sh", ".md")):
            is_written = bool({path, Path(path).name} & (WRITTEN | DESCRIBED))
            assert is_written or (ROOT / path).exists(), path
        elif path.startswith(("examples/", "tests/", "docs/", "benchmarks/", "tools/")):
            assert (ROOT / path).exists(), path


def check_command(words: list[str]) -> None:
    """Checks that a command of ours has the options on the page."""
    command: click.Command = main
    if not words[0].startswith("-"):
        assert words[0] in COMMANDS, words[0]
        command = command_of(words[0])
        shown = CliRunner().invoke(main, [words[0], "--help"])
        assert shown.exit_code == 0, shown.output
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    given = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert given <= known | {"--help"}
