"""Our trainer on entity-gym's own games, adapted by `from_entity_gym`.

Runs in enn-trainer's environment, so with the same torch and numpy.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
from entity_gym.examples import ENV_REGISTRY

from benchmarks.peers.train_run import Run
from benchmarks.peers.training import Task
from entity_env import Environment
from entity_env.agents.ppo import PPOConfig, TrainProgress, train
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.core.vec_obs import VecObs
from entity_env.interop.entity_gym import from_entity_gym
from entity_env.vec import VecEnv


class _CountedVecEnv(VecEnv):
    """Reports finished episodes to a run."""

    def __init__(self, make: Callable[[], Environment], num_envs: int, run: Run) -> None:
        super().__init__(make, num_envs)
        self._run = run

    def recv(self, min_envs: int | None = None) -> VecObs:
        obs = super().recv(min_envs)
        self._run.count_episodes(len(obs.episodes), sum(each.reward for each in obs.episodes))
        return obs


def main(task: Task, seed: int, folder: Path, run: Run) -> None:
    """Trains with the task's settings."""
    train_on(task, task.num_envs, seed, _config(task, seed), folder, run)


def train_on(
    task: Task, num_envs: int, seed: int, config: PPOConfig | None, folder: Path, run: Run
) -> None:
    """Trains, with the only checkpoint at the end, after the time is measured.

    Without `config` the trainer uses its defaults for the environment.
    """
    random.seed(seed)  # used by entity-gym's games; enn-trainer seeds it too
    np.random.seed(seed)
    make = partial(from_entity_gym(ENV_REGISTRY[task.env_id]), **task.kwargs)

    last = 0

    def on_update(progress: TrainProgress) -> None:
        nonlocal last
        num_steps, last = progress.step - last, progress.step
        run.end_update(num_steps)

    with _CountedVecEnv(make, num_envs, run) as vec:
        config = config or PPOConfig.for_env(
            vec,
            total_steps=task.num_updates * task.steps_per_update,
            seed=seed,
            checkpoint_interval_s=1e9,
        )
        train(vec, config, out=folder, on_update=on_update)


def _config(task: Task, seed: int) -> PPOConfig:
    return PPOConfig(
        total_steps=task.num_updates * task.steps_per_update,
        seed=seed,
        net=RogueNetConfig(d_model=task.d_model, n_layer=task.n_layer),
        num_steps=task.num_steps,
        minibatch_size=task.minibatch_size,
        learning_rate=task.learning_rate,
        gamma=task.gamma,
        vf_coef=task.vf_coef,
        ent_coef=task.ent_coef,
        checkpoint_interval_s=1e9,
    )
