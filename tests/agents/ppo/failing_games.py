"""A small game that is learned in a moment, and settings that prevent learning."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent


class Side(Enum):
    """Answers about a sign."""

    LEFT = 0
    RIGHT = 1


@dataclass(eq=False)
class Sign:
    """Points to a side, possibly hidden."""

    side: float


SIDE = Categorical(Side)


def _play(
    agent: Agent,
    *,
    seed: int,
    length: int = 10,
    longest: int = 0,
    num_signs: int = 1,
    reward: float = 1.0,
    is_hidden: bool = False,
    is_given: bool = False,
    forced: float = 0.0,
    is_per_step: bool = False,
) -> None:
    """Name the side of every sign.

    Args:
        agent, seed: of the game.
        length: steps of an episode; with `longest`, the shortest of uniformly random lengths.
        longest: see `length`.
        num_signs: number of signs per step.
        reward: for all signs of a step, in equal parts.
        is_hidden: the side is not observed.
        is_given: the reward does not depend on the answers.
        forced: share of the steps with one allowed choice.
        is_per_step: a mistake: the score is the reward of the step.
    """
    rng, score = random.Random(seed), 0.0
    for _ in range(rng.randint(length, max(length, longest))):
        sides = [rng.choice([-1, 1]) for _ in range(num_signs)]
        signs = [Sign(0.0 if is_hidden else side) for side in sides]
        obs = Obs(score).actors(signs)
        if rng.random() < forced:
            obs.mask(SIDE, [[True, False]] * num_signs)
        told = agent.act(obs, SIDE)
        if told is None:
            return
        right = sum((2 * each.value - 1) == side for each, side in zip(told, sides, strict=True))
        earned = reward * (1.0 if is_given else right / num_signs)
        score = earned if is_per_step else score + earned
    agent.game_over(Obs(score).actors([Sign(0.0)] * num_signs), truncated=False)


signs = Game(_play, entities=(Sign,), actions=(SIDE,), name="signs")
