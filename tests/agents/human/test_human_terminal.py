"""HumanAgent on a terminal: single keys, a screen left as it was, a mode that is restored."""

import termios
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import pytest

from entity_env import Continuous, Obs, SelectEntity
from entity_env.agents import Agent
from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.prompt import Choice, Prompt, UserQuit
from tests.helpers.terminals import Terminal

Answer = TypeVar("Answer")

UP, DOWN, LEFT, RIGHT = "\x1b[A", "\x1b[B", "\x1b[D", "\x1b[C"
CTRL_D = "\x04"


class Move(Enum):
    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3


@dataclass
class Unit:
    x: int


UNITS = [Unit(x) for x in range(12)]
PICK = SelectEntity(Unit)
PUSH = Continuous("Push", low=[-1.0], high=[1.0])


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with Terminal() as opened:
        yield opened


def answer(terminal: Terminal, typed: str, ask: Callable[[Agent], Answer]) -> Answer:
    terminal.type(typed)
    agent = HumanAgent(source=terminal.source, out=terminal.out, show=lambda _: None)
    answered = ask(agent)
    assert terminal.is_restored
    return answered


def ask_move(agent: Agent) -> Move | None:
    return agent.act(Obs().entities(UNITS), Move)


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (UP, Move.UP),
        (DOWN, Move.DOWN),
        (LEFT, Move.LEFT),
        (RIGHT, Move.RIGHT),
        ("\x1bOA", Move.UP),
        ("W", Move.UP),
        ("\x1b[3~xé\nd", Move.RIGHT),
        ("q", None),
    ],
)
def test_answers_with_single_keys(terminal: Terminal, keys: str, expected: Move | None) -> None:
    assert answer(terminal, keys, ask_move) is expected


def test_an_escape_key_alone_is_no_arrow_and_control_d_ends(terminal: Terminal) -> None:
    keyboard = Keyboard(terminal.source)
    with keyboard.single_keys():
        terminal.type("\x1b")
        assert keyboard.key() == "\x1b"
        terminal.type(CTRL_D)
        assert keyboard.key() == ""


def test_the_end_of_input_hangs_up(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Keyboard, "key", lambda _: "")
    assert answer(terminal, "", ask_move) is None


def test_leaves_the_screen_as_it_was(terminal: Terminal) -> None:
    answer(terminal, UP, ask_move)
    shown = terminal.shown()
    assert "↑ UP" in shown
    assert shown.endswith("\r\x1b[1A\x1b[J")


def test_keys_that_were_typed_ahead_count(terminal: Terminal) -> None:
    def ask_twice(agent: Agent) -> list[Move | None]:
        return [ask_move(agent), ask_move(agent)]

    assert answer(terminal, f"{UP}{LEFT}", ask_twice) == [Move.UP, Move.LEFT]


def test_few_entities_are_selected_with_one_key(terminal: Terminal) -> None:
    def ask(agent: Agent) -> list[Unit | None] | None:
        return agent.act(Obs().actors(UNITS[:1]).entities(UNITS[1:3]), PICK)

    assert answer(terminal, "93", ask) == [UNITS[2]]


def test_many_entities_are_selected_with_a_number_and_enter(terminal: Terminal) -> None:
    def ask(agent: Agent) -> list[Unit | None] | None:
        return agent.act(Obs().actors(UNITS[:1]).entities(UNITS[1:]), PICK)

    assert answer(terminal, "99\n12\n", ask) == [UNITS[11]]
    shown = terminal.shown()
    assert "'99' is not among the choices" in shown
    lines = shown[shown.index("SelectUnit") : shown.index("> ")].count("\n")
    assert f"\r\x1b[{lines + 1}A\x1b[J" in shown


def test_numbers_are_typed(terminal: Terminal) -> None:
    def ask(agent: Agent) -> list[list[float]] | None:
        pushed = agent.act(Obs().actors(UNITS[:1]), PUSH)
        return None if pushed is None else pushed.tolist()

    assert answer(terminal, "-0.25\n", ask) == [[-0.25]]
    assert answer(terminal, CTRL_D, ask) is None


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_restores_the_terminal_after_any_error(
    terminal: Terminal, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = []

    def fail(keyboard: Keyboard) -> str:
        modes.append(terminal.mode)
        raise error

    monkeypatch.setattr(Keyboard, "key", fail)
    prompt = Prompt(terminal.source, terminal.out)
    with pytest.raises(error):
        prompt.choose("Move", [Choice(0, "UP", ("up",))])
    assert not modes[0][3] & termios.ICANON
    assert terminal.is_restored
    assert terminal.shown().endswith("\x1b[J")


def test_an_interrupted_line_is_erased_too(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(keyboard: Keyboard) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Keyboard, "line", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Prompt(terminal.source, terminal.out).number("Push", -1, 1)
    assert terminal.shown().endswith("> \r\n\r\x1b[2A\x1b[J")


def test_a_terminal_that_is_gone_hangs_up() -> None:
    with Terminal() as terminal:
        prompt = Prompt(terminal.source, terminal.out)
        terminal.type("\x04")
        with pytest.raises(UserQuit):
            prompt.number("Push", -1, 1)
