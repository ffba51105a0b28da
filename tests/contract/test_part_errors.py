"""Mistakes in decisions in several parts: one clear error, in local play and in batches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, make_dataclass
from enum import Enum
from typing import Annotated, Any

import numpy as np
import pytest

from entity_env import (
    Composite,
    Continuous,
    Game,
    GlobalComposite,
    Obs,
    Range,
    SchemaError,
    SelectEntityActionSpace,
    Turn,
)
from entity_env.agents import Agent, RandomAgent, random_actions
from entity_env.vec import VecEnv
from tests.games.composite_games import ORDER, PAIR, SEND, Base, Order, Planet, Send, Share
from tests.helpers.strategies import untyped


@dataclass
class Thawed:
    share: Share


@dataclass(frozen=True)
class Nothing:
    pass


@dataclass(frozen=True)
class Count:
    number: int


@dataclass(frozen=True)
class Unbounded:
    number: float


@dataclass(frozen=True)
class Launch:
    speed: Annotated[float, Range(0.0, 2.0)]
    target: Planet
    is_fast: bool


NAMED = make_dataclass("__actor__", [])
LAUNCH = Composite(Launch)
FROZEN = r"a decision in several parts must be a frozen dataclass with fields, got"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Composite(Thawed), FROZEN),
        (lambda: Composite(Nothing), FROZEN),
        (lambda: Composite(untyped(3)), FROZEN + " 3"),
        (lambda: Composite(Send, untyped(3)), r"Composite: name must be a text"),
        (lambda: Composite(Send, ""), r"Composite: name must be a text"),
        (lambda: Composite(Count), r"field 'number' must be an Enum, bool, an entity class or Ann"),
        (lambda: Composite(Unbounded), r"field 'number' must be .*Range\(low, high\)\], got"),
        (lambda: GlobalComposite(Count), r"field 'number' must be an Enum, bool, an entity class"),
        (lambda: Game(_play, entities=(Base,), actions=(ORDER,)), r"Order\.target selects Planet"),
        (lambda: Game(_play, entities=(Planet, NAMED), actions=(ORDER,)), r"'__actor__' is reserv"),
        (lambda: Game(_play, entities=(Base,), actions=(SEND,)), r"Planet"),
    ],
)
def test_what_is_no_decision_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        make()


def _play(agent: Agent, *, seed: int) -> None:
    """Never called."""


def test_parts_are_actions() -> None:
    assert [part.name for part in SEND.elements] == ["Send.target", "Send.share", "Send.is_fast"]
    assert SEND.target.space == SelectEntityActionSpace()
    assert SEND.is_fast.space.given == ("Send.target", "Send.share")
    assert isinstance(LAUNCH.speed, Continuous)
    assert Composite(Send) == SEND
    assert hash(Composite(Send)) == hash(SEND)
    assert Composite(Send, "Other") != SEND
    with pytest.raises(AttributeError, match="Composite has no part 'goal': it has target, share"):
        _ = SEND.goal


ONES = [[[True] * 3] * 2] * 2


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (lambda obs: obs.mask(SEND, ONES), r"Send has a mask for each part: obs\.mask\(action\.ta"),
        (lambda obs: obs.mask(SEND.is_fast, ONES, given=SEND.target), r"before it \(Send\.share\)"),
        (lambda obs: obs.mask(PAIR.second, ONES, given=SEND.share), r"before it \(Pair\.first\)"),
        (lambda obs: obs.mask(SEND.target, ONES, given=SEND.share), r"\(None\), got .*there is no"),
        (lambda obs: obs.mask(SEND.share, ONES, given=SEND), r"got given=Send: reorder the fields"),
        (
            lambda obs: obs.mask(LAUNCH.target, ONES, given=LAUNCH.speed),
            r"which is a number, so it",
        ),
        (lambda obs: obs.mask(SEND.share, [[True]], given=SEND.target), r"\(num_actors, num_earli"),
        (lambda obs: obs.mask(SEND.share, untyped(1), given=SEND.target), r"num_earlier.* got 1"),
        (
            lambda obs: obs.mask(PAIR.second, [True, False], given=PAIR.first),
            r"Pair\.second depends on Pair\.first, so .* shape \(num_earlier, num_choices\), got",
        ),
        (
            lambda obs: obs.actors([], ORDER),
            r"Order\.share is decided once .* leave it out of obs\.",
        ),
        (
            lambda obs: obs.allowed(ORDER.amount),
            r"asks for real numbers: it has no list of choices",
        ),
        (lambda obs: obs.allowed(SEND), r"has several parts: obs\.allowed\(action\.target\) lists"),
    ],
)
def test_masks_of_other_parts_are_refused(mask: Callable[[Obs], object], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        mask(Obs())


def test_refused_actors_leave_the_observation_as_it_was() -> None:
    obs = Obs()
    with pytest.raises(SchemaError, match="is decided once"):
        obs.actors(BASES, ORDER)
    assert obs.actor_groups is None


BASES, PLANETS = [Base(1.0), Base(2.0)], [Planet(1.0), Planet(2.0)]
NUM_EARLIER = r"needs 2 rows, one for each choice of .*: got 3"
SHAPE = r"the mask of action 'Send\.share' needs the shape \(num_actors, num_earlier, num_choices\)"
SAME = r"'Send\.share' depends on 'Send\.target', so both must be requested of the same actors"
STUCK = r"'Send\.share': actor 1 has no legal choice after target 0 of 'Send\.target': forbid that"


def masked(mask: Any, **given: Any) -> Callable[[Agent], Any]:  # noqa: ANN401 - masks
    def act(agent: Agent) -> Any:  # noqa: ANN401 - an answer
        obs = Obs().actors(BASES, SEND).entities(PLANETS)
        for field, more in given.items():
            obs.mask(getattr(SEND, field), more)
        return agent.act(obs.mask(SEND.share, mask, given=SEND.target), SEND)

    return act


def plain(part: str, mask: Any) -> Callable[[Agent], Any]:  # noqa: ANN401 - a mask
    return lambda agent: agent.act(
        Obs().actors(BASES, SEND).entities(PLANETS).mask(getattr(SEND, part), mask), SEND
    )


def ordered(planets: list[Planet] = PLANETS, **masks: Any) -> Callable[[Agent], Any]:  # noqa: ANN401 - masks
    def act(agent: Agent) -> Any:  # noqa: ANN401 - an answer
        obs = Obs().actors(BASES).entities(planets)
        for field, (mask, given) in masks.items():
            obs.mask(getattr(ORDER, field), mask, given=given)
        return agent.act(obs, ORDER)

    return act


def paired(mask: Any) -> Callable[[Agent], Any]:  # noqa: ANN401 - a mask
    return lambda agent: agent.act(Obs().mask(PAIR.second, mask, given=PAIR.first), PAIR)


NO_PLANET = (
    r"Order\.target selects a Planet, but {}: ask for this decision only if there is a Planet"
)


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (ordered([]), NO_PLANET.format("the observation has none")),
        (ordered([], target=([], None)), NO_PLANET.format("the observation has none")),
        (ordered(target=([False] * 2, None)), NO_PLANET.format("its mask forbids all")),
        (ordered(target=(np.zeros((3, 2)), ORDER.share)), NO_PLANET.format("its mask forbids all")),
        (
            ordered(share=([True] * 2, None)),
            r"'Order\.share' needs the shape \(num_choices,\) = \(3,",
        ),
        (ordered(share=([False] * 3, None)), r"'Order\.share' .*allow"),
        (
            ordered(target=([True] * 3, None)),
            r"'Order\.target' needs the shape \(num_choices,\) = \(2",
        ),
        (ordered(target=([[True] * 2] * 2, ORDER.share)), r"needs 3 rows, one for each"),
        (
            ordered(target=([[False] * 2, [True] * 2, [True] * 2], ORDER.share)),
            r"'Order\.target': there is no legal choice after 'LOW' of 'Order\.share': forbid",
        ),
        (ordered(amount=([True], None)), r"takes no mask"),
        (paired([[1] * 3, [0] * 3, [1] * 3]), r"'Pair\.second': there is no legal .* after 'MID'"),
        (
            lambda agent: agent.act(Obs().actors(BASES, SEND).entities(PLANETS), SEND.share),
            "declared",
        ),
        (lambda agent: agent.act(Obs().actors(BASES, SEND.share).entities(PLANETS), SEND), SAME),
        (masked([[[1, 1, 1], [1, 1, 1]], [[0, 0, 0], [1, 1, 1]]]), STUCK),
        (masked([[[1, 1], [1, 1]]] * 2), SHAPE),
        (masked([[[1, 1, 1]] * 3] * 2), NUM_EARLIER),
        (masked([[[1, 1, 1]] * 2] * 3), SHAPE),
        (masked([[[1, 1, 1]] * 2, [[1, 1, 1]]]), SHAPE),
        (masked([[[1, 1, 2]] * 2] * 2), r"must hold bools .*got 2 \(int\)"),
        (masked([]), SHAPE),
        (masked([[], []]), NUM_EARLIER.replace("3", "0")),
        (
            plain("target", [[[True] * 2] * 2] * 2),
            r"'Send\.target' needs the shape .*; three dimensions are for an action that follows",
        ),
    ],
)
def test_mistakes_are_errors_in_every_way_of_playing(
    act: Callable[[Agent], Any], message: str
) -> None:
    game = game_of(act)
    with pytest.raises(SchemaError, match=message):
        game.run(RandomAgent(seed=0))
    with VecEnv(game, 2) as vec, pytest.raises(SchemaError, match=message):
        vec.reset()


@pytest.mark.parametrize(
    "act",
    [
        masked([[[0, 0, 0], [1, 1, 1]]] * 2, target=[[0, 1]] * 2),  # nothing after what is illegal
        masked([np.ones((2, 3), np.bool_)] * 2),
        masked(np.ones((2, 2, 3), np.int64)),
        ordered(),
        ordered(share=(np.ones(3), None), target=([True, False], None)),
        ordered(share=([[True] * 3], None), target=(np.ones((1, 3, 2)), ORDER.share)),
        ordered(share=([False, True, True], None), target=([[0, 0], [0, 1], [1, 1]], ORDER.share)),
        plain("share", [[np.bool_(True)] * 3] * 2),
        plain("share", ONES),
    ],
)
def test_masks_have_many_forms(act: Callable[[Agent], Any]) -> None:
    game = game_of(act)
    turns: list[Turn] = []
    game.run(RandomAgent(seed=0), watch=turns.append)
    assert len(turns) == 2
    with VecEnv(game, 2) as vec:
        obs = vec.reset()
        vec.act(random_actions(obs, vec.action_space(), np.random.default_rng(0)))


def game_of(act: Callable[[Agent], Any]) -> Game:
    """A game of one decision."""

    def play(agent: Agent, *, seed: int) -> None:
        if act(agent) is not None:
            agent.game_over(Obs())

    return Game(play, entities=(Base, Planet), actions=(SEND, ORDER, PAIR), name="one")


@pytest.mark.parametrize("num_planets", [0, 1])
def test_truncated_episodes_need_no_target(num_planets: int) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        while agent.act(Obs().entities(PLANETS), ORDER) is not None:
            agent.game_over(Obs().actors(BASES).entities(PLANETS[:num_planets]), truncated=True)

    game = Game(play, entities=(Base, Planet), actions=(ORDER,), name="cut")
    turns: list[Turn] = []
    game.run(RandomAgent(seed=0), watch=turns.append)
    assert [len(turn.observation.actions) for turn in turns] == [3, 3 * num_planets]
    with VecEnv(game, 2) as vec:
        obs = vec.reset()
        obs = vec.act(random_actions(obs, vec.action_space(), np.random.default_rng(0)))
        assert obs.final is not None
        lengths = obs.final.action_masks["Order.amount"].actors.lengths
        assert lengths.tolist() == [num_planets] * 2
        assert obs.features["__actor__"].lengths.tolist() == [1, 1]


def test_a_bystander_can_be_hidden_and_others_ask_beside_it() -> None:
    """Actions of actors and of the whole observation, in one `act`."""
    answers: list[Any] = []

    def play(agent: Agent, *, seed: int) -> None:
        obs = Obs().actors(BASES).entities(PLANETS)
        obs.visible(Base, [True, False]).visible(Planet, [False] * 2)
        found = agent.act(obs.mask(ORDER.target, [False, True]), SEND, ORDER)
        if found is not None:
            answers.append(found)
            assert obs.actors_of(ORDER) == []
            assert obs.allowed(ORDER.target) == PLANETS[1:]
            agent.game_over(Obs())

    game = Game(play, entities=(Base, Planet), actions=(SEND, ORDER), name="both")
    game.run(RandomAgent(seed=0))
    with VecEnv(game, 2) as vec:
        obs = vec.reset()
        vec.act(random_actions(obs, vec.action_space(), np.random.default_rng(0)))
    for sent, order in answers:
        assert [type(each) for each in sent] == [Send] * 2
        assert isinstance(order, Order)
        assert order.target is PLANETS[1]
    assert len(answers) == 3


class Move(Enum):
    A = 0
    B = 1


@dataclass(frozen=True)
class Labels:
    move: Move
    is_fast: bool


@dataclass(frozen=True)
class Mixed:
    move: Move
    is_fast: bool
    much: Annotated[float, Range(0, 1)]


WRONG_MASKS: list[tuple[Any, bool, str]] = [
    ([True], False, r"needs the shape \(num_choices,\) = \(2,\): got \(1,\)"),
    ([[True] * 2] * 3, False, r"needs the shape \(num_choices,\) = \(2,\): got \(3, 2\)"),
    ([False] * 2, False, "leaves no legal choice: allow at least one, or do not ask for it"),
    ([[True] * 2] * 3, True, "needs 2 rows, one for each choice of the action before: got 3"),
    (np.ones((2, 3)), True, r"\(num_earlier, num_choices\) = \(num_earlier, 2\): got \(2, 3\)"),
    ([[True] * 2, [False] * 2], True, "there is no legal choice after 'B' of"),
]


@pytest.mark.parametrize(("mask", "is_nested", "message"), WRONG_MASKS)
@pytest.mark.parametrize("kind", [GlobalComposite(Labels), GlobalComposite(Mixed)], ids=str)
def test_masks_of_the_whole_observation_mention_no_actors(
    kind: GlobalComposite[Any],
    mask: Any,  # noqa: ANN401
    is_nested: bool,
    message: str,
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        given = kind.move if is_nested else None
        agent.act(Obs().entities([Base(1)]).mask(kind.is_fast, mask, given=given), kind)

    game = Game(play, entities=(Base,), actions=(kind,), name="whole")
    with pytest.raises(SchemaError, match=message) as local:
        game.run(RandomAgent(seed=1))
    with VecEnv(game, 1) as vec, pytest.raises(SchemaError, match=message) as batch:
        vec.reset()
    for caught in (local, batch):
        assert "actor" not in str(caught.value).partition(" (env 0")[0]
