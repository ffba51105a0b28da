"""Tests of the thread transport alone; `test_channel.py` tests both transports."""

import itertools
import signal
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from entity_env import ClosedError, GameExit, ProtocolError
from entity_env.agents.channels import thread_channel
from entity_env.agents.channels.thread_channel import ThreadChannel
from tests.attack.interrupter import Interrupter
from tests.helpers.worker_helpers import script


class Game:
    """Interrupts its driver, then waits for a signal."""

    def __init__(self, then: Callable[["Game"], None] = lambda game: None) -> None:
        self.notes: list[str] = []
        self.may_go_on = threading.Event()
        self.has_gone_on = threading.Event()
        self.thread = threading.current_thread()
        self._then = then
        self.channel = ThreadChannel(self._play, "the game")

    def _play(self) -> None:
        self.thread = threading.current_thread()
        try:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            self.may_go_on.wait()
            self._then(self)
            self.notes.append("asks")
            self.has_gone_on.set()
            self.channel.suspend()
        finally:
            self.notes.append("finally")

    def interrupt(self) -> None:
        with pytest.raises(KeyboardInterrupt):
            self.channel.resume()


def test_any_thread_drives_a_game() -> None:
    notes: list[str] = []

    def play() -> None:
        for _ in range(3):
            notes.append(threading.current_thread().name)
            channel.suspend()

    channel = ThreadChannel(play, "the game")
    for drive in (channel.resume, channel.resume, channel.throw):
        driver = threading.Thread(target=drive)
        driver.start()
        driver.join()
    assert notes == ["the game"] * 2
    assert channel.is_finished


def test_the_thread_ends_with_the_game() -> None:
    threads: list[threading.Thread] = []
    channel = ThreadChannel(lambda: threads.append(threading.current_thread()), "the game")
    channel.resume()
    assert not threads[0].is_alive()


class TestInterrupted:
    """Ctrl-C reaches the driver while it waits for the game, which keeps running."""

    def test_the_game_cannot_be_resumed(self) -> None:
        game = Game()
        game.interrupt()
        with pytest.raises(ProtocolError, match="still running after an interrupt"):
            game.channel.resume()
        game.may_go_on.set()
        game.channel.close()

    def test_close_waits_for_the_next_question(self) -> None:
        game = Game()
        game.interrupt()
        game.may_go_on.set()
        game.channel.close()
        assert game.notes == ["asks", "finally"]
        assert not game.thread.is_alive()

    def test_close_when_the_question_was_asked_meanwhile(self) -> None:
        game = Game()
        game.interrupt()
        game.may_go_on.set()
        game.has_gone_on.wait()
        game.channel.close()
        assert game.notes == ["asks", "finally"]

    def test_close_when_the_game_has_raised_meanwhile(self) -> None:
        def fail(game: Game) -> None:
            raise OSError("meanwhile")

        game = Game(fail)
        game.interrupt()
        game.may_go_on.set()
        with pytest.raises(OSError, match="meanwhile"):
            game.channel.close()
        assert game.channel.is_finished
        game.channel.close()

    def test_close_when_the_game_has_left_meanwhile(self) -> None:
        def leave(game: Game) -> None:
            raise GameExit

        game = Game(leave)
        game.interrupt()
        game.may_go_on.set()
        game.channel.close()
        assert game.channel.is_finished

    def test_a_game_that_is_stuck_is_left_to_itself(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(thread_channel, "_CLOSE_TIMEOUT_S", 0.01)
        game = Game()
        game.interrupt()
        with pytest.raises(ProtocolError, match=r"the game has not asked its agent for 0\.01 s"):
            game.channel.close()
        game.channel.close()
        with pytest.raises(ClosedError):
            game.channel.resume()
        game.may_go_on.set()
        game.thread.join()
        assert game.notes == ["asks", "finally"]

    @pytest.mark.parametrize("num_turns", [0, 1])
    @pytest.mark.parametrize("by_instruction", [False, True])
    def test_anywhere(self, num_turns: int, by_instruction: bool) -> None:
        """The game can be closed; if it had started, its `finally` block has run."""
        # Python 3.13 counts a function's instructions only from its second traced call.
        for number in itertools.chain([sys.maxsize], itertools.count(1)):
            notes: list[str] = []
            channels: list[ThreadChannel] = []
            channel = ThreadChannel(partial(play, channels, notes), "the game")
            channels.append(channel)
            with Interrupter(by_instruction=by_instruction) as interrupter:
                for _ in range(num_turns):
                    channel.resume()
                is_struck = interrupter.strike(channel.resume, number)
                channel.close()
            assert notes in ([], ["begins", "ends"])
            assert channel.is_finished
            if not is_struck and number < sys.maxsize:
                break
        assert number > 10


def play(channels: list[ThreadChannel], notes: list[str]) -> None:
    notes.append("begins")
    try:
        for _ in range(3):
            channels[0].suspend()
    finally:
        notes.append("ends")


def test_a_thread_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    channel = ThreadChannel(lambda: None, "the game")
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="new thread") as caught:
            channel.resume()
    assert 'transport="greenlet"' in caught.value.__notes__[0]
    assert channel.is_finished
    channel.close()


@pytest.mark.slow
def test_a_fork_leaves_the_thread_to_its_parent(tmp_path: Path) -> None:
    """A forked process has no thread for the game, and would wait for it forever."""
    text = """
        import os, sys, warnings
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking beside threads, from 3.12
        from entity_env import ProtocolError
        from entity_env.vec import VecEnv
        from tests.helpers.tiny_games import count
        from tests.helpers.worker_helpers import stay
        vec = VecEnv(count, 2, transport="thread")
        vec.reset()
        for call in (lambda: vec.act(stay(2)), vec.reset, vec.close):
            pid = os.fork()
            if pid == 0:
                try:
                    call()
                except ProtocolError as error:
                    print(error, flush=True)
                sys.exit()
            os.waitpid(pid, 0)
        print(vec.act(stay(2)).reward.tolist())
        vec.close()
    """
    with script(tmp_path, text) as process:
        out, error = process.communicate(timeout=30)
    lines = out.splitlines()
    assert not error
    assert len(lines) == 3
    assert all("from which this one was forked" in line for line in lines[:2])
    assert lines[2] == "[1.0, 1.0]"
