"""Single classic games, for a person or a trained agent.

Each plays a batch of one: entities, actions and physics match the batch in a `BatchVecEnv`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import make_dataclass
from enum import Enum
from typing import Any

import numpy as np

from entity_env import ActionType, Continuous, Game, GlobalCategorical, Obs
from entity_env.agents import Agent
from entity_env.games.classic.batch_env import ClassicEnv
from entity_env.games.classic.cart_pole import CartPole
from entity_env.games.classic.mountain_car import MountainCar
from entity_env.games.classic.pendulum import MAX_TORQUE, Pendulum

_CART_POLE, _MOUNTAIN_CAR, _PENDULUM = (
    make_dataclass(env.name, [(feature, float) for feature in env.features], slots=True)
    for env in (CartPole, MountainCar, Pendulum)
)
"""Entity classes, named as in the batch."""
_CART_POLE.__qualname__, _MOUNTAIN_CAR.__qualname__ = "_CART_POLE", "_MOUNTAIN_CAR"
_PENDULUM.__qualname__ = "_PENDULUM"
for _entity in (_CART_POLE, _MOUNTAIN_CAR, _PENDULUM):
    _entity.__module__ = __name__  # pickled by name: a copy would not be the class `play` shows


class Push(Enum):
    """Direction in which the cart is pushed."""

    LEFT = 0
    RIGHT = 1


class Drive(Enum):
    """Direction in which the car accelerates."""

    LEFT = 0
    NONE = 1
    RIGHT = 2


_PUSH = GlobalCategorical(Push)
_DRIVE = GlobalCategorical(Drive, name="Push")
_TORQUE = Continuous("Torque", low=(-MAX_TORQUE,), high=(MAX_TORQUE,), labels=("torque",))


def play_cartpole(agent: Agent, *, seed: int, max_episode_steps: int = 500) -> None:
    """Keep a pole upright on a cart that is pushed left or right.

    Args:
        agent: chooses the actions.
        seed: determines the initial state.
        max_episode_steps: steps after which the episode is truncated.
    """
    _play(agent, CartPole(1, max_episode_steps), seed, _CART_POLE, _PUSH)


def play_mountain_car(agent: Agent, *, seed: int, max_episode_steps: int = 200) -> None:
    """Drive a weak car out of a valley by rocking back and forth.

    Args:
        agent: chooses the actions.
        seed: determines the initial state.
        max_episode_steps: steps after which the episode is truncated.
    """
    _play(agent, MountainCar(1, max_episode_steps), seed, _MOUNTAIN_CAR, _DRIVE)


def play_pendulum(agent: Agent, *, seed: int, max_episode_steps: int = 200) -> None:
    """Swing a pendulum up and hold it upright by a torque.

    Args:
        agent: chooses the actions.
        seed: determines the initial state.
        max_episode_steps: steps after which the episode is truncated.
    """
    _play(agent, Pendulum(1, max_episode_steps), seed, _PENDULUM, _TORQUE)


def _play(agent: Agent, env: ClassicEnv, seed: int, entity: type, action: ActionType[Any]) -> None:
    env.reset(seed)
    result, score = env.view(), 0.0
    show = Obs.actors if isinstance(action, Continuous) else Obs.entities
    while not result.is_done(0):
        answer = agent.act(show(Obs(score), result.observations, of=entity), action)
        if answer is None:
            return
        actions = np.array([answer.value]) if isinstance(answer, Enum) else answer[0]
        result = env.step_no_reset_with_result(actions)
        score += float(result.rewards[0])
    obs = Obs(score).entities(result.observations, of=entity)
    agent.game_over(obs, truncated=not result.is_terminal(0))


def _game(play: Callable[..., None], entity: type, action: ActionType[Any], name: str) -> Game:
    return Game(
        play,
        entities=(entity,),
        actions=(action,),
        name=name,
        look=f"entity_env.games.classic.look:{name}",
        training=f"entity_env.games.classic.training:{name}",
    )


cartpole = _game(play_cartpole, _CART_POLE, _PUSH, "cartpole")
"""One `CartPole`."""
mountain_car = _game(play_mountain_car, _MOUNTAIN_CAR, _DRIVE, "mountain_car")
"""One `MountainCar`."""
pendulum = _game(play_pendulum, _PENDULUM, _TORQUE, "pendulum")
"""One `Pendulum`."""
