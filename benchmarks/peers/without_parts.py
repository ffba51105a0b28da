"""Training on games without decisions in several parts, as contenders.

This module is also copied into the tree before such decisions existed, so it uses only names that
both have.
"""

from __future__ import annotations

from time import process_time

from benchmarks.peers.stepper import Stepper
from entity_env import Game
from entity_env.agents.ppo import PPOConfig, train
from entity_env.games import snake
from entity_env.games.azul import azul
from entity_env.vec import VecEnv

_NUM_ENVS = 32
_NUM_STEPS = 16


def train_snake() -> Stepper:
    """One update of PPO on snake per step."""
    return _training(snake)


def train_azul() -> Stepper:
    """One update of PPO on azul per step."""
    return _training(azul)


def _training(game: Game) -> Stepper:
    vec = VecEnv(game, _NUM_ENVS)
    size = vec.num_rows * _NUM_STEPS
    config = PPOConfig(total_steps=size, num_steps=_NUM_STEPS, minibatch_size=256)
    return Stepper(size, lambda: train(vec, config), lambda: {"cpu": process_time()})
