"""MountainCar: a batch of cars, each in a valley and too weak to drive straight up.

Entities and features:
    MountainCar: position, from -1.2 to 0.6; velocity, from -0.07 to 0.07 per step.
Actions:
    Push: LEFT (0), NONE (1) or RIGHT (2), one choice per environment.
Reward:
    -1 for every step, including the last.
Terminated when:
    the car reaches the flag at 0.5 without rolling back.
Truncated when:
    the episode is `max_episode_steps` long, 200 by default.
Starts:
    at rest, position uniform from -0.6 to -0.4.
Example:
    >>> import numpy as np
    >>> from entity_env.games.classic import MountainCar
    >>> env = MountainCar(num_envs=8)
    >>> env.reset(seed=1)
    >>> env.step_no_reset_with_result(np.full(8, 2)).rewards[0]
    np.float32(-1.0)

The physics are those of Gymnasium's MountainCar-v0 (Moore 1990); see `Backend` for the
precision.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env import GlobalCategoricalActionSpace
from entity_env.games.classic.batch_env import HALF, Backend, ClassicEnv, State

FORCE: Final = 0.001
GRAVITY: Final = 0.0025
MIN_POSITION: Final = -1.2
MAX_POSITION: Final = 0.6
MAX_SPEED: Final = 0.07
GOAL: Final = 0.5
START_MIDDLE: Final = -0.5
START_SCALE: Final = 0.1 / HALF


class MountainCar(ClassicEnv):
    """A batch of cars; see the module docstring. Arguments as for `ClassicEnv`."""

    name = "MountainCar"
    kernel = "mountain_car"
    features = ("position", "velocity")
    action = "Push"
    space = GlobalCategoricalActionSpace(("LEFT", "NONE", "RIGHT"))
    state_names = features
    start_middle = (START_MIDDLE, 0.0)
    start_scale = (START_SCALE, 0.0)
    state_low = (MIN_POSITION, -MAX_SPEED)
    state_high = (MAX_POSITION, MAX_SPEED)

    def __init__(
        self, num_envs: int, max_episode_steps: int = 200, *, backend: Backend = "auto"
    ) -> None:
        super().__init__(num_envs, max_episode_steps, backend)

    @staticmethod
    def advance(
        state: State, actions: NDArray[np.generic]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        position, velocity = state
        engine = (actions.astype(np.float64) - 1) * FORCE
        velocity += engine - np.cos(3 * position) * GRAVITY
        np.clip(velocity, -MAX_SPEED, MAX_SPEED, out=velocity)
        position += velocity
        np.clip(position, MIN_POSITION, MAX_POSITION, out=position)
        velocity[(position == MIN_POSITION) & (velocity < 0)] = 0
        rewards = np.full(len(position), -1, np.float32)
        return rewards, (position >= GOAL) & (velocity >= 0)
