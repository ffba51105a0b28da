"""Mistakes with relations, each an error in every way of playing; and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from entity_env import HIDDEN, Composite, Game, GlobalCategorical, Obs, SchemaError, SelectEntity
from entity_env.agents import Agent, RandomAgent, ScriptedAgent, TrainEnvBuilder
from entity_env.authoring.local_run import Turn
from entity_env.vec import VecEnv
from tests.games.relation_games import (
    GO,
    TRAVEL,
    Base,
    Guard,
    Kind,
    Planet,
    Route,
    Travel,
    play_routes,
    routes,
)
from tests.helpers.strategies import Move, untyped


@dataclass
class OneWay:
    source: Planet
    other: int


@dataclass
class Optional:
    source: Planet
    target: Planet | None


@dataclass
class Three:
    source: Planet
    target: Planet
    via: Planet


@dataclass
class Hub:
    source: Planet
    target: Planet
    via: Planet = field(metadata=HIDDEN)
    size: float = 0.0


@dataclass
class Toll:
    route: Route
    planet: Planet
    base: Base


@dataclass
class Chain:
    source: Planet
    target: Planet
    after: Chain


@dataclass
class Loop:
    x: float
    inner: Loop


def _play(agent: Agent, *, seed: int) -> None:
    """Never called."""


def declared(*relations: Any, entities: Any = (Planet, Base)) -> Callable[[], object]:  # noqa: ANN401
    return lambda: Game(_play, entities=entities, relations=relations, actions=(Move,))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            declared(OneWay),
            r"relation OneWay needs exactly two fields that hold an entity .*Planet, Base",
        ),
        (declared(OneWay), r"got source: add them, or declare their classes in Game\(entities="),
        (declared(Optional), r"got source: target must not be None: show only relations that"),
        (
            declared(Three),
            r"got source, target, via: hide the others with field\(metadata=HIDDEN\)",
        ),
        (declared(Route, entities=(Base,)), r"\(Base\), such as .*, got none"),
        (
            declared(Toll, Route),
            r"relation Toll: field 'route' refers to a relation, expected an en",
        ),
        (declared(Chain), r"relation Chain: field 'after' refers to a relation"),
        (declared(Route, entities=(Planet, Loop)), r"entity Loop: 'inner' contains its own type"),
        (declared(Move), r"a relation must be a dataclass, got <enum 'Move'>"),
        (
            declared(untyped(Route(1, Planet(1), Kind.FAST, Planet(2)))),
            "a relation must be a datacl",
        ),
        (declared(Route, Route), r"entities need different names, 'Route' came twice"),
        (lambda: Game(_play, entities=(Planet,), relations=untyped(Route), actions=()), "a tuple"),
    ],
)
def test_what_is_no_relation_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make()


def test_hidden_references_are_not_counted() -> None:
    game = Game(_play, entities=(Base, Planet), relations=(Hub, Guard), actions=(Move,))
    entities = game.obs_space().entities
    assert list(entities) == ["Base", "Planet", "Hub", "Guard"]
    assert (entities["Hub"].features, entities["Hub"].references) == (
        ("source", "target", "size"),
        ("Planet", "Planet"),
    )
    assert (entities["Guard"].features, entities["Guard"].references) == (
        ("base", "planet"),
        ("Base", "Planet"),
    )
    built = TrainEnvBuilder().entity(Base, Planet).relation(Hub, Guard).action(Move).build(_play)
    assert built.obs_space() == game.obs_space()


A, B, C = Planet(1.0), Planet(2.0), Planet(3.0)
BASE = Base(0.0)


def route(source: Any, target: Any) -> Route:  # noqa: ANN401 - also wrong ones
    return Route(1.0, source, Kind.FAST, target)


def rows(*pairs: tuple[float, float]) -> Any:  # noqa: ANN401 - an array
    return np.array([[*pair, 1, 1, 0] for pair in pairs], dtype=np.float32)


def shown(*parts: Any) -> Callable[[], Obs]:  # noqa: ANN401 - relations
    def obs() -> Obs:
        made = Obs().actors([A, B], GO)
        for part in parts:
            made.relations(part, of=Route if isinstance(part, np.ndarray) else None)
        return made.entities([BASE])

    return obs


NOT_SHOWN = (
    r"relation Route: field 'target' of Route\(.* is Planet\(size=3\.0.*\), expected one of the "
    r"Planet objects that the observation shows: add it with obs\.entities"
)
MISTAKES: list[tuple[Callable[[], Obs], str]] = [
    (shown([route(A, B), route(A, C)]), NOT_SHOWN),
    (shown([route(A, Planet(1.0))]), "expected one of the Planet objects that the observation sho"),
    (
        shown([route(None, B)]),
        r"field 'source' of .* is None, expected a Planet of the observation",
    ),
    (
        shown([route(A, BASE)]),
        r"field 'target' of .* is Base\(x=0\.0\), expected a Planet of the obs",
    ),
    (shown([route(A, B), A]), r"a sequence of Route holds a Planet"),
    (shown([A, B]), r"obs\.relations got a Planet, (which Game declares|expected rel)"),
    (
        lambda: shown()().entities([route(A, B)]),
        r"obs\.entities or obs\.actors got a Route, .* a rel",
    ),
    (lambda: shown()().actors([route(A, B)], GO), r"\(\.\.\.\); a relation cannot act"),
    (lambda: shown()().relations([OneWay(A, 1)]), r"OneWay"),
    (
        shown(rows((0, 2))),
        r"relation Route: 'target' of row 0 is 2, expected a whole number from 0 to 1",
    ),
    (
        shown(rows((0, 1), (-1, 0))),
        r"relation Route: 'source' of row 1 is -1, expected a whole num",
    ),
    (shown(rows((0.5, 0))), r"'source' of row 0 is 0\.5, expected a whole number from 0 to 1: the"),
    (shown(rows((float("nan"), 0))), r"'source' of row 0 is nan, expected a whole number"),
    (shown(rows((1e30, 0))), r"'source' of row 0 is 1e\+30"),
    (
        shown(np.zeros((2, 3), np.float32)),
        r"rows of Route need the shape \(num_entities, 5\), one co",
    ),
    (lambda: Obs().actors([BASE], GO).relations(rows((0, 0)), of=Route), r"observation shows"),
    (
        lambda: Obs().actors([BASE], GO).entities([A, B]).relations([route(A, B)]),
        r"'SelectRoute': an actor chooses among the Route objects that start at it, so it must be "
        r"a Planet, as Route\.source, got a Base",
    ),
    (lambda: shown([route(A, B)])().mask(GO, [[True] * 2] * 2), r"needs the shape .* = \(2, 1\)"),
    (
        lambda: shown([route(A, B)])().mask(GO, [True] * 3),
        r"needs 1 flags, one per relation, or the",
    ),
    (lambda: shown([route(A, B)])().mask(GO, [2]), r"must hold bools"),
    (lambda: shown([route(A, B)])().mask(GO, [[[True]]] * 2), r"three dimensions"),
]


def game_of(make: Callable[[], Obs], *, is_async: bool = False) -> Game:
    """A game of one decision."""

    def play(agent: Agent, *, seed: int) -> None:
        answer = agent.act_async(make(), GO).get() if is_async else agent.act(make(), GO)
        if answer is not None:
            agent.game_over(Obs())

    return Game(play, entities=(Base, Planet), relations=(Route,), actions=(GO,), name="one")


@pytest.mark.parametrize(("make", "message"), MISTAKES)
def test_mistakes_are_errors_in_every_way_of_playing(make: Callable[[], Obs], message: str) -> None:
    for game in (game_of(make), game_of(make, is_async=True)):
        with pytest.raises(SchemaError, match=message):
            game.run(RandomAgent(seed=0))
        with VecEnv(game, 2) as vec, pytest.raises(SchemaError, match=message):
            vec.reset()


def test_an_array_needs_its_class() -> None:
    with pytest.raises(SchemaError, match="an array of entities needs its class"):
        Obs().relations(rows((0, 1)))
    with pytest.raises(SchemaError, match="must be a list, tuple or other collection"):
        Obs().relations(untyped(route(A, B)))


def features_of(make: Callable[[], Obs]) -> list[list[float]]:
    """The rows of `Route`, equal in every way of playing."""
    turns: list[Turn] = []
    game_of(make).run(RandomAgent(seed=0), watch=turns.append)
    found: list[list[float]] = np.asarray(turns[0].observation.features["Route"]).tolist()
    frozen = make().frozen()
    for other in (make, lambda: frozen, frozen.frozen):
        for is_async in (False, True):
            with VecEnv(game_of(other, is_async=is_async), 2) as vec:
                assert vec.reset().features["Route"][1].tolist() == found
    return found


def test_loops_duplicates_and_hidden_entities_are_allowed() -> None:
    twice = route(A, B)
    obs = shown([route(A, A), twice], [], (twice,), rows((1, 0)))
    hidden = lambda: obs().visible(Planet, [False, True]).visible(Route, [True, False, True, True])  # noqa: E731
    expected = [[0, 0], [0, 1], [0, 1], [1, 0]]
    assert [row[:2] for row in features_of(obs)] == expected
    assert [row[:2] for row in features_of(hidden)] == expected
    with VecEnv(game_of(hidden), 2) as vec:
        batch = vec.reset()
        assert batch.visible["Planet"].values.tolist() == [False, True] * 2
        assert batch.visible["Route"].values.tolist() == [True, False, True, True] * 2


def test_an_entity_shown_twice_has_its_first_position() -> None:
    obs = lambda: Obs().actors([A, B], GO).entities([C, B]).relations([route(B, C)])  # noqa: E731
    assert [row[:2] for row in features_of(obs)] == [[1, 2]]


def test_a_frozen_observation_keeps_its_references() -> None:
    planets, one = [A, B], route(A, B)
    obs = Obs().actors(planets, GO).relations([one]).mask(GO, [True])
    frozen = obs.frozen()
    planets.reverse()
    one.source, one.eta = B, 9.0
    assert features_of(lambda: frozen) == [[0, 1, 1, 1, 0]]
    assert frozen.allowed(GO) == [[one], []]
    assert obs.allowed(GO) == [[one], []]  # B is now the first actor


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (None, [[0, 1], [2]]),
        ([True, False, True], [[0], [2]]),
        (np.array([0, 0, 1]), [[], [2]]),
        ([[True, True, False], [True, True, True]], [[0, 1], [2]]),
        (np.array([[1, 0, 1], [0, 0, 0]]), [[0], []]),
    ],
)
def test_masks_have_many_forms(mask: Any, expected: list[list[int]]) -> None:  # noqa: ANN401
    objects = [route(A, B), route(A, A), route(B, A)]
    wanted = [[objects[i] for i in row] for row in expected]
    asked: list[list[list[Route]]] = []

    def make() -> Obs:
        obs = Obs().entities([C]).relations(objects[:1]).actors([A, B], GO).relations(objects[1:])
        return obs if mask is None else obs.mask(GO, mask)

    class Last(ScriptedAgent):
        def choose(self, obs: Obs, *actions: Any) -> Any:  # noqa: ANN401 - an answer
            asked.append(obs.allowed(GO))
            return [row[-1] if row else None for row in asked[-1]]

    game_of(make).run(Last())
    assert asked == [wanted]
    with VecEnv(game_of(make), 2) as vec:
        flags = vec.reset().action_masks["SelectRoute"]
        assert len(flags.actors[0]) == sum(map(bool, expected))


def test_without_relations_nobody_can_choose_one() -> None:
    answers: list[object] = []

    def play(agent: Agent, *, seed: int) -> None:
        for obs in (Obs(), Obs().relations([]), Obs().relations(np.zeros((0, 5)), of=Route)):
            answers.append(agent.act(obs.actors([A, B], GO, TRAVEL), GO, TRAVEL))
        agent.game_over(Obs())

    game = Game(play, entities=(Planet,), relations=(Route,), actions=(GO, TRAVEL))
    game.run(RandomAgent(seed=0))
    assert answers == [([None, None], [None, None])] * 3


def test_every_choice_of_a_route_needs_a_choice_after_it() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        obs = Obs().actors([A, B], TRAVEL).relations([route(A, B), route(B, A)])
        # What is illegal, the route of the other actor, needs no choice after it.
        legal: Any = [[[1, 0], [0, 0]], [[0, 0], [int(seed % 2), 0]]]
        travels = agent.act(obs.mask(TRAVEL.kind, legal, given=TRAVEL.route), TRAVEL)
        if travels is None:
            return
        assert [type(each) for each in travels] == [Travel, Travel]
        agent.game_over(Obs())

    game = Game(play, entities=(Planet,), relations=(Route,), actions=(TRAVEL,))
    game.play_episode(RandomAgent(seed=0), seed=1)
    with pytest.raises(
        SchemaError, match=r"actor 1 has no legal choice after target 1 of 'Travel\.r"
    ):
        game.play_episode(RandomAgent(seed=0), seed=2)


def test_a_route_can_depend_on_the_part_before() -> None:
    @dataclass(frozen=True)
    class First:
        kind: Kind
        route: Route

    first: Composite[First] = Composite(First)

    def play(agent: Agent, *, seed: int) -> None:
        objects = [Route(1.0, a, kind, C) for a in (A, B) for kind in Kind]
        obs = Obs().actors([A, B], first).entities([C]).relations(objects)
        legal = [[each.kind is kind for each in objects] for kind in Kind]
        answers = agent.act(obs.mask(first.route, [legal] * 2, given=first.kind), first)
        if answers is None:
            return
        for planet, each in zip((A, B), answers, strict=True):
            assert each is not None
            assert (each.route.source, each.route.kind) == (planet, each.kind)
        agent.game_over(Obs())

    game = Game(play, entities=(Planet,), relations=(Route,), actions=(first,))
    game.run(RandomAgent(seed=0), episodes=5)
    with VecEnv(game, 2) as vec:
        vec.reset()


def test_any_agent_plays_without_a_declared_game() -> None:
    for seed in range(3):
        play_routes(RandomAgent(seed=seed), seed=seed)
    assert SelectEntity(Route) == GO
    assert GlobalCategorical(Move) not in routes.schema.kinds


@pytest.mark.slow
def test_many_relations() -> None:
    planets = [Planet(float(i)) for i in range(500)]
    many = [route(planets[i % 500], planets[i * 7 % 500]) for i in range(100_000)]
    game = game_of(lambda: Obs().actors(planets[:10], GO).entities(planets[10:]).relations(many))
    [episode] = game.run(RandomAgent(seed=0))
    assert episode.length == 1
    with VecEnv(game, 1) as vec:
        values = vec.reset().features["Route"].values
        numbers = np.arange(100_000)
        assert np.array_equal(values[:, 0], numbers % 500)
        assert np.array_equal(values[:, 1], numbers * 7 % 500)
