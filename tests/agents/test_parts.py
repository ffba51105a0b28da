"""Bots and people make decisions in several parts: good answers, bad ones and second thoughts."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from entity_env import AnswerError, Game, Obs, Question, Turn
from entity_env.agents import Agent, HumanAgent, RandomAgent, ScriptedAgent
from entity_env.agents.human.turn_answers import TurnAnswers
from entity_env.core.action_request import questions
from tests.games.composite_games import ORDER, PAIR, SEND, Base, Order, Pair, Planet, Send, Share

BASES, PLANETS = [Base(1.0), Base(2.0)], [Planet(0.0), Planet(1.0)]
OTHER = Planet(2.0)
LEGAL = [[share.value != planet.size for share in Share] for planet in PLANETS]


def ask_send(agent: Agent) -> Any:  # noqa: ANN401 - an answer
    """The share must not be the size of the target; base 1 may only choose planet 1."""
    obs = Obs().actors(BASES, SEND).entities(PLANETS)
    obs.mask(SEND.target, [[1, 1], [0, 1]])
    return agent.act(obs.mask(SEND.share, [LEGAL] * 2, given=SEND.target), SEND)


def ask_pair(agent: Agent) -> Any:  # noqa: ANN401 - an answer
    obs = Obs().entities(PLANETS)
    return agent.act(
        obs.mask(PAIR.second, [[a != b for a in Share] for b in Share], given=PAIR.first), PAIR
    )


def ask_order(agent: Agent) -> Any:  # noqa: ANN401 - an answer
    """The second planet must not get a LOW share."""
    obs = Obs().actors(BASES).entities(PLANETS)
    return agent.act(obs.mask(ORDER.target, [[1, 0], [1, 1], [1, 1]], given=ORDER.share), ORDER)


def played(ask: Callable[[Agent], Any], agent: Agent) -> Any:  # noqa: ANN401 - an answer
    """What a game gets from an agent."""
    found: list[Any] = []

    def play(agent: Agent, *, seed: int) -> None:
        found.append(ask(agent))
        if found[0] is not None:
            agent.game_over()

    game = Game(play, entities=(Base, Planet), actions=(SEND, PAIR, ORDER), name="asking")
    game.run(agent)
    return found[0]


class Says(ScriptedAgent):
    """Gives one answer."""

    def __init__(self, answer: object) -> None:
        self.said = answer

    def choose(self, obs: Obs, *actions: object) -> object:
        return self.said


FAR = Order(Share.MID, PLANETS[1], 0.5)
GOOD = [Send(PLANETS[0], Share.MID, True), Send(PLANETS[1], Share.LOW, False)]


def test_a_bot_answers_with_decisions() -> None:
    assert played(ask_send, Says(GOOD)) == GOOD
    both = Pair(Share.LOW, Share.HIGH, True)
    assert played(ask_pair, Says(both)) == both
    assert played(ask_order, Says(FAR)) == FAR


@pytest.mark.parametrize(
    ("ask", "answer", "message"),
    [
        (ask_send, GOOD[:1], r"expected a list of 2, one Send per actor"),
        (ask_send, [GOOD[0], None], r"expected a Send, got None"),
        (ask_send, [GOOD[0], Share.LOW], r"expected a Send, got Share\.LOW"),
        (ask_send, None, r"expected a list of 2"),
        (ask_send, [GOOD[0], Send(PLANETS[0], Share.MID, True)], r"Send"),
        (ask_send, [GOOD[0], Send(OTHER, Share.MID, True)], r"Send"),
        (
            ask_send,
            [GOOD[0], Send(PLANETS[1], Share.MID, True)],
            r"share, actor 1: its mask forbids Share\.MID, allowed are",
        ),
        (ask_send, [GOOD[0], Send(PLANETS[1], 2, True)], r"Send"),  # type: ignore[arg-type]
        (
            ask_pair,
            Pair(Share.LOW, Share.LOW, True),
            r"second: its mask forbids Share\.LOW, allowed are",
        ),
        (ask_pair, [Pair(Share.LOW, Share.HIGH, True)], r"expected a Pair, got"),
        (ask_pair, Share.LOW, r"expected a Pair, got"),
        (ask_order, [FAR], r"expected a Order, got"),
        (ask_order, Order(Share.LOW, PLANETS[1], 0.5), r"target: its mask forbids Planet\("),
        (
            ask_order,
            Order(Share.LOW, OTHER, 0.5),
            r"target: Planet\(.*not among the 2 Planet",
        ),
        (ask_order, Order(Share.MID, PLANETS[1], 3.0), r"Order"),
    ],
)
def test_bad_answers_of_bots_are_named(
    ask: Callable[[Agent], Any], answer: object, message: str
) -> None:
    with pytest.raises(AnswerError, match=message):
        played(ask, Says(answer))


# ------------------------------------------------------------------ people


def test_a_person_answers_part_by_part() -> None:
    out = io.StringIO()
    person = HumanAgent(source=io.StringIO("1\nMID\nTrue\n2\nLOW\nFalse\n"), out=out)
    assert played(ask_send, person) == GOOD
    # Of which parts a question knows the answers.
    assert "Send.is_fast of Base x=2 (2 of 2), Planet size=1, LOW:" in out.getvalue()
    person = HumanAgent(source=io.StringIO("LOW\nLOW\nHIGH\nTrue\n"), out=out)  # LOW is illegal
    assert played(ask_pair, person) == Pair(Share.LOW, Share.HIGH, True)
    out = io.StringIO()
    person = HumanAgent(source=io.StringIO("LOW\n2\n1\n0.5\n"), out=out)  # 2 is illegal
    assert played(ask_order, person) == Order(Share.LOW, PLANETS[0], 0.5)
    assert "__actor__" not in out.getvalue()


def test_a_person_goes_back_to_the_previous_part() -> None:
    typed = "1 undo 2 HIGH undo undo 1 MID True undo True 2 LOW undo LOW False".replace(" ", "\n")
    person = HumanAgent(source=io.StringIO(f"undo\n{typed}\n"), out=io.StringIO())
    assert played(ask_send, person) == GOOD  # the first `undo` is no choice


def asked() -> Sequence[Question]:
    """The questions of `ask_send`."""
    turns: list[Turn] = []

    def play(agent: Agent, *, seed: int) -> None:
        if ask_send(agent):
            agent.game_over(Obs())

    game = Game(play, entities=(Base, Planet), actions=(SEND,), name="asking")
    game.run(RandomAgent(seed=0), watch=turns.append)
    return questions(turns[0].observation, game.obs_space(), game.action_space())


def open_now(answers: TurnAnswers) -> tuple[str, int, list[int]]:
    """Action, actor and legal choices of the open question."""
    question, actor = answers.open_question
    return question.name, actor, question.legal(actor)


def test_a_page_asks_actor_by_actor_and_can_go_back() -> None:
    answers = TurnAnswers(asked())
    assert open_now(answers) == ("Send.target", 0, [0, 1])
    answers.keep(0)
    assert open_now(answers) == ("Send.share", 0, [1, 2])
    answers.undo()
    answers.keep(1)
    assert open_now(answers) == ("Send.share", 0, [0, 2])
    answers.keep(2)
    assert open_now(answers) == ("Send.is_fast", 0, [0, 1])
    answers.keep(1)
    assert open_now(answers) == ("Send.target", 1, [1])
    answers.keep(1)
    assert open_now(answers) == ("Send.share", 1, [0, 2])
    answers.undo()
    answers.undo()
    assert open_now(answers) == ("Send.is_fast", 0, [0, 1])
    for value in (1, 1, 0, 0):
        answers.keep(value)
    assert answers.is_complete
    found: Any = answers.actions()
    assert list(found["Send.share"].indices) == [2, 0]
    assert list(found["Send.is_fast"].indices) == [1, 0]
