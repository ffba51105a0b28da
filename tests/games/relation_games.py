"""Games with facts about pairs of entities: a fixed one, and random ones with their plain rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from itertools import compress
from random import Random
from typing import Annotated, Any

import numpy as np

from entity_env import HIDDEN, Composite, Game, GlobalComposite, Obs, Range, SelectEntity
from entity_env.agents import Agent


@dataclass
class Base:
    x: float


@dataclass
class Planet:
    size: float
    name: str = field(default="", metadata=HIDDEN)


class Kind(Enum):
    FAST = 0
    SAFE = 1


@dataclass
class Route:
    eta: float
    source: Planet
    kind: Kind
    target: Planet


@dataclass
class Guard:
    """A relation between two classes, without further fields."""

    base: Base
    planet: Planet


@dataclass(frozen=True)
class Travel:
    route: Route
    kind: Kind


GO = SelectEntity(Route)
TRAVEL = Composite(Travel)


@dataclass(frozen=True)
class Convoy:
    kind: Kind
    route: Route
    size: Annotated[float, Range(0.0, 9.0)]


CONVOY = GlobalComposite(Convoy)


def play_routes(agent: Agent, *, seed: int, num_planets: int = 4) -> None:
    """Each planet chooses one of its routes; the one with the smallest `eta` scores."""
    rng, score = Random(seed), 0.0
    for _ in range(5):
        planets = [Planet(rng.randrange(9), f"P{i}") for i in range(num_planets)]
        routes = [
            Route(float(rng.randrange(1, 9)), a, rng.choice(list(Kind)), b)
            for a in planets
            for b in planets
            if a is b or rng.random() < 0.5
        ]
        chosen = agent.act(Obs(score).relations(routes).actors(planets), GO)
        if chosen is None:
            return
        for planet, route in zip(planets, chosen, strict=True):
            assert route is not None
            assert route.source is planet
            score += (route.eta == min(r.eta for r in routes if r.source is planet)) / 10
    agent.game_over(Obs(score))


routes = Game(
    play_routes, entities=(Planet,), relations=(Route,), actions=(GO,), name="routes", version=1
)


def play_travels(agent: Agent, *, seed: int) -> None:
    """Each planet chooses a route and a kind, which must be that of the route."""
    rng, score = Random(seed), 0.0
    for _ in range(4):
        planets = [Planet(rng.randrange(9)) for _ in range(3)]
        shown = [
            Route(1.0, a, rng.choice(list(Kind)), b) for a in planets for b in planets if a is not b
        ]
        obs = Obs(score).actors(planets, TRAVEL).relations(shown)
        legal = [[route.kind is kind for kind in Kind] for route in shown]
        obs.mask(TRAVEL.kind, [legal] * len(planets), given=TRAVEL.route)
        travels = agent.act(obs, TRAVEL)
        if travels is None:
            return
        for planet, travel in zip(planets, travels, strict=True):
            assert isinstance(travel, Travel)
            assert travel.route.source is planet
            assert travel.route.kind is travel.kind
        score += 0.1
    agent.game_over(Obs(score))


travels = Game(
    play_travels, entities=(Planet,), relations=(Route,), actions=(TRAVEL,), name="travels"
)


def play_convoys(agent: Agent, *, seed: int) -> None:
    """One convoy on any route, in odd steps of its kind; its size should be the route's `eta`."""
    rng, score = Random(seed), 0.0
    for step in range(4):
        planets = [Planet(rng.randrange(9)) for _ in range(3)]
        shown = [
            Route(float(rng.randrange(9)), rng.choice(planets), Kind(i % 2), planets[0])
            for i in range(5)
        ]
        obs = Obs(score).relations(shown).actors(planets)
        of_kind = [[route.kind is kind for route in shown] for kind in Kind]
        if step % 2:
            obs.mask(CONVOY.route, of_kind, given=CONVOY.kind)
        convoy = agent.act(obs, CONVOY)
        if convoy is None:
            return
        assert convoy.route in shown
        assert convoy.route.kind is convoy.kind or not step % 2
        score -= abs(convoy.size - convoy.route.eta) / 10
    agent.game_over(Obs(score))


convoys = Game(
    play_convoys, entities=(Planet,), relations=(Route,), actions=(CONVOY,), name="convoys"
)

# ------------------------------------------------------------------ random games

NUM_STEPS = 3
PLANET, BASE = 0, 1


@dataclass
class Where:
    number: float
    step: float


@dataclass
class RandomScene:
    """What a step shows: numbers of entities, and relations as pairs of their positions."""

    num_planets: int
    num_bases: int
    routes: list[tuple[float, int, Kind, int]]
    guards: list[tuple[int, int]]
    visible: list[bool]
    routes_visible: list[bool]
    actors: list[int]
    """Positions of the planets that act: the last ones."""
    mask: list[list[bool]] | None
    """Which routes each actor can choose, by the game's own mask."""
    is_flat: bool
    """Whether `mask` is one list for all actors."""

    def rows(self) -> tuple[list[list[float]], list[list[float]]]:
        """The rows of routes and guards that an agent sees."""
        routes = [
            [float(a), float(b), eta, float(kind is Kind.FAST), float(kind is Kind.SAFE)]
            for eta, a, kind, b in self.routes
        ]
        return routes, [[float(a), float(b)] for a, b in self.guards]

    def legal(self, actor: int) -> list[bool]:
        """The routes that an actor, by its number among the actors, can choose."""
        own = [route[1] == self.actors[actor] for route in self.routes]
        if self.mask is None:
            return own
        return [a and b for a, b in zip(own, self.mask[actor], strict=True)]


@cache
def scene_of(number: int, step: int) -> RandomScene:
    """The scene of a step; the same for the same arguments."""
    rng = Random(f"{number}/{step}")
    planets, bases = rng.randrange(5), rng.randrange(3)
    routes = [
        (float(rng.randrange(9)), rng.randrange(planets), rng.choice(list(Kind)), b)
        for b in (rng.randrange(planets) for _ in range(rng.choice((0, 1, 9)) if planets else 0))
    ]
    num_guards = rng.randrange(4) if planets and bases else 0
    guards = [(rng.randrange(bases), rng.randrange(planets)) for _ in range(num_guards)]
    num_actors = rng.randrange(planets + 1)
    is_flat, mask = rng.random() < 0.3, None
    if rng.random() < 0.7:
        rows = [[rng.random() < 0.7 for _ in routes] for _ in range(num_actors)]
        mask = [rows[0] if is_flat else row for row in rows]
    return RandomScene(
        planets,
        bases,
        routes,
        guards,
        [rng.random() < 0.8 for _ in range(planets)],
        [rng.random() < 0.8 for _ in routes],
        [*range(planets - num_actors, planets)],
        mask,
        is_flat,
    )


def play_random(agent: Agent, *, seed: int, arrays: bool = False) -> None:
    """Shows scenes with groups in any order; asserts that every answer is legal.

    With `arrays`, all entities and relations are arrays.
    """
    score, number = 0.0, seed % 2**16
    for step in range(NUM_STEPS):
        scene = scene_of(number, step)
        rng = Random(f"{number}/{step}/shown")
        planets = [Planet(float(i)) for i in range(scene.num_planets)]
        bases = [Base(float(i)) for i in range(scene.num_bases)]
        shown = [Route(eta, planets[a], kind, planets[b]) for eta, a, kind, b in scene.routes]
        guards = [Guard(bases[a], planets[b]) for a, b in scene.guards]
        obs = Obs(score).globals(Where(number, step))
        first = scene.num_planets - len(scene.actors)
        parts: list[list[tuple[str, Sequence[Any]]]] = [
            [*_split(rng, "entities", planets[:first]), ("actors", planets[first:])],
            _split(rng, "entities", bases),
            _split(rng, "relations", shown),
            _split(rng, "relations", guards),
        ]
        _show(obs, rng, parts, scene if arrays else None)
        if scene.mask is not None and scene.actors:
            mask: Any = scene.mask[0] if scene.is_flat else scene.mask
            obs.mask(GO, np.array(mask, dtype=np.bool_) if rng.random() < 0.5 else mask)
        if rng.random() < 0.5:
            obs.visible(Planet, scene.visible)
        if shown and rng.random() < 0.5:
            obs.visible(Route, scene.routes_visible)
        answers = agent.act(obs, GO)
        if answers is None:
            return
        assert len(answers) == len(scene.actors)
        for i, answer in enumerate(answers):
            legal = scene.legal(i)
            assert (answer is not None) == any(legal)
            if answer is None:
                continue
            if arrays:
                row: Any = answer
                assert row.tolist() in list(compress(scene.rows()[0], legal))
                score += float(row[2]) * (i + 1)
                continue
            choice = [each is answer for each in shown].index(True)
            assert legal[choice]
            score += answer.eta * (i + 1)
    agent.game_over(Obs(score).globals(Where(number, NUM_STEPS)), truncated=bool(seed % 2))


def _split(rng: Random, how: str, objects: list[Any]) -> list[tuple[str, Sequence[Any]]]:
    """The objects in up to three groups, in order."""
    cuts = sorted(rng.randrange(len(objects) + 1) for _ in range(2))
    groups = objects[: cuts[0]], objects[cuts[0] : cuts[1]], objects[cuts[1] :]
    return [(how, tuple(each) if rng.random() < 0.3 else each) for each in groups]


def _show(
    obs: Obs, rng: Random, parts: list[list[tuple[str, Sequence[Any]]]], scene: RandomScene | None
) -> None:
    """Shows all groups, mixed; of each class in order."""
    done: dict[type, int] = {}
    while parts := [each for each in parts if each]:
        how, group = rng.choice(parts).pop(0)
        if how == "actors":
            rows, of = (group, None) if scene is None else (_array(group), Planet)
            obs.actors(rows, GO, of=of)
        elif scene is None or not group:
            (obs.entities if how == "entities" else obs.relations)(group)
        elif how == "entities":
            obs.entities(_array(group), of=type(group[0]))
        else:
            cls = type(group[0])
            rows = scene.rows()[cls is Guard][done.get(cls, 0) :][: len(group)]
            done[cls] = done.get(cls, 0) + len(group)
            obs.relations(np.array(rows, dtype=np.float32), of=cls)


def _array(group: Sequence[Any]) -> Any:  # noqa: ANN401 - an array
    numbers = [[each.size if isinstance(each, Planet) else each.x] for each in group]
    return np.array(numbers, dtype=np.float32).reshape(-1, 1)


random_relations = Game(
    play_random,
    entities=(Base, Planet),
    relations=(Route, Guard),
    actions=(GO,),
    global_features=Where,
    name="random_relations",
)
