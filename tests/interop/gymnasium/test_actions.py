"""Actions and masks of Gymnasium: masks that do not fit, bounds, constants and integers."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from entity_env import ContinuousActionSpace, SchemaError, UsageError
from entity_env.agents import RandomAgent, random_actions
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium
from entity_env.interop.gymnasium.actions import ActionConverter
from entity_env.interop.gymnasium.masks import MaskReader
from entity_env.interop.pettingzoo import from_pettingzoo
from tests.interop.odd_envs import Alone

DISCRETES = spaces.MultiDiscrete([3, 2])
BOTH = spaces.Dict({"go": spaces.Discrete(2), "turn": spaces.Box(-1, 1, (1,))})
PAIR = spaces.Tuple([spaces.Discrete(2), spaces.Discrete(3)])


def read(space: spaces.Space[Any], mask: object) -> list[int]:
    flags = MaskReader(ActionConverter(space, "Do")).read(mask, "mask")
    return list(map(int, flags))


@pytest.mark.parametrize(
    ("space", "mask", "flags"),
    [
        (spaces.Discrete(3), [True, False, True], [1, 0, 1]),
        (spaces.Discrete(3), np.array([0.0, 1.0, 1.0]), [0, 1, 1]),
        (DISCRETES, ([1, 0, 1], [0, 1]), [1, 0, 1, 0, 1]),
        (DISCRETES, ([1, 0, 1], None), [1, 0, 1, 1, 1]),
        (DISCRETES, [1, 0, 1, 0, 1], [1, 0, 1, 0, 1]),
        (spaces.MultiDiscrete([2, 2]), np.array([[1, 0], [0, 1]]), [1, 0, 0, 1]),
        (spaces.MultiDiscrete([2, 3, 1]), np.ones((3, 2), bool)[:0], None),
        (
            spaces.MultiDiscrete(np.array([[2, 1], [1, 3]])),
            (([1, 0], [1]), ([1], [0, 0, 1])),
            [1, 0, 1, 1, 0, 0, 1],
        ),
        (spaces.MultiBinary(3), np.array([0, 1, 2], np.int8), [1, 0, 0, 1, 1, 1]),
        (spaces.MultiBinary(2), [1, 0, 1, 1], [1, 0, 1, 1]),
        (BOTH, {"go": [0, 1], "turn": None}, [0, 1]),
        (BOTH, {"go": [0, 1]}, [0, 1]),
        (PAIR, (None, [0, 0, 1]), [1, 1, 0, 0, 1]),
        (PAIR, np.array([1, 0, 0, 0, 1]), [1, 0, 0, 0, 1]),
        (spaces.Box(0, 2, (2,), np.int8), ([1, 0, 0], [0, 0, 1]), [1, 0, 0, 0, 0, 1]),
    ],
)
def test_masks_have_the_forms_of_gymnasium(
    space: spaces.Space[Any], mask: object, flags: list[int] | None
) -> None:
    if flags is None:
        with pytest.raises(SchemaError, match="mask: a mask needs a tuple of 3 masks"):
            read(space, mask)
        return
    assert read(space, mask) == flags


@pytest.mark.parametrize(
    ("space", "mask", "words"),
    [
        (spaces.Discrete(3), [1, 1], r"action 'Do' needs the shape .*\(3,\): got \(2,\)"),
        (spaces.Discrete(3), [1, 2, 0], "action 'Do' must hold bools .*got 2 "),
        (spaces.Discrete(3), [1, np.nan, 0], "action 'Do' must hold bools .*got nan "),
        (spaces.Discrete(3), ["a", "b", "c"], "action 'Do' must hold bools"),
        (
            DISCRETES,
            ([1, 0], [0, 1]),
            r"a tuple of 2 masks, or 5 flags, .*: got the shape \(2, 2\)",
        ),
        (DISCRETES, ([1, 0, 1],), "a mask needs a tuple of 2 masks"),
        (DISCRETES, ([1, 0, 7], [0, 1]), "'Do.0' must hold bools"),
        (DISCRETES, 5, "a mask needs a tuple of 2 masks"),
        (spaces.MultiDiscrete([2, 3, 1]), np.ones((3, 2)), "a mask needs a tuple of 3 masks"),
        (spaces.MultiBinary(2), [3, 0], "must hold bools"),
        (BOTH, {"jump": [1, 1]}, r"the mask of a Dict needs the keys 'go', 'turn'.*\['jump'\]"),
        (BOTH, [1, 1], "the mask of a Dict needs the keys"),
        (BOTH, {"turn": [1]}, "a Box.* has no mask"),
        (PAIR, ([1, 1],), "the mask of a Tuple needs a tuple of 2 masks"),
        (spaces.Box(-1, 1, (2,)), [1, 1], "a Box.* has no mask"),
    ],
)
def test_other_masks_are_refused_by_name(
    space: spaces.Space[Any], mask: object, words: str
) -> None:
    with pytest.raises(SchemaError, match=f"mask: .*{words}"):
        read(space, mask)


class Masked(gymnasium.Env[Any, Any]):
    observation_space: spaces.Space[Any] = spaces.Box(-1, 1, (1,), np.float32)
    action_space: spaces.Space[Any] = spaces.Discrete(3)
    mask: Any = np.zeros(3, np.int8)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        return np.zeros(1, np.float32), {"action_mask": self.mask}

    def step(self, action: Any) -> Any:  # noqa: ANN401
        return *self.reset()[:1], 0.0, True, False, {}


@pytest.mark.parametrize("mode", AutoresetMode)
def test_a_mask_that_allows_nothing_is_an_error_of_every_importer(mode: AutoresetMode) -> None:
    words = r"info\['action_mask'\] allows nothing for action 'Action'"
    with pytest.raises(SchemaError, match=words):
        from_gymnasium(Masked).run(RandomAgent())
    with pytest.raises(SchemaError, match=words):
        from_pettingzoo(lambda: Alone(Masked)).run(RandomAgent())
    envs = SyncVectorEnv([Masked], autoreset_mode=mode)
    with GymnasiumVecEnv(envs) as vec, pytest.raises(SchemaError, match=words):
        vec.reset(seed=1)


def test_several_masks_all_hold() -> None:
    class Two(Masked):
        mask = np.array([1, 1, 0], np.int8)

        def action_masks(self) -> Any:  # noqa: ANN401
            return np.array([False, True, True])

        def step(self, action: Any) -> Any:  # noqa: ANN401
            assert action == 1
            return super().step(action)

    from_gymnasium(Two).run(RandomAgent(), episodes=10)

    class Contrary(Two):
        mask = np.array([1, 0, 0], np.int8)

    words = r"info\['action_mask'\] and action_masks\(\) allows nothing"
    with pytest.raises(SchemaError, match=words):
        from_gymnasium(Contrary).run(RandomAgent())


def test_a_part_that_does_not_fit_the_actions_is_refused() -> None:
    class Wrong(Masked):
        observation_space = spaces.Dict(
            {"observation": Masked.observation_space, "action_mask": spaces.MultiBinary(4)}
        )

    words = r"the part 'action_mask' of the observation is a MultiBinary\(4\).*another name in a"
    with pytest.raises(UsageError, match=words):
        from_gymnasium(Wrong)
    with pytest.raises(UsageError, match=words):
        from_pettingzoo(lambda: Alone(Wrong))
    with pytest.raises(UsageError, match=words):
        GymnasiumVecEnv(SyncVectorEnv([Wrong]))


def test_a_method_with_arguments_is_refused() -> None:
    class Asks(Masked):
        def action_masks(self, state: int) -> Any:  # noqa: ANN401
            return state

    with pytest.raises(UsageError, match=r"action_masks of .* must be a method without arguments"):
        from_gymnasium(Asks)
    with pytest.raises(UsageError, match=r"action_masks of .* must be a method without arguments"):
        GymnasiumVecEnv(SyncVectorEnv([Asks]))


# ------------------------------------------------------------------ bounds


class Asserts(gymnasium.Env[Any, Any]):
    """Accepts only actions in its space; keeps them."""

    observation_space = spaces.Box(-1, 1, (1,), np.float32)

    def __init__(self, space: spaces.Space[Any], given: list[Any] | None = None) -> None:
        self.action_space = space
        self.given = given if given is not None else []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:  # noqa: ANN401
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:  # noqa: ANN401
        assert self.action_space.contains(action), action
        self.given.append(action)
        return np.zeros(1, np.float32), 0.0, len(self.given) % 5 == 0, False, {}


@pytest.mark.parametrize("shape", [(1,), (), (2, 3)])
@pytest.mark.parametrize("low", [0, -np.inf])
def test_the_advice_for_actions_without_bounds_works(low: float, shape: tuple[int, ...]) -> None:
    free = spaces.Box(low, np.inf, shape)
    with pytest.raises(UsageError, match="which has no bounds") as caught:
        from_gymnasium(partial(Asserts, free))
    found = re.search(r"gymnasium\.wrappers\..*\)(?=; if)", str(caught.value))
    assert found is not None
    code = found[0]

    def make() -> Any:  # noqa: ANN401
        return eval(
            code, {"env": Asserts(spaces.Box(-np.inf, np.inf, shape)), "gymnasium": gymnasium}
        )

    game = from_gymnasium(make)
    [space] = game.action_space().values()
    assert isinstance(space, ContinuousActionSpace)
    assert (set(space.low), set(space.high), len(space)) == ({-1}, {1}, int(np.prod(shape)))
    assert game.run(RandomAgent())[0].length == 5


def test_numbers_with_equal_bounds_are_constant() -> None:
    space = spaces.Box(np.array([0, 2, -1], np.float32), np.array([1, 2, 1], np.float32))
    given: list[Any] = []
    game = from_gymnasium(partial(Asserts, space, given))
    [action] = game.action_space().values()
    assert isinstance(action, ContinuousActionSpace)
    assert list(action.labels) == ["0", "2"]
    game.run(RandomAgent(), episodes=2)
    assert {float(each[1]) for each in given} == {2.0}
    assert len({float(each[2]) for each in given}) == 10
    both = spaces.Dict({"go": spaces.Discrete(2), "still": spaces.Box(3, 3, (2,))})
    assert list(from_gymnasium(partial(Asserts, both)).action_space()) == ["Action.go"]
    with pytest.raises(UsageError, match="which leaves nothing to choose"):
        from_gymnasium(partial(Asserts, spaces.Box(3, 3, (2,))))


@pytest.mark.parametrize(
    ("space", "names"),
    [
        (spaces.Box(-2, 1, (2,), np.int64), {"Action.0": "-2 -1 0 1", "Action.1": "-2 -1 0 1"}),
        (spaces.Box(3, 5, (1, 1), np.uint8), {"Action.0": "3 4 5"}),
    ],
)
def test_integers_of_a_box_are_choices(space: spaces.Box, names: dict[str, str]) -> None:
    given: list[Any] = []
    with GymnasiumVecEnv(SyncVectorEnv([partial(Asserts, space, given)] * 3)) as vec:
        labels = {n: " ".join(s.index_to_label) for n, s in vec.action_space().items()}  # type: ignore[union-attr]
        assert labels == names
        obs, rng = vec.reset(seed=1), np.random.default_rng(1)
        for _ in range(20):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
    assert {int(number) for each in given for number in np.ravel(each)} == {
        int(label) for label in names[next(iter(names))].split()
    }
    from_gymnasium(partial(Asserts, space)).run(RandomAgent(), episodes=3)
    from_gymnasium(partial(Asserts, spaces.Box(3, 5, (), np.uint8))).run(RandomAgent())
