"""Wrong looks: one clear error, for every field and for every function."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import numpy as np
import pytest
from rich.text import Text

from entity_env import Game, Obs, SchemaError, UsageError
from entity_env.agents import Agent, RandomAgent
from entity_env.authoring.local_run import Turn
from entity_env.cli.display.terminal_view import Frames
from entity_env.views import Animation, Board, Look, Scene, Style, find_look
from tests.helpers.strategies import untyped

FUNCTIONS: Final = ("draw", "ground", "draw_text", "describe", "spots", "legend", "size")
RETURNS: Final = FUNCTIONS[2:]
"""Functions whose results are used."""
MAY_BE_NONE: Final = {"board", "size", "step_timeout_s", *FUNCTIONS}


class Wordless:
    def __str__(self) -> str:
        raise LookupError("no words")

    __repr__ = __str__


class Deadly(str):
    __slots__ = ()

    def __str__(self) -> str:
        sys.exit(3)


@dataclass
class Ball:
    x: int
    y: int


class Way(Enum):
    UP = "up"
    SAY = "say"


def play(agent: Agent, *, seed: int) -> None:
    agent.act(Obs().entities([Ball(0, 0)]), Way)
    agent.game_over(Obs(1.0).entities([Ball(0, 1)]))


ball = Game(play, entities=[Ball], actions=[Way], name="ball")


@pytest.fixture(scope="module")
def turns() -> list[Turn]:
    found: list[Turn] = []
    ball.run(RandomAgent(seed=1), watch=found.append, seed=1)
    return found


def drawn(look: Look, turns: list[Turn]) -> None:
    """All that a look is used for."""
    if look.draw_text is not None:
        frames = Frames(ball.obs_space(), ball.action_space(), look)
        for moment in frames.moments(turns):
            frames.frame(moment, 80, 24)
    animation = Animation.of(turns, ball.obs_space(), ball.action_space(), look)
    animation.with_thoughts().html()


def with_function(name: str, function: Callable[..., object]) -> Look:
    """A look whose only own function is this, called for every picture."""
    needs: dict[str, Any] = {"draw": lambda seen, scene: None} if name == "size" else {}
    return Look(name="mine", **{**needs, name: untyped(function)})


WRONG: Final[tuple[object, ...]] = (
    None,
    5,
    object(),
    Wordless(),
    b"text",
    [5],
    {"a": 5},
    {5: {}},
    (1, 2, 3),
    True,
)
RIGHT: Final[dict[str, tuple[object, ...]]] = {
    **dict.fromkeys(FUNCTIONS, ()),
    "board": (Board(3, 4),),
    "styles": ({"Ball": Style()}, {Ball: Style()}),
    "at": (("x", "y"), ["x", "y"]),
    "size": ((1, 2), [1.5, 2], (np.float32(2), np.int64(3))),
    "is_open": (True,),
    "flags": ({"Ball": ["x"]}, {}),
    "labels": ({"Way": {"UP": "up"}}, {}),
    "moves": ({"Way": {"UP": (0, 1)}}, {"Way": {"UP": [np.int64(0), 1.5]}}),
    **dict.fromkeys(("name", "group", "hero", "global_name"), ("text",)),
    "step_timeout_s": (5, 0.5),
}


@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", [field.name for field in fields(Look)])
def test_a_field_of_the_wrong_type_is_named(name: str, value: object) -> None:
    if (value is None and name in MAY_BE_NONE) or any(value is each for each in RIGHT[name]):
        Look(**untyped({name: value}))
    elif name == "step_timeout_s" and value == 5:
        Look(step_timeout_s=5)
    else:
        with pytest.raises((SchemaError, UsageError), match=rf"\b{name} must be .*[,:] got ."):
            Look(**untyped({name: value}))


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in RIGHT.items() for value in values]
)
def test_a_field_of_the_right_type_is_kept(name: str, value: object) -> None:
    assert getattr(Look(**untyped({name: value})), name) is value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("labels", value) for value in ({"Way": 5}, {"Way": {"UP": None}}, {"Way": {1: "up"}})),
        *(("moves", value) for value in ({"Way": 5}, {"Way": {"UP": 1}}, {"Way": {"UP": "up"}})),
        *(("moves", {"Way": {"UP": (0, y)}}) for y in (float("nan"), None, "1", True, 10**400)),
        *(("flags", value) for value in ({"Ball": "x"}, {"Ball": [1]}, {Ball: ["x"]})),
        *(("styles", value) for value in ({"Ball": Style}, {1: Style()})),
        *(("at", value) for value in ("xy", ("x",), ("x", 1))),
        *(("size", value) for value in ((0, 1), ("1", 2), (1, float("inf")), (True, 1))),
    ],
)
def test_a_wrong_part_of_a_field_is_named(name: str, value: object) -> None:
    with pytest.raises(SchemaError, match=f"^mine: {name} must be .*, got "):
        Look(name="mine", **untyped({name: value}))


@pytest.mark.parametrize("value", WRONG, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", [field.name for field in fields(Style)])
def test_a_field_of_a_style_that_is_of_the_wrong_type_is_named(name: str, value: object) -> None:
    if name in ("size", "rotate") and value == 5:
        Style(**untyped({name: value}))
    else:
        with pytest.raises(SchemaError, match=f"^Style: {name} must be .*: got "):
            Style(**untyped({name: value}))


@pytest.mark.parametrize("value", [5.0, "3", object(), Wordless(), True, 0])
@pytest.mark.parametrize("name", [field.name for field in fields(Board)])
def test_a_wrong_side_of_a_board_is_named(name: str, value: object) -> None:
    with pytest.raises(SchemaError, match=f"^Board: {name} must be 1 or more, or None: got"):
        Board(**untyped({name: value}))


def test_every_function_of_a_look_is_covered() -> None:
    hints = {field.name: str(field.type) for field in fields(Look)}
    assert {name for name, hint in hints.items() if "Callable" in hint} == {*FUNCTIONS}


GOOD: Final[dict[str, object]] = {
    "draw_text": Text("ball"),
    "describe": "a ball",
    "spots": [(1, 2, "words"), (np.float64(1), 2)],
    "legend": {"ball": Scene(1, 1)},
    "size": (3, 4),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_good_function_is_drawn(name: str, turns: list[Turn]) -> None:
    drawn(with_function(name, lambda *args: GOOD.get(name)), turns)


WRONG_RESULTS: Final = (*WRONG, Deadly("text"), [(Wordless(), 1)], [(1, 2, Wordless())])


@pytest.mark.parametrize("value", WRONG_RESULTS, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("name", RETURNS)
def test_a_wrong_result_is_named_with_its_function(
    name: str, value: object, turns: list[Turn]
) -> None:
    look = with_function(name, lambda *args: value)
    if value is None and name in ("draw_text", "describe"):
        drawn(look, turns)
        return
    message = f"^look mine(, line \\d+)?: {name}: (expected .*, got .|sys.exit|LookupError: no)"
    with pytest.raises(UsageError, match=message):
        drawn(look, turns)


def raises_wordless(*args: object) -> None:
    class Silent(Exception):
        __str__ = Wordless.__str__

    raise Silent


def exits(*args: object) -> None:
    sys.exit("bye")


def divides(*args: object) -> None:
    raise ZeroDivisionError("by 0")


def recurs(*args: object) -> object:
    return recurs(*args)


def hangs(*args: object) -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (divides, r", line \d+: {}: ZeroDivisionError: by 0"),
        (recurs, r", line \d+: {}: RecursionError"),
        (raises_wordless, r", line \d+: {}: Silent: \(its message cannot be made: LookupError\)"),
        (exits, r": {}: sys\.exit\('bye'\) was called at .*test_looks\.py:\d+ in exits"),
    ],
)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_raises_is_named_with_its_line(
    name: str, function: FunctionType, words: str, turns: list[Turn]
) -> None:
    with pytest.raises(UsageError, match=f"^look mine{words.format(name)}"):
        drawn(with_function(name, function), turns)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_hangs_is_named_with_its_line(name: str, turns: list[Turn]) -> None:
    look = replace(with_function(name, hangs), step_timeout_s=0.05)
    where = rf"^look mine: {name} hangs at .*test_looks\.py:\d+ in hangs: no answer for 0\.05 s"
    with pytest.raises(UsageError, match=where):
        drawn(look, turns)


def test_the_limit_of_a_command_replaces_that_of_a_look(tmp_path: Path) -> None:
    file = tmp_path / "slow_look.py"
    file.write_text("from entity_env.views import Look\nlook = Look(step_timeout_s=5)\n")
    assert find_look(ball, str(file)).step_timeout_s == 5
    assert find_look(ball, str(file), step_timeout_s=2).step_timeout_s == 2
