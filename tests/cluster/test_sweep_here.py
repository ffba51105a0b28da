"""Early stopping of runs in a sweep on this machine."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.cluster.search_range import SearchRange
from entity_env.cluster.sweep import STATE_FILE, run_sweep
from entity_env.cluster.sweep_here import _Halving
from entity_env.cluster.sweep_plan import Sweep
from entity_env.games import snake
from entity_env.vec import VecEnv

TOTAL = 1_000
FIRST, SECOND = 200, 600


def is_behind(halving: _Halving, number: int, step: int, reward: float) -> bool:
    return halving.reach(f"trial-{number:03}", step, reward)


def test_a_run_goes_on_if_it_is_among_the_best_third_at_a_rung() -> None:
    halving = _Halving(TOTAL)
    assert not any(is_behind(halving, i, FIRST, i) for i in range(4))  # each is the best so far
    assert is_behind(halving, 4, FIRST, 1.9)
    assert not is_behind(halving, 5, FIRST, 2.5)
    assert not is_behind(halving, 3, SECOND, 0.0)  # the first to get there
    assert is_behind(halving, 2, SECOND + 50, -1.0)


def test_a_run_is_judged_once_at_each_rung_and_only_when_it_has_a_reward() -> None:
    halving = _Halving(TOTAL)
    assert not is_behind(halving, 0, FIRST - 1, -5.0)
    assert not is_behind(halving, 0, FIRST, math.nan)
    assert not is_behind(halving, 0, FIRST + 1, 2.0)
    assert not is_behind(halving, 0, FIRST + 2, -9.0)
    assert is_behind(halving, 1, FIRST + 1, 1.0)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30))
def test_the_best_run_is_never_stopped(rewards: list[float]) -> None:
    halving = _Halving(TOTAL)
    best = max(rewards)
    for number, reward in enumerate(rewards):
        assert not (is_behind(halving, number, FIRST, reward) and reward == best)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_bad_run_is_stopped_early_and_not_run_again(tmp_path: Path) -> None:
    """Varies the discount: with gamma 0, snake learns nothing."""
    config = PPOConfig(total_steps=20_000, net=RogueNetConfig(d_model=16, n_layer=1))
    ranges = [SearchRange.parse("gamma=0.0,0.95", config)]
    sweep = Sweep(lambda: VecEnv(snake, 16), config, ranges, 6, tmp_path / "out", seed=3)
    trials = run_sweep(sweep, num_jobs=1, stop_early=True)
    stopped = [each for each in trials if each.state == "stopped"]
    assert stopped
    assert {each.state for each in trials} == {"done", "stopped"}
    assert all(each.step < config.total_steps for each in stopped)
    again = run_sweep(sweep, num_jobs=1, stop_early=True, resume=True)
    assert [each.step for each in again] == [each.step for each in trials]

    # A run that never started is compared with earlier ones.
    path = tmp_path / "out" / STATE_FILE
    data = json.loads(path.read_text())
    number = stopped[-1].number
    data["trials"][number] |= {"state": "waiting", "reward": "nan", "step": 0}
    path.write_text(json.dumps(data))
    shutil.rmtree(tmp_path / "out" / stopped[-1].name)
    again = run_sweep(sweep, num_jobs=1, stop_early=True, resume=True)
    assert again[number].state == "stopped"
    assert again[number].step < config.total_steps
