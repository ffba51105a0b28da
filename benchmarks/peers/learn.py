"""One training run: `python -m benchmarks.peers.learn WHO TASK SEED`.

WHO is "ours", "sb3" or "sb3_1": Stable-Baselines3 in eight environments or in one. Runs in the
environment that `benchmarks/learning.py` makes, which has Stable-Baselines3 and the tasks, so both
trainers use the same torch, numpy and Gymnasium. Prints one line of JSON.
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Callable, Sequence
from time import perf_counter, process_time
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.peers.serve import private_stdout
from benchmarks.peers.training import CONTROL_TASKS, ControlTask

WINDOW = 100
"""Number of episodes averaged in a point of a curve, as in Stable-Baselines3."""
NUM_GREEDY = 40
_MOST_STEPS = 500
"""Step limit for tasks that have none: a greedy policy may never end their episodes."""
_EVAL_SEED = 10_000
NUM_ENVS = {"ours": 16, "sb3": 8, "sb3_1": 1}
"""By trainer. With one environment, Stable-Baselines3 learns more per step but is slower."""


Curve = list[tuple[int, float]]
"""Steps, and the mean reward of the latest episodes."""


def make_env(env_id: str) -> gymnasium.Env[Any, Any]:
    """The environment for both trainers; small grids of cells are flattened to one row."""
    from gymnasium.wrappers import FlattenObservation

    if env_id.startswith("MiniGrid"):
        from minigrid.wrappers import ImgObsWrapper

        return FlattenObservation(ImgObsWrapper(gymnasium.make(env_id)))
    if env_id.startswith("MinAtar"):
        import minatar.gym

        if env_id not in gymnasium.registry:
            minatar.gym.register_envs()
        return FlattenObservation(gymnasium.make(env_id))
    if gymnasium.spec(env_id).max_episode_steps is None:
        return gymnasium.make(env_id, max_episode_steps=_MOST_STEPS)
    return gymnasium.make(env_id)


def make_envs(env_id: str, count: int) -> gymnasium.vector.SyncVectorEnv:
    """Copies of an environment; the step that ends an episode also resets."""
    mode = gymnasium.vector.AutoresetMode.SAME_STEP
    return gymnasium.vector.SyncVectorEnv([lambda: make_env(env_id)] * count, autoreset_mode=mode)


def ours(task: ControlTask, seed: int) -> dict[str, object]:
    """Trains with our trainer and its defaults."""
    from entity_env.agents.ppo import PPOConfig, TrainProgress, train
    from entity_env.interop.gymnasium import GymnasiumVecEnv

    curve: Curve = []

    def on_update(progress: TrainProgress) -> None:
        curve.append((progress.step, progress.mean_reward))

    with GymnasiumVecEnv(make_envs(task.env_id, NUM_ENVS["ours"])) as vec:
        config = PPOConfig.for_env(
            vec, total_steps=task.total_steps, seed=seed, episode_window=WINDOW
        )
        wall_s, cpu_s = perf_counter(), process_time()
        net = train(vec, config, on_update=on_update).net
        wall_s, cpu_s = perf_counter() - wall_s, process_time() - cpu_s

    def evaluated(greedy: bool) -> float:
        generator = torch.Generator().manual_seed(_EVAL_SEED)
        with GymnasiumVecEnv(make_envs(task.env_id, NUM_GREEDY)) as vec:
            obs = vec.reset(seed=_EVAL_SEED)
            rewards: dict[int, float] = {}
            while len(rewards) < NUM_GREEDY:
                obs = vec.act(net.act(obs, greedy=greedy, generator=generator).actions)
                ended = np.flatnonzero(obs.done)
                for env, episode in zip(ended, obs.episodes, strict=True):
                    rewards.setdefault(int(env), episode.reward)
        return float(statistics.mean(rewards.values()))

    return _result(task.total_steps, wall_s, cpu_s, curve, evaluated)


def sb3(task: ControlTask, seed: int, num_envs: int) -> dict[str, object]:
    """Trains with Stable-Baselines3's PPO and its defaults, on `num_envs` copies."""
    from stable_baselines3 import PPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    curve: Curve = []

    class Curves(BaseCallback):  # type: ignore[misc]  # not installed where types are checked
        def _on_step(self) -> bool:
            return True

        def _on_rollout_end(self) -> None:
            episodes = self.model.ep_info_buffer
            mean = statistics.mean(each["r"] for each in episodes) if episodes else float("nan")
            curve.append((self.num_timesteps, float(mean)))

    vec = make_vec_env(lambda: make_env(task.env_id), n_envs=num_envs, seed=seed)
    model = PPO("MlpPolicy", vec, seed=seed, device="cpu")
    wall_s, cpu_s = perf_counter(), process_time()
    model.learn(task.total_steps, callback=Curves())
    wall_s, cpu_s = perf_counter() - wall_s, process_time() - cpu_s
    vec.close()

    def evaluated(greedy: bool) -> float:
        envs = make_envs(task.env_id, NUM_GREEDY)
        obs, _ = envs.reset(seed=_EVAL_SEED)
        totals, is_over = np.zeros(NUM_GREEDY), np.zeros(NUM_GREEDY, bool)
        while not is_over.all():
            actions, _ = model.predict(obs, deterministic=greedy)
            obs, rewards, terminated, truncated, _ = envs.step(actions)
            totals += np.where(is_over, 0, rewards)
            is_over |= terminated | truncated
        envs.close()
        return float(totals.mean())

    return _result(model.num_timesteps, wall_s, cpu_s, curve, evaluated)


def _result(
    steps: int, wall_s: float, cpu_s: float, curve: Curve, evaluated: Callable[[bool], float]
) -> dict[str, object]:
    return {
        "steps": steps,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "last": curve[-1][1],
        "greedy": evaluated(True),
        "sampled": evaluated(False),
        "curve": [(step, mean) for step, mean in curve if mean == mean],
    }


def main(arguments: Sequence[str]) -> None:
    """Makes one run."""
    answers = private_stdout()
    who, name, seed = arguments
    torch.set_num_threads(1)
    task = CONTROL_TASKS[name]
    result = ours(task, int(seed)) if who == "ours" else sb3(task, int(seed), NUM_ENVS[who])
    answers.write(json.dumps(result) + "\n")
    answers.close()


if __name__ == "__main__":
    main(sys.argv[1:])
