"""Known pitfalls of games suspended on a separate stack, one test each."""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable
from types import FunctionType
from typing import get_args

import numpy as np
import pytest
from greenlet import GreenletExit

from entity_env import (
    GameExit,
    GlobalCategoricalAction,
    Obs,
    ProtocolError,
    UsageError,
    WorkerError,
)
from entity_env.agents import Agent, RandomAgent, TrainAgentEnv
from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.game_runner import TrainAgent
from entity_env.agents.channels.thread_channel import ThreadChannel
from entity_env.check import check_game
from entity_env.vec import VecEnv
from tests.agents.channels.test_greenlet_channel import in_thread
from tests.helpers.tiny_games import Dot, Move, Play, ask, dots_game

TRANSPORTS: tuple[Transport, ...] = get_args(Transport)
STAY = {"Move": GlobalCategoricalAction(1, "STAY")}

each_transport = pytest.mark.parametrize("transport", TRANSPORTS)


class Note:
    """An object that a game holds while it is alive."""


class Held(list[weakref.ref[Note]]):
    """Objects held by the games."""


class Ends(list[str]):
    """Events recorded by their `finally` blocks."""


def play_forever(agent: Agent, *, seed: int) -> None:
    while ask(agent) is not None:
        pass


def env_of(play: Play, transport: Transport = "greenlet") -> TrainAgentEnv:
    return TrainAgentEnv(dots_game(play), transport=transport)


def play_holding(held: Held, ends: Ends) -> Play:
    def play(agent: Agent, *, seed: int) -> None:
        note = Note()
        held.append(weakref.ref(note))
        try:
            play_forever(agent, seed=seed)
        finally:
            ends.append("finally")

    return play


class TestTorchMode:
    """torch's grad and inference modes are per thread, so shared by all games of a thread."""

    def test_no_grad_of_a_suspended_game_does_not_leak(self) -> None:
        torch = pytest.importorskip("torch")
        modes = []

        def play(agent: Agent, *, seed: int) -> None:
            with torch.no_grad():
                ask(agent)
                modes.append(torch.is_grad_enabled())
                ask(agent)
            modes.append(torch.is_grad_enabled())
            ask(agent)

        env = env_of(play)
        env.reset()
        assert torch.is_grad_enabled()
        env.act(STAY)
        assert torch.is_grad_enabled()
        env.act(STAY)
        assert modes == [False, True]
        env.close()
        assert torch.is_grad_enabled()

    def test_inference_mode_of_a_suspended_game_does_not_leak(self) -> None:
        torch = pytest.importorskip("torch")
        modes = []

        def play(agent: Agent, *, seed: int) -> None:
            with torch.inference_mode():
                ask(agent)
                modes.append(torch.zeros(1).is_inference())
                ask(agent)
            modes.append(torch.zeros(1).is_inference())
            ask(agent)

        env = env_of(play)
        env.reset()
        weights = torch.ones(2, requires_grad=True)
        assert not weights.is_inference()
        (weights * 3).sum().backward()
        assert weights.grad.tolist() == [3, 3]
        env.act(STAY)
        env.act(STAY)
        assert modes == [True, False]
        assert not torch.is_inference_mode_enabled()
        env.close()

    @pytest.mark.parametrize("order", [(0, 1), (1, 0)])
    def test_two_games_leave_theirs_in_any_order(self, order: tuple[int, int]) -> None:
        torch = pytest.importorskip("torch")

        def play(agent: Agent, *, seed: int) -> None:
            with torch.no_grad():
                ask(agent)
            ask(agent)

        envs = [env_of(play) for _ in range(2)]
        for env in envs:
            env.reset()
        for i in order:
            envs[i].act(STAY)
            assert torch.is_grad_enabled()
        for env in envs:
            env.close()
        assert torch.is_grad_enabled()

    @pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
    def test_that_of_the_driver_does_not_leak_into_games(self, mode: str) -> None:
        torch = pytest.importorskip("torch")
        modes = []

        def play(agent: Agent, *, seed: int) -> None:
            for _ in range(3):
                modes.append((torch.is_grad_enabled(), torch.is_inference_mode_enabled()))
                ask(agent)

        env = env_of(play)
        with getattr(torch, mode)():
            env.reset()  # also restarts, which runs the game inside `throw`
            env.reset()
            env.act(STAY)
            assert not torch.is_grad_enabled()
            assert torch.is_inference_mode_enabled() == (mode == "inference_mode")
            assert torch.zeros(1).is_inference() == (mode == "inference_mode")
        assert torch.is_grad_enabled()
        env.act(STAY)
        assert modes == [(True, False)] * 4
        env.close()

    def test_close_within_no_grad_while_the_game_is_within_its_own(self) -> None:
        torch = pytest.importorskip("torch")

        def play(agent: Agent, *, seed: int) -> None:
            with torch.no_grad():
                play_forever(agent, seed=seed)

        env = env_of(play)
        env.reset()
        with torch.no_grad():
            env.close()
            assert not torch.is_grad_enabled()
        assert torch.is_grad_enabled()

    def test_a_game_that_turns_gradients_off_for_good_means_only_itself(self) -> None:
        torch = pytest.importorskip("torch")

        def play(agent: Agent, *, seed: int) -> None:
            torch.set_grad_enabled(False)
            ask(agent)
            raise OSError

        for ends_by_itself in (True, False):
            env = env_of(play)
            env.reset()
            if ends_by_itself:
                with pytest.raises(OSError):  # noqa: PT011 - any OSError
                    env.act(STAY)
            env.close()
            assert torch.is_grad_enabled()

    def test_a_game_may_learn(self) -> None:
        torch = pytest.importorskip("torch")
        weights = torch.ones(3, requires_grad=True)

        def play(agent: Agent, *, seed: int) -> None:
            loss = (weights * weights).sum()
            ask(agent)
            loss.backward()
            ask(agent)

        env = env_of(play)
        with torch.no_grad():
            env.reset()
            env.act(STAY)
        assert weights.grad.tolist() == [2, 2, 2]
        env.close()


class TestCycle:
    """CPython 3.11 never collects a suspended game: its owner must raise `GameExit` in it."""

    @each_transport
    def test_dropping_the_environment_throws_the_game_out(self, transport: Transport) -> None:
        held, ends = Held(), Ends()
        env = env_of(play_holding(held, ends), transport)
        env.reset()
        del env
        gc.collect()
        assert ends == ["finally"]
        assert held[0]() is None

    @each_transport
    def test_dropping_the_vec_env_throws_the_games_out(self, transport: Transport) -> None:
        held, ends = Held(), Ends()
        vec = VecEnv(dots_game(play_holding(held, ends)), 3, transport=transport)
        vec.reset()
        del vec
        gc.collect()
        assert ends == ["finally"] * 3
        assert [ref() for ref in held] == [None] * 3

    def test_dropping_it_within_a_cycle(self) -> None:
        held, ends = Held(), Ends()
        vec = VecEnv(dots_game(play_holding(held, ends)), 2)
        vec.reset()
        cycle: list[object] = [vec]
        cycle.append(cycle)
        del vec, cycle
        gc.collect()
        assert ends == ["finally"] * 2
        assert [ref() for ref in held] == [None] * 2


class TestOtherThread:
    """A greenlet can only be resumed in its own thread."""

    @pytest.mark.parametrize("call", ["act", "reset", "close"])
    def test_of_a_vec_env_is_refused_with_the_remedy(self, call: str) -> None:
        calls: dict[str, Callable[[VecEnv], object]] = {
            "act": lambda vec: vec.act({"Move": np.zeros(2, np.int64)}),
            "reset": VecEnv.reset,
            "close": VecEnv.close,
        }
        ends: list[str] = []

        def play(agent: Agent, *, seed: int) -> None:
            try:
                play_forever(agent, seed=seed)
            finally:
                ends.append("finally")

        vec = VecEnv(dots_game(play), 2)
        vec.reset()
        error = in_thread(lambda: calls[call](vec))
        assert isinstance(error, ProtocolError)
        assert 'transport="thread"' in str(error)
        assert ends == []
        if call != "close":
            vec.reset()
            vec.act({"Move": np.zeros(2, np.int64)})
        ends.clear()
        vec.close()
        assert ends == ["finally"] * 2

    def test_made_here_and_reset_there(self) -> None:
        env = env_of(play_forever)

        def drive() -> None:
            env.reset()
            env.act(STAY)
            env.close()

        assert in_thread(drive) is None

    def test_the_thread_transport_needs_no_thread_of_its_own(self) -> None:
        env = env_of(play_forever, "thread")
        env.reset()
        for call in (lambda: env.act(STAY), env.reset, env.close):
            assert in_thread(call) is None

    def test_when_the_thread_that_played_has_ended(self) -> None:
        env = env_of(play_forever)
        assert in_thread(env.reset, "trainer") is None
        with pytest.raises(ProtocolError, match=r"\(trainer\) has ended"):
            env.act(STAY)
        env.reset()  # a new game: the old one has ended
        env.act(STAY)
        env.close()

    def test_reset_when_the_thread_that_played_has_ended(self) -> None:
        vec = VecEnv(dots_game(play_forever), 2)
        assert in_thread(vec.reset, "trainer") is None
        for _ in range(2):  # one message per environment
            with pytest.raises(ProtocolError, match=r"\(trainer\) has ended"):
                vec.reset()
        vec.reset()
        vec.close()

    @each_transport
    def test_a_game_that_asks_from_a_thread_of_its_own(self, transport: Transport) -> None:
        errors = []

        def play(agent: Agent, *, seed: int) -> None:
            errors.append(in_thread(lambda: ask(agent)))
            ask(agent)

        env = env_of(play, transport)
        env.reset()
        assert isinstance(errors[0], ProtocolError)
        message = str(errors[0])
        assert "called outside the game's own call stack" in message
        assert "call act and game_over in the thread that runs play" in message
        assert "transport" not in message  # no transport allows it
        env.close()


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="numpy 1 has one error state per thread"
)
def test_numpy_error_state_of_a_suspended_game_does_not_leak() -> None:
    def play(agent: Agent, *, seed: int) -> None:
        with np.errstate(divide="raise"):
            ask(agent)

    before = np.geterr()
    env = env_of(play)
    env.reset()
    assert np.geterr() == before
    env.close()
    assert np.geterr() == before


class TestSwallowedExit:
    """`except BaseException: continue` also catches the exception that closes a game."""

    @each_transport
    @pytest.mark.parametrize("call", ["close", "reset"])
    @pytest.mark.parametrize("is_async", [False, True])
    def test_is_reported_and_does_not_hang(
        self, call: str, transport: Transport, is_async: bool
    ) -> None:
        stop = threading.Event()

        def play(agent: Agent, *, seed: int) -> None:
            while not stop.is_set():
                try:
                    if is_async:
                        agent.act_async(Obs().entities([Dot(0)]), Move).get()
                    else:
                        ask(agent)
                except BaseException:
                    continue

        env = env_of(play, transport)
        env.reset()
        channel = channel_of(env._host.agents[0])
        with pytest.raises(ProtocolError, match="swallows GameExit"):
            getattr(env, call)()
        stop.set()
        if call == "reset":
            with pytest.raises(ProtocolError, match="play returned without game_over"):
                env.reset()  # a new game, which is told to stop at its first call
        env.close()
        let_go(channel)

    @each_transport
    def test_by_a_game_that_only_ends(self, transport: Transport) -> None:
        stop = threading.Event()

        def play(agent: Agent, *, seed: int) -> None:
            while not stop.is_set():
                try:
                    agent.game_over()
                except BaseException:
                    continue

        env = env_of(play, transport)
        assert env.reset().done
        channel = channel_of(env._host.agents[0])
        with pytest.raises(ProtocolError, match="swallows GameExit"):
            env.close()
        stop.set()
        let_go(channel)

    @each_transport
    def test_in_one_game_of_many_does_not_keep_the_others(self, transport: Transport) -> None:
        stop = threading.Event()
        ends: list[int] = []
        channels: list[object] = []

        def play(agent: Agent, *, seed: int) -> None:
            number = len(ends)
            ends.append(0)
            channels.append(channel_of(agent))
            while not stop.is_set():
                try:
                    ask(agent)
                except BaseException:
                    if number != 1:
                        ends[number] += 1
                        raise

        vec = VecEnv(dots_game(play), 3, transport=transport)
        vec.reset()
        with pytest.raises(ProtocolError, match="swallows GameExit"):
            vec.close()
        assert ends == [1, 0, 1]
        vec.close()
        stop.set()
        let_go(channels[1])


def channel_of(agent: Agent) -> object:
    """The channel by which an agent waits."""
    assert isinstance(agent, TrainAgent)
    channel: object = getattr(agent._suspend, "__self__", None)
    return channel


def let_go(channel: object) -> None:
    """Lets an abandoned thread continue, so that it ends before the test."""
    if isinstance(channel, ThreadChannel):
        thread = channel._thread
        assert thread is not None
        channel._turns_given += 1
        channel._wake()
        thread.join()


class TestErrors:
    @each_transport
    def test_of_a_vec_env_carry_the_traceback_of_the_game(self, transport: Transport) -> None:
        def play(agent: Agent, *, seed: int) -> None:
            ask(agent)
            deep_in_the_game()

        with VecEnv(dots_game(play), 2, transport=transport) as vec:
            vec.reset()
            with pytest.raises(WorkerError) as caught:
                vec.act({"Move": np.zeros(2, np.int64)})
        assert "deep_in_the_game" in caught.value.game_traceback
        assert isinstance(caught.value.__cause__, ZeroDivisionError)

    @each_transport
    @pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
    def test_that_end_the_program_are_raised(
        self, transport: Transport, error: type[BaseException]
    ) -> None:
        """Ctrl-C unchanged; other exceptions that end the program name the game."""
        raised = KeyboardInterrupt if error is KeyboardInterrupt else WorkerError
        ends = []

        def play(agent: Agent, *, seed: int) -> None:
            try:
                ask(agent)
                raise error
            finally:
                ends.append("finally")

        with VecEnv(dots_game(play), 2, transport=transport) as vec:
            vec.reset()
            with pytest.raises(raised):
                vec.act({"Move": np.zeros(2, np.int64)})
            assert ends == ["finally"]
            with pytest.raises(ProtocolError, match="reset"):
                vec.act({"Move": np.zeros(2, np.int64)})
            vec.reset()
        assert ends == ["finally"] * 4


def deep_in_the_game() -> None:
    1 / 0  # noqa: B018 - it raises


def play_asyncio(agent: Agent, *, seed: int) -> None:
    """Runs its own event loop, and asks from inside it."""

    async def main() -> None:
        for i in range(3):
            await asyncio.sleep(0)
            if ask(agent, score=i) is None:
                return
        agent.game_over(Obs(3))

    coroutine = main()
    try:
        asyncio.run(coroutine)
    finally:
        coroutine.close()


class TestAsyncio:
    """One thread runs one event loop at a time, and a suspended game keeps its own running."""

    def test_two_games_on_the_thread_transport(self) -> None:
        with VecEnv(dots_game(play_asyncio), 2, transport="thread") as vec:
            vec.reset()
            rewards = [vec.act({"Move": np.ones(2, np.int64)}).reward.tolist() for _ in range(4)]
            assert rewards == [[1, 1], [1, 1], [1, 1], [1, 1]]

    def test_one_game_on_the_greenlet_transport(self) -> None:
        env = env_of(play_asyncio)
        env.reset()
        assert env.act(STAY).reward == 1
        env.reset()
        env.close()

    def test_two_games_on_the_greenlet_transport_fail_with_the_remedy(self) -> None:
        vec = VecEnv(dots_game(play_asyncio), 2)
        with pytest.raises(WorkerError, match="running event loop") as caught:
            vec.reset()
        assert 'transport="thread" of Game or VecEnv' in str(caught.value)
        assert "--transport thread" in str(caught.value)
        assert caught.value.env_id == 1
        vec.close()

    @pytest.mark.parametrize(
        ("module", "explained"),
        [("trio._core._run", True), ("anyio._core._eventloop", True), ("triology", False)],
    )
    def test_errors_raised_by_other_loops_name_the_remedy_too(
        self, module: str, explained: bool
    ) -> None:
        def run() -> None:
            raise RuntimeError("in use")

        def play(agent: Agent, *, seed: int) -> None:
            FunctionType(run.__code__, {"__name__": module})()

        with pytest.raises(RuntimeError) as caught:
            env_of(play).reset()
        notes = getattr(caught.value, "__notes__", [])
        assert any("--transport thread" in note for note in notes) is explained

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_a_game_that_says_that_it_needs_threads(self, num_workers: int) -> None:
        game = dots_game(play_asyncio).with_transport("thread")
        with VecEnv(game, 2, num_workers) as vec:
            vec.reset()
            assert vec.act({"Move": np.ones(2, np.int64)}).reward.tolist() == [1, 1]

    def test_a_task_group_is_unwound(self) -> None:
        """It wraps exceptions of its tasks, including `GameExit`, in an exception group."""
        ends = []

        def play(agent: Agent, *, seed: int) -> None:
            async def turns() -> None:
                try:
                    while ask(agent) is not None:
                        await asyncio.sleep(0)
                finally:
                    ends.append(seed)

            async def main() -> None:
                async with asyncio.TaskGroup() as group:
                    group.create_task(turns())

            asyncio.run(main())

        with VecEnv(dots_game(play), 2, transport="thread") as vec:
            vec.reset()
            vec.reset()
        assert len(ends) == 4

    def test_awaited_answers_of_agents_in_tasks_are_one_batch(self) -> None:
        async def turns(agent: Agent) -> None:
            for i in range(2):
                if await agent.act_async(Obs(i).entities([Dot(i)]), Move) is None:
                    return
            agent.game_over(Obs(2))

        def play(agents: list[Agent], *, seed: int) -> None:
            async def main() -> None:
                await asyncio.gather(*map(turns, agents))

            asyncio.run(main())

        game = dots_game(play, num_agents=2)
        with VecEnv(game, 2, transport="thread") as vec:
            assert vec.reset().is_ready.tolist() == [True] * 4
            for _ in range(3):
                assert vec.act({"Move": np.ones(4, np.int64)}).is_ready.tolist() == [True] * 4
        episodes = game.run(RandomAgent(1), RandomAgent(2))
        assert [episode.length for episode in episodes] == [2, 2]
        check_game(game.with_transport("thread"))

    def test_restarted_within_an_event_loop_of_the_driver(self) -> None:
        seeds = []

        def play(agent: Agent, *, seed: int) -> None:
            seeds.append(seed)
            (play_forever if len(seeds) == 1 else play_asyncio)(agent, seed=seed)

        env = env_of(play)
        env.reset()

        async def drive() -> None:
            for _ in range(2):  # the unwound game restarts, then a new one starts
                with pytest.raises(RuntimeError, match="running event loop") as caught:
                    env.reset()
                assert 'transport="thread"' in caught.value.__notes__[0]

        asyncio.run(drive())
        env.reset()
        env.close()


@each_transport
def test_a_thousand_games_open_and_close_without_a_leak(transport: Transport) -> None:
    num_games = 1000 if transport == "greenlet" else 100
    held, ends = Held(), Ends()
    play = play_holding(held, ends)
    with VecEnv(dots_game(play), num_games, transport=transport) as vec:
        vec.reset()
        vec.act({"Move": np.zeros(num_games, np.int64)})
        assert len(held) == num_games
        assert all(ref() is not None for ref in held)
    assert len(ends) == num_games
    gc.collect()
    assert not any(ref() is not None for ref in held)


def test_an_unknown_transport_is_refused_at_once() -> None:
    for make in (
        lambda: TrainAgentEnv(dots_game(play_forever), transport="fiber"),  # type: ignore[arg-type]
        lambda: VecEnv(dots_game(play_forever), 1, transport="fiber"),  # type: ignore[arg-type]
    ):
        with pytest.raises(UsageError, match="greenlet, thread"):
            make()


@pytest.mark.parametrize("leave", [GreenletExit, GameExit])
def test_a_game_that_leaves_its_greenlet_is_reported(leave: type[BaseException]) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        ask(agent)
        raise leave

    env = env_of(play)
    env.reset()
    with pytest.raises(ProtocolError, match="stopped without asking"):
        env.act(STAY)
    env.reset()
    env.close()
