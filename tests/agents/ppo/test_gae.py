"""Advantages equal a plain definition, decision by decision."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.agents.ppo.ppo import compute_advantages
from entity_env.agents.training.rollout_buffer import Trajectories

GAMMA, LAMBDA = 0.9, 0.8


def plain_advantages(
    what: Trajectories, row: int, gamma: float, gae_lambda: float
) -> dict[int, float]:
    """For one row, the advantage of every decision with a known outcome."""
    num_steps = len(what.rewards)
    deltas: dict[int, float] = {}
    follower: dict[int, int | None] = {}
    for t in range(num_steps):
        if not what.is_ready[t, row]:
            continue
        earned = 0.0
        for later in range(t, num_steps):
            earned += float(what.rewards[later, row])
            if what.terminated[later, row]:
                worth, follower[t] = 0.0, None
            elif what.truncated[later, row]:
                worth, follower[t] = float(what.final_values[later, row]), None
            elif what.is_ready[later + 1, row]:
                worth, follower[t] = float(what.values[later + 1, row]), later + 1
            else:
                continue
            deltas[t] = earned + gamma * worth - float(what.values[t, row])
            break

    def advantage(t: int | None) -> float:
        if t is None or t not in deltas:
            return 0.0
        return deltas[t] + gamma * gae_lambda * advantage(follower[t])

    return {t: advantage(t) for t in deltas}


@st.composite
def trajectories(draw: st.DrawFn) -> Trajectories:
    """Rollouts with pauses, terminations and truncations anywhere."""
    num_steps, num_rows = draw(st.integers(1, 8)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pause, end = draw(st.sampled_from([0.0, 0.3, 0.9])), draw(st.sampled_from([0.0, 0.2, 0.6]))
    shape, longer = (num_steps, num_rows), (num_steps + 1, num_rows)
    return Trajectories(
        is_ready=rng.random(longer) >= pause,
        values=rng.normal(size=longer).astype(np.float32),
        rewards=rng.normal(size=shape).astype(np.float32),
        terminated=rng.random(shape) < end,
        truncated=rng.random(shape) < end,
        final_values=rng.normal(size=shape).astype(np.float32),
    )


@given(trajectories(), st.sampled_from([0.0, 0.9, 1.0]), st.sampled_from([0.0, 0.8, 1.0]))
def test_equal_to_the_plain_definition(what: Trajectories, gamma: float, gae_lambda: float) -> None:
    advantages, is_known = compute_advantages(what, gamma, gae_lambda)
    assert advantages.dtype == np.float32
    for row in range(what.rewards.shape[1]):
        expected = plain_advantages(what, row, gamma, gae_lambda)
        assert list(np.flatnonzero(is_known[:, row])) == list(expected)
        for t in range(len(what.rewards)):
            assert advantages[t, row] == pytest.approx(expected.get(t, 0.0), abs=1e-4)


def _one_row(num_steps: int) -> Trajectories:
    what = Trajectories.empty(num_steps, 1)
    what.is_ready[:] = True
    what.values[:, 0] = np.arange(1, num_steps + 2)
    what.final_values[:] = 10
    return what


def test_an_end_by_the_rules_is_worth_nothing_more() -> None:
    what = _one_row(1)
    what.rewards[0] = 3
    what.terminated[0] = True
    assert compute_advantages(what, GAMMA, LAMBDA)[0][0, 0] == pytest.approx(3 - 1)
    what.truncated[0] = True  # both flags: termination takes precedence
    assert compute_advantages(what, GAMMA, LAMBDA)[0][0, 0] == pytest.approx(3 - 1)


def test_a_cut_is_worth_its_last_observation() -> None:
    what = _one_row(1)
    what.rewards[0] = 3
    what.truncated[0] = True
    assert compute_advantages(what, GAMMA, LAMBDA)[0][0, 0] == pytest.approx(3 + GAMMA * 10 - 1)


def test_rewards_while_waiting_belong_to_the_last_decision() -> None:
    what = _one_row(3)
    what.is_ready[:, 0] = [True, False, False, True]
    what.rewards[:, 0] = [1, 2, 4]
    advantages, is_known = compute_advantages(what, GAMMA, LAMBDA)
    assert is_known[:, 0].tolist() == [True, False, False]
    assert advantages[0, 0] == pytest.approx(1 + 2 + 4 + GAMMA * 4 - 1)


def test_what_is_unfinished_is_left_out() -> None:
    what = _one_row(3)
    what.is_ready[:, 0] = [True, True, False, False]
    advantages, is_known = compute_advantages(what, GAMMA, LAMBDA)
    assert is_known[:, 0].tolist() == [True, False, False]
    assert advantages[0, 0] == pytest.approx(GAMMA * 2 - 1)
