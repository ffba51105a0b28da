"""HumanAgent reads lines: every kind of action, only legal actions, and quitting."""

import io
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest

from entity_env import Categorical, Continuous, Game, GlobalComposite, Obs, SelectEntity
from entity_env.agents import Agent
from entity_env.agents.human.human_agent import HumanAgent
from entity_env.core.observation import Observation


@dataclass
class Unit:
    x: int
    y: int


class Move(Enum):
    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3
    STAY = 4


MOVES = Categorical(Move, "Moves")
PICK = SelectEntity(Unit)
PUSH = Continuous("Push", low=[-1.0, 0.0], high=[1.0, 5.0], labels=["force", "angle"])

UNITS = [Unit(3, 1), Unit(0, 2)]


def asking(ask: Callable[[Agent], object], answers: list[object]) -> Game:
    """A game with one question; stores the answer in `answers`."""

    def play(agent: Agent, *, seed: int) -> None:
        answer = ask(agent)
        answers.append(answer)
        if answer is not None:
            agent.game_over()

    return Game(play, entities=(Unit,), actions=(Move, MOVES, PICK, PUSH), name="asking")


def answer(ask: Callable[[Agent], object], typed: str) -> tuple[object, str]:
    """The action a game receives if a person types these lines, and the person's screen."""
    out = io.StringIO()
    answers: list[object] = []
    asking(ask, answers).run(HumanAgent(source=io.StringIO(typed), out=out))
    return answers[0], out.getvalue()


def ask_move(agent: Agent) -> object:
    return agent.act(Obs().entities(UNITS), Move)


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("w", Move.UP), ("s", Move.DOWN), ("A", Move.LEFT), ("right", Move.RIGHT), ("5", Move.STAY)],
)
def test_answers_with_keys_or_labels(typed: str, expected: Move) -> None:
    chosen, read = answer(ask_move, f"{typed}\n")
    assert chosen is expected
    assert "Move:" in read
    assert "w UP" in read
    assert "5 STAY" in read
    assert "q quit" in read


def test_lists_what_can_be_seen() -> None:
    def ask(agent: Agent) -> object:
        return agent.act(Obs(2).entities(UNITS).visible(Unit, [True, False]), Move)

    _, read = answer(ask, "w\n")
    assert "Unit x=3 y=1" in read
    assert "y=2" not in read


def test_an_interrupt_hangs_up() -> None:
    def interrupt(observation: Observation) -> None:
        raise KeyboardInterrupt

    answers: list[object] = []
    agent = HumanAgent(source=io.StringIO("w\n"), out=io.StringIO(), show=interrupt)
    assert asking(ask_move, answers).run(agent) == []
    assert answers == [None]


def test_asks_several_actors_one_after_the_other() -> None:
    def ask(agent: Agent) -> object:
        return agent.act(Obs().actors(UNITS), MOVES)

    chosen, read = answer(ask, "w\nd\n")
    assert chosen == [Move.UP, Move.RIGHT]
    assert "Moves of Unit x=3 y=1 (1 of 2)" in read
    assert "Moves of Unit x=0 y=2 (2 of 2)" in read


def test_hangs_up_between_two_actors() -> None:
    def ask(agent: Agent) -> object:
        return agent.act(Obs().actors(UNITS), MOVES)

    assert answer(ask, "w\nq\n")[0] is None


def test_selects_from_a_numbered_list() -> None:
    def ask(agent: Agent) -> object:
        return agent.act(Obs().actors(UNITS[:1]).entities(UNITS[1:]), PICK)

    chosen, read = answer(ask, "3\n2\n")
    assert chosen == [UNITS[1]]
    assert "1 Unit x=3 y=1" in read
    assert "2 Unit x=0 y=2" in read
    assert "(1 of 1)" not in read


def test_asks_for_numbers_within_bounds() -> None:
    def ask(agent: Agent) -> object:
        return agent.act(Obs().actors(UNITS[:1]), PUSH)

    chosen, read = answer(ask, "2\nmuch\n-0.5\nnan\n5\n")
    assert isinstance(chosen, np.ndarray)
    assert chosen.tolist() == [[-0.5, 5.0]]
    assert "2 is not in -1 to 1" in read
    assert "'much' is not a number" in read
    assert "nan is not in 0 to 5" in read
    assert "Push of Unit x=3 y=1, angle" in read


def test_plays_on_when_called_without_a_run() -> None:
    answers: list[object] = []
    game = asking(ask_move, answers)
    game.play(HumanAgent(source=io.StringIO("s\n"), out=io.StringIO()), seed=0)
    assert answers == [Move.DOWN]


@dataclass
class Coin:
    value: int

    def __str__(self) -> str:
        return f"the {self.value}"


class Toss(Enum):
    HEADS = 0
    TAILS = 1

    def __str__(self) -> str:
        return f"{self.name.lower()} up"


@dataclass(frozen=True)
class Bet:
    coin: Coin
    toss: Toss


BET, ANY = GlobalComposite(Bet), SelectEntity(Coin)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (BET, ["1 the 3", "2 the 7", "Bet.toss, the 7", "h heads up", "t tails up"]),
        (ANY, ["SelectCoin of the 3 (1 of 2)", "1 the 3", "2 the 7"]),
        (Toss, ["h heads up", "t tails up"]),
    ],
)
def test_entities_and_choices_are_called_as_their_classes_say(kind: Any, words: list[str]) -> None:  # noqa: ANN401
    """As in pages and in the line of the last move."""
    coins = [Coin(3), Coin(7)]

    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().actors(coins) if kind is ANY else Obs().entities(coins), kind)
        agent.game_over()

    game = Game(play, entities=(Coin,), actions=(BET, ANY, Toss), name="coins")
    typed = "t\n" if kind is Toss else "2\nt\n" if kind is BET else "2\n2\n"
    out = io.StringIO()
    game.run(HumanAgent(source=io.StringIO(typed), out=out))
    assert [each for each in words if each not in out.getvalue()] == []
