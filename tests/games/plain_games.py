"""A game that imports no numpy, with every kind of action and mask; `play_all` plays it.

    python -m tests.games.plain_games

prints what happened as JSON, and fails if numpy was imported.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from random import Random
from typing import Annotated, Any

from entity_env import (
    Categorical,
    Composite,
    Game,
    GlobalComposite,
    Obs,
    Range,
    SelectEntity,
)
from entity_env.agents import Agent, ScriptedAgent
from entity_env.page.live.players import RandomPlayer
from entity_env.replay import ReplayWriter


class Gear(Enum):
    SLOW = 1
    MIDDLE = 2
    FAST = 3


@dataclass(slots=True)
class Depot:
    x: float


@dataclass(slots=True)
class Town:
    x: float
    gear: Gear


@dataclass(slots=True)
class Weather:
    wind: float


@dataclass(slots=True)
class Road:
    start: Depot
    end: Town
    length: float


@dataclass(frozen=True)
class Send:
    """Of each depot."""

    gear: Gear
    town: Town
    share: Annotated[float, Range(0.0, 0.5)]


@dataclass(frozen=True)
class Order:
    """Of the observation, with a target."""

    town: Town
    gear: Gear
    far: bool


@dataclass(frozen=True)
class Tune:
    """Of the observation, without a target."""

    gear: Gear
    loud: bool


@dataclass(frozen=True)
class Drive:
    """Of each depot, along one of its own roads."""

    road: Road
    gear: Gear


SHIFT, TARGET, TRAVEL = Categorical(Gear, "shift"), SelectEntity(Town), SelectEntity(Road)
SEND, DRIVE = Composite(Send), Composite(Drive)
ORDER, TUNE = GlobalComposite(Order), GlobalComposite(Tune)
SEEDS = range(4)
ACTIONS = (Gear, SHIFT, TARGET, TRAVEL, SEND, DRIVE, ORDER, TUNE)


def _row(rng: Random, count: int) -> list[bool]:
    """At least one is allowed."""
    row = [rng.random() < 0.6 for _ in range(count)]
    row[rng.randrange(count)] = True
    return row


def _rows(rng: Random, num_rows: int, count: int) -> list[list[bool]]:
    return [_row(rng, count) for _ in range(num_rows)]


def _nested(rng: Random, num_actors: int, num_earlier: int, count: int) -> list[Any]:
    return [_rows(rng, num_earlier, count) for _ in range(num_actors)]


def play(agents: Sequence[Agent], *, seed: int, masked: bool = True, num_steps: int = 12) -> None:
    rng = Random(seed)
    scores = [0.0, 0.0]
    for step in range(num_steps):
        for i, agent in enumerate(agents):
            kind = ACTIONS[(step + i) % len(ACTIONS)]
            obs, depots = _look(rng, scores[i])
            if masked:
                _mask(rng, obs, kind, depots, len(obs.of_class(Town)))
            answer = agent.act(obs, kind) if step % 3 else agent.act_async(obs, kind).get()
            if answer is None:
                return
            scores[i] += len(repr(answer)) / 8
    for i, agent in enumerate(agents):
        obs, _ = _look(rng, scores[i])
        agent.game_over(obs.mask(Gear, _row(rng, 3)), truncated=bool(seed % 2))


def _look(rng: Random, score: float) -> tuple[Obs, list[Depot]]:
    depots = [Depot(rng.random()) for _ in range(rng.randint(1, 3))]
    towns = [Town(rng.random(), rng.choice(list(Gear))) for _ in range(rng.randint(1, 4))]
    roads = [Road(depot, town, depot.x + town.x) for depot in depots for town in towns]
    roads = [road for road in roads if rng.random() < 0.7 or road.end is towns[0]]
    obs = Obs(score).globals(Weather(rng.random())).metric("towns", len(towns))
    obs.actors(depots).entities(towns).relations(roads)
    if rng.random() < 0.5:
        obs.visible(Town, [rng.random() < 0.5 for _ in towns])
    return obs, depots


def _mask(rng: Random, obs: Obs, kind: Any, depots: Sequence[Depot], num_towns: int) -> None:  # noqa: ANN401 - an action
    count = len(depots)
    if kind in (Gear, SHIFT):
        obs.mask(kind, _row(rng, 3) if kind is Gear else _rows(rng, count, 3))
    elif kind is TARGET:
        # An actor may have no target.
        obs.mask(kind, [[rng.random() < 0.5 for _ in range(num_towns)] for _ in range(count)])
    elif kind is TRAVEL:
        roads = obs.of_class(Road)
        obs.mask(kind, [road.end is not None for road in roads])
    elif kind is SEND:
        obs.mask(SEND.gear, _rows(rng, count, 3))
        obs.mask(SEND.town, _nested(rng, count, 3, num_towns), given=SEND.gear)
    elif kind is DRIVE:
        obs.mask(DRIVE.gear, _nested(rng, count, len(obs.of_class(Road)), 3), given=DRIVE.road)
    elif kind is ORDER:
        obs.mask(ORDER.town, _row(rng, num_towns))
        obs.mask(ORDER.gear, _rows(rng, num_towns, 3), given=ORDER.town)
        obs.mask(ORDER.far, _rows(rng, 3, 2), given=ORDER.gear)
    elif kind is TUNE:
        obs.mask(TUNE.loud, _rows(rng, 3, 2), given=TUNE.gear)


plain = Game(
    play,
    entities=(Depot, Town),
    relations=(Road,),
    actions=ACTIONS,
    global_features=Weather,
    num_agents=2,
    name="plain",
)


class LastAllowed(ScriptedAgent):
    """Answers with the game's own objects."""

    def choose(self, obs: Obs, *actions: Any) -> Any:  # noqa: ANN401 - of every kind
        kind = actions[0]
        if kind in (SEND, DRIVE, ORDER, TUNE):
            return self._parts(obs, kind)
        allowed = obs.allowed(kind)
        if kind is Gear:
            return allowed[-1]
        return [own[-1] if own else None for own in allowed]

    def _parts(self, obs: Obs, kind: Any) -> Any:  # noqa: ANN401 - a decision
        is_global = kind in (ORDER, TUNE)
        before: Any = None
        columns: list[list[Any]] = []
        for field, part in kind.parts.items():
            if field == "share":
                columns.append([0.25] * len(columns[0]))
                continue
            rows = obs.allowed(part, after=before)
            before = [own[-1] for own in ([rows] if is_global else rows)]
            columns.append(before)
            before = before[0] if is_global else before
        decisions = [kind.cls(*parts) for parts in zip(*columns, strict=True)]
        return decisions[0] if is_global else decisions


def play_all(players: Sequence[Callable[[int], Agent]], seeds: Sequence[int]) -> list[Any]:
    """Rewards, and lines of replays, with the decisions and checksums of all observations."""
    found: list[Any] = []
    for masked, seed, player in product((True, False), seeds, players):
        writer = ReplayWriter(agents=["a", "b"])
        game = plain.with_settings(masked=masked)
        episodes = game.run(player(seed), player(seed + 1), seed=seed, watch=writer)
        found.append([each.reward for each in episodes])
        found.append([repr(line) for line in writer.replays[0].lines])
    return found


PLAYERS: Sequence[Callable[[int], Agent]] = (RandomPlayer, lambda seed: LastAllowed())


def main() -> None:
    sys.meta_path.insert(0, _NoNumpy())
    sys.stdout.write(json.dumps(play_all(PLAYERS, SEEDS)))


class _NoNumpy:
    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name.partition(".")[0] == "numpy":
            raise ModuleNotFoundError("No module named 'numpy'", name="numpy")


if __name__ == "__main__":
    main()
