"""Pendulum: many pendulums at once, each to be swung up and held upright by a torque.

Entities and features:
    Pendulum: cos and sin of its angle (0 = upright), angular_velocity, from -8 to 8 rad/s.
Actions:
    Torque: a number from -2 to 2 (N m) an environment. What is outside is refused: clip it first.
Reward:
    minus the cost of the state before the step and of the torque:
    `angle**2 + 0.1 * angular_velocity**2 + 0.001 * torque**2`, the angle from -pi to pi.
Ends when:
    never.
Cut when:
    the episode is `max_episode_steps` long, 200 when left out.
Starts:
    the angle uniform from -pi to pi, the angular velocity from -1 to 1.
Example:
    >>> import numpy as np
    >>> from entity_env.games.classic import Pendulum
    >>> env = Pendulum(num_envs=8)
    >>> env.reset(seed=1)
    >>> env.step_no_reset_with_result(np.zeros(8, dtype=np.float32)).observations.shape
    (8, 3)

The physics are those of Gymnasium's Pendulum-v1, in float32. A state is the angle, from -pi to pi,
and the angular velocity.
"""

from __future__ import annotations

from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import ContinuousActionSpace
from entity_env.games.classic.backends import Backend
from entity_env.games.classic.batch_env import ClassicEnv
from entity_env.games.classic.dynamics import HALF, Rules, State

GRAVITY: Final = 10.0
MASS: Final = 1.0
LENGTH: Final = 1.0
FALL: Final = 3 * GRAVITY / (2 * LENGTH)
"""Angular acceleration per sine of the angle."""
TWIST: Final = 3 / (MASS * LENGTH**2)
"""Angular acceleration per torque."""
STEP_S: Final = 0.05
MAX_TORQUE: Final = 2.0
MAX_SPEED: Final = 8.0
SPEED_COST: Final = 0.1
TORQUE_COST: Final = 0.001
ANGLE_SCALE: Final = pi / HALF
SPEED_SCALE: Final = 1 / HALF


def start(draws: NDArray[np.float32]) -> State:
    """States in which episodes begin."""
    return np.stack([draws[0] * np.float32(ANGLE_SCALE), draws[1] * np.float32(SPEED_SCALE)])


def advance(
    state: State, torques: NDArray[np.generic]
) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """One step, in place."""
    angle, spin = state
    torque = torques.astype(np.float32)
    cost = angle**2 + SPEED_COST * spin**2 + TORQUE_COST * torque**2
    spin += (FALL * np.sin(angle) + TWIST * torque) * STEP_S
    np.clip(spin, -MAX_SPEED, MAX_SPEED, out=spin)
    angle += spin * STEP_S
    angle -= 2 * pi * np.round(angle / (2 * pi))
    return -cost, np.zeros(len(angle), np.bool_)


def observe(state: State) -> NDArray[np.float32]:
    """Cosine, sine and angular velocity, a row an environment."""
    angle = state[0].astype(np.float64)
    return np.stack([np.cos(angle), np.sin(angle), state[1]], axis=1).astype(np.float32)


RULES: Final = Rules(
    name="Pendulum",
    features=("cos", "sin", "angular_velocity"),
    action="Torque",
    space=ContinuousActionSpace(low=[-MAX_TORQUE], high=[MAX_TORQUE], labels=["torque"]),
    state=("angle", "angular_velocity"),
    low=(-pi, -MAX_SPEED),
    high=(pi, MAX_SPEED),
    start=start,
    advance=advance,
    observe=observe,
)


class Pendulum(ClassicEnv):
    """Keeps `num_envs` pendulums; this module's head describes the game.

    Args:
        num_envs: how many, at least 1.
        max_episode_steps: steps after which an episode is cut.
        backend: what steps them; see `Backend`.

    Raises:
        UsageError: a number or backend that makes no sense.
        MissingExtraError: the backend "numba" without numba.
    """

    def __init__(
        self, num_envs: int, max_episode_steps: int = 200, *, backend: Backend = "auto"
    ) -> None:
        super().__init__(RULES, num_envs, max_episode_steps, backend)
