"""A game and an environment with continuous actions; fast to import, since every worker does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np
from numpy.typing import NDArray

from entity_env import Continuous, Game, Obs
from entity_env.agents import Agent
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionSpace, ContinuousActionSpace, Entity, ObsSpace
from entity_env.core.vec_obs import VecActionMask, VecActions, VecContinuousActionMask
from tests.agents.ppo.small_envs import VecRiddle, ragged


@dataclass(slots=True)
class Body:
    x: float


@dataclass(slots=True)
class Wall:
    at: float


PUSH = Continuous("push", low=(-2.0, 0.0), high=(2.0, 100.0), labels=("force", "angle"))


def play_bodies(agent: Agent, *, seed: int, length: int = 4) -> None:
    """Asks zero to three bodies for their pushes; the score is the sum of all pushes."""
    rng, score = Random(seed), 0.0
    for _ in range(length):
        bodies = [Body(rng.uniform(-1, 1)) for _ in range(rng.randrange(4))]
        pushes = agent.act(Obs(score).entities([Wall(rng.random())]).actors(bodies), PUSH)
        if pushes is None:
            return
        if pushes.shape != (len(bodies), 2) or pushes.dtype != np.float32:
            raise ValueError(f"{len(bodies)} bodies were pushed by {pushes!r}")
        score += float(pushes.sum(dtype=np.float64))
    agent.game_over(Obs(score))


bodies_game = Game(play_bodies, entities=(Wall, Body), actions=(PUSH,))
"""A game in which every reward is the sum of the action's numbers."""


class VecTargets(VecRiddle):
    """Asks zero to three actors per row for a point that depends on their features.

    The reward is 1 minus the mean squared distance, in half ranges of the bounds.
    """

    space = ContinuousActionSpace((-2.0, 0.0), (2.0, 100.0), ("force", "angle"))

    def obs_space(self) -> ObsSpace:
        return ObsSpace((), {"Wall": Entity(()), "Unit": Entity(("x",))})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"aim": self.space}

    def ask(
        self, rng: np.random.Generator
    ) -> tuple[dict[str, RaggedArray[np.float32]], dict[str, VecActionMask]]:
        counts = rng.integers(0, 4, self.num_rows)
        x = rng.uniform(-1, 1, size=(int(counts.sum()), 1)).astype(np.float32)
        self.targets = RaggedArray(np.concatenate([1.6 * x, 50 - 40 * x], axis=1), counts.copy())
        walls = RaggedArray(np.zeros((self.num_rows, 0), np.float32), np.ones_like(counts))
        actors = ragged([list(range(1, n + 1)) for n in counts])
        return {"Wall": walls, "Unit": RaggedArray(x, counts)}, {
            "aim": VecContinuousActionMask(actors)
        }

    def judge(self, actions: VecActions) -> NDArray[np.float32]:
        values = np.asarray(actions["aim"])
        if values.shape != self.targets.values.shape or values.dtype != np.float32:
            raise ValueError(f"{self.targets.values.shape} were asked, got {values!r}")
        if (values < self.space.low).any() or (values > self.space.high).any():
            raise ValueError("beyond the bounds")
        error = ((values - self.targets.values) / (2.0, 50.0)) ** 2
        rows = RaggedArray(error.mean(axis=1), self.targets.lengths)
        return np.array([1 - (row.mean() if len(row) else 0) for row in rows], np.float32)
