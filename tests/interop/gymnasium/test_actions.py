"""Action spaces of Gymnasium as actions: bounds, constants and integers."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from entity_env import ContinuousActionSpace, UsageError
from entity_env.agents import RandomAgent, random_actions
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium


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
