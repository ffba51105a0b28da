"""TimeLimited: episodes are truncated after a number of steps, and nothing else changes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import (
    Environment,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    UsageError,
)
from entity_env.core.observation import Action, GlobalCategoricalAction
from entity_env.core.spaces import ActionName, ActionSpace
from entity_env.interop.gymnasium.env import TimeLimited

GO = {"go": GlobalCategoricalAction(0, "on")}


class Unseeded(Environment):
    """Counts steps and terminates after some; returns one observation object repeatedly."""

    def __init__(self, last: int = 5) -> None:
        self.last = last
        self.num_closed = 0
        self.shown = Observation(reward=0.0, terminated=False)

    def obs_space(self) -> ObsSpace:
        return ObsSpace(["step"])

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"go": GlobalCategoricalActionSpace(["on"])}

    def reset(self) -> Observation:  # type: ignore[override]  # takes no seed, like old environments
        return self._show(0)

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        assert actions is GO
        return self._show(int(self.shown.global_features[0]) + 1)

    def _show(self, step: int) -> Observation:
        self.shown = Observation(
            reward=float(step > 0),
            terminated=step == self.last,
            global_features=[float(step)],
            actions={} if step == self.last else {"go": GlobalCategoricalActionMask()},
        )
        return self.shown

    def render(self) -> NDArray[np.uint8]:
        return np.full((1, 2, 3), self.last, np.uint8)

    def close(self) -> None:
        self.num_closed += 1


class Seeded(Unseeded):
    """Takes a seed."""

    def __init__(self) -> None:
        super().__init__()
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None) -> Observation:
        self.seeds.append(seed)
        return super().reset()


@given(st.integers(1, 6), st.integers(1, 6))
def test_an_episode_is_cut_at_the_limit_and_ends_by_its_rules_before(limit: int, last: int) -> None:
    env = TimeLimited(lambda: Unseeded(last), limit)
    for _ in range(2):  # steps of the first episode do not count in the second
        assert not env.reset().done
        for step in range(1, min(limit, last) + 1):
            observation = env.act(GO)
            assert observation.reward == 1.0
            assert list(observation.global_features) == [step]
            assert observation.terminated == (step == last)
            assert observation.truncated == (step == limit)


def test_an_episode_that_the_caller_breaks_off_counts_from_the_start() -> None:
    env = TimeLimited(Unseeded, 2)
    env.reset()
    env.act(GO)
    env.reset()
    assert not env.act(GO).truncated
    assert env.act(GO).truncated


def test_the_other_s_observation_stays_as_it_was() -> None:
    inner = Unseeded()
    env = TimeLimited(lambda: inner, 1)
    env.reset()
    last = env.act(GO)
    assert last.truncated
    assert not inner.shown.truncated
    assert last.global_features is inner.shown.global_features


def test_a_seed_goes_to_whoever_takes_one() -> None:
    inner = Seeded()
    env = TimeLimited(lambda: inner, 3)
    env.reset(seed=7)
    env.reset()
    assert inner.seeds == [7, None]
    assert list(TimeLimited(Unseeded, 3).reset(seed=7).global_features) == [0.0]


def test_all_else_is_the_other_s() -> None:
    inner = Unseeded(4)
    env = TimeLimited(lambda: inner, 3)
    assert env.obs_space() == inner.obs_space()
    assert env.action_space() == inner.action_space()
    assert env.render().tolist() == [[[4] * 3] * 2]
    env.close()
    assert inner.num_closed == 1


@pytest.mark.parametrize("limit", [0, -1])
def test_a_limit_below_one_is_refused_before_anything_is_made(limit: int) -> None:
    made: list[Unseeded] = []

    def make() -> Environment:
        made.append(Unseeded())
        return made[-1]

    with pytest.raises(UsageError, match=f"max_episode_steps.*{limit}"):
        TimeLimited(make, limit)
    assert not made
