"""A small game that is learned in a moment, and settings with which it is not."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent


class Side(Enum):
    """What is told of a sign."""

    LEFT = 0
    RIGHT = 1


@dataclass(eq=False)
class Sign:
    """Points to a side, which may be hidden."""

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
    """Tell the side of every sign.

    Args:
        agent, seed: of the game.
        length: steps of an episode, or the least if there is a `longest`, drawn alike.
        longest: see there.
        num_signs: signs at a time.
        reward: for all sides of a step, in equal parts.
        is_hidden: the side cannot be seen.
        is_given: the reward is earned whatever is told.
        forced: share of the steps with one allowed choice.
        is_per_step: the score is wrongly that of the step.
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
