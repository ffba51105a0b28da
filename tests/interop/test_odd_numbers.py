"""Numbers outside of a dtype, and forms of masks: every importer accepts and refuses the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from pettingzoo.utils.conversions import parallel_to_aec

from entity_env import Game, Obs, SchemaError, VecObs
from entity_env.authoring.agent import Agent
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium
from entity_env.interop.pettingzoo import from_pettingzoo
from entity_env.vec import VecEnv
from tests.interop.odd_results import ZEROS, AloneReturns, Returns

Copies = Callable[[Callable[[], Any]], VecEnv]


def _alone(make: Callable[[], Any]) -> AloneReturns:
    env = AloneReturns()
    env.env = make()
    return env


def _copies(mode: AutoresetMode, make: Callable[[], Any]) -> VecEnv:
    return GymnasiumVecEnv(SyncVectorEnv([make, make], autoreset_mode=mode))


COPIES: Final[Mapping[str, Copies]] = {
    "game": lambda make: VecEnv(from_gymnasium(make), 2),
    "parallel": lambda make: VecEnv(from_pettingzoo(partial(_alone, make)), 2),
    "in turn": lambda make: VecEnv(from_pettingzoo(lambda: parallel_to_aec(_alone(make))), 2),
    **{mode.value: partial(_copies, mode) for mode in AutoresetMode},
}
each_importer = pytest.mark.parametrize("copies", COPIES.values(), ids=COPIES)
DTYPES: Final = [np.int8, np.uint8, np.int16, np.uint32, np.int64, np.uint64]


def first_and_last(copies: Copies, space: spaces.Space[Any], first: object, last: object) -> VecObs:
    """The observations of a reset, and in `final` those of a step that ends the episode."""

    class Shows(Returns):
        observation_space = space

    with copies(partial(Shows, reset=(first, {}), step=(last, 0.0, False, True, {}))) as vec:
        shown = vec.reset(seed=1)
        vec.act({"Action": np.zeros(2, np.int64)})
        return shown


def require_refused(
    copies: Copies, space: spaces.Space[Any], good: object, bad: object, words: str
) -> None:
    for first, last in ((bad, good), (good, bad)):
        with pytest.raises(SchemaError, match=words):
            first_and_last(copies, space, first, last)


@each_importer
@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_that_a_dtype_cannot_hold_are_refused(copies: Copies, dtype: Any) -> None:  # noqa: ANN401
    low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    space = spaces.Box(low, high, (2,), dtype)
    for number in (low, high, min(high, 2**53 + 1)):
        values = np.array([number, 0], dtype)
        shown = first_and_last(copies, space, values, values[::-1])
        assert shown.features["Env"].values[0].tolist() == [float(np.float32(number)), 0]
    beyond: list[object] = [low - 1, high + 1, 0.5, float(high) + 1, -1e30, np.inf, np.nan]
    for each in beyond:
        words = "must hold numbers" if type(each) is int and abs(each) > 2**63 else "holds .*"
        require_refused(copies, space, [1, 1], [1, each], f"the observation {words}")


@each_importer
def test_numbers_beyond_a_narrow_float_are_refused_not_infinite(copies: Copies) -> None:
    space = spaces.Box(-65504, 65504, (2,), np.float16)
    shown = first_and_last(copies, space, [2049.0, 1e-9], np.array([65504, -65504]))
    assert shown.features["Env"].values[0].tolist() == [2048, 0]
    for number in (1e5, -65520, 10**9):
        require_refused(copies, space, [1, 1], [0, number], "holds .*: float16 cannot hold it")
    types: list[Any] = [np.float32, np.float64]
    for dtype in types:
        free = spaces.Box(-np.inf, np.inf, (2,), dtype)
        require_refused(copies, free, [1, 1], [0, 1e39], "float32 cannot hold it|finite, got inf")


@each_importer
def test_flags_are_zero_or_one(copies: Copies) -> None:
    kind: Any = np.bool_
    space = spaces.Box(0, 1, (2,), kind)
    for value in (np.array([True, False]), [1, 0], np.array([1.0, 0.0])):
        shown = first_and_last(copies, space, value, value)
        assert shown.features["Env"].values[0].tolist() == [1, 0]
    for number in (2, -1, 0.5, np.nan, 256):
        require_refused(copies, space, [1, 1], [0, number], "holds .*: bool cannot hold it")
    both = spaces.MultiBinary(2)
    require_refused(copies, both, [1, 1], [0, 256], "holds 256.*: int8 cannot hold it")


@each_importer
@pytest.mark.parametrize(
    ("space", "bad", "words"),
    [
        (spaces.Discrete(4, dtype=np.int8), 256, "'part' holds 256.*: int8 cannot hold it"),
        (spaces.Discrete(4), 1.5, "'part' holds 1.5.*: int64 cannot hold it"),
        (spaces.MultiDiscrete([3, 3], dtype=np.uint8), [0, 257], "'part' holds 257.*: uint8"),
        (spaces.Tuple([spaces.Box(0, 255, (1,), np.uint8)]), ([300],), "'part.0' holds 300"),
    ],
)
def test_parts_with_numbers_outside_of_their_dtype_are_named(
    copies: Copies, space: spaces.Space[Any], bad: object, words: str
) -> None:
    whole = spaces.Dict({"part": space, "other": spaces.Box(-1, 1, (1,))})
    good = {"part": space.sample(), "other": [0.5]}
    first_and_last(copies, whole, good, good)
    require_refused(copies, whole, good, good | {"part": bad}, words)


@pytest.mark.parametrize("entity", ["rows", "elements", "stacked"])
def test_entities_with_numbers_outside_of_their_dtype_are_named(entity: str) -> None:
    row = spaces.Box(0, 255, (2,), np.uint8)
    flags = spaces.MultiBinary(2)
    part, good, bad, mask = {
        "rows": (spaces.Box(0, 255, (2, 2), np.uint8), [[1, 1]] * 2, [[1, 1], [-1, 1]], [1, 1]),
        "elements": (spaces.Sequence(row), ([1, 1],), ([1, 1], [-1, 1]), None),
        "stacked": (spaces.Sequence(row, stack=True), np.ones((1, 2)), [[1, 1], [-1, 1]], None),
    }[entity]

    class Shows(Returns):
        observation_space = spaces.Dict({"units": part, "flags": flags})

    pair = {"Unit": ("units", "flags") if mask else "units"}
    importers: list[Copies] = [
        lambda env: VecEnv(from_gymnasium(env, entities=pair), 1),
        lambda env: GymnasiumVecEnv(SyncVectorEnv([env]), entities=pair),
    ]
    for values, words in (
        ({"units": good, "flags": [1, 0]}, None),
        ({"units": bad, "flags": [1, 0]}, "'units' holds -1"),
        ({"units": good, "flags": [1, 257]}, "'flags' holds 257"),
    ):
        for make in importers:
            with make(partial(Shows, reset=(values, {}))) as vec:
                if words is None:
                    assert vec.reset(seed=1).features["Unit"].values.tolist() == [[1, 1]]
                    continue
                with pytest.raises(SchemaError, match=words):
                    vec.reset(seed=1)


# ------------------------------------------------------------------ forms of masks


FLAGS: Final = np.array([0, 1, 1], np.int8)
WRONG_MASKS: Final[list[Any]] = [
    FLAGS[:2],
    FLAGS[[0, 1, 2, 2]],
    1,
    FLAGS * 2,
    FLAGS - 1,
    FLAGS * 256.0,
    "abc",
]
OTHER_SHAPES: Final[list[Any]] = [FLAGS[:, None], FLAGS[None, None]]
"""Forms that an observation, but not a mask, may have."""


class Masked(Returns):
    """Gives the mask of the test in a place of the test."""

    where: ClassVar[str]
    mask: ClassVar[object]

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        info = {"action_mask": self.mask} if self.where == "info" else {}
        if self.where == "observation":
            return {"observation": ZEROS, "action_mask": self.mask}, info
        return ZEROS, info


def masked(where: str, mask: object, space: spaces.Space[Any], part: Any) -> type[Masked]:  # noqa: ANN401
    both = {"observation": Returns.observation_space, "action_mask": part}
    own = spaces.Dict(both) if where == "observation" else Returns.observation_space
    given = {"where": where, "mask": mask, "observation_space": own, "action_space": space}
    if where == "method":
        given["action_masks"] = lambda self: self.mask
    return type("Masked", (Masked,), given)


@each_importer
@pytest.mark.parametrize("where", ["info", "observation", "method"])
@pytest.mark.parametrize("space", [spaces.Discrete(3), spaces.MultiDiscrete([2, 1])])
def test_a_mask_may_be_a_single_row_and_has_no_other_shape(
    copies: Copies, where: str, space: spaces.Space[Any]
) -> None:
    if where == "method" and copies in (COPIES["parallel"], COPIES["in turn"]):
        pytest.skip("PettingZoo knows no method for masks")
    forms: list[Any] = [FLAGS, FLAGS[None], FLAGS.astype(np.float64), FLAGS.astype(np.bool_)]
    for mask in forms:
        with copies(masked(where, mask, space, spaces.MultiBinary(3))) as vec:
            masks = vec.reset(seed=1).action_masks
            first = masks["Action" if isinstance(space, spaces.Discrete) else "Action.0"]
            assert first.mask is not None  # type: ignore[union-attr]  # of choices
            assert first.mask.values[0].tolist()[:2] == [False, True]  # type: ignore[union-attr]
    for mask in [*WRONG_MASKS, *(OTHER_SHAPES if where != "observation" else ())]:
        vec = copies(masked(where, mask, space, spaces.MultiBinary(3)))
        with vec, pytest.raises(SchemaError, match="action_mask"):
            vec.reset(seed=1)


class Turn(Enum):
    LEFT = 0
    AHEAD = 1
    RIGHT = 2


@pytest.mark.parametrize("make", [np.array, lambda mask: np.array(mask).tolist()])
def test_masks_in_games_have_the_same_forms(make: Callable[[object], Any]) -> None:
    given: list[Any] = [FLAGS]

    def turns(agent: Agent, *, seed: int) -> None:
        while agent.act(Obs().mask(Turn, make(given[0])), Turn):
            agent.game_over()

    for given[0] in (FLAGS, FLAGS[None]):
        with VecEnv(Game(turns, entities=[], actions=[Turn]), 1) as vec:
            mask = vec.reset(seed=1).action_masks["Turn"].mask  # type: ignore[union-attr]  # of choices
            assert mask is not None
            assert mask.values.tolist() == [[False, True, True]]
    for given[0] in (*WRONG_MASKS, *OTHER_SHAPES):
        with (
            VecEnv(Game(turns, entities=[], actions=[Turn]), 1) as vec,
            pytest.raises(SchemaError, match="mask of action 'Turn'"),
        ):
            vec.reset(seed=1)
