"""Likely mistakes in working games are found, without false alarms in correct games."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, Flag
from itertools import accumulate
from typing import Annotated, Any, ClassVar

import pytest
from hypothesis import given, strategies as st

from entity_env import (
    HIDDEN,
    Categorical,
    ContractError,
    Game,
    Obs,
    Schema,
    SelectEntity,
    check_game,
)
from entity_env.agents import Agent
from entity_env.authoring.action_type import ActionKey
from entity_env.check.likely_mistakes import (
    Score,
    aliased_members,
    missing_choices,
    odd_scores,
    slow_steps,
    unseen_attributes,
)
from examples import embed_asyncio, my_game, skirmish
from tests.helpers.batches import PLAIN_GAMES
from tests.helpers.strategies import Food, Move, Rock, make_enum


@dataclass
class Dot:
    x: int


class Go(Enum):
    LEFT = -1
    RIGHT = 1


JUMP: Any = make_enum("Jump", {"UP": 0, "DOWN": 1, "OVER": 1})


class Keys(Flag):
    A = 1
    B = 2
    BOTH = 3


@dataclass(frozen=True)
class Steering:
    move: Move
    jump: JUMP


@pytest.mark.parametrize(
    ("action", "names"),
    [
        (JUMP, [("Jump: OVER has the value of DOWN, 1", "write OVER = Jump.DOWN below the class")]),
        (Categorical(JUMP), [("Jump: OVER has the value of DOWN", "give each its own value")]),
        (Steering, [("Jump: OVER has the value of DOWN", "agents cannot choose it")]),
        (Keys, [("Keys: BOTH is not a single bit", "use an Enum")]),
        (Move, []),
        (SelectEntity(Food), []),
    ],
)
def test_choices_that_no_agent_gets(action: Any, names: list[tuple[str, str]]) -> None:  # noqa: ANN401
    found = list(missing_choices(Schema((Food,), (action,))))
    assert len(found) == len(names)
    for sentence, parts in zip(found, names, strict=True):
        assert all(part in sentence for part in parts)


@pytest.mark.slow
def test_they_are_violations() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Dot(0)]), JUMP)
        agent.game_over(Obs(1))

    with pytest.raises(ContractError, match="OVER has the value of DOWN") as caught:
        check_game(Game(play, entities=(Dot,), actions=(JUMP,)), new_process=False)
    assert len(caught.value.problems) == 1


@dataclass
class Cat:
    x: int
    fuel = 3
    """A class attribute: neither a field nor a constant."""
    at = (1.5, 2)
    y: int = 2
    MAX_FUEL = 9
    _cache = 1
    legs: ClassVar[int] = 4
    name = "cat"
    target = None
    home = Dot(3)

    @property
    def is_hungry(self) -> bool:
        return self.fuel == 0

    def purr(self) -> None: ...


@dataclass
class Kitten(Cat):
    age: int = 0


class Unrelated:
    size = 3


@dataclass
class Derived(Unrelated):
    x: int


@pytest.mark.parametrize("cls", [Cat, Kitten])
def test_numbers_without_annotation(cls: type) -> None:
    fuel, at, target, home = unseen_attributes(Schema((cls,), (Move,)))
    assert f"entity {cls.__name__}: fuel = 3 has no annotation, so it is not a field" in fuel
    assert "write fuel: int = 3, or fuel: ClassVar[int]" in fuel
    assert f"{__file__}:" in fuel
    assert "at = (1.5, 2) has no annotation" in at
    assert "write target: ... | None = None, or" in target
    assert "write home: Dot = Dot(x=3), or" in home


def test_attributes_of_other_classes_are_theirs() -> None:
    assert not list(unseen_attributes(Schema((Derived, Food, Rock), (Move,))))


class Kind(Enum):
    BOW = 2
    CANNON = 2


@dataclass
class Armed:
    kind: Kind
    spare: Kind | None = None


def test_members_of_fields_with_one_value() -> None:
    kind, spare = aliased_members(Schema((Armed, Food), (Move,)))
    assert "entity Armed: CANNON of kind has the value of BOW, 2, so they are one member" in kind
    assert f"{__file__}:" in kind
    assert "CANNON of spare" in spare
    assert "if it is intended, write CANNON = Kind.BOW below the class" in spare


@dataclass
class Hand:
    kind: Kind


@dataclass
class TwoHanded:
    left: Hand
    right: Hand | None
    pockets: tuple[Kind, Kind]
    noted: Annotated[Kind, "a note"]
    name: Kind = field(metadata=HIDDEN)


def test_members_of_nested_fields_with_one_value() -> None:
    found = list(aliased_members(Schema((TwoHanded,), (Move,))))
    fields = ["left.kind", "right.kind", "pockets", "noted"]
    assert len(found) == len(fields)
    for sentence, name in zip(found, fields, strict=True):
        assert f"entity TwoHanded: CANNON of {name} has the value of BOW" in sentence


def scored(*episodes: Sequence[float]) -> list[list[Score]]:
    return [[Score(value, "step 3", "game.py:7 in play") for value in each] for each in episodes]


def hints(*episodes: Sequence[float]) -> list[str]:
    return list(odd_scores(scored(*episodes), len(episodes)))


@pytest.mark.parametrize(
    "episodes",
    [
        ([0, 1] * 7,),
        ([0, 0, 1, 0, 0, -1, 0], [0, 5, 0, 2, 0, 0], [0, 1, 1, 0, 1, 0, 1]),
        ([0, *[-0.01, -0.01, 1] * 7, -0.01],),
    ],
)
def test_scores_of_single_steps(episodes: Sequence[Sequence[float]]) -> None:
    [hint] = hints(*episodes)
    assert "the score looks like the reward of a step: it is " in hint
    assert "(game.py:7 in play); Obs(score) needs the score so far, score += reward" in hint


@pytest.mark.parametrize("reward", [1.0, -1.0])
def test_the_same_reward_for_every_step(reward: float) -> None:
    [hint] = hints(*[[0, *[reward] * 10]] * 3)
    assert hint.startswith(f"the score changes only at the first step, by {reward:g} in every")
    assert "(game.py:7 in play): Obs(score) needs the score so far, score += reward" in hint


@pytest.mark.parametrize(
    "episodes",
    [
        [[0, *[1] * 10]],  # one episode proves nothing
        [[0, *[1] * 10], [0, *[1] * 5]],  # nor do short ones
        [[0, *[1] * 10], [0, *[2] * 10]],
        [[0, *[1] * 10, 2], [0, *[1] * 10]],
        [[0, *[1] * 10], [0] * 11],
    ],
)
def test_rewards_of_first_steps_are_no_mistake(episodes: Sequence[Sequence[float]]) -> None:
    assert not hints(*episodes)


REWARDS = st.lists(st.integers(-5, 5), min_size=1, max_size=50)


@given(st.lists(REWARDS.map(lambda steps: [abs(step) for step in steps]), min_size=1, max_size=3))
def test_a_sum_that_never_falls_is_no_mistake(episodes: list[list[int]]) -> None:
    assert not any("looks like" in hint for hint in hints(*map(list, map(accumulate, episodes))))


UPS_AND_DOWNS: list[Callable[[random.Random], float]] = [
    lambda rng: rng.choice((-1, 1)),
    lambda rng: rng.choice((-1, 0, 1)),
    lambda rng: rng.choice((-1, 0, 0, 0, 1)),
    lambda rng: rng.gauss(0, 1),
    lambda rng: rng.choice((-0.1, -0.1, -0.1, 5)),
]


@pytest.mark.parametrize("reward", UPS_AND_DOWNS)
def test_a_sum_that_rises_and_falls_is_no_mistake(reward: Callable[[random.Random], float]) -> None:
    """Three episodes of 500 games each: a lead, a position, a balance."""
    rng = random.Random(1)
    for _ in range(500):
        episodes = [list(accumulate(reward(rng) for _ in range(40))) for _ in range(3)]
        assert not hints(*episodes)


def test_a_reward_at_the_end_is_no_mistake() -> None:
    assert not hints(*[[0.0] * 9 + [1.0]] * 20)


def test_a_score_that_never_changes() -> None:
    [hint] = hints([1.0, 1.0], [2.0])
    assert hint.startswith("the score did not change in 2 episodes, which teaches nothing")
    assert not list(odd_scores(scored([1.0, 1.0]), 0))  # the time was up, so it is unknown


def test_a_score_of_billions() -> None:
    [hint] = hints([0.0, 1e9, 2e9])
    assert "step 3: the score changes by 1e+09 at once (game.py:7 in play)" in hint
    assert "divide the score, or train with --set-train norm_returns=true" in hint
    assert not hints([1e9, 1e9 + 1])


@pytest.mark.parametrize(
    ("step_times_s", "is_cut", "hint"),
    [
        ([0.001] * 9, False, ""),
        ([9.0, *[0.001] * 9], False, ""),  # one pause, as caused by other programs
        ([], False, ""),
        (
            [0.5, *[0.001] * 9] * 3,  # starts of episodes
            False,
            "a step takes 35.4 ms on average, one of them 0.5 s: 1,000,000 steps of training take",
        ),
        ([0.02] * 9, False, "a step takes 20 ms: 1,000,000 steps of training take 6 hours"),
        ([0.0, 0.0, 0.04, 0.04] * 9, False, "a step takes 20 ms: "),  # every second turn
        ([0.001] * 9, True, "a step takes 1 ms; the check stopped after 8 steps: a larger --max"),
    ],
)
def test_steps_that_take_long(step_times_s: list[float], is_cut: bool, hint: str) -> None:
    found = slow_steps(step_times_s, 8, is_cut=is_cut)
    assert found.startswith(hint)
    assert bool(found) == bool(hint)


@pytest.mark.slow
def test_integers_that_float32_rounds(caplog: pytest.LogCaptureFixture) -> None:
    def game_of(number: int) -> Game:
        def play(agent: Agent, *, seed: int) -> None:
            agent.act(Obs().entities([Dot(number)]), Go)
            agent.game_over(Obs(1))

        return Game(play, entities=(Dot,), actions=(Go,), name="dots")

    check_game(game_of(2**24), new_process=False)
    assert not caplog.records
    check_game(game_of(10**30), new_process=False)
    [record] = caplog.records
    assert record.levelno == logging.WARNING
    assert f"Dot: field 'x' holds {10**30}, which agents see as 1.00000002e+30" in record.message
    assert "step 0" in record.message
    assert f"({__file__}:" in record.message


def warnings_of(play: Callable[..., None], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings of a check of a game about dots."""
    game = Game(play, entities=(Dot,), actions=(Go, GO, FROM, TO), name="dots")
    check_game(game, new_process=False)
    return [record.message for record in caplog.records]


GO, FROM, TO = Categorical(Go, "GoEach"), SelectEntity(Dot, "From"), SelectEntity(Dot, "To")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("masked", "mask", "asked", "is_meant"),
    [
        (FROM, [[True]], TO, False),
        (Go, [True, False], GO, False),
        (GO, [[True, False]], FROM, True),  # one mask for all possible questions of this game
        (FROM, [[True]], FROM, True),
    ],
)
def test_masks_that_are_not_used(
    masked: ActionKey,
    mask: list[Any],
    asked: ActionKey,
    is_meant: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().actors([Dot(1)]).mask(masked, mask), asked)
        agent.game_over(Obs(1))

    found = [each for each in warnings_of(play, caplog) if "single legal choice" not in each]
    assert bool(found) is not is_meant
    assert all("is not used, since act asks for" in each for each in found)


@pytest.mark.slow
@pytest.mark.parametrize("is_whole", [True, False])
def test_a_cut_that_shows_nothing(is_whole: bool, caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Dot(1)]), Go)
        final = Obs(1)
        agent.game_over(final.entities([Dot(2)]) if is_whole else final, truncated=True)

    found = warnings_of(play, caplog)
    assert ["give game_over the whole observation" in each for each in found] == [True] * (
        not is_whole
    )


SMALL = ["cherry_pick", "multi_snake", "rock_paper_scissors", "snake", "tic_tac_toe"]
SOUND = [
    my_game.catch,
    skirmish.skirmish,
    embed_asyncio.coins,
    *(PLAIN_GAMES[name] for name in SMALL),
]


@pytest.mark.slow
@pytest.mark.parametrize("game", SOUND, ids=lambda game: game.name)
def test_games_that_mean_what_they_do(game: Game, caplog: pytest.LogCaptureFixture) -> None:
    check_game(game, new_process=False)
    require_no_hints(caplog)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLAIN_GAMES))
def test_all_games_of_the_package(name: str, caplog: pytest.LogCaptureFixture) -> None:
    check_game(PLAIN_GAMES[name], new_process=False, max_time_s=None)
    require_no_hints(caplog)


def require_no_hints(caplog: pytest.LogCaptureFixture) -> None:
    """Allows only hints about low rewards of random moves and about a slow machine."""
    hints = [record.message for record in caplog.records if record.name == "entity_env.check"]
    known = ("the score did not change", "a step takes")
    assert [hint for hint in hints if not any(part in hint for part in known)] == []


def test_answers_compared_with_text_are_found(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        for score in range(3):
            answers: Any = agent.act(Obs(score).actors([Dot(score)]), GO)
            if answers is None:
                return
            for go in answers:
                score += go == "LEFT"
        agent.game_over(Obs(3))

    [found] = warnings_of(play, caplog)
    assert "compares an answer of act with the text 'LEFT', which it never equals" in found
    assert "write Go.LEFT" in found


def test_texts_compared_with_names_are_allowed(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int, mode: str = "LEFT") -> None:
        for score in range(3):
            go = agent.act(Obs(score).entities([Dot(score)]), Go)
            if go is None:
                return
            score += go.name == "LEFT"
            score += mode == "RIGHT"
        agent.game_over(Obs(3))

    assert warnings_of(play, caplog) == []


def test_a_game_exit_that_is_caught_is_found(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        for score in range(9):
            try:
                if agent.act(Obs(score).entities([Dot(score)]), Go) is None:
                    return
            except:  # noqa: E722 - the mistake
                pass
        agent.game_over(Obs(9))

    [found] = warnings_of(play, caplog)
    assert "play caught GameExit, which act raises in a suspended game that is closed" in found


def test_settings_that_no_file_can_store_or_that_are_shared(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def play(
        agent: Agent,
        *,
        seed: int,
        seen: list[int] = [],  # noqa: B006 - the mistake
        where: complex = 1j,
        size: int | None = 3,
    ) -> None:
        for score in range(3):
            if agent.act(Obs(score).entities([Dot(score)]), Go) is None:
                return
        agent.game_over(Obs(3))

    shared, impossible = warnings_of(play, caplog)
    assert "the default of seen is a list, which all copies and episodes share" in shared
    assert "setting 'where' is declared complex, which --set and files cannot give" in impossible


def test_decisions_with_a_single_choice_teach_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        for score in range(9):
            mask = [True, False] if score else [False, True]
            if agent.act(Obs(score).entities([Dot(score)]).mask(Go, mask), Go) is None:
                return
        agent.game_over(Obs(9))

    [found] = warnings_of(play, caplog)
    assert "decisions had a single legal choice, which teaches nothing" in found
