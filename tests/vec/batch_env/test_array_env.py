"""ArrayEnv: seeds, ends and validation of rules written in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import (
    ActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    ProtocolError,
    SchemaError,
    SelectEntityActionSpace,
    UsageError,
)
from entity_env.core.seeding import SplitMix64
from entity_env.vec import ArrayEnv, ResetMask


class Walk(ArrayEnv):
    """Walks from a position below 5 until it is beyond 9; `space` defines the steps."""

    space: ActionSpace = GlobalCategoricalActionSpace(("STAY", "ON", "RUN"))

    def __init__(self, num_envs: int, max_episode_steps: int | None = 6) -> None:
        super().__init__(num_envs, max_episode_steps)
        self.place = np.zeros(num_envs)

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Walker": Entity(("x",))})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"Step": self.space}

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        self.place[env_ids] = self.draw(env_ids, 5)

    def advance(self, actions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
        self.place += actions
        return self.place, self.place > 9

    def observe(self, env_ids: NDArray[np.int64] | slice) -> NDArray[np.float64]:
        return self.place[env_ids, np.newaxis]


class Driven(Walk):
    space = ContinuousActionSpace((-1.0,), (1.0,))


class Walled(Walk):
    @property
    def legal_masks(self) -> NDArray[np.bool_]:
        return np.tile([True, True, False], (self.num_envs, 1))


@given(st.integers(0, 2**64 - 1), st.lists(st.integers(0, 3), max_size=12), st.integers(1, 2**32))
def test_every_environment_draws_from_its_own_sequence(
    seed: int, env_ids: list[int], below: int
) -> None:
    env = Walk(4)
    env.reset(seed)
    plain = [SplitMix64(int(each)) for each in env.env_seeds(seed)]
    starts = [draws.randrange(5) for draws in plain]
    assert env.view().observations[:, 0].tolist() == starts
    for ids in (sorted(env_ids), sorted(env_ids)):
        drawn = env.draw(np.array(ids, np.int64), below)
        assert drawn.tolist() == [plain[i].randrange(below) for i in ids]


def test_draws_may_have_limits_of_their_own() -> None:
    env = Walk(2)
    env.reset(1)
    drawn = env.draw(np.array([0, 0, 1]), [1, 10**9, 2])
    assert drawn[0] == 0 < drawn[1] < 10**9
    assert drawn[2] in (0, 1)


def test_ends_by_its_rules_and_is_cut_after_its_steps() -> None:
    env = Walk(3, max_episode_steps=6)
    env.reset(3)
    env.place[:] = 0, 4, 0
    for i in range(6):
        result = env.step_no_reset_with_result(np.array([0, 1, 1]))
        assert result.truncations.tolist() == [i == 5] * 3
    assert result.terminals.tolist() == [0, 1, 0]
    assert result.rewards.tolist() == [0, 10, 6]
    with pytest.raises(ProtocolError, match="environments 0, 1, 2 have ended: reset them first"):
        env.step(np.zeros(3, np.int64))
    env.reset_envs(ResetMask.from_bool(np.array([True, False, True])))
    assert env.view().observations[1, 0] == 10  # unchanged, with its flags and rewards
    assert env.num_steps.tolist() == [0, 6, 0]
    assert env.view().to_reset_mask().indices().tolist() == [1]
    assert env.view().rewards.tolist() == [0, 10, 6]


def test_never_cut_without_a_number_of_steps() -> None:
    env = Walk(1, max_episode_steps=None)
    env.reset(1)
    for _ in range(1000):
        env.step(np.array([0]))
    assert not env.view().is_done(0)


def test_real_numbers_are_actions_too() -> None:
    env = Driven(2)
    env.reset(1)
    before = env.place.copy()
    env.step(np.array([0.5, -1.0]))
    assert (env.place - before).tolist() == [0.5, -1.0]
    with pytest.raises(SchemaError, match=r"from -1 to 1: got nan for environment 1"):
        env.step(np.array([0.5, np.nan]))


@pytest.mark.parametrize(
    ("actions", "message"),
    [
        ([0], r"must be \(2,\) integers, one per environment: got \(1,\) int64"),
        ([0.0, 1.0], "got .2,. float64"),
        ([[0], [1, 2]], "must be"),
        ([1, 3], "one of 0 = STAY, 1 = ON, 2 = RUN: got 3 for environment 1"),
        ([-1, 0], "got -1 for environment 0"),
        ([1, 2], "got 2 for environment 1"),
    ],
)
def test_actions_that_do_not_fit_change_nothing(actions: list[object], message: str) -> None:
    env = Walled(2)
    env.reset(1)
    before = env.place.copy()
    with pytest.raises(SchemaError, match=message):
        env.step(actions if message == "must be" else np.array(actions))  # type: ignore[arg-type]
    assert (env.place == before).all()
    assert env.num_steps.tolist() == [0, 0]


def test_arguments_and_spaces_that_it_cannot_have() -> None:
    with pytest.raises(UsageError, match="max_episode_steps"):
        Walk(1, max_episode_steps=0)
    with pytest.raises(SchemaError, match="no select action"):
        type("Select", (Walk,), {"space": SelectEntityActionSpace()})(1)
    two = ObsSpace(entities={"A": Entity(("x",)), "B": Entity(("x",))})
    with pytest.raises(SchemaError, match="Two: an ArrayEnv has one entity type"):
        type("Two", (Walk,), {"obs_space": lambda _: two})(1)
