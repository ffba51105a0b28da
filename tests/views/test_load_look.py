"""Finding the look of a game."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from entity_env import HIDDEN, Game, Observation, UsageError
from entity_env.agents import Agent
from entity_env.games import snake, treasure_hunt
from entity_env.views import Board, Look, SeenEntity, SeenObservation, Style, find_look
from entity_env.views.describe import words_of
from entity_env.views.drawing import Drawing

GAME = """
from dataclasses import dataclass
from enum import Enum
from entity_env import Game
@dataclass
class Ball:
    x: int
    y: int
class Move(Enum):
    UP = 0
def play(agent, *, seed, width=7, height=3): ...
pong = Game(play, entities=[Ball], actions=[Move], global_features=Ball, name="pong")
"""
STYLED = "from pong import Ball\nfrom entity_env.views import *\n" + (
    "look = Look(styles={Ball: Style('square')})\nother = Look(board=Board(2, 2))\n"
)
FUNCTIONS = "size = (4, 2)\ndef draw(seen, scene): ...\ndef ground(scene): ...\n"


@pytest.fixture
def pong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Game]:
    (tmp_path / "pong.py").write_text(GAME)
    monkeypatch.syspath_prepend(str(tmp_path))
    known = {*sys.modules}
    game: Game = import_module("pong").pong
    yield game
    for name in {*sys.modules} - known:
        if name.startswith(("pong", "styled")):
            del sys.modules[name]


@dataclass
class Part:
    is_hot: bool
    size: float


@dataclass
class Unit:
    x: int
    y: int
    held: bool
    level: int
    part: Part


def test_bools_are_flags_also_those_of_parts() -> None:
    def play(agent: Agent, *, seed: int) -> None: ...

    look = find_look(Game(play, entities=(Unit,), actions=(), name="flags"))
    assert look.flags == {"Unit": ["held", "part.is_hot"]}


class Step(Enum):
    UP = (0, 1)
    BACK = (-1, 0)

    def __str__(self) -> str:
        return f"go {self.name.lower()}"


class Color(Enum):
    RED = "r"
    BLUE = "b"


@dataclass
class Kind:
    color: Color
    is_big: bool


@dataclass
class Cube:
    x: int
    weight: float
    kind: Kind
    secret: list[int] = field(default_factory=list, metadata=HIDDEN)

    def __post_init__(self) -> None:
        raise AssertionError("games may count their entities here")

    def __str__(self) -> str:
        return f"{self.kind.color.name} {self.kind.is_big} {self.weight} at {self.x:d}"


@dataclass
class Box:
    x: int
    secret: list[int] = field(metadata=HIDDEN)

    def __str__(self) -> str:
        return f"holds {self.secret}"


def test_words_and_moves_of_the_classes_of_a_game() -> None:
    def play(agent: Agent, *, seed: int) -> None: ...

    look = find_look(Game(play, entities=(Cube, Box, Unit), actions=(Step, Color)))
    assert look.labels == {"Step": {"UP": "go up", "BACK": "go back"}}
    assert look.moves == {"Step": {"UP": (0, 1), "BACK": (-1, 0)}}
    names = ("x", "weight", "kind.color.is_RED", "kind.color.is_BLUE", "kind.is_big")
    cube = SeenEntity(None, "Cube", np.array([3.0, 0.5, 0, 1, 1]), True, names)
    assert words_of(cube, look) == "BLUE True 0.5 at 3"
    assert words_of(replace(cube, is_visible=False), look) == "BLUE True 0.5 at 3 (hidden)"
    box = SeenEntity(None, "Box", np.array([2.0]), True, ("x",))
    assert words_of(box, look) == "Box x=2"
    plain = find_look(Game(play, entities=(Unit,), actions=(Color,)))
    assert (plain.labels, plain.moves, plain.describe) == ({}, {}, None)


def test_without_a_look_it_is_the_default_on_the_board_of_the_settings(pong: Game) -> None:
    assert find_look(pong) == Look(board=Board(7, 3), global_name="Ball")
    assert find_look(pong.with_settings(width=9)).board == Board(9, 3)
    assert find_look(snake).board == Board(10, 10)
    assert find_look(treasure_hunt).draw is None


def test_a_file_beside_the_game(pong: Game, tmp_path: Path) -> None:
    (tmp_path / "pong_look.py").write_text(FUNCTIONS)
    look = find_look(pong)
    assert look.draw is not None
    assert look.ground is not None
    assert look.size == (4.0, 2.0)
    assert look.name.endswith("pong_look")


def test_the_name_that_is_given_comes_first(pong: Game, tmp_path: Path) -> None:
    (tmp_path / "pong_look.py").write_text(FUNCTIONS)
    (tmp_path / "styled.py").write_text(STYLED)
    pong.look = "styled:other"
    assert find_look(pong).board == Board(2, 2)
    for name in (str(tmp_path / "styled.py"), "styled", "styled:look"):
        look = find_look(pong, name)
        assert look.board == Board(7, 3)
        assert look.styles == {"__global__": Style("square")}  # the class of the global features
    assert find_look(pong, f"{tmp_path}/styled.py:other").board == Board(2, 2)


@pytest.mark.parametrize(
    ("text", "name", "message"),
    [
        (None, "styled.py", "styled.py: there is no such file"),
        (None, "no_such_module:look", "expected FILE.py, FILE.py:name or module:name: there is no"),
        ("def draw(:", "styled.py", "styled.py, line 1: SyntaxError"),
        ("\nx = 1 / 0", "styled.py", "styled.py, line 2: ZeroDivisionError"),
        ("look = 3", "styled.py", r"expected a Look, look = Look\(\.\.\.\): got int"),
        ("", "styled.py:mine", r"expected a Look, mine = Look\(\.\.\.\): got nothing of that name"),
        ("", "styled.py", r"expected look = Look\(\.\.\.\), or functions draw\(seen, scene\)"),
        ("draw = 3", "styled.py", "draw must be a function"),
        ("from entity_env.views import *\nlook = Look(size=0)", "styled.py", "line 2: SchemaErr"),
    ],
)
def test_mistakes_are_named(
    pong: Game,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    text: str | None,
    name: str,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    if text is not None:
        (tmp_path / "styled.py").write_text(text)
    with pytest.raises(UsageError, match=f"^look .*{message}"):
        find_look(pong, name)
    assert "styled" not in sys.modules or text is not None


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("1 / 0", "line 2: draw: ZeroDivisionError: division by zero"),
        ("scene.circle(0, 0, 1, 'red')", r"line 2: draw: Scene\.circle: fill must be a color"),
        ("seen['Ball'][0].helth", "line 2: draw: AttributeError: Ball has no feature 'helth'"),
        ("seen['Bal']", "line 2: draw: KeyError: .there is no entity type 'Bal'; .* Ball"),
        (
            "raise SystemExit(3)",
            r": draw: sys\.exit\(3\) was called at .*bad.py:2 in draw: it ends",
        ),
        ("raise GeneratorExit", r": draw: GeneratorExit was raised at .*bad.py:2 in draw: it ends"),
    ],
)
def test_an_error_in_a_function_names_its_line(
    pong: Game, tmp_path: Path, body: str, message: str
) -> None:
    (tmp_path / "bad.py").write_text(f"def draw(seen, scene):\n    {body}\n")
    look = find_look(pong, str(tmp_path / "bad.py"))
    observation = Observation(features={"Ball": [[0, 0]]}, global_features=[0, 0], reward=0.0)
    drawing = Drawing(look, pong.obs_space())
    with pytest.raises(UsageError, match=rf"^look .*bad\.py(, )?{message}"):
        drawing.draw(SeenObservation(observation, pong.obs_space()))


def test_a_look_that_ends_the_program_when_it_is_loaded_is_named(
    pong: Game, tmp_path: Path
) -> None:
    (tmp_path / "leaves.py").write_text("import sys\nsys.exit()\n")
    with pytest.raises(UsageError, match=r"^look .*leaves\.py: sys\.exit\(\) was called at .*:2"):
        find_look(pong, str(tmp_path / "leaves.py"))


class Mute(Enum):
    GO = 1

    def __str__(self) -> str:
        raise LookupError("no words")


class Busy(Enum):
    GO = 1

    def __str__(self) -> str:
        while True:
            pass


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        (Mute, r"the __str__ of Mute fails at .*:\d+ in __str__: LookupError: no words"),
        (Busy, r"the __str__ of Busy hangs at .*:\d+ in __str__: no answer for 0\.05 s"),
    ],
)
def test_choices_whose_own_words_fail_are_named(choices: type[Enum], message: str) -> None:
    def play(agent: Agent, *, seed: int) -> None: ...

    game = Game(play, entities=[Unit], actions=[choices], name="wordless")
    with pytest.raises(UsageError, match=f"^{message}"):
        find_look(game, step_timeout_s=0.05)


@pytest.mark.parametrize("place", ["beside", "named", "game"])
def test_a_look_that_never_finishes_loading_is_ended_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.setattr("entity_env.authoring.load_module.TOLD_AFTER_S", 0.02)
    monkeypatch.setattr("entity_env.authoring.load_module.MAX_LOAD_S", 0.1)
    package = f"endless_{place}"
    folder = tmp_path / package
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "pong.py").write_text(GAME)
    (folder / "pong_look.py").write_text("while True:\n    pass\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    game: Game = import_module(f"{package}.pong").pong
    if place == "game":
        game.look = f"{package}.pong_look"
    name = str(folder / "pong_look.py") if place == "named" else None
    with pytest.raises(
        UsageError, match=r"^look .*pong_look.*, line \d+ ran for 0\.1 s, so pong_l"
    ):
        find_look(game, name)


def test_a_function_with_other_arguments_is_named_without_a_line() -> None:
    look = Look(draw=lambda seen: None, name="mine")  # type: ignore[misc,arg-type]  # wrong
    with pytest.raises(UsageError, match=r"^look mine: draw: TypeError: .* takes 1 positional"):
        look.call("draw", None, None)
