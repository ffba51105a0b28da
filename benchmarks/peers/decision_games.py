"""Games of `benchmarks/decisions.py` whose decisions have parts that must agree."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from entity_env import Game, GlobalCategorical, GlobalComposite, Obs
from entity_env.agents import Agent

NUM_ROUNDS: Final = 16


class Lane(Enum):
    """Where to go."""

    LEFT = 0
    RIGHT = 1


@dataclass(frozen=True)
class Pass:
    """Both players of a pass must take the same lane."""

    runner: Lane
    ball: Lane


@dataclass
class Round:
    """The observation, which does not show the last pass."""

    number: int


PASS: Final = GlobalComposite(Pass)
RUNNER: Final = GlobalCategorical(Lane, "runner")
BALL: Final = GlobalCategorical(Lane, "ball")


def play(agent: Agent, *, seed: int, has_parts: bool = True) -> None:
    """A pass succeeds if runner and ball take the same lane, and not that of the last pass.

    The last lane is not shown, so the best players choose at random, but both parts alike.
    """
    last, score, agreed = random.Random(seed).choice(list(Lane)), 0.0, 0
    for number in range(NUM_ROUNDS):
        obs = Obs(score).globals(Round(number))
        if has_parts:
            decision = agent.act(obs, PASS)
            if decision is None:
                return
            runner, ball = decision.runner, decision.ball
        else:
            lanes = agent.act(obs, RUNNER, BALL)
            if lanes is None:
                return
            runner, ball = lanes
        score += float(runner is ball is not last)
        agreed += runner is ball
        last = ball
    agent.game_over(Obs(score).metric("agree", agreed / NUM_ROUNDS))


parts: Final = Game(play, entities=(), actions=(PASS,), global_features=Round, name="parts")
apart: Final = Game(
    play, entities=(), actions=(RUNNER, BALL), global_features=Round, name="apart"
).with_settings(has_parts=False)
