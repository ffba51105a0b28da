"""Many entity-gym environments at once equal the same environments stepped one by one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import entity_gym.env as theirs
import numpy as np
import pytest
from hypothesis import Phase, given, settings, strategies as st

from entity_env import Action, ActionSpace, EntityEnvError, Environment, Observation, ObsSpace
from entity_env.interop.entity_gym import from_entity_gym
from entity_env.interop.entity_gym.from_entity_gym import _type_named
from entity_env.vec import Autoreset, VecEnv
from entity_env.vec.options import OnError
from tests.helpers.executors import Batch, Spaces, choose, plain_batch

FEW = settings(max_examples=80, deadline=None, phases=set(Phase) - {Phase.explain})
TYPES = ("A", "B", "C")
LABELS = ["up", "down", "left"]


@dataclass
class Script:
    """Observations of an environment: episodes, each ending with a done observation."""

    obs_space: Any
    action_space: Mapping[str, Any]
    episodes: list[list[dict[str, Any] | Exception]]


class Tape(theirs.Environment):  # type: ignore[misc]  # entity-gym ships no types
    """Repeats its script forever, and records its actions."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._number = -1
        self._step = 0
        self.told: list[Mapping[str, Any]] = []

    def obs_space(self) -> Any:  # noqa: ANN401
        return self._script.obs_space

    def action_space(self) -> Any:  # noqa: ANN401
        return self._script.action_space

    def reset(self) -> Any:  # noqa: ANN401
        self._number = (self._number + 1) % len(self._script.episodes)
        self._step = -1
        return self._next()

    def act(self, actions: Mapping[str, Any]) -> Any:  # noqa: ANN401
        self.told.append(actions)
        return self._next()

    def _next(self) -> Any:  # noqa: ANN401
        self._step += 1
        shown = self._script.episodes[self._number][self._step]
        if isinstance(shown, Exception):
            raise shown
        observation = theirs.Observation(**{name: x for name, x in shown.items() if name != "odd"})
        for name, value in shown.get("odd", {}).items():
            setattr(observation, name, value)
        return observation


class Behind(Environment):
    """Hides that an environment is from entity-gym, so each observation is converted."""

    def __init__(self, env: Environment) -> None:
        self._env = env

    def obs_space(self) -> ObsSpace:
        return self._env.obs_space()

    def action_space(self) -> Mapping[str, ActionSpace]:
        return self._env.action_space()

    def reset(self) -> Observation:  # type: ignore[override]  # without a seed, as in entity-gym
        return self._env.reset()

    def act(self, actions: Mapping[str, Action]) -> Observation:
        return self._env.act(actions)


# ---------------------------------------------------------------------------- observations


@dataclass
class Manner:
    """The form of a game's observations, which rarely changes between steps.

    Args:
        widths: number of features of each type; -1 for an absent type.
        form: of the features.
        ids: of each type: "none", "own", or "common", shared with other types.
        actors, actees: per action: a type of which all ids are given, types, or None.
    """

    widths: dict[str, int]
    num_globals: int
    form: str
    ids: dict[str, str]
    kinds: dict[str, str]
    actors: dict[str, tuple[str, Any]] = field(default_factory=dict)
    actees: dict[str, tuple[str, Any]] = field(default_factory=dict)
    is_odd: bool = False


@st.composite
def manners(draw: st.DrawFn) -> Manner:
    names = draw(st.lists(st.sampled_from(TYPES), unique=True, min_size=1))
    who = st.one_of(
        st.sampled_from(names).map(lambda name: ("ids", name)),
        st.lists(st.sampled_from(names), unique=True).map(lambda types: ("types", types)),
        st.just(("all", None)),
    )
    kinds = draw(
        st.dictionaries(
            st.sampled_from(["move", "pick", "call", "turn"]),
            st.sampled_from(["categorical", "select", "global"]),
            min_size=1,
            max_size=2,
        )
    )
    return Manner(
        widths={name: draw(st.integers(0, 2)) for name in names},
        num_globals=draw(st.integers(0, 2)),
        form=draw(st.sampled_from(["list", "tuple", "float32", "float64", "int64"])),
        ids={name: draw(st.sampled_from(["none", "own", "own", "common"])) for name in names},
        kinds=kinds,
        actors={name: draw(who) for name in kinds},
        actees={name: draw(who) for name in kinds},
        is_odd=draw(st.booleans()),
    )


def in_form(rows: list[list[int]], width: int, form: str) -> Any:  # noqa: ANN401
    if form == "list":
        return rows
    if form == "tuple":
        return [tuple(row) for row in rows]
    return np.array(rows, dtype=form).reshape(len(rows), width)


@st.composite
def shown(draw: st.DrawFn, manner: Manner) -> dict[str, Any]:
    """One observation, as keywords."""
    number = st.integers(-3, 3)
    features, ids = {}, {}
    for name, width in manner.widths.items():
        fewest = draw(st.sampled_from([0, 1, 1, 1]))  # empty ids do not determine a type
        row = st.lists(number, min_size=width, max_size=width)
        rows = draw(st.lists(row, min_size=fewest, max_size=3))
        features[name] = in_form(rows, width, manner.form)
        if manner.ids[name] != "none":
            common = manner.ids[name] == "common"
            ids[name] = [i if common else (name, i) for i in range(len(rows))]
    given = {
        "features": features,
        "ids": ids,
        "global_features": draw(
            st.lists(number, min_size=manner.num_globals, max_size=manner.num_globals)
        ),
        "actions": {name: draw(masks(manner, name, ids)) for name in manner.kinds},
        "reward": draw(st.floats(-2, 2, width=32)),
        "done": False,
        "metrics": draw(st.sampled_from([{}, {}, {"points": 1.0}])),
    }
    if manner.is_odd and draw(st.integers(0, 5)) == 0:
        oddity = draw(st.sampled_from(ODDITIES))
        oddity(given, next(iter(manner.kinds)), next(iter(manner.widths)))
    return given


@st.composite
def masks(draw: st.DrawFn, manner: Manner, name: str, ids: Mapping[str, list[Any]]) -> Any:  # noqa: ANN401
    kind = manner.kinds[name]
    if kind == "global":
        return theirs.GlobalCategoricalActionMask()
    copies = draw(st.booleans())
    who = _who("actor", manner.actors[name], ids, copies=copies)
    if kind == "categorical":
        return theirs.CategoricalActionMask(**who)
    whom = _who("actee", manner.actees[name], ids, copies=copies)
    return theirs.SelectEntityActionMask(**who, **whom)


def _who(
    role: str, wanted: tuple[str, Any], ids: Mapping[str, list[Any]], *, copies: bool
) -> dict[str, Any]:
    by, what = wanted
    if by == "types":
        return {f"{role}_types": list(what)}
    if by == "ids" and what in ids:
        return {f"{role}_ids": list(ids[what]) if copies else ids[what]}
    return {}


def _hide(given: dict[str, Any], action: str, name: str) -> None:
    given["visible"] = {name: [False] * len(given["features"][name])}


def _leave_out(given: dict[str, Any], action: str, name: str) -> None:
    del given["actions"][action]


def _drop(given: dict[str, Any], action: str, name: str) -> None:
    del given["features"][name]
    given["ids"].pop(name, None)


def _forbid(given: dict[str, Any], action: str, name: str) -> None:
    given["actions"][action].mask = np.array([[False, True, True]])


def _one_actor(given: dict[str, Any], action: str, name: str) -> None:
    if given["ids"].get(name) and hasattr(given["actions"][action], "actor_ids"):
        given["actions"][action].actor_types = None
        given["actions"][action].actor_ids = given["ids"][name][:1]


def _widen(given: dict[str, Any], action: str, name: str) -> None:
    given["features"][name] = [[1, 2, 3, 4]]


def _lose_id(given: dict[str, Any], action: str, name: str) -> None:
    given["ids"][name] = [*given["ids"].get(name, ()), "one too many"]


def _unknown_mask(given: dict[str, Any], action: str, name: str) -> None:
    given["odd"] = {"actions": {**given["actions"], action: theirs.Entity([])}}


def _unknown_type(given: dict[str, Any], action: str, name: str) -> None:
    given["features"]["Z"] = [[1]]


def _unknown_actor(given: dict[str, Any], action: str, name: str) -> None:
    given["odd"] = {"actions": {action: theirs.CategoricalActionMask(actor_types=["Z"])}}


def _text(given: dict[str, Any], action: str, name: str) -> None:
    given["global_features"] = ["one"] * len(given["global_features"])


def _no_features(given: dict[str, Any], action: str, name: str) -> None:
    given["odd"] = {"features": None}


ODDITIES: Sequence[Callable[[dict[str, Any], str, str], None]] = (
    *(_hide, _leave_out, _drop, _forbid, _one_actor, _widen, _lose_id),
    *(_unknown_mask, _unknown_type, _unknown_actor, _text, _no_features),
)


@st.composite
def scripts(draw: st.DrawFn) -> list[Script]:
    """One script per environment, all of the same game."""
    manner = draw(manners())
    spaces = {
        "categorical": theirs.CategoricalActionSpace(LABELS),
        "global": theirs.GlobalCategoricalActionSpace(LABELS),
        "select": theirs.SelectEntityActionSpace(),
    }
    obs_space = theirs.ObsSpace(
        [f"g{i}" for i in range(manner.num_globals)],
        {
            name: theirs.Entity([f"f{i}" for i in range(width)])
            for name, width in manner.widths.items()
        },
    )
    actions = {name: spaces[kind] for name, kind in manner.kinds.items()}
    made = []
    for _ in range(draw(st.integers(2, 4))):
        steps = st.lists(shown(manner), min_size=1, max_size=4)
        episodes: list[list[Any]] = draw(st.lists(steps, min_size=1, max_size=3))
        for episode in episodes:
            episode[-1]["done"] = True
            if manner.is_odd and len(episode) > 1 and draw(st.integers(0, 9)) == 0:
                episode[draw(st.integers(1, len(episode) - 1))] = RuntimeError("stumbled")
        if all(len(episode) == 1 for episode in episodes):  # endless empty episodes
            episodes.append([draw(shown(manner)), {**draw(shown(manner)), "done": True}])
        made.append(Script(obs_space, actions, episodes))
    return made


# ---------------------------------------------------------------------------- comparison


Outcome = tuple[Batch | None, tuple[Any, ...]]


def outcome(spaces: Spaces, call: Callable[[], Any]) -> Outcome:
    """A batch in plain lists, or a description of the error."""
    try:
        return plain_batch(call(), spaces), ()
    except EntityEnvError as error:
        message = str(error).split("\n")[0]
        notes = ", ".join(getattr(error, "__notes__", ()))
        if "no mask" in message:  # one by one, the step is not counted yet, and `Behind` is named
            only_here = r", step \d+|, at [^)]* in \w+"
            message, notes = (re.sub(only_here, "", text) for text in (message, notes))
        return None, (type(error), message, notes)


def plain_told(tapes: Sequence[Tape]) -> list[Any]:
    return [
        [
            {
                name: (type(action), {key: _plain(value) for key, value in vars(action).items()})
                for name, action in told.items()
            }
            for told in tape.told
        ]
        for tape in tapes
    ]


def _plain(value: Any) -> Any:  # noqa: ANN401
    return (value.dtype, value.tolist()) if isinstance(value, np.ndarray) else (type(value), value)


def make_vec(tapes: list[Tape], wrap: Callable[[Environment], Environment], **how: Any) -> VecEnv:  # noqa: ANN401
    left = list(tapes)
    make = from_entity_gym(lambda: left.pop(0))
    return VecEnv(lambda: wrap(make()), len(tapes), **how)


@pytest.mark.parametrize("on_error", ["raise", "restart"])
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@FEW
@given(scripts(), st.integers(0, 99))
def test_all_at_once_is_as_one_by_one(
    autoreset: Autoreset, on_error: OnError, written: list[Script], seed: int
) -> None:
    mine, others = [Tape(script) for script in written], [Tape(script) for script in written]
    rng = np.random.default_rng(seed)
    how = {"autoreset": autoreset, "on_error": on_error}
    with make_vec(mine, _same, **how) as vec, make_vec(others, Behind, **how) as slow:
        spaces = vec.obs_space(), vec.action_space()
        got, wanted = outcome(spaces, vec.reset), outcome(spaces, slow.reset)
        assert got == wanted
        for _ in range(6):
            if got[0] is None:
                break
            choices = choose(got[0], spaces, rng)
            got = outcome(spaces, partial(vec.act, choices))
            wanted = outcome(spaces, partial(slow.act, choices))
            assert got == wanted
        if got[0] is not None:
            assert plain_told(mine) == plain_told(others)
        elif on_error == "raise":
            again, _ = outcome(spaces, vec.reset)  # a fresh start, unless it is also odd
            assert again is None or len(again.rows) == len(mine)


def _same(env: Environment) -> Environment:
    return env


def test_ids_in_lists_that_name_one_type_are_looked_up_once() -> None:
    units, foes = ["u0", "u1"], ["f0"]
    ids = [{"Unit": units, "Foe": foes}, {"Unit": ["u0"], "Foe": foes}]
    assert _type_named([units, ["u0"]], ids) == "Unit"
    assert _type_named([units, foes], ids) is None
    assert _type_named([np.array(units), np.array(["u0"])], ids) is None
