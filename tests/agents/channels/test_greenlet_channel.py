"""Tests of the greenlet transport alone; `test_channel.py` tests both transports."""

import threading
from collections.abc import Callable

import greenlet
import pytest

from entity_env import ProtocolError
from entity_env.agents.channels.greenlet_channel import GreenletChannel


class Game:
    """Waits twice, and records its end."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.channel = GreenletChannel(self._play, "the game")

    def _play(self) -> None:
        try:
            for note in ("one", "two"):
                self.notes.append(note)
                self.channel.suspend()
        finally:
            self.notes.append(f"finally in {threading.current_thread().name}")


def in_thread(call: Callable[[], object], name: str = "other") -> BaseException | None:
    """The exception of a call in a separate thread, after that thread has ended."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name=name)
    thread.start()
    thread.join()
    return raised[0] if raised else None


@pytest.mark.parametrize("started", [False, True])
@pytest.mark.parametrize("call", ["resume", "throw"])
def test_only_its_own_thread_drives_a_game(call: str, started: bool) -> None:
    game = Game()
    if started:
        game.channel.resume()
    before = list(game.notes)
    error = in_thread(getattr(game.channel, call))
    assert isinstance(error, ProtocolError)
    assert "by the thread that reset it (MainThread), not by other" in str(error)
    assert 'transport="thread"' in str(error)
    assert game.notes == before
    assert not game.channel.is_finished
    game.channel.resume()  # has no effect
    assert len(game.notes) == len(before) + 1
    game.channel.close()
    assert game.notes[-1] == "finally in MainThread"


def test_any_thread_closes_a_game_that_never_started() -> None:
    game = Game()
    assert in_thread(game.channel.close) is None
    assert game.channel.is_finished


@pytest.mark.parametrize("call", ["resume", "throw", "close"])
def test_when_its_own_thread_has_ended(call: str) -> None:
    games: list[Game] = []

    def own() -> None:
        games.append(Game())
        games[0].channel.resume()

    assert in_thread(own, "trainer") is None
    [game] = games
    for _ in range(3):  # the next thread gets the id of the one that ended
        error = in_thread(getattr(game.channel, call))
        if call == "close" and game.channel.is_finished and error is None:
            break
        assert isinstance(error, ProtocolError | RuntimeError)
    with pytest.raises((ProtocolError, RuntimeError)):
        game.channel.resume()
    assert game.channel.is_finished
    game.channel.close()


def test_what_is_said_when_its_own_thread_has_ended() -> None:
    games: list[Game] = []

    def own() -> None:
        games.append(Game())
        games[0].channel.resume()

    in_thread(own, "trainer")
    with pytest.raises(ProtocolError, match=r"\(trainer\) has ended.*finally blocks never run"):
        games[0].channel.close()
    games[0].channel.close()


def test_control_returns_to_the_caller_of_resume() -> None:
    game = Game()
    game.channel.resume()
    ran: list[str] = []

    def drive() -> None:
        game.channel.resume()
        ran.append("driven")

    driver = greenlet.greenlet(drive)
    driver.switch()
    assert ran == ["driven"]
    assert driver.dead
    game.channel.close()
    assert game.notes[-1] == "finally in MainThread"


def test_a_game_that_raises_greenlet_exit_has_left() -> None:
    def play() -> None:
        raise greenlet.GreenletExit

    channel = GreenletChannel(play, "the game")
    channel.resume()
    assert channel.is_finished
