"""`entity-env new`: a package with your own game, as a starting point."""

from __future__ import annotations

import keyword
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import Annotated, Final

from entity_env.cli.command import Argument
from entity_env.cli.display.console import echo
from entity_env.cli.load_game import ENTRY_POINTS, ENVIRONMENTS, installed_games
from entity_env.errors import UsageError
from entity_env.games import GAMES

_FILES: Final = {
    "pyproject.toml": """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "$package"
version = "0.1.0"
description = "A game that is played, trained and watched with entity_env."
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["entity-env"]

[project.optional-dependencies]
dev = ["pytest"]

[project.entry-points."$group"]
$name = "$name.game:$name"

[tool.setuptools.packages.find]
where = ["src"]
""",
    "README.md": """\
# $package

A basket catches apples. Change the rules in `src/$name/game.py`.

```console
$$ pip install -e .
$$ entity-env play $name --agent human
$$ entity-env train $name --out runs/$name
$$ entity-env play $name --agent runs/$name
$$ pip install pytest && python -m pytest
```

- `src/$name/game.py`: the game, a loop that asks an agent for moves.
- `src/$name/game_look.py`: how it is drawn.
- `tests/test_$name.py`: plays episodes and checks that they keep the rules of entity_env.
""",
    "src/$name/__init__.py": '''\
"""Catch apples with a basket."""

from $name.game import $name as $name
''',
    "src/$name/game.py": '''\
"""Catch apples with a basket. They fall one after another."""

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs
from entity_env.agents import Agent


@dataclass
class Basket:
    x: int
    y: int = 0


@dataclass
class Apple:
    x: int
    y: int


class Move(Enum):
    LEFT = -1
    STAY = 0
    RIGHT = 1


def play(agent: Agent, *, seed: int, board_size: int = 8, num_apples: int = 10) -> None:
    """Catch apples with a basket.

    Args:
        agent: moves the basket.
        seed: determines where apples begin to fall.
        board_size: columns and rows.
        num_apples: apples of an episode.
    """
    rng, basket, caught = random.Random(seed), Basket(board_size // 2), 0
    for _ in range(num_apples):
        apple = Apple(rng.randrange(board_size), board_size - 1)
        while apple.y > 0:
            move = agent.act(Obs(caught).entities([basket]).entities([apple]), Move)
            if move is None:  # stop: the program that runs this game is closing it
                return
            basket.x = min(max(basket.x + move.value, 0), board_size - 1)
            apple.y -= 1
        caught += basket.x == apple.x
    agent.game_over(Obs(caught))


$name = Game(play, entities=(Basket, Apple), actions=(Move,), name="$name", version=1)
''',
    "src/$name/game_look.py": '''\
"""How the game is drawn."""

from entity_env.views import Look, Style

# Two colors each: for light and for dark pages.
look = Look(
    styles={
        "Basket": Style(shape="square", color="#0072b2 #56b4e9", glyph="▂"),
        "Apple": Style(shape="circle", color="#c92a2a #ff8787", glyph="●"),
    },
)
''',
    "tests/test_$name.py": """\
from entity_env.agents import RandomAgent
from entity_env.check import check_game

from $name import $name


def test_keeps_the_rules_of_entity_env() -> None:
    check_game($name)


def test_an_apple_counts_once() -> None:
    [episode] = $name.run(RandomAgent(seed=1), seed=1)
    assert 0 <= episode.reward <= 10
""",
}
"""Texts by path; `$name` is the game's name."""
_LONGEST: Final = 40


@dataclass(frozen=True)
class NewGame:
    """Create a package with a game, its look and a test.

    The folder NAME also gets a README, and agents can be trained on the game right away. After
    `pip install -e NAME`, commands know the game by its name, like the games of this package.
    """

    name: Annotated[str, Argument("NAME")]

    def run(self) -> None:
        """Writes all files, or none."""
        folder = Path(self.name)
        _require_name(self.name)
        if folder.exists() or folder.is_symlink():
            raise UsageError(f"{folder} already exists: choose another name, or another folder")
        values = {"name": self.name, "package": self.name.replace("_", "-"), "group": ENTRY_POINTS}
        try:
            folder.mkdir()
        except OSError as error:
            raise UsageError(f"{folder} cannot be created: {error.strerror}") from error
        try:
            for path, text in _FILES.items():
                file = folder / Template(path).substitute(values)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(Template(text).substitute(values), encoding="utf-8")
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)  # just created by this command
            raise
        echo(f"wrote {folder}: pip install -e {folder} && entity-env play {self.name}")


def _require_name(name: str) -> None:
    """Checks that a module, package and game can have this name."""
    if (
        not re.fullmatch(r"[a-z][a-z0-9_]*", name)
        or len(name) > _LONGEST
        or keyword.iskeyword(name)
    ):
        raise UsageError(
            f"NAME must be the name of a Python module, such as my_game, of at most {_LONGEST} "
            f"lowercase letters, digits and underscores, got {name!r}"
        )
    taken = {each.name: each.package for each in installed_games()}
    if name in GAMES or name in ENVIRONMENTS:
        raise UsageError(f"{name} is already used by this package: choose another name")
    if name in taken:
        raise UsageError(f"{name} is a game of {taken[name]}: choose another name")
    if name in sys.stdlib_module_names or name in ("entity_env", "tests", "src"):
        raise UsageError(f"{name} is already a Python module: choose another name")
