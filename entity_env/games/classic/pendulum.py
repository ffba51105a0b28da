"""Pendulum: a batch of pendulums to swing up and hold upright by a torque.

Entities and features:
    Pendulum: cos and sin of its angle (0 = upright), angular_velocity, from -8 to 8 rad/s.
Actions:
    Torque: a number from -2 to 2 (N m) per environment. Other numbers are refused, so clip first.
Reward:
    the negative cost of the state before the step and of the torque:
    `angle**2 + 0.1 * angular_velocity**2 + 0.001 * torque**2`, the angle from -pi to pi.
Terminated when:
    never.
Truncated when:
    the episode is `max_episode_steps` long, 200 by default.
Starts:
    angle uniform from -pi to pi, angular velocity uniform from -1 to 1.
Example:
    >>> import numpy as np
    >>> from entity_env.games.classic import Pendulum
    >>> env = Pendulum(num_envs=8)
    >>> env.reset(seed=1)
    >>> env.step_no_reset_with_result(np.zeros(8, dtype=np.float32)).observations.shape
    (8, 3)

The physics are those of Gymnasium's Pendulum-v1; see `Backend` for the precision. From the same
state, the reward is within 1e-6 of Gymnasium's. A state is the angle, from -pi to pi, and the
angular velocity.
"""

from __future__ import annotations

from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env import ContinuousActionSpace
from entity_env.games.classic.batch_env import HALF, Backend, ClassicEnv, State

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


class Pendulum(ClassicEnv):
    """A batch of pendulums; see the module docstring. Arguments as for `ClassicEnv`."""

    name = "Pendulum"
    kernel = "pendulum"
    features = ("cos", "sin", "angular_velocity")
    action = "Torque"
    space = ContinuousActionSpace(low=[-MAX_TORQUE], high=[MAX_TORQUE], labels=["torque"])
    state_names = ("angle", "angular_velocity")
    start_middle = (0.0, 0.0)
    start_scale = (ANGLE_SCALE, SPEED_SCALE)
    state_low = (-pi, -MAX_SPEED)
    state_high = (pi, MAX_SPEED)

    def __init__(
        self, num_envs: int, max_episode_steps: int = 200, *, backend: Backend = "auto"
    ) -> None:
        super().__init__(num_envs, max_episode_steps, backend)

    @staticmethod
    def advance(
        state: State, actions: NDArray[np.generic]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        angle, spin = state
        torque = actions.astype(np.float64)
        cost = angle**2 + SPEED_COST * spin**2 + TORQUE_COST * torque**2
        spin += (FALL * np.sin(angle) + TWIST * torque) * STEP_S
        np.clip(spin, -MAX_SPEED, MAX_SPEED, out=spin)
        angle += spin * STEP_S
        angle -= 2 * pi * np.round(angle / (2 * pi))
        return -cost.astype(np.float32), np.zeros(len(angle), np.bool_)

    @staticmethod
    def observe(state: State) -> NDArray[np.float32]:
        angle, spin = state.astype(np.float64)
        return np.stack([np.cos(angle), np.sin(angle), spin], axis=1).astype(np.float32)
