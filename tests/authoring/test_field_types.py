"""Features of optional fields, flags, literals, arrays, and classes that are not dataclasses."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from enum import Flag, IntFlag
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any, Literal, Optional, TypeAlias, TypeVar

import numpy as np
import pytest
import typing_extensions
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import Features, Game, Obs, SchemaError, UsageError
from entity_env.agents import Agent, RandomAgent
from entity_env.authoring.entity_type import entity_type
from entity_env.authoring.load_module import execute_file
from entity_env.check import check_game
from entity_env.check.violations import obs_violations
from entity_env.vec import VecEnv
from entity_env.views.describe import describe_features
from entity_env.views.seen import SeenEntity
from tests.helpers.strategies import FLOATS, Move, Point, Stance, instances, untyped


class Vector2:
    """Like pygame's, not a dataclass."""

    def __init__(self, x: float, y: float) -> None:
        self.x, self.y = x, y

    def length(self) -> float:
        return abs(self.x) + abs(self.y)


class Status(Flag):
    BURNING = 1
    FROZEN = 2
    BOTH = 3
    WET = 8


class Keys(IntFlag):
    NONE = 0
    UP = 4


Vector: TypeAlias = Annotated[Vector2, Features("x", "y")]
Polar: TypeAlias = Annotated[
    Vector2, Features("length", "side", read=lambda v: (v.length(), v.x > 0))
]
Array: TypeAlias = Annotated[NDArray[np.float32], 3]
Grid: TypeAlias = Annotated[np.ndarray, (2, 2)]
Mode: TypeAlias = Literal["slow", 3, None]

Case: TypeAlias = tuple[object, st.SearchStrategy[Any], list[str], Callable[[Any], list[float]]]
"""Type of a field, its values, suffixes of its feature names, and feature values."""


def floats(count: int) -> st.SearchStrategy[list[float]]:
    return st.lists(FLOATS, min_size=count, max_size=count)


VECTORS = st.builds(Vector2, FLOATS, FLOATS)
PLAIN: dict[str, Case] = {
    "number": (float, FLOATS, [""], lambda x: [x]),
    "enum": (
        Stance,
        st.sampled_from(Stance),
        [f".is_{member.name}" for member in Stance],
        lambda s: [s is member for member in Stance],
    ),
    "dataclass": (Point, instances(Point), [".x", ".y"], lambda p: [p.x, p.y]),
    "tuple": (
        tuple[float, bool],
        st.tuples(FLOATS, st.booleans()),
        [".0", ".1"],
        list,
    ),
    "flag": (
        Status,
        st.integers(0, 3).flatmap(lambda i: st.sampled_from([Status(i), Status(i) | Status.WET])),
        [".is_BURNING", ".is_FROZEN", ".is_WET"],
        lambda s: [bool(s & bit) for bit in (Status.BURNING, Status.FROZEN, Status.WET)],
    ),
    "int flag": (Keys, st.sampled_from([Keys(0), Keys.UP]), [".is_UP"], lambda k: [bool(k)]),
    "literal": (
        Mode,
        st.sampled_from(["slow", 3, None]),
        [".is_slow", ".is_3", ".is_None"],
        lambda mode: [mode == "slow", mode == 3, mode is None],
    ),
    "array": (
        Array,
        floats(3).map(np.array),
        [".0", ".1", ".2"],
        lambda array: array.tolist(),
    ),
    "grid": (
        Grid,
        floats(4).map(lambda numbers: np.array(numbers).reshape(2, 2)),
        [".0.0", ".0.1", ".1.0", ".1.1"],
        lambda array: array.ravel().tolist(),
    ),
    "attributes": (Vector, VECTORS, [".x", ".y"], lambda v: [v.x, v.y]),
    "read": (Polar, VECTORS, [".length", ".side"], lambda v: [v.length(), v.x > 0]),
}
FIELDS = st.sampled_from(sorted(PLAIN))

ALIASES: list[Callable[..., Any]] = [
    module.TypeAliasType
    for module in (untyped(typing), untyped(typing_extensions))
    if hasattr(module, "TypeAliasType")  # in typing since Python 3.12
]
"""The class behind `type Name = value`."""
U, V = map(untyped(TypeVar), "UV")


@st.composite
def things(draw: st.DrawFn) -> tuple[Any, list[str], list[float]]:
    """An entity with fields of any of these types, some optional or nested; and its features."""
    parts: list[tuple[str, Any, Any, list[str], list[float]]] = []
    for i in range(draw(st.integers(1, 4))):
        kind, values, names, numbers = PLAIN[draw(FIELDS)]
        field, value = f"f{i}", draw(values)
        told = numbers(value)
        shown = [f"{field}{name}" for name in names]
        optional = kind is not Mode and draw(st.booleans())
        for alias in draw(st.lists(st.sampled_from(ALIASES), max_size=2)):
            kind = alias("Alias", kind)
        if optional:
            kind, is_there = Optional[untyped(kind)], draw(st.booleans())  # noqa: UP045 - as a call
            shown = [f"has_{field}", *shown]
            told = [1.0, *told] if is_there else [0.0] * len(shown)
            value = value if is_there else None
        parts.append((field, kind, value, shown, told))
    cls = make_dataclass("Thing", [(field, kind) for field, kind, *_ in parts], eq=False)
    thing = cls(*(value for _, _, value, *_ in parts))
    names = [name for *_, shown, _ in parts for name in shown]
    numbers_ = [number for *_, told in parts for number in told]
    if not draw(st.booleans()):
        return thing, names, numbers_
    whole = make_dataclass("Whole", [("part", untyped(cls) | None), ("x", int)], eq=False)
    nested = ["has_part", *(".".join(["part", n]) for n in names), "x"]
    if draw(st.booleans()):
        return whole(thing, 7), nested, [1.0, *numbers_, 7.0]
    return whole(None, 7), nested, [*[0.0] * (len(names) + 1), 7.0]


@settings(max_examples=150)
@given(things())
def test_features_are_those_of_their_values(
    case: tuple[Any, list[str], list[float]],
) -> None:
    thing, names, numbers = case
    kind = entity_type(type(thing))
    assert kind.features == tuple(names)
    assert kind.featurize([thing, thing]).tolist() == [np.array(numbers, np.float32).tolist()] * 2
    schema = Game(untyped(nothing), entities=(type(thing),), actions=(Move,)).schema
    assert obs_violations(Obs().entities([thing]), schema) == []


def nothing(agent: Agent, *, seed: int) -> None: ...


@dataclass
class Ship:
    """An entity with every kind of field."""

    at: Vector
    aim: Polar | None
    speed: Array
    status: Status
    mode: Mode
    target: Point | None
    fuel: float | None = None


def ships(step: int) -> list[Ship]:
    """Shows different ships in each step."""
    return [
        Ship(
            Vector2(step, i),
            Vector2(i, step) if (step + i) % 2 else None,
            np.array([i, step, 1.0]),
            Status((step + i) % 4),
            (("slow", 3, None)[(step + i) % 3]),
            Point(i, step) if i else None,
            0.5 if step % 2 else None,
        )
        for i in range(step % 3)
    ]


def sails(agents: Any, *, seed: int) -> None:  # noqa: ANN401 - one agent or several
    group = agents if isinstance(agents, list) else [agents]
    for step in range(7):
        obs = [Obs(step).entities(ships(step)) for _ in group]
        if len(group) == 1:
            answers = [group[0].act(obs[0], Move)]
        else:
            pending = [agent.act_async(each, Move) for agent, each in zip(group, obs, strict=True)]
            answers = [each.get() for each in pending]
        if None in answers:
            return
    for agent in group:
        agent.game_over()


@pytest.mark.slow
@pytest.mark.parametrize("num_agents", [1, 2])
def test_all_ways_of_reading_a_game_agree(num_agents: int) -> None:
    game = Game(sails, entities=(Ship,), actions=(Move,), num_agents=num_agents)
    check_game(game, episodes=1)
    expected = [entity_type(Ship).featurize(ships(step)).tolist() for step in range(7)]
    seen: list[object] = []
    game.run(
        *map(RandomAgent, range(num_agents)),
        watch=lambda turn: seen.append(_rows(turn.observation)) if not turn.agent_id else None,
    )
    assert seen[:7] == expected
    with VecEnv(game, 2) as vec:
        batches = [vec.reset().copy()]
        for _ in range(6):
            batches.append(vec.act({"Move": np.zeros(2 * num_agents, dtype=np.int64)}).copy())
    for row in range(2 * num_agents):
        assert [batch.features["Ship"][row].tolist() for batch in batches] == expected


def _rows(observation: Any) -> list[list[float]]:  # noqa: ANN401 - an observation
    return np.asarray(observation.features.get("Ship", [])).tolist()  # type: ignore[no-any-return]


def ship(**changes: object) -> Ship:
    values: dict[str, Any] = {
        "at": Vector2(0, 0),
        "aim": None,
        "speed": np.zeros(3),
        "status": Status(0),
        "mode": "slow",
        "target": None,
    }
    return Ship(**{**values, **changes})


BAD: dict[str, tuple[Ship, str, str]] = {
    "other class": (
        ship(at=(1, 2)),
        "features of Ship.* cannot be read",
        r"field 'at' holds \(1, 2\), declared Vector2",
    ),
    "shape": (
        ship(speed=np.zeros(4)),
        r"cannot be read .an array has the shape \(4,\), but declared is \(3,\)",
        r"field 'speed' holds an array of the shape \(4,\), declared \(3,\)",
    ),
    "no array": (ship(speed=[1, 2, 3]), "cannot be read", "'speed' holds .* declared an array"),
    "flag": (ship(status=1), "'int' object has no attribute", "'status' holds 1, declared one of"),
    "none": (ship(status=None), "cannot be read", "'status' holds None"),
    "text": (ship(fuel="5"), "feature 'fuel' of row 1 must be a number", "'fuel' holds '5'"),
    "part": (ship(target=5), "cannot be read", "'target' holds 5, declared Point"),
    "attribute": (
        ship(at=Vector2(untyped("1"), 2)),
        r"feature 'at\.x' of row 1 must be a number",
        r"'at\.x' holds '1'",
    ),
    "mode": (ship(mode="fast"), "", "'mode' holds 'fast', declared one of 'slow', 3, None"),
}


@pytest.mark.parametrize(("bad", "message", "violation"), BAD.values(), ids=BAD)
def test_other_values_are_named(bad: Ship, message: str, violation: str) -> None:
    if message:
        with pytest.raises(SchemaError, match=message):
            entity_type(Ship).featurize([ship(), bad])
    schema = Game(untyped(nothing), entities=(Ship,), actions=(Move,)).schema
    [found] = obs_violations(Obs().entities([bad]), schema)
    assert re.search(violation, found)


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda v: [v.x], "1 numbers were read for x, y"),
        (lambda v: [v.x, v.y / 0], "cannot be read .ZeroDivisionError: "),
        (lambda v: [v.x, str(v.y)], r"feature 'at\.y' of row 0 must be a number .* got '2'"),
    ],
)
def test_a_reader_that_fails_is_named(read: Callable[[Any], Any], message: str) -> None:
    kind: Any = Annotated[Vector2, Features("x", "y", read=read)]
    thing = make_dataclass("Thing", [("at", kind)])
    with pytest.raises(SchemaError, match=message):
        entity_type(thing).featurize([thing(Vector2(1, 2))])


@pytest.mark.parametrize("names", [(), ("x", 5), ("a b",), ("",)])
def test_features_have_names(names: tuple[Any, ...]) -> None:
    with pytest.raises(SchemaError, match="Features needs the names of the features"):
        Features(*names)


def test_what_is_not_there_is_not_described() -> None:
    kind = entity_type(Ship)
    [there, not_there] = kind.featurize(
        [
            ship(aim=Vector2(3, -4), status=Status.BOTH, target=Point(1, 2), fuel=0.0),
            ship(mode=None),
        ]
    )
    assert describe_features(kind.features, there) == (
        "at.x=0 at.y=0 aim.length=7 aim.side=1 speed.0=0 speed.1=0 speed.2=0 "
        "status=BURNING status=FROZEN mode=slow mode.is_3=0 target.x=1 target.y=2 fuel=0"
    )
    assert describe_features(kind.features, not_there) == (
        "at.x=0 at.y=0 speed.0=0 speed.1=0 speed.2=0 mode.is_3=0 mode=None"
    )
    seen = SeenEntity(0, "Ship", there.astype(np.float64), names=kind.features)
    assert (seen.status, seen.target, seen.has_fuel) == ("BURNING|FROZEN", [1.0, 2.0], 1.0)
    assert describe_features(["has_key", "x"], [0.0, 1.0]) == "has_key=0 x=1"


@pytest.mark.parametrize("alias", ALIASES)
def test_arguments_of_an_alias_reach_its_value(alias: Callable[..., Any]) -> None:
    swapped = alias("Swapped", untyped(tuple)[V, U], type_params=(U, V))
    array = alias("Array", untyped(np.ndarray)[Any, untyped(np.dtype)[U]], type_params=(U,))
    speed = alias("Speed", float)
    cls = make_dataclass(
        "Car",
        [
            ("pair", swapped[speed, Stance]),
            ("nested", untyped(tuple)[speed, swapped[int, bool] | None]),
            ("sizes", Annotated[array[np.float32], 2]),
            ("bare", Annotated[array, "of two", (2,)]),
        ],
    )
    assert entity_type(cls).features == (
        *(f"pair.0.is_{member.name}" for member in Stance),
        "pair.1",
        *("nested.0", "nested.has_1", "nested.1.0", "nested.1.1"),
        *("sizes.0", "sizes.1", "bare.0", "bare.1"),
    )


@pytest.mark.parametrize("alias", ALIASES)
def test_aliases_without_features_are_named(alias: Callable[..., Any]) -> None:
    pair = alias("Pair", untyped(tuple)[U, V], type_params=(U, V))
    for kind, named in (
        (alias("Name", str), "type str"),
        (alias("Names", untyped(tuple)[float, alias("Name", str)]), "'x.1' of type str"),
        (pair, "type ~U"),
        (pair[int], r"type Pair\[int\]"),
    ):
        with pytest.raises(SchemaError, match=f"{named} cannot become features"):
            entity_type(make_dataclass("Car", [("x", kind)]))


TYPE_STATEMENTS = """
from dataclasses import dataclass
from tests.helpers.strategies import Move

type Speed = float
type Maybe[T] = T | None
type Endless = tuple[Endless, int]
type Missing = Nowhere

@dataclass
class Car:
    speed: Maybe[Speed]
    move: "Maybe[Move]"

@dataclass
class Snake:
    tail: Endless

@dataclass
class Ghost:
    house: Missing

def play(agent, *, seed, size: Maybe[Speed] = 3, first: "Maybe[Move]" = None): ...

def haunt(agent, *, seed, house: Missing = 3): ...
"""


@pytest.mark.skipif(sys.version_info < (3, 12), reason="needs the type statement of Python 3.12")
def test_type_statements(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, name = tmp_path / "type_statements.py", "type_statements"
    file.write_text(TYPE_STATEMENTS)
    monkeypatch.setitem(sys.modules, name, ModuleType(name))  # removed again after the test
    module = execute_file(name, file)
    moves = [f"move.is_{member.name}" for member in Move]
    assert entity_type(module.Car).features == ("has_speed", "speed", "has_move", *moves)
    with pytest.raises(SchemaError, match=r"'tail\.0' of type Endless cannot become features"):
        entity_type(module.Snake)
    with pytest.raises(SchemaError, match="Ghost: the annotation 'Nowhere' cannot be resolved"):
        entity_type(module.Ghost)
    game = Game(module.play, entities=(module.Car,), actions=(Move,))
    chosen = game.with_settings(size="0.5", first="UP")
    assert chosen.settings == {"size": 0.5, "first": Move.UP}
    assert chosen.with_settings(size=2, first=None).settings == {"size": 2, "first": None}
    with pytest.raises(UsageError, match="setting 'size' must be a number or none, got 'wide'"):
        game.with_settings(size="wide")
    with pytest.raises(SchemaError, match=r"house: .* names 'Nowhere', which its module lacks"):
        Game(module.haunt, entities=(module.Car,), actions=(Move,))
