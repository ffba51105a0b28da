"""Numbers in Gymnasium's infos become metrics, in each mode and as a game."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import RecordEpisodeStatistics

from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.training.tracking.runs import read_run
from entity_env.core.vec_obs import VecObs, merge_metrics
from entity_env.interop.gymnasium import GymnasiumVecEnv, from_gymnasium
from entity_env.vec import VecEnv

SMALL = PPOConfig(total_steps=256, net=MLPConfig((8,)), num_steps=16, minibatch_size=64)


class Walk(gymnasium.Env[Any, Any]):
    """Ends after some steps; has infos with every kind of value, and special numbers at a reset."""

    observation_space = spaces.Box(-1, 1, (1,))
    action_space = spaces.Discrete(2)

    def __init__(self, length: int = 3) -> None:
        self.length, self.count = length, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:  # noqa: ANN401
        self.count = 0
        return np.zeros(1, np.float32), {"dist": 1000.0}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:  # noqa: ANN401
        self.count += 1
        is_over = self.count == self.length
        info: dict[str, Any] = {
            "dist": 10.0 * self.length + self.count,
            "success": is_over,
            "energy": np.float32(0.5),
            "nested": {"inner": 1.0},
            "vector": np.ones(3),
            "text": "here",
            "nothing": None,
            "unknown": float("nan"),
        }
        if is_over:
            info["bonus"] = self.length
        return np.zeros(1, np.float32), 1.0, is_over, False, info


def walk(length: int) -> gymnasium.Env[Any, Any]:
    return RecordEpisodeStatistics(Walk(length))  # adds a nested `episode`


def totals(seen: list[VecObs]) -> dict[str, tuple[int, float, float, float]]:
    found: dict[str, Any] = {}
    for obs in seen:
        merge_metrics(found, obs.metrics)
    return {name: (each.count, each.sum, each.min, each.max) for name, each in found.items()}


LENGTHS = (2, 3)
NUM_STEPS = 6


@pytest.mark.parametrize("make", [SyncVectorEnv, AsyncVectorEnv])
@pytest.mark.parametrize("mode", AutoresetMode)
def test_numbers_of_steps_and_of_episodes(mode: AutoresetMode, make: Any) -> None:  # noqa: ANN401
    envs = make([partial(walk, length) for length in LENGTHS], autoreset_mode=mode)
    with GymnasiumVecEnv(envs) as vec:
        obs = vec.reset(seed=1)
        assert not obs.metrics
        seen, asked = [], []
        for _ in range(NUM_STEPS):
            asked.append(obs.is_ready.copy())
            obs = vec.act({"Action": np.zeros(int(obs.is_ready.sum()), np.int64)})
            seen.append(obs)
    # Infos of the two environments, played one by one.
    values: dict[str, list[float]] = {}
    episodes = []
    for env_id, length in enumerate(LENGTHS):
        env, is_over = Walk(length), True
        for is_asked in np.array(asked)[:, env_id]:
            if is_over:
                env.reset()
                is_over = False
            if is_asked:
                *_, is_over, _, info = env.step(0)
                numbers = {
                    f"info/{name}": float(info[name])
                    for name in ("dist", "success", "energy", "bonus")
                    if name in info
                }
                for name, value in numbers.items():
                    values.setdefault(name, []).append(value)
                if is_over:
                    episodes.append((env_id, numbers))
    expected = {name: (len(x), sum(x), min(x), max(x)) for name, x in values.items()}
    assert totals(seen) == expected
    found = [(each.env_id, dict(each.metrics)) for obs in seen for each in obs.episodes]
    assert sorted(found, key=lambda pair: pair[0]) == episodes


@pytest.mark.slow
@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_game_has_them_too(num_workers: int) -> None:
    game = from_gymnasium(walk, name="walk", length=2)
    with VecEnv(game, 2, num_workers) as vec:
        vec.reset(seed=1)
        action = {"Action": np.zeros(2, np.int64)}
        obs = vec.act(action)
        assert {name: each.mean for name, each in obs.metrics.items()} == {
            "info/dist": 21,
            "info/success": 0,
            "info/energy": 0.5,
        }
        obs = vec.act(action)
        final = {"info/dist": 22, "info/success": 1, "info/energy": 0.5, "info/bonus": 2}
        assert [dict(each.metrics) for each in obs.episodes] == [final] * 2


@pytest.mark.slow
def test_they_reach_the_curves(tmp_path: Path) -> None:
    envs = SyncVectorEnv([partial(walk, 2)] * 4, autoreset_mode=AutoresetMode.SAME_STEP)
    with GymnasiumVecEnv(envs) as vec:
        progress = train(vec, SMALL, out=tmp_path).progress
    assert progress.metrics["info/success"] == 0.5
    assert progress.metrics["episode/info/success"] == 1
    curves = read_run(tmp_path).curves
    assert set(curves["metrics/info/success.mean"].values.tolist()) == {0.5}
    assert set(curves["metrics/episode/info/bonus.max"].values.tolist()) == {2.0}
    assert not any("inner" in name or "vector" in name for name in curves)


def test_those_of_a_real_environment() -> None:
    """FrozenLake reports the probability of each transition."""
    game = from_gymnasium("FrozenLake-v1", is_slippery=True)
    with VecEnv(game, 2) as vec:
        vec.reset(seed=1)
        obs = vec.act({"Action": np.ones(2, np.int64)})
    assert set(obs.metrics) == {"info/prob"}
    assert 0.3 < obs.metrics["info/prob"].mean < 0.4
    envs = gymnasium.make_vec("FrozenLake-v1", 2, vectorization_mode="sync", is_slippery=True)
    with GymnasiumVecEnv(envs) as other:
        other.reset(seed=1)
        obs = other.act({"Action": np.ones(2, np.int64)})
    assert 0.3 < obs.metrics["info/prob"].mean < 0.4
