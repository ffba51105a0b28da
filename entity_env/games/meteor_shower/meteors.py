"""Meteors: fly left and right, and let no meteor hit the ship.

The rules are implemented twice. `play` is the game as an ordinary loop over dataclasses. `Meteors`
steps thousands of copies at once in numpy, for training. For a given seed both play the same
episode.

Entities and features:
    Body: x, from 0 to width - 1; y, from 0 to height - 1, grows upward; dx, cells to the right of
        the ship; is_ship, 1 for the ship, which comes first.
Actions:
    Steer: LEFT, STAY or RIGHT, by one cell; at the border the ship stays.
Reward:
    1 for every meteor that reaches the ground without hitting the ship.
Terminated when:
    a meteor reaches the ground where the ship is. All meteors fall one cell per step, after the
    ship has moved, and reappear at the top at a random x.
Truncated when:
    the episode is `max_episode_steps` long.
Starts:
    the ship is in the middle, the meteors anywhere in the upper half.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games import meteors
    >>> [episode] = meteors.run(RandomAgent(seed=1), seed=3, episodes=1)
    >>> (episode.reward, episode.length)
    (11.0, 22)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from entity_env import ActionName, ActionSpace, Game, Obs, ObsSpace, SplitMix64, UsageError
from entity_env.agents import Agent
from entity_env.vec import ArrayEnv, GameTraining


@dataclass(slots=True)
class Body:
    """The ship or a meteor."""

    x: int
    y: int
    dx: int = 0
    is_ship: bool = False


class Steer(Enum):
    """Direction in which the ship moves."""

    LEFT = -1
    STAY = 0
    RIGHT = 1


def play(
    agent: Agent,
    *,
    seed: int,
    width: int = 9,
    height: int = 12,
    num_meteors: int = 6,
    max_episode_steps: int = 500,
) -> None:
    """Fly left and right, and let no meteor hit the ship.

    Args:
        agent: steers the ship.
        seed: determines where meteors appear.
        width: cells from the left border to the right.
        height: cells from the ground to the top.
        num_meteors: number of meteors in the sky.
        max_episode_steps: steps after which the episode is truncated.

    Raises:
        UsageError: width, height or num_meteors too small.
    """
    _require_sky(width, height, num_meteors)
    rng = SplitMix64(seed)
    ship = Body(width // 2, 0, is_ship=True)
    meteors = [
        Body(rng.randrange(width), height - 1 - rng.randrange(height // 2))
        for _ in range(num_meteors)
    ]
    score, num_steps, is_hit = 0.0, 0, False

    def obs() -> Obs:
        for meteor in meteors:
            meteor.dx = meteor.x - ship.x
        return Obs(score).entities([ship, *meteors])

    while not is_hit and num_steps < max_episode_steps:
        steer = agent.act(obs(), Steer)
        if steer is None:
            return
        num_steps += 1
        ship.x = min(max(ship.x + steer.value, 0), width - 1)
        for meteor in meteors:
            meteor.y -= 1
            if meteor.y == 0:
                is_hit |= meteor.x == ship.x
                score += meteor.x != ship.x
                meteor.x, meteor.y = rng.randrange(width), height - 1
    agent.game_over(obs(), truncated=not is_hit)


meteors = Game(
    play,
    entities=(Body,),
    actions=(Steer,),
    name="meteors",
    look="entity_env.games.meteor_shower.look",
    training=f"{__name__}:training",
)
"""The game as a loop, for one sky."""


class Meteors(ArrayEnv):
    """Many copies of `meteors`; arguments as for `play`."""

    is_always_finite = True

    def __init__(
        self,
        num_envs: int,
        width: int = 9,
        height: int = 12,
        num_meteors: int = 6,
        max_episode_steps: int = 500,
    ) -> None:
        _require_sky(width, height, num_meteors)
        self.num_entities = 1 + num_meteors
        super().__init__(num_envs, max_episode_steps)
        self.width, self.height = width, height
        # The observation is the state: `observe` only updates dx and copies.
        self.bodies = np.zeros((num_envs, self.num_entities, 4), np.float32)
        self.bodies[:, 0, 3] = 1
        self.ship = self.bodies[:, 0, 0]
        self.x, self.y, self.dx, _ = np.moveaxis(self.bodies[:, 1:], 2, 0)

    def obs_space(self) -> ObsSpace:
        return meteors.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return meteors.action_space()

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        self.ship[env_ids] = self.width // 2
        num_meteors = self.x.shape[1]
        below = np.tile([self.width, self.height // 2], len(env_ids) * num_meteors)
        drawn = self.draw(np.repeat(env_ids, 2 * num_meteors), below)
        drawn = drawn.reshape(len(env_ids), num_meteors, 2)
        self.x[env_ids] = drawn[..., 0]
        self.y[env_ids] = self.height - 1 - drawn[..., 1]

    def advance(self, actions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        self.ship += actions - 1
        np.clip(self.ship, 0, self.width - 1, out=self.ship)
        self.y -= 1
        has_landed = self.y == 0
        hits = has_landed & (self.x == self.ship[:, np.newaxis])
        self.x[has_landed] = self.draw(np.nonzero(has_landed)[0], self.width)
        self.y[has_landed] = self.height - 1
        return np.count_nonzero(has_landed & ~hits, axis=1), hits.any(axis=1)

    def observe(self, env_ids: NDArray[np.int64] | slice) -> NDArray[np.float32]:
        self.dx[env_ids] = self.x[env_ids] - self.ship[env_ids, np.newaxis]
        return self.bodies[env_ids].reshape(-1, self.obs_size)


def _require_sky(width: int, height: int, num_meteors: int) -> None:
    if min(width, num_meteors) < 1 or height < 2:
        raise UsageError(
            "meteors: width and num_meteors must be at least 1, and height 2: got "
            f"{width}, {num_meteors} and {height}"
        )


training = GameTraining(batch=Meteors)
