"""Compares games of clients in other languages with their Python twins, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import floor
from typing import Annotated, Any, Final

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import entity_env.games
from entity_env import (
    Categorical,
    Composite,
    Continuous,
    Game,
    GlobalComposite,
    Obs,
    Range,
    SelectEntity,
    SplitMix64,
    WorkerError,
)
from entity_env.agents import Agent, RandomAgent, random_actions
from entity_env.core.vec_obs import VecContinuousActionMask, VecObs
from entity_env.replay import record
from entity_env.vec import Autoreset, VecEnv
from entity_env.vec.external.game import ExternalGame
from tests.helpers.batches import assert_same

GAMES: Final = ("snake", "multi_snake", "tic_tac_toe", "cherry_pick")
"""Games that all clients but Lua have, by their names in this package."""
CROWDED: Final[list[dict[str, int]]] = [
    {"board_size": 3, "max_snake_length": 3, "max_step": 30},
    {"board_size": 2, "num_snakes": 1, "max_snake_length": 2},
    {"board_size": 4, "num_snakes": 4, "max_snake_length": 3, "max_step": 5},
]
"""Settings of `multi_snake` with hardly a free cell."""


def twin_of(name: str) -> Game:
    """The game of this package."""
    game: Game = getattr(entity_env.games, name)
    return game


def require_equal(game: Game, twin: Game, autoreset: Autoreset, num_steps: int = 200) -> None:
    """Plays both with equal random actions and partial resets, also of environments that play."""
    rng = np.random.default_rng(3)
    with (
        VecEnv(game, 5, seed=11, autoreset=autoreset) as one,
        VecEnv(twin, 5, seed=11, autoreset=autoreset) as other,
    ):
        assert one.obs_space() == other.obs_space()
        assert dict(one.action_space()) == dict(other.action_space())
        first, second = one.reset(), other.reset()
        for step in range(num_steps):
            _require_same(first, second)
            assert_array_equal(one.is_over, other.is_over)
            is_stuck = autoreset == "disabled" and one.is_over.any()
            if is_stuck or step % 5 == 4:
                chosen = one.is_over if is_stuck and step % 5 else rng.random(5) < 0.3
                first, second = one.reset_envs(chosen), other.reset_envs(chosen)
            else:
                actions = random_actions(second, other.action_space(), rng)
                first, second = one.act(actions), other.act(actions)


def _require_same(first: VecObs, second: VecObs) -> None:
    assert_same(_with_masks_of(second, first), _with_masks_of(first, second))
    assert_array_equal(first.reward, second.reward)
    assert_array_equal(first.terminated, second.terminated)
    assert_array_equal(first.truncated, second.truncated)
    assert [*first.episodes] == [*second.episodes]
    assert (first.final is None) == (second.final is None)
    if first.final is not None and second.final is not None:
        assert_same(first.final, second.final)
        assert_array_equal(first.final.reward, second.final.reward)


def _with_masks_of(other: VecObs, batch: VecObs) -> VecObs:
    """Leaves out masks that allow everything, if the other has none, as after partial resets."""
    masks = dict(batch.action_masks)
    for name, mask in batch.action_masks.items():
        if isinstance(mask, VecContinuousActionMask):
            continue
        is_needed = getattr(other.action_masks[name], "mask", None) is not None
        if mask.mask is None or (not is_needed and mask.mask.values.all()):
            masks[name] = replace(mask, mask=None, per_actor=None)
    return replace(batch, action_masks=masks)


def require_verified(game: Game) -> None:
    """Replays of the game of this package can be verified with its twin, and the reverse."""
    twin = twin_of(game.name)
    for seed in (1, 2, 3, 2**63 - 5):
        for one, other in ((game, twin), (twin, game)):
            replay = record(one, *(RandomAgent(seed=i) for i in range(game.num_agents)), seed=seed)
            assert replay.verify(other) is None


def acted(vec: VecEnv, obs: VecObs, num_steps: int = 1) -> VecObs:
    """The observations after some steps in which all actors choose the second label."""
    for _ in range(num_steps):
        num_actors = len(obs.action_masks["Move"].actors.values)
        obs = vec.act({"Move": np.ones(num_actors, dtype=np.int64)})
    return obs


def require_next_episodes(game: Game, lengths: set[int]) -> None:
    """The game of `odd_games` fails after this many steps, and its next episodes follow."""
    with VecEnv(game, 4, seed=1, on_error="restart") as vec:
        obs = vec.reset()
        for _ in range(3):
            obs = acted(vec, obs, 3)
            assert obs.truncated.any()
            failed = [each for each in obs.episodes if each.metrics == {"error": 1.0}]
            assert {each.length for each in failed} == lengths
            assert len(obs.features["Dot"].values) == 4
        assert {each.number for each in failed} == {2}


def require_failure(game: ExternalGame, **settings: object) -> str:
    """The error of a game that refuses its settings."""
    with pytest.raises(WorkerError) as caught:
        game.with_settings(**settings)
    return str(caught.value)


# ------------------------------------------------------------------ actions of all kinds


class Flag(Enum):
    LOW = 0
    MID = 1
    HIGH = 2


class Turn(Enum):
    BACK = 0
    ON = 1


@dataclass(slots=True, eq=False)
class Car:
    x: float


@dataclass(slots=True, eq=False)
class Rock:
    size: float


@dataclass(slots=True)
class Air:
    wind: float


TURN = Categorical(Turn)
STEER = Continuous("Steer", low=(-1.0, 0.0), high=(1.0, 2.0), labels=("wheel", "gas"))
PICK = SelectEntity(Rock)


def play_kinds(agents: Sequence[Agent], *, seed: int) -> None:
    """Asks two agents for all kinds of actions at once; each leaves at its own time."""
    rng = SplitMix64(seed)
    scores = [0.0, 0.0]
    left = [1 + rng.randrange(4) for _ in agents]
    for turn in range(max(left) + 1):
        pending = []
        for i, agent in enumerate(agents):
            if left[i] < turn:
                continue
            obs, rocks = _look(rng, scores[i])
            if left[i] == turn:
                agent.game_over(obs, truncated=bool(rng.randrange(2)))
            else:
                act_async: Any = agent.act_async  # its overloads have up to three actions
                pending.append((i, rocks, act_async(obs, Flag, TURN, STEER, PICK)))
        for i, rocks, answer in pending:
            answers = answer.get()
            if answers is None:
                return
            scores[i] += _worth(answers, rocks)


def _mask(rng: SplitMix64, count: int) -> list[bool]:
    allowed = [bool(rng.randrange(2)) for _ in range(count)]
    allowed[rng.randrange(count)] = True
    return allowed


def _look(rng: SplitMix64, score: float) -> tuple[Obs, list[Rock]]:
    obs = Obs(score).globals(Air(rng.random()))
    cars = [Car(rng.random()) for _ in range(1 + rng.randrange(3))]
    rocks = [Rock(rng.random()) for _ in range(1 + rng.randrange(3))]
    obs.actors(cars, TURN, PICK).actors(rocks, STEER)
    if rng.randrange(2):
        visible = [bool(rng.randrange(2)) for _ in rocks]
        if not all(visible):  # flags without effect would be in frames of Python only
            obs.visible(Rock, visible)
    if rng.randrange(2):
        obs.metric("rocks", len(rocks))
    flag, turn, pick = (rng.randrange(2) for _ in range(3))
    if flag:
        obs.mask(Flag, _mask(rng, len(Flag)))
    if turn:
        obs.mask(TURN, [_mask(rng, len(Turn)) for _ in cars])
    if pick:
        obs.mask(PICK, [_mask(rng, len(rocks)) for _ in cars])
    return obs, rocks


def _worth(answers: Any, rocks: list[Rock]) -> float:  # noqa: ANN401
    """A number that differs between answers; exact in any order of the sums."""
    flag, turns, pushes, picked = answers
    found = float(flag.value)
    for i, (turn, rock) in enumerate(zip(turns, picked, strict=True), 1):
        found += i * (turn.value + 1) + 8 * i * rocks.index(rock)
    for wheel, gas in pushes.tolist():
        found += floor(16 * wheel) / 16 + floor(16 * gas) / 8
    return found


kinds: Final = Game(
    play_kinds,
    entities=(Car, Rock),
    actions=(Flag, TURN, STEER, PICK),
    global_features=Air,
    num_agents=2,
)
"""A game with actions of all kinds, which `odd_games.c` also has."""


@dataclass(frozen=True)
class Signal:
    turn: Turn
    flag: Flag


@dataclass(frozen=True)
class Haul:
    rock: Rock
    load: Flag
    is_fast: bool
    weight: Annotated[float, Range(0.0, 2.0)]


SIGNAL, HAUL = GlobalComposite(Signal), Composite(Haul)


def play_parts(agent: Agent, *, seed: int) -> None:
    """Asks for decisions in several parts, also of cars that can choose no rock."""
    rng, score = SplitMix64(seed), 0.0
    for _ in range(4):
        cars = [Car(rng.random()) for _ in range(1 + rng.randrange(3))]
        rocks = [Rock(rng.random()) for _ in range(1 + rng.randrange(3))]
        obs = Obs(score).actors(cars, HAUL).entities(rocks)
        if rng.randrange(2):
            near = [_mask(rng, len(rocks))]
            near += [[bool(rng.randrange(2)) for _ in rocks] for _ in cars[1:]]
            obs.mask(HAUL.rock, near)
        loads = [[_mask(rng, len(Flag)) for _ in rocks] for _ in cars]
        obs.mask(HAUL.load, loads, given=HAUL.rock)
        if rng.randrange(2):
            flags = [_mask(rng, len(Flag)) for _ in Turn]
            obs.mask(SIGNAL.flag, flags, given=SIGNAL.turn)
        answers = agent.act(obs, SIGNAL, HAUL)
        if answers is None:
            return
        signal, hauls = answers
        score += 3 * signal.turn.value + signal.flag.value
        for i, haul in enumerate(hauls, 1):
            if haul is not None:
                number = 8 * rocks.index(haul.rock) + 100 * haul.load.value + 1000 * haul.is_fast
                score += i * number + floor(16 * haul.weight) / 16
    agent.game_over(Obs(score).entities([Rock(0.5)]))


parts: Final = Game(play_parts, entities=(Car, Rock), actions=(SIGNAL, HAUL), name="parts")
"""A game with decisions in several parts, which tests of all clients but Lua also have."""


def play_signals(agent: Agent, *, seed: int) -> None:
    """Asks for a decision of the whole observation."""
    rng, score = SplitMix64(seed), 0.0
    for _ in range(4):
        answer = agent.act(_look_at_rocks(rng, score), SIGNAL)
        if answer is None:
            return
        score += 3 * answer.turn.value + answer.flag.value
    agent.game_over(_look_at_rocks(rng, score), truncated=bool(rng.randrange(2)))


def _look_at_rocks(rng: SplitMix64, score: float) -> Obs:
    obs = Obs(score).entities([Rock(rng.random()) for _ in range(rng.randrange(3))])
    if rng.randrange(2):
        obs.mask(SIGNAL.turn, _mask(rng, len(Turn)))
    if rng.randrange(2):
        obs.mask(SIGNAL.flag, [_mask(rng, len(Flag)) for _ in Turn], given=SIGNAL.turn)
    elif rng.randrange(2):
        obs.mask(SIGNAL.flag, _mask(rng, len(Flag)))
    return obs


signals: Final = Game(play_signals, entities=(Rock,), actions=(SIGNAL,), name="signals")
"""A game with a decision in several parts for Lua, which has no actors."""


@dataclass(slots=True, eq=False)
class Road:
    hours: float
    start: Car
    end: Rock


@dataclass(slots=True, eq=False)
class Gap:
    """A relation without further features."""

    one: Rock
    other: Rock


@dataclass(frozen=True)
class Trip:
    flag: Flag
    road: Road
    speed: Flag


GO, TRIP = SelectEntity(Road), Composite(Trip)


def play_roads(agent: Agent, *, seed: int) -> None:
    """Lets cars choose roads, alone and in a decision; some have none, or several to a rock."""
    rng, score = SplitMix64(seed), 0.0
    for _ in range(4):
        obs, roads = _look_at_roads(rng, score)
        answers = agent.act(obs, GO, TRIP)
        if answers is None:
            return
        for i, (road, trip) in enumerate(zip(*answers, strict=True), 1):
            score += 0 if road is None else i * (1 + roads.index(road))
            if trip is not None:
                number = 40 * trip.flag.value + 200 * trip.speed.value
                score += i * (number + 1000 * roads.index(trip.road))
    agent.game_over(_look_at_roads(rng, score)[0], truncated=bool(rng.randrange(2)))


def _look_at_roads(rng: SplitMix64, score: float) -> tuple[Obs, list[Road]]:
    cars = [Car(rng.random()) for _ in range(1 + rng.randrange(3))]
    rocks = [Rock(rng.random()) for _ in range(1 + rng.randrange(3))]
    pairs = [(car, rock) for rock in rocks for car in cars]
    roads = [Road(rng.random(), *pairs[0])]
    roads += [Road(rng.random(), *pair) for pair in pairs for _ in range(rng.randrange(3))]
    gaps = [Gap(one, other) for one in rocks for other in rocks if rng.randrange(2)]
    obs = Obs(score).relations(gaps).relations(roads).actors(cars, GO, TRIP).entities(rocks)
    if rng.randrange(2):
        obs.mask(GO, [_open(rng, roads) for _ in cars])
    elif rng.randrange(2):
        obs.mask(GO, _open(rng, roads))
    if rng.randrange(2):
        legal = [[_open(rng, roads) for _ in Flag] for _ in cars]
        for of_car, car in zip(legal, cars, strict=True):
            for flags in of_car:  # a road after every flag, for cars that have one
                for i, road in enumerate(roads):
                    flags[i] |= road.start is car
        obs.mask(TRIP.road, legal, given=TRIP.flag)
    if rng.randrange(2):
        obs.mask(
            TRIP.speed, [[_mask(rng, len(Flag)) for _ in roads] for _ in cars], given=TRIP.road
        )
    visible = _open(rng, roads)
    if not all(visible):
        obs.visible(Road, visible)
    return obs, roads


def _open(rng: SplitMix64, roads: list[Road]) -> list[bool]:
    """A random flag for each road; the first one is open, so some car has a choice."""
    return [i == 0 or flag for i, flag in enumerate([bool(rng.randrange(4)) for _ in roads])]


roads: Final = Game(
    play_roads, entities=(Car, Rock), relations=(Gap, Road), actions=(GO, TRIP), name="roads"
)
"""A game with relations, which tests of all clients but Lua also have."""
