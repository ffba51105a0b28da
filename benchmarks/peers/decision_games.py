"""Games of `benchmarks/decisions.py`: parts that must agree, relations, and many actors."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from enum import Enum
from typing import Final

from entity_env import Composite, Game, GlobalCategorical, GlobalComposite, Obs, SelectEntity
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
    """Attacks."""

    x: float
    y: float


@dataclass
class Enemy:
    """Can be attacked."""

    x: float
    y: float


@dataclass
class Distance:
    """How far an enemy is."""

    ship: Ship
    enemy: Enemy
    distance: float


ATTACK: Final = SelectEntity(Enemy)


def attack(agent: Agent, *, seed: int, has_relations: bool = True) -> None:
    """In every round, the ship attacks one of eight enemies; the nearest one earns a point."""
    rng, score = random.Random(seed), 0.0
    for _ in range(NUM_ROUNDS):
        ship = Ship(rng.uniform(-1, 1), rng.uniform(-1, 1))
        enemies = [Enemy(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(NUM_ENEMIES)]
        gaps = [math.hypot(each.x - ship.x, each.y - ship.y) for each in enemies]
        obs = Obs(score).actors([ship]).entities(enemies)
        if has_relations:
            pairs = zip(enemies, gaps, strict=True)
            obs.relations([Distance(ship, each, gap) for each, gap in pairs])
        chosen = agent.act(obs, ATTACK)
        if chosen is None:
            return
        score += float(chosen[0] is enemies[gaps.index(min(gaps))])
    agent.game_over(Obs(score))


related: Final = Game(
    attack, entities=(Ship, Enemy), relations=(Distance,), actions=(ATTACK,), name="related"
)
placed: Final = Game(
    attack, entities=(Ship, Enemy), actions=(ATTACK,), name="placed"
).with_settings(has_relations=False)


# ------------------------------------------------------------------ many actors


@dataclass
class Depot:
    """An actor; cannot send more than its trucks."""

    trucks: int
    x: float


@dataclass
class Town:
    """A place that still needs trucks."""

    need: int
    x: float


class Trucks(Enum):
    """How many to send."""

    ONE = 1
    TWO = 2
    THREE = 3


@dataclass(frozen=True)
class Send:
    """Trucks of one depot."""

    town: Town
    trucks: Trucks


SEND: Final = Composite(Send)


def play_convoys(agent: Agent, *, seed: int, num_depots: int = 6, num_towns: int = 8) -> None:
    """Every needed truck scores 1, less the distance; several depots may serve one town."""
    rng, score = random.Random(seed), 0.0
    for _ in range(8):
        depots = [Depot(rng.randint(1, 3), rng.random()) for _ in range(num_depots)]
        towns = [Town(rng.randint(1, 3), rng.random()) for _ in range(num_towns)]
        obs = Obs(score).actors(depots, SEND).entities(towns)
        enough = [
            [[each.value <= min(depot.trucks, town.need) for each in Trucks] for town in towns]
            for depot in depots
        ]
        sent = agent.act(obs.mask(SEND.trucks, enough, given=SEND.town), SEND)
        if sent is None:
            return
        for depot, send in zip(depots, sent, strict=True):
            if send is not None:
                helped = min(send.town.need, send.trucks.value)
                send.town.need -= helped
                score += helped - abs(depot.x - send.town.x)
    agent.game_over(Obs(score))


convoys: Final = Game(play_convoys, entities=(Depot, Town), actions=(SEND,), name="convoys")
