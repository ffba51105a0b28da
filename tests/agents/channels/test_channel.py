"""Guarantees of both transports."""

import contextlib
import contextvars
import gc
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import cast, get_args

import pytest

from entity_env import ClosedError, GameExit, ProtocolError
from entity_env.agents.channels.channel import (
    MAX_SWALLOWED_EXITS,
    Channel,
    Transport,
)
from entity_env.agents.channels.game_runner import make_channel
from entity_env.agents.channels.thread_channel import ThreadChannel
from entity_env.errors import MissingExtraError

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)


class Game:
    """Game that waits in `suspend`, records events, and then performs the configured action."""

    def __init__(self, transport: Transport, play: Callable[["Game"], None]) -> None:
        self.notes: list[str] = []
        self._play = play
        self.channel = make_channel(transport, self._run, "the game")

    def _run(self) -> None:
        self._play(self)

    def wait(self, note: str) -> None:
        self.notes.append(note)
        self.channel.suspend()


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> Transport:
    return cast(Transport, request.param)


@pytest.fixture
def start(transport: Transport) -> Iterator[Callable[[Callable[[Game], None]], Game]]:
    games: list[Game] = []

    def make(play: Callable[[Game], None]) -> Game:
        games.append(Game(transport, play))
        return games[-1]

    yield make
    for game in games:
        game.channel.close()


Start = Callable[[Callable[[Game], None]], Game]


def play_twice(game: Game) -> None:
    game.wait("one")
    game.wait("two")
    game.notes.append("end")


def play_and_clean_up(game: Game) -> None:
    try:
        game.wait("waiting")
    finally:
        game.notes.append("finally")


class TestResume:
    def test_nothing_runs_before(self, start: Start) -> None:
        assert start(play_twice).notes == []

    def test_runs_until_the_game_waits(self, start: Start) -> None:
        game = start(play_twice)
        game.channel.resume()
        assert game.notes == ["one"]
        game.channel.resume()
        assert game.notes == ["one", "two"]
        assert not game.channel.is_finished

    def test_runs_until_the_game_is_finished(self, start: Start) -> None:
        game = start(play_twice)
        for _ in range(3):
            game.channel.resume()
        assert game.notes[-1] == "end"
        assert game.channel.is_finished

    def test_of_a_finished_game(self, start: Start) -> None:
        game = start(lambda game: None)
        game.channel.resume()
        with pytest.raises(ClosedError, match="the game is finished"):
            game.channel.resume()

    def test_of_a_closed_game(self, start: Start) -> None:
        game = start(play_twice)
        game.channel.close()
        with pytest.raises(ClosedError, match="the game is finished"):
            game.channel.resume()

    @pytest.mark.parametrize("error", [ValueError("three"), RuntimeError("four")])
    def test_raises_what_the_game_raises(self, start: Start, error: Exception) -> None:
        def play(game: Game) -> None:
            game.wait("waiting")
            deeper()

        def deeper() -> None:
            raise error

        game = start(play)
        game.channel.resume()
        with pytest.raises(type(error), match=str(error)) as caught:
            game.channel.resume()
        assert caught.value is error
        frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert frames[-2:] == ["play", "deeper"]
        assert game.channel.is_finished

    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_raises_what_ends_the_program(self, start: Start, error: type[BaseException]) -> None:
        def play(game: Game) -> None:
            raise error

        with pytest.raises(error):
            start(play).channel.resume()

    def test_what_was_raised_keeps_nothing_alive(self, start: Start) -> None:
        class Held:
            pass

        def play(game: Game) -> None:
            held = Held()
            refs.append(weakref.ref(held))
            raise ValueError

        refs: list[weakref.ref[Held]] = []
        game = start(play)
        gc.collect()
        gc.disable()
        try:
            with contextlib.suppress(ValueError):
                game.channel.resume()
            assert refs[0]() is None
        finally:
            gc.enable()


class TestThrow:
    def test_unwinds_the_game(self, start: Start) -> None:
        game = start(play_and_clean_up)
        game.channel.resume()
        game.channel.throw()
        assert game.notes == ["waiting", "finally"]
        assert game.channel.is_finished

    def test_passes_by_except_exception(self, start: Start) -> None:
        def play(game: Game) -> None:
            try:
                game.wait("waiting")
            except Exception:
                game.notes.append("caught")

        game = start(play)
        game.channel.resume()
        game.channel.throw()
        assert game.notes == ["waiting"]

    def test_the_game_may_be_restarted(self, start: Start) -> None:
        def play(game: Game) -> None:
            while game.notes.count("again") < 2:
                try:
                    game.wait("first")
                    game.wait("second")
                except GameExit:
                    game.notes.append("again")
                    game.channel.ready_again()

        game = start(play)
        game.channel.resume()
        game.channel.throw()
        assert game.notes == ["first", "again", "first"]
        game.channel.resume()
        assert game.notes[-1] == "second"
        game.channel.throw()
        assert game.notes[-1] == "again"
        assert game.channel.is_finished

    def test_a_question_in_a_finally_block_is_cut_short(self, start: Start) -> None:
        def play(game: Game) -> None:
            try:
                game.wait("waiting")
            finally:
                game.wait("last words")

        game = start(play)
        game.channel.resume()
        game.channel.throw()
        assert game.notes == ["waiting", "last words"]
        assert game.channel.is_finished

    def test_an_error_in_a_finally_block(self, start: Start) -> None:
        def play(game: Game) -> None:
            try:
                game.wait("waiting")
            finally:
                raise RuntimeError("spilt")

        game = start(play)
        game.channel.resume()
        with pytest.raises(RuntimeError, match="spilt"):
            game.channel.throw()
        assert game.channel.is_finished


class TestClose:
    def test_twice(self, start: Start) -> None:
        game = start(play_and_clean_up)
        game.channel.resume()
        game.channel.close()
        game.channel.close()
        assert game.notes == ["waiting", "finally"]

    def test_of_a_game_that_never_started(self, start: Start) -> None:
        game = start(play_and_clean_up)
        game.channel.close()
        assert game.notes == []
        assert game.channel.is_finished

    def test_of_a_game_that_leaves_without_a_word(self, start: Start) -> None:
        def play(game: Game) -> None:
            try:
                game.wait("waiting")
            except BaseException:
                return

        game = start(play)
        game.channel.resume()
        game.channel.close()
        assert game.channel.is_finished


def test_a_game_that_swallows_every_exit_is_given_up(start: Start) -> None:
    def play(game: Game) -> None:
        while len(game.notes) < 10 * MAX_SWALLOWED_EXITS:
            try:
                game.wait("waiting")
            except BaseException:
                continue

    game = start(play)
    game.channel.resume()
    with pytest.raises(ProtocolError, match=r"the game: the game swallows GameExit .* Exception"):
        game.channel.close()
    assert game.channel.is_finished
    assert len(game.notes) < 2 * MAX_SWALLOWED_EXITS + 10
    game.channel.close()  # has done all it can
    with pytest.raises(ClosedError):
        game.channel.resume()
    release(game.channel)


def release(channel: Channel) -> None:
    """Lets an abandoned thread continue, so that it ends before the test."""
    if isinstance(channel, ThreadChannel):
        thread = channel._thread
        assert thread is not None
        channel.num_swallowed = -(10**6)
        channel._turns_given += 1
        channel._wake()
        thread.join()


VARIABLE: contextvars.ContextVar[str] = contextvars.ContextVar("VARIABLE", default="default")


class TestContext:
    def test_games_see_the_variables_of_their_maker(self, start: Start) -> None:
        token = VARIABLE.set("the maker's")
        try:
            game = start(lambda game: game.notes.append(VARIABLE.get()))
        finally:
            VARIABLE.reset(token)
        game.channel.resume()
        assert game.notes == ["the maker's"]

    def test_games_set_only_their_own(self, start: Start) -> None:
        def play(game: Game) -> None:
            game.wait(VARIABLE.get())
            VARIABLE.set(f"{id(game)}")
            game.wait(VARIABLE.get())
            game.notes.append(VARIABLE.get())

        games = [start(play) for _ in range(2)]
        for _ in range(3):
            for game in games:
                game.channel.resume()
                assert VARIABLE.get() == "default"
        for game in games:
            assert game.notes == ["default", f"{id(game)}", f"{id(game)}"]


class TestSuspend:
    def test_from_the_driver(self, start: Start) -> None:
        game = start(play_twice)
        with pytest.raises(ProtocolError, match="called outside the game's own call stack"):
            game.channel.suspend()
        game.channel.resume()
        with pytest.raises(ProtocolError, match="called outside the game's own call stack"):
            game.channel.suspend()

    def test_from_another_game(self, start: Start) -> None:
        one = start(play_twice)
        one.channel.resume()
        other = start(lambda game: one.channel.suspend())
        with pytest.raises(ProtocolError, match="called outside the game's own call stack"):
            other.channel.resume()

    def test_after_the_end(self, start: Start) -> None:
        game = start(lambda game: None)
        game.channel.resume()
        with pytest.raises(ProtocolError, match="called outside the game's own call stack"):
            game.channel.suspend()


def test_a_game_may_drive_another_one(start: Start) -> None:
    inner = start(play_and_clean_up)

    def play(game: Game) -> None:
        inner.channel.resume()
        game.wait(f"inner has {inner.notes}")
        inner.channel.close()
        game.notes.append(f"inner has {inner.notes}")

    outer = start(play)
    outer.channel.resume()
    outer.channel.resume()
    assert outer.notes == ["inner has ['waiting']", "inner has ['waiting', 'finally']"]


def test_a_game_may_be_driven_by_one_game_after_another(start: Start) -> None:
    inner = start(play_twice)

    def play(game: Game) -> None:
        inner.channel.resume()

    for _ in range(2):
        outer = start(play)
        outer.channel.resume()
        assert outer.channel.is_finished
    inner.channel.resume()
    assert inner.notes == ["one", "two", "end"]


def test_without_greenlet_its_transport_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "greenlet", None)
    monkeypatch.delitem(sys.modules, "entity_env.agents.channels.greenlet_channel")
    with pytest.raises(MissingExtraError, match=r"'greenlet', .* not installed: pip install green"):
        make_channel("greenlet", lambda: None, "the game")
