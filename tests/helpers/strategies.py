"""Hypothesis strategies: ragged arrays, spaces, observations, dataclasses and scenes."""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass, make_dataclass
from enum import Enum, EnumType
from types import GenericAlias
from typing import Any

import numpy as np
from hypothesis import Phase, settings, strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from entity_env import (
    ActionMask,
    ActionSpace,
    ActionType,
    Categorical,
    CategoricalActionMask,
    CategoricalActionSpace,
    Continuous,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    GlobalCategorical,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Obs,
    Observation,
    ObsSpace,
    Schema,
    SelectEntity,
    SelectEntityActionMask,
    SelectEntityActionSpace,
)

# ---------------------------------------------------------------------------- numbers and names

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
INTS = st.integers(-(2**24), 2**24)  # exact in float32
NAMES = st.sampled_from(["x", "y", "pos", "is_x", "x2", "snake", "food", "e", "cls", "extend"])


def float_rows(num_rows: int, width: int) -> st.SearchStrategy[NDArray[np.float32]]:
    """Rows of different float32; drawn as one number, because the values do not matter."""
    seeds = st.integers(0, 2**16)
    return seeds.map(
        lambda seed: np.random.default_rng(seed).normal(size=(num_rows, width)).astype(np.float32)
    )


def bool_rows(num_rows: int, width: int) -> st.SearchStrategy[NDArray[np.bool_]]:
    """Rows of bools, each with at least one True; `width` is positive."""

    def allow_one(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        mask[~mask.any(axis=1), 0] = True
        return mask

    return npst.arrays(np.bool_, (num_rows, width)).map(allow_one)


def untyped(value: object) -> Any:  # noqa: ANN401 - intended
    """Passes a value that no type checker would accept."""
    return value


def make_enum(name: str, members: object) -> Any:  # noqa: ANN401 - unknown to type checkers
    """An Enum whose members are known only at run time."""
    return untyped(Enum)(name, members)


# ---------------------------------------------------------------------------- ragged arrays


@st.composite
def row_lists(draw: st.DrawFn) -> list[NDArray[np.float32]]:
    """Arrays of rows of one width, the content of a `RaggedArray`."""
    width = draw(st.integers(0, 3))
    lengths = draw(st.lists(st.integers(0, 4), min_size=1, max_size=6))
    return [draw(float_rows(length, width)) for length in lengths]


# ---------------------------------------------------------------------------- spaces, observations


@st.composite
def obs_spaces(draw: st.DrawFn) -> ObsSpace:
    """Observation spaces with up to three types, some without features."""
    names = draw(st.lists(NAMES, unique=True, max_size=3))
    features = st.lists(NAMES, unique=True, max_size=3)
    return ObsSpace(draw(features), {name: Entity(draw(features)) for name in names})


@st.composite
def action_spaces(draw: st.DrawFn) -> dict[str, ActionSpace]:
    """Up to four actions of any kind."""
    labels = st.lists(NAMES, unique=True, min_size=1, max_size=4)
    kinds: st.SearchStrategy[ActionSpace] = st.one_of(
        labels.map(CategoricalActionSpace),
        labels.map(GlobalCategoricalActionSpace),
        st.just(SelectEntityActionSpace()),
        labels.map(
            lambda names: ContinuousActionSpace([-1.0] * len(names), [2.0] * len(names), names)
        ),
    )
    return draw(st.dictionaries(NAMES, kinds, max_size=4))


@st.composite
def observations(
    draw: st.DrawFn, obs_space: ObsSpace, action_space: dict[str, ActionSpace]
) -> Observation:
    """Valid observations: types with and without ids, actors by id or all, all kinds of masks."""
    counts = {name: draw(st.integers(0, 3)) for name in obs_space.entities}
    shown = [name for name in obs_space.entities if counts[name] or draw(st.booleans())]
    features = {
        name: draw(float_rows(counts[name], len(obs_space.entities[name].features)))
        for name in shown
    }
    ids = {
        name: [f"{name} {i}" for i in range(counts[name])] for name in shown if draw(st.booleans())
    }
    bare = Observation(
        reward=draw(FLOATS),
        terminated=False,
        global_features=draw(float_rows(1, len(obs_space.global_features)))[0],
        features=features,
        ids=ids,
    )
    entity_ids = bare.entity_ids(obs_space)
    bare.actions = {
        name: mask
        for name, space in action_space.items()
        if draw(st.booleans()) and (mask := draw(_masks(space, shown, entity_ids))) is not None
    }
    for name in shown:
        if draw(st.booleans()):
            seen = draw(npst.arrays(np.bool_, counts[name]))
            bare.visible = {**bare.visible, name: seen}
    return bare


@st.composite
def _masks(
    draw: st.DrawFn, space: ActionSpace, types: list[str], ids: list[Any]
) -> ActionMask | None:
    if isinstance(space, GlobalCategoricalActionSpace):
        row = draw(bool_rows(1, len(space)))
        return GlobalCategoricalActionMask(draw(st.sampled_from([None, row, row[0]])))
    by_id = draw(st.booleans())
    actors = draw(st.lists(st.sampled_from(ids), unique=True)) if ids else []
    who: dict[str, Any] = {"actor_ids": actors} if by_id else {}
    if isinstance(space, ContinuousActionSpace):
        return ContinuousActionMask(**who)
    num_actors = len(actors) if by_id else len(ids)
    if isinstance(space, CategoricalActionSpace):
        mask = draw(st.none() | bool_rows(num_actors, len(space)))
        return CategoricalActionMask(**who, mask=mask)
    if not ids:
        return SelectEntityActionMask()
    actees = draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    mask = draw(st.none() | bool_rows(num_actors, len(actees)))
    return SelectEntityActionMask(**who, actee_ids=actees, mask=mask)


# ---------------------------------------------------------------------------- dataclasses


class Stance(Enum):
    CALM = "calm"
    ANGRY = "angry"
    ASLEEP = "asleep"


class Move(Enum):
    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3


@dataclass
class Point:
    x: float
    y: int


@dataclass
class Snake:
    pos: Point
    stance: Stance
    alive: bool
    cooldowns: tuple[int, float]


@dataclass(frozen=True, slots=True)
class Food:
    value: float


@dataclass
class Rock:
    """An entity without features."""


@dataclass
class World:
    time: float
    stance: Stance


@st.composite
def entity_classes(draw: st.DrawFn, max_depth: int = 2) -> type:
    """Dataclasses with all types of fields that can be featurized."""
    names = draw(st.lists(NAMES, unique=True, max_size=4))
    kinds = {name: draw(_field_types(max_depth)) for name in names}
    return make_dataclass("Entity", kinds.items(), slots=draw(st.booleans()))


def _field_types(depth: int) -> st.SearchStrategy[Any]:
    plain = st.sampled_from([int, float, bool, np.float32, np.int16, Stance, Move, int | float])
    if not depth:
        return plain
    tuples = st.lists(plain, min_size=1, max_size=3).map(lambda ks: GenericAlias(tuple, tuple(ks)))
    return st.one_of(plain, plain, tuples, entity_classes(max_depth=depth - 1))


def instances(kind: object) -> st.SearchStrategy[Any]:
    """Values of a field of this type, or entities of this class."""
    numbers: dict[object, st.SearchStrategy[Any]] = {
        int: INTS,
        float: FLOATS,
        bool: st.booleans(),
        int | float: INTS | FLOATS,
        np.float32: FLOATS.map(np.float32),
        np.int16: npst.from_dtype(np.dtype(np.int16)),
    }
    if kind in numbers:
        return numbers[kind]
    if typing.get_origin(kind) is tuple:
        return st.tuples(*map(instances, typing.get_args(kind)))
    if isinstance(kind, EnumType):
        return st.sampled_from(list(kind))
    if not isinstance(kind, type):
        raise TypeError(kind)
    hints = typing.get_type_hints(kind)
    return st.builds(kind, **{name: instances(hint) for name, hint in hints.items()})


# ---------------------------------------------------------------------------- scenes

FEW = settings(max_examples=30, phases=set(Phase) - {Phase.explain})
"""For tests of scenes, which take a millisecond each to draw and a minute to explain."""

MOVE = Categorical(Move, "move")
CALL = GlobalCategorical(Move, "call")
EAT = SelectEntity(Food, "eat")
STEER = Continuous("steer", low=[-1, 0], high=[1, 5])
ACTIONS: tuple[ActionType[Any], ...] = (MOVE, CALL, EAT, STEER)
SCHEMA = Schema((Snake, Food, Rock), ACTIONS, World, game="zoo")
"""A schema with every kind of entity, action and feature."""


@dataclass
class Group:
    """Entities of one class, added together."""

    cls: type
    entities: list[Any]
    actions: tuple[ActionType[Any], ...] | None
    """Their actions: all if empty; None = they do not act."""
    form: str
    """Kind of container: "list", "tuple", "array" or another collection ("keys")."""


@dataclass
class Scene:
    """One observation in plain form, from which an `Obs` and the reference are made."""

    groups: list[Group]
    asked: list[ActionType[Any]]
    world: World
    masks: dict[ActionType[Any], NDArray[np.bool_]]
    visible: dict[type, list[bool]]
    metrics: dict[str, float]

    def entities_of(self, cls: type) -> list[Any]:
        """All entities of a class, in order."""
        return [entity for group in self.groups if group.cls is cls for entity in group.entities]

    def actors_of(self, action: ActionType[Any]) -> list[tuple[type, int]]:
        """Class, and index in the class, of every entity that performs an action."""
        actors: list[tuple[type, int]] = []
        counts = dict.fromkeys((Snake, Food, Rock), 0)
        for group in self.groups:
            performs = group.actions is not None and (not group.actions or action in group.actions)
            first = counts[group.cls]
            counts[group.cls] += len(group.entities)
            if performs:
                actors += [(group.cls, i) for i in range(first, counts[group.cls])]
        return actors

    def obs(self) -> Obs:
        """The `Obs` that a game would build."""
        obs = Obs(1.5).globals(self.world)
        for group in self.groups:
            entities, of = _in_form(group)
            if group.actions is None:
                obs.entities(entities, of)
            else:
                obs.actors(entities, *group.actions, of=of)
        for action, mask in self.masks.items():
            obs.mask(action, mask)
        for cls, seen in self.visible.items():
            obs.visible(cls, seen)
        for name, value in self.metrics.items():
            obs.metric(name, value)
        return obs


def _in_form(group: Group) -> tuple[Any, type | None]:
    if group.form == "array":
        return np.array([features_of(e) for e in group.entities]), group.cls
    forms: dict[str, Any] = {"list": list, "tuple": tuple, "keys": _keys}
    return forms[group.form](group.entities), None


def _keys(entities: Sequence[Any]) -> Collection[Any]:
    """A collection that is not a sequence."""
    return dict(enumerate(entities)).values()


def features_of(entity: object) -> list[float]:
    """The slow way to featurize: by name, one entity at a time."""
    return [value for _, value in named_features_of(entity, "")]


def named_features_of(value: object, name: str) -> list[tuple[str, float]]:
    """The name and value of every feature of a value."""
    dot = f"{name}." if name else ""
    if isinstance(value, Enum):
        return [(f"{dot}is_{m.name}", float(m is value)) for m in type(value)]
    if isinstance(value, tuple):
        parts = [(str(i), item) for i, item in enumerate(value)]
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        parts = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
    else:
        return [(name, float(typing.cast("float", value)))]
    return [feature for part, item in parts for feature in named_features_of(item, f"{dot}{part}")]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    """Observations of the game with `SCHEMA`."""
    has_actors = draw(st.booleans())
    groups = [draw(_groups(has_actors)) for _ in range(draw(st.integers(0, 4)))]
    acts = any(group.actions is not None for group in groups)
    scene = Scene(groups, [], draw(instances(World)), {}, {}, {})
    foods = len(scene.entities_of(Food))
    candidates = [a for a in ACTIONS if a is CALL or (acts and (a is not EAT or foods))]
    if candidates:
        scene.asked = draw(st.lists(st.sampled_from(candidates), unique=True, max_size=4))
    widths = {MOVE: len(Move), CALL: len(Move), EAT: foods}
    for action in scene.asked:
        if action in widths and draw(st.booleans()):
            num_actors = 1 if action is CALL else len(scene.actors_of(action))
            scene.masks[action] = draw(bool_rows(num_actors, widths[action]))
    for cls in (Snake, Food, Rock):
        count = len(scene.entities_of(cls))
        if draw(st.booleans()):
            scene.visible[cls] = draw(st.lists(st.booleans(), min_size=count, max_size=count))
    scene.metrics = draw(st.dictionaries(st.sampled_from(["won", "steps"]), FLOATS))
    return scene


@st.composite
def _groups(draw: st.DrawFn, has_actors: bool) -> Group:
    cls = draw(st.sampled_from([Snake, Food, Rock]))
    entities = draw(st.lists(instances(cls), max_size=4))
    actions: tuple[ActionType[Any], ...] | None = None
    if has_actors and draw(st.booleans()):
        actor_actions: list[ActionType[Any]] = [MOVE, EAT, STEER]
        actions = tuple(draw(st.lists(st.sampled_from(actor_actions), unique=True)))
    forms = ["list", "tuple", "keys", *(["array"] if entities and cls is not Rock else [])]
    return Group(cls, entities, actions, draw(st.sampled_from(forms)))
