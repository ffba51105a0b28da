"""The classic games one at a time, for whoever plays them: a person, or a trained agent.

Each plays a batch of one, so what an agent learns in a `BatchVecEnv` is what it meets here: the
same entities, actions and physics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from entity_env import Continuous, Game, GlobalCategorical, Obs
from entity_env.agents import Agent
from entity_env.games.classic.batch_env import ClassicEnv
from entity_env.games.classic.cart_pole import CartPole as CartPoles
from entity_env.games.classic.mountain_car import MountainCar as MountainCars
from entity_env.games.classic.pendulum import MAX_TORQUE, Pendulum as Pendulums


@dataclass(slots=True)
class CartPole:
    """A cart on a track, and the pole on it."""

    position: float
    velocity: float
    angle: float
    angular_velocity: float


@dataclass(slots=True)
class MountainCar:
    """A car in a valley."""

    position: float
    velocity: float


@dataclass(slots=True)
class Pendulum:
    """A pendulum that hangs at angle pi."""

    cos: float
    sin: float
    angular_velocity: float


class Push(Enum):
    """Where a cart is pushed."""

    LEFT = 0
    RIGHT = 1


class Drive(Enum):
    """Where a car drives."""

    LEFT = 0
    NONE = 1
    RIGHT = 2


_PUSH = GlobalCategorical(Push)
_DRIVE = GlobalCategorical(Drive, name="Push")
_TORQUE = Continuous("Torque", low=(-MAX_TORQUE,), high=(MAX_TORQUE,), labels=("torque",))


def play_cartpole(agent: Agent, *, seed: int, max_episode_steps: int = 500) -> None:
    """Keep a pole upright on a cart that is pushed left or right.

    Args:
        agent: who pushes.
        seed: where cart and pole begin follows from it.
        max_episode_steps: steps after which the episode is cut.
    """

    def ask(state: NDArray[np.float32], score: float) -> NDArray[np.int64] | None:
        push = agent.act(Obs(score).entities(state, of=CartPole), _PUSH)
        return None if push is None else np.array([push.value])

    _play(agent, CartPoles(1, max_episode_steps), seed, CartPole, ask)


def play_mountain_car(agent: Agent, *, seed: int, max_episode_steps: int = 200) -> None:
    """Drive a weak car out of a valley by rocking back and forth.

    Args:
        agent: who drives.
        seed: where the car begins follows from it.
        max_episode_steps: steps after which the episode is cut.
    """

    def ask(state: NDArray[np.float32], score: float) -> NDArray[np.int64] | None:
        drive = agent.act(Obs(score).entities(state, of=MountainCar), _DRIVE)
        return None if drive is None else np.array([drive.value])

    _play(agent, MountainCars(1, max_episode_steps), seed, MountainCar, ask)


def play_pendulum(agent: Agent, *, seed: int, max_episode_steps: int = 200) -> None:
    """Swing a pendulum up and hold it upright by a torque.

    Args:
        agent: who turns.
        seed: where the pendulum begins follows from it.
        max_episode_steps: steps after which the episode is cut.
    """

    def ask(state: NDArray[np.float32], score: float) -> NDArray[np.float32] | None:
        torque = agent.act(Obs(score).actors(state, of=Pendulum), _TORQUE)
        return None if torque is None else torque[0]

    _play(agent, Pendulums(1, max_episode_steps), seed, Pendulum, ask)


def _play(
    agent: Agent,
    env: ClassicEnv,
    seed: int,
    entity: type,
    ask: Callable[[NDArray[np.float32], float], NDArray[np.int64] | NDArray[np.float32] | None],
) -> None:
    """Plays one episode.

    Args:
        agent: is told of the end.
        env: a batch of one.
        seed: of the episode.
        entity: what it shows.
        ask: shows a state and a score to the agent; its actions, or None: it has hung up.
    """
    env.reset(seed)
    result, score = env.view(), 0.0
    while not result.is_done(0):
        actions = ask(result.observations, score)
        if actions is None:
            return
        result = env.step_no_reset_with_result(actions)
        score += float(result.rewards[0])
    obs = Obs(score).entities(result.observations, of=entity)
    agent.game_over(obs, truncated=not result.is_terminal(0))


cartpole = Game(play_cartpole, entities=(CartPole,), actions=(_PUSH,), name="cartpole")
mountain_car = Game(
    play_mountain_car, entities=(MountainCar,), actions=(_DRIVE,), name="mountain_car"
)
pendulum = Game(play_pendulum, entities=(Pendulum,), actions=(_TORQUE,), name="pendulum")
