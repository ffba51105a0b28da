"""Two copies that play in turn, suspended as in training, equal one copy alone."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import pytest

from entity_env import ContractError, Game, GameExit, Obs, check_game
from entity_env.agents import Agent


@dataclass
class Dot:
    x: int


class Go(Enum):
    LEFT = -1
    RIGHT = 1


Play = Callable[..., None]
FILE = Path(__file__).name


def dots(play: Play) -> Game:
    return Game(play, entities=(Dot,), actions=(Go,), name="dots")


def problems(play: Play, **kwargs: float) -> list[str]:
    with pytest.raises(ContractError) as caught:
        check_game(dots(play), new_process=False, **kwargs)  # type: ignore[arg-type]
    return list(caught.value.problems)


def walk(agent: Agent, cells: list[int]) -> None:
    """Moves along a board, which every episode clears."""
    cells[:] = [0]
    for _ in range(8):
        move = agent.act(Obs(cells[0]).entities([Dot(cells[0])]), Go)
        if move is None:
            return
        cells[0] += move.value
    agent.game_over(Obs(cells[0]))


BOARD: list[int] = []


@pytest.mark.slow
def test_a_board_that_copies_share_is_named() -> None:
    """Copies that play one after another, each from a new start, do not reveal it."""

    def play(agent: Agent, *, seed: int) -> None:
        walk(agent, BOARD)

    [problem] = problems(play)
    assert problem.startswith("two copies in turn, as in training: episode 0 (seed ")
    assert "they differ from one copy alone: the reward is first" in problem
    assert problem.endswith(
        f"shared by the copies: 'BOARD' in {FILE}, which play has changed: create it in play"
    )


@pytest.mark.slow
def test_a_board_of_its_own_is_fine() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        walk(agent, [])

    check_game(dots(play), new_process=False)


def test_an_error_that_needs_two_copies_says_so() -> None:
    todo = [0]

    def play(agent: Agent, *, seed: int) -> None:
        todo[:] = range(6)
        for _ in range(6):
            if agent.act(Obs(1).entities([Dot(0)]), Go) is None:
                return
            todo.pop()
        agent.game_over()

    [problem] = problems(play)
    assert "two copies in turn, as in training: episode 0 (seed " in problem
    assert "play raised IndexError: pop from empty list" in problem
    assert "and one copy alone does not; shared by the copies: 'todo' around play" in problem


@pytest.mark.slow
def test_a_lock_that_a_suspended_copy_holds_is_found() -> None:
    lock = threading.Lock()

    def play(agent: Agent, *, seed: int) -> None:
        with lock:
            walk(agent, [])

    [problem] = problems(play, step_timeout_s=0.2)
    assert "two copies in turn, as in training: at the start: play hangs" in problem
    assert "with lock" in problem


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_event_loops_are_told_the_transport_that_they_need() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        async def main() -> None:
            walk(agent, [])

        coroutine = main()
        try:
            asyncio.run(coroutine)
        finally:
            coroutine.close()

    [problem] = problems(play)
    assert "play raised RuntimeError" in problem
    assert 'transport="thread"' in problem
    check_game(dots(play).with_transport("thread"), new_process=False)


@pytest.mark.parametrize("call", ["act", "game_over", "act_async"])
def test_a_call_from_another_thread_is_found(call: str) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        def ask() -> None:
            obs = Obs(1).entities([Dot(0)])
            if call == "game_over":
                agent.game_over()
            elif call == "act":
                agent.act(obs, Go)
            else:
                agent.act_async(obs, Go).get()

        if agent.act(Obs(0).entities([Dot(0)]), Go) is None:
            return
        asker = threading.Thread(target=ask, name="asker")
        asker.start()
        asker.join()

    [problem] = problems(play)
    assert "in the thread 'asker', expected the thread that runs play: call act and" in problem
    assert f"{FILE}:" in problem
    assert "transport" not in problem


@pytest.mark.slow
def test_an_error_of_a_copy_that_is_closed_is_found() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        try:
            walk(agent, [])
        except GameExit:
            raise ZeroDivisionError("no dot left") from None

    [problem] = problems(play)
    assert "play, closed while it was suspended, raised ZeroDivisionError" in problem
    assert f"{FILE}:" in problem
    assert "; act raises GameExit in a suspended game that is closed: let it pass" in problem
