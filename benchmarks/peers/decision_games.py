"""Games of `benchmarks/decisions.py`: parts that must agree, and facts about pairs of entities."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

from entity_env import HIDDEN, Game, GlobalCategorical, GlobalComposite, Obs, SelectEntity
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


# ---------------------------------------------------------------- the nearest enemy

NUM_ENEMIES: Final = 8


@dataclass
class Ship:
    x: float
    y: float


@dataclass
class Enemy:
    x: float
    y: float


@dataclass
class Attacker:
    """A ship whose position is not shown."""

    x: float = field(metadata=HIDDEN)
    y: float = field(metadata=HIDDEN)


@dataclass
class Target:
    """An enemy whose position is not shown."""

    x: float = field(metadata=HIDDEN)
    y: float = field(metadata=HIDDEN)


@dataclass
class Distance:
    """How far a target is."""

    ship: Attacker
    target: Target
    distance: float


ATTACK: Final = SelectEntity(Target)
ATTACK_PLACED: Final = SelectEntity(Enemy)


def attack(agent: Agent, *, seed: int, has_relations: bool = True) -> None:
    """In every round, the ship attacks one of eight enemies; the nearest one earns a point.

    Either relations show how far the enemies are, or entities show where they are.
    """
    rng, score = random.Random(seed), 0.0
    classes: tuple[Any, Any] = (Attacker, Target) if has_relations else (Ship, Enemy)
    own, other = classes
    for _ in range(NUM_ROUNDS):
        ship = own(rng.uniform(-1, 1), rng.uniform(-1, 1))
        enemies = [other(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(NUM_ENEMIES)]
        gaps = [math.hypot(each.x - ship.x, each.y - ship.y) for each in enemies]
        obs = Obs(score).actors([ship]).entities(enemies)
        if has_relations:
            pairs = zip(enemies, gaps, strict=True)
            obs.relations([Distance(ship, each, gap) for each, gap in pairs])
        chosen = agent.act(obs, ATTACK if has_relations else ATTACK_PLACED)
        if chosen is None:
            return
        nearest = enemies[gaps.index(min(gaps))]
        score += float(chosen[0] is nearest)
    agent.game_over(Obs(score))


related: Final = Game(
    attack, entities=(Attacker, Target), relations=(Distance,), actions=(ATTACK,), name="related"
)
placed: Final = Game(
    attack, entities=(Ship, Enemy), actions=(ATTACK_PLACED,), name="placed"
).with_settings(has_relations=False)
