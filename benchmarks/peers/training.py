"""Tasks for both trainers, with enn-trainer's settings for its games.

All other settings are enn-trainer's defaults, for both trainers: 2 heads, 3 epochs, lambda 0.95,
learning rate and entropy coefficient decaying to 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

NUM_PIECES = 10
"""Number of timed pieces per run; rewards are those of the last piece."""


@dataclass(frozen=True)
class Task:
    """A game of entity-gym, and the settings to train on it.

    Args:
        env_id: its name among entity-gym's examples.
        total_steps: decisions, rounded down to whole rollouts.
        num_envs, num_steps: size of a rollout.
        minibatch_size: decisions in one step of the optimizer.
        d_model, n_layer: size of the network.
        ent_coef, vf_coef, gamma: of PPO.
        kwargs: settings of the game.
    """

    env_id: str
    total_steps: int
    num_envs: int
    num_steps: int
    minibatch_size: int
    d_model: int
    n_layer: int
    learning_rate: float = 0.003
    ent_coef: float = 0.1
    vf_coef: float = 0.5
    gamma: float = 0.99
    kwargs: Mapping[str, int] = field(default_factory=dict)

    @property
    def steps_per_update(self) -> int:
        """Decisions in a rollout."""
        return self.num_envs * self.num_steps

    @property
    def num_updates(self) -> int:
        """Rollouts in a run."""
        return self.total_steps // self.steps_per_update


TASKS: Mapping[str, Task] = {
    "xor": Task(
        env_id="Xor",
        total_steps=500_000,
        num_envs=2048,
        num_steps=1,
        minibatch_size=2048,
        d_model=16,
        n_layer=2,
        ent_coef=0.3,
    ),
    "cherry_pick": Task(
        env_id="CherryPick",
        kwargs={"num_cherries": 16},
        total_steps=150_000,
        num_envs=128,
        num_steps=16,
        minibatch_size=2048,
        d_model=32,
        n_layer=1,
        vf_coef=0.25,
    ),
    "multi_snake": Task(
        env_id="MultiSnake",
        kwargs={"num_snakes": 1, "max_snake_length": 5, "board_size": 6},
        total_steps=600_000,
        num_envs=128,
        num_steps=16,
        minibatch_size=1024,
        d_model=32,
        n_layer=2,
        ent_coef=0.05,
        gamma=0.97,
    ),
    "move_to_origin": Task(
        env_id="MoveToOrigin",
        total_steps=300_000,
        num_envs=64,
        num_steps=32,
        minibatch_size=2048,
        d_model=16,
        n_layer=2,
    ),
    "treasure_hunt": Task(
        env_id="TreasureHunt",
        total_steps=200_000,
        num_envs=128,
        num_steps=16,
        minibatch_size=1024,
        d_model=32,
        n_layer=1,
    ),
}
"""Tasks by the name of their figures."""


@dataclass(frozen=True)
class ControlTask:
    """A Gymnasium task.

    Args:
        env_id: its registered name.
        total_steps: steps of the environments, for both trainers.
    """

    env_id: str
    total_steps: int


CONTROL_TASKS: Mapping[str, ControlTask] = {
    "cartpole": ControlTask("CartPole-v1", 100_000),
    "acrobot": ControlTask("Acrobot-v1", 100_000),
    "lunarlander": ControlTask("LunarLander-v3", 300_000),
    "mountaincarcontinuous": ControlTask("MountainCarContinuous-v0", 100_000),
    "pendulum": ControlTask("Pendulum-v1", 100_000),
    "frozenlake": ControlTask("FrozenLake-v1", 100_000),
    "taxi": ControlTask("Taxi-v4", 100_000),
    "minigrid_empty_5x5": ControlTask("MiniGrid-Empty-5x5-v0", 100_000),
    "minatar_breakout": ControlTask("MinAtar/Breakout-v1", 200_000),
    "minatar_asterix": ControlTask("MinAtar/Asterix-v1", 200_000),
    "minatar_space_invaders": ControlTask("MinAtar/SpaceInvaders-v1", 200_000),
    "minigrid_doorkey_5x5": ControlTask("MiniGrid-DoorKey-5x5-v0", 100_000),
    "cliffwalking": ControlTask("CliffWalking-v1", 100_000),
    "bipedalwalker": ControlTask("BipedalWalker-v3", 300_000),
    "hopper": ControlTask("Hopper-v5", 200_000),
    "halfcheetah": ControlTask("HalfCheetah-v5", 300_000),
    "walker2d": ControlTask("Walker2d-v5", 200_000),
    "lunarlander_continuous": ControlTask("LunarLanderContinuous-v3", 200_000),
}
"""Ordinary tasks, by the name of their figures; both trainers use their defaults."""
STEP_TASKS = (
    *("hopper", "halfcheetah", "walker2d", "bipedalwalker", "pendulum", "acrobot"),
    *("minigrid_doorkey_5x5", "cliffwalking", "minatar_breakout", "minatar_asterix"),
    *("minatar_space_invaders", "lunarlander_continuous"),
)
"""Tasks with few steps or continuous control, where Stable-Baselines3 learns most per step in one
environment; ours is compared with that, on equal numbers of steps."""
