"""Workers under attack: messages of any size, badly timed interrupts, forks, sudden exits."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Mapping
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import (
    ClosedError,
    Obs,
    ProtocolError,
    SchemaError,
    UsageError,
    VecObs,
    WorkerError,
)
from entity_env.agents import Agent
from entity_env.authoring import game_traceback
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import VecEnv
from entity_env.vec.options import OnError
from entity_env.vec.workers import (
    handle,
    pool,
    shared_memory as shared_block,
    step_codec as wire,
)
from entity_env.vec.workers.shared_memory import SharedBlock
from tests import ROOT
from tests.helpers.tiny_games import Dot, Move, ask, count, dots_game
from tests.helpers.worker_games import Lamp
from tests.helpers.worker_helpers import is_running, pid_of, plain_reset, script, stay

SOCKET_BUFFER = 212_992
"""Bytes that a socket buffers on Linux before the sender blocks."""
SIZES = [0, 1, SOCKET_BUFFER - 1, SOCKET_BUFFER, SOCKET_BUFFER + 1, 10_000_000]


def play_raising(agent: Agent, *, seed: int, size: int = 0) -> None:
    ask(agent)
    raise ValueError("<" + "x" * size + ">")


def play_recursing(agent: Agent, *, seed: int) -> None:
    ask(agent)
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        there()
    finally:
        sys.setrecursionlimit(before)


def there() -> NoReturn:
    back()


def back() -> NoReturn:
    there()


class OddError(Exception):
    """Neither its text nor its notes can be read."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def play_raising_oddly(agent: Agent, *, seed: int) -> None:
    ask(agent)
    error = OddError()
    error.__notes__ = [1, "a note"]  # type: ignore[list-item]  # as a careless game does
    raise error


def play_noting_oddly(agent: Agent, *, seed: int) -> None:
    ask(agent)
    error = SchemaError("hi")
    error.__notes__ = [1, "a note"]  # type: ignore[list-item]  # as a careless game does
    raise error


def play_raising_ours(agent: Agent, *, seed: int) -> None:
    ask(agent)
    raise WorkerError("mine", game_traceback=lambda: 0)  # type: ignore[arg-type]  # not picklable


class Painter(Lamp):
    """Renders itself in a given size."""

    size = 300

    def render(self) -> NDArray[np.uint8]:
        return np.full((self.size, self.size, 3), 7, np.uint8)


class LargePainter(Painter):
    size = 2000


class ClumsyPainter(Painter):
    def render(self) -> NDArray[np.uint8]:
        raise ValueError("x" * 300_000)


class TestMessages:
    """No message is so large that worker and parent wait for each other."""

    @pytest.mark.parametrize("size", SIZES)
    def test_a_failure_of_any_size_arrives(self, size: int) -> None:
        game = dots_game(play_raising).with_settings(size=size)
        with VecEnv(game, 2, 1, step_timeout_s=30) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="the game raised ValueError: <") as caught:
                vec.act(stay(2))
            assert len(caught.value.reason) < game_traceback.MAX_MESSAGE + 200
            assert len(caught.value.game_traceback) <= game_traceback.MAX_TRACE + 10
            assert "in play_raising" in caught.value.game_traceback
            assert ">" in caught.value.reason
            vec.reset()

    def test_of_a_deep_recursion_the_innermost_frames_arrive(self) -> None:
        with VecEnv(dots_game(play_recursing), 2, 1, step_timeout_s=30) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="RecursionError") as caught:
                vec.act(stay(2))
            trace = caught.value.game_traceback
            assert trace.endswith("RecursionError: maximum recursion depth exceeded")
            assert len(trace) <= game_traceback.MAX_TRACE + 10
            vec.reset()

    @pytest.mark.parametrize("num_workers", [0, 1])
    def test_what_cannot_be_text_is_left_out(self, num_workers: int) -> None:
        with VecEnv(dots_game(play_raising_oddly), 2, num_workers) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="message cannot be made: RuntimeError") as caught:
                vec.act(stay(2))
            assert caught.value.env_id == 0

    def test_notes_that_are_no_text_are_left_out(self) -> None:
        with VecEnv(dots_game(play_noting_oddly), 2, 1) as vec:
            vec.reset()
            with pytest.raises(SchemaError, match="hi") as caught:
                vec.act(stay(2))
            assert "a note" in caught.value.__notes__

    def test_attributes_that_cannot_be_pickled_are_left_out(self) -> None:
        with VecEnv(dots_game(play_raising_ours), 2, 1) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="mine"):
                vec.act(stay(2))
            vec.reset()

    @pytest.mark.parametrize("painter", [Painter, LargePainter])
    def test_a_picture_of_any_size_arrives(self, painter: type[Painter]) -> None:
        with VecEnv(painter, 2, 1, step_timeout_s=30) as vec:
            vec.reset()
            picture = vec.render(1)
            assert picture.shape == (painter.size, painter.size, 3)
            assert (picture == 7).all()

    def test_what_fails_while_drawing_is_named(self) -> None:
        with VecEnv(ClumsyPainter, 2, 1, step_timeout_s=30) as vec:
            vec.reset()
            with pytest.raises(WorkerError, match="ValueError: x") as caught:
                vec.render(1)
            assert caught.value.env_id == 1
            assert "in render" in caught.value.game_traceback
            vec.reset()


def play_growing(agent: Agent, *, seed: int) -> None:
    for i in range(50):
        dots = [Dot(100 * i + k) for k in range(1 + 5000 * (i % 2))]
        if agent.act(Obs(i).entities(dots), Move) is None:
            return
    agent.game_over(Obs(50).entities([Dot(50)]))


growing = dots_game(play_growing)
MOMENTS: Mapping[str, tuple[type[Any], str]] = {
    "ring": (handle.WorkerHandle, "_notify"),
    "room": (handle.WorkerHandle, "_room"),
    "read": (handle.WorkerHandle, "read"),
    "reader": (wire.StepReader, "read"),
    "learn": (wire.StepReader, "_learn_names"),
    "count": (pool.WorkerPool, "_count"),
    "side": (pool.WorkerPool, "_join"),
    "wait": (pool.WorkerPool, "_wait"),
    "reset": (pool.WorkerPool, "start_reset"),
}


def interrupt_once(
    monkeypatch: pytest.MonkeyPatch, owner: type[Any], name: str, *, before: bool, skip: int = 0
) -> list[int]:
    """Raises KeyboardInterrupt once, before or after a call; the list counts the calls."""
    given = owner.__dict__[name]
    real = given.__func__ if isinstance(given, classmethod) else given
    calls = [0]

    def interrupted(*args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - any function
        calls[0] += 1
        is_it = calls[0] == skip + 1
        if is_it and before:
            raise KeyboardInterrupt
        result = real(*args, **kwargs)
        if is_it:
            raise KeyboardInterrupt
        return result

    wrapped = classmethod(interrupted) if isinstance(given, classmethod) else interrupted
    monkeypatch.setattr(owner, name, wrapped)
    return calls


def assert_plays_right(vec: VecEnv) -> None:
    """Checks that a reset and some steps match the game, and that a metric keeps its name."""
    for step in range(4):
        obs = vec.reset() if step == 0 else vec.act(stay(vec.num_envs))
        for env_id in range(vec.num_envs):
            dots = obs.features["Dot"][env_id][:, 0]
            assert dots.tolist() == [100 * step + k for k in range(1 + 5000 * (step % 2))]
        assert obs.action_masks["Move"].actors.lengths.tolist() == [1] * vec.num_envs
        assert obs.reward.tolist() == [float(step > 0)] * vec.num_envs


class TestInterrupts:
    """As in a notebook: Ctrl-C, then reset and continue with the same workers."""

    @pytest.mark.slow
    @pytest.mark.parametrize("before", [True, False])
    @pytest.mark.parametrize("call", ["reset", "act"])
    def test_a_reset_after_one_shows_the_right_things(self, call: str, before: bool) -> None:
        with VecEnv(growing, 2, 2, step_timeout_s=30) as vec:
            pids = pid_of(0), pid_of(1)
            for moment, skip in product(MOMENTS.values(), (0, 1)):
                if call == "act":
                    vec.reset()
                with pytest.MonkeyPatch.context() as monkeypatch:
                    interrupt_once(monkeypatch, *moment, before=before, skip=skip)
                    try:
                        vec.reset() if call == "reset" else vec.act(stay(2))
                    except KeyboardInterrupt:
                        with pytest.raises(ProtocolError):
                            vec.act(stay(2))
                assert_plays_right(vec)
            assert (pid_of(0), pid_of(1)) == pids

    @pytest.mark.parametrize("before", [True, False])
    @pytest.mark.parametrize("skip", range(4))
    def test_memory_that_was_on_its_way_is_sent_again(self, before: bool, skip: int) -> None:
        with VecEnv(growing, 2, 2, step_timeout_s=30) as vec:
            with pytest.MonkeyPatch.context() as monkeypatch:
                interrupt_once(monkeypatch, SharedBlock, "receive", before=before, skip=skip)
                with pytest.raises(KeyboardInterrupt):
                    assert_plays_right(vec)
            assert_plays_right(vec)
            assert_plays_right(vec)

    @pytest.mark.parametrize("moment", ["wait_until_ready", "begin"])
    @pytest.mark.parametrize("before", [True, False])
    def test_a_worker_whose_start_was_interrupted_is_replaced(
        self, moment: str, before: bool
    ) -> None:
        with VecEnv(growing, 2, 1, step_timeout_s=30) as vec:
            vec.reset()
            os.kill(pid_of(0), signal.SIGKILL)
            with pytest.raises(WorkerError, match="died"):
                vec.act(stay(2))
            with pytest.MonkeyPatch.context() as monkeypatch:
                interrupt_once(monkeypatch, handle.WorkerHandle, moment, before=before)
                with pytest.raises(KeyboardInterrupt):
                    vec.reset()
            assert_plays_right(vec)

    @pytest.mark.parametrize("on_error", ["raise", "restart"])
    @pytest.mark.parametrize(("moment", "before"), [("begin", False), ("reset", True)])
    def test_a_worker_that_was_replaced_before_one_continues_the_run(
        self, moment: str, before: bool, on_error: OnError
    ) -> None:
        with VecEnv(numbered, 1, 1, seed=5, on_error=on_error, step_timeout_s=30) as vec:
            assert [number_in(vec.reset()) for _ in range(2)] == [0, 1]
            os.kill(pid_of(0), signal.SIGKILL)
            if on_error == "raise":
                with pytest.raises(WorkerError, match="died"):
                    vec.act(stay(1))
            with pytest.MonkeyPatch.context() as monkeypatch:
                interrupt_once(monkeypatch, handle.WorkerHandle, moment, before=before)
                with pytest.raises(KeyboardInterrupt):
                    vec.reset() if on_error == "raise" else vec.act(stay(1))
            assert [number_in(vec.reset()) for _ in range(2)] == [2, 3]

    def test_an_episode_whose_end_was_being_counted_is_not_played_again(self) -> None:
        class Interrupted(np.ndarray):
            def __setitem__(self, rows: Any, values: Any, /) -> None:  # noqa: ANN401
                super().__setitem__(rows, values)
                raise KeyboardInterrupt

        with VecEnv(numbered, 1, 1, seed=5) as vec:
            assert number_in(vec.reset()) == 0
            executor: Any = vec._executor
            is_playing = executor._is_playing
            executor._is_playing = is_playing.view(Interrupted)
            with pytest.raises(KeyboardInterrupt):
                vec.act(stay(1))
            executor._is_playing = is_playing
            os.kill(pid_of(0), signal.SIGKILL)
            executor._workers[0].died()
            assert number_in(vec.reset()) > 0

    @pytest.mark.parametrize("before", [True, False])
    def test_a_failure_that_was_on_its_way_is_forgotten(self, before: bool) -> None:
        with VecEnv(dots_game(play_raising), 2, 1, step_timeout_s=30) as vec:
            vec.reset()
            with pytest.MonkeyPatch.context() as monkeypatch:
                interrupt_once(monkeypatch, SharedBlock, "receive", before=before)
                with pytest.raises(KeyboardInterrupt):
                    vec.act(stay(2))
            vec.reset()
            with pytest.raises(WorkerError, match="ValueError"):
                vec.act(stay(2))

    @pytest.mark.parametrize("num_workers", [0, 2])
    @pytest.mark.parametrize("moment", ["start_reset", "wait", "collect"])
    def test_the_run_of_an_interrupted_reset_is_begun_once_more(
        self, num_workers: int, moment: str
    ) -> None:
        with VecEnv(count, 2, num_workers, seed=5) as expected:
            first, third = plain_reset(expected), expected.reset(seed=9)
        with VecEnv(count, 2, num_workers, seed=5) as vec:
            executor = type(vec._executor)
            for seed in (None, 9):
                with pytest.MonkeyPatch.context() as monkeypatch:
                    interrupt_once(monkeypatch, executor, moment, before=False)
                    with pytest.raises(KeyboardInterrupt):
                        vec.reset(seed=seed)
                if seed is None:
                    assert plain_reset(vec) == first
            assert vec.reset().features == third.features


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_run_of_a_reset_in_which_the_pending_step_fails_is_begun_by_the_next(
    num_workers: int,
) -> None:
    with VecEnv(dots_game(play_raising), 2, num_workers, seed=5) as vec:
        vec.reset()
        vec.send(stay(2))
        with pytest.raises(WorkerError, match="ValueError"):
            vec.reset(seed=9)
        vec.reset()
        assert vec.episode_seeds() == [EpisodeSeeds(9, i)[0] for i in range(2)]


def test_the_run_of_a_reset_that_cannot_start_a_worker_is_begun_by_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with VecEnv(count, 2, 2, seed=5) as vec:
        vec.reset()
        os.kill(pid_of(0), signal.SIGKILL)
        with pytest.raises(WorkerError, match="died"):
            vec.act(stay(2))
        with monkeypatch.context() as patch:
            patch.setattr(handle.WorkerHandle, "wait_until_ready", raise_no_memory)
            with pytest.raises(WorkerError, match="no memory"):
                vec.reset(seed=9)
        vec.reset()
        assert vec.episode_seeds() == [EpisodeSeeds(9, i)[0] for i in range(2)]


def raise_no_memory(*_: object) -> NoReturn:
    raise WorkerError("no memory")


def play_numbered(agent: Agent, *, seed: int, deadly: int = -1) -> None:
    """Shows the number of its episode; one of them kills its process before the first action."""
    number = [EpisodeSeeds(5, 0)[i] for i in range(20)].index(seed)
    if number == deadly:
        os.kill(os.getpid(), signal.SIGKILL)
    ask(agent, x=number)
    agent.game_over()


numbered = dots_game(play_numbered)


def number_in(obs: VecObs) -> int:
    return int(obs.features["Dot"].values[0, 0])


@pytest.mark.parametrize("deadly", [0, 2])
def test_an_episode_that_kills_its_worker_at_once_is_skipped(deadly: int) -> None:
    """The next reset begins the next episode, and no episode is played twice."""
    with VecEnv(numbered.with_settings(deadly=deadly), 1, 1, seed=5) as vec:
        assert [number_in(vec.reset()) for _ in range(deadly)] == list(range(deadly))
        with pytest.raises(WorkerError, match=f"died.*, episode {deadly},"):
            vec.reset()
        assert [number_in(vec.reset()) for _ in range(2)] == [deadly + 1, deadly + 2]


def play_counting(agent: Agent, *, seed: int) -> None:
    """Shows the number of its episode; the second fails at once, the third kills its process."""
    number = [EpisodeSeeds(5, 0)[i] for i in range(20)].index(seed)
    if number == 1:
        raise ValueError("at once")
    for i in range(3):
        if number == 2 and i == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        if ask(agent, score=i, x=number) is None:
            return
    agent.game_over(Obs(3).entities([Dot(number)]))


def test_a_lost_episode_is_the_one_that_was_shown() -> None:
    """Also after an episode that failed before its first observation; none is played twice."""
    shown: list[float] = []
    told: list[tuple[int, int, bool]] = []
    with VecEnv(dots_game(play_counting), 1, 1, seed=5, on_error="restart") as vec:
        obs = vec.reset()
        for _ in range(9):
            shown.append(float(obs.features["Dot"][0][0, 0]))
            told += [(e.number, e.length, "error" in e.metrics) for e in obs.episodes]
            obs = vec.act(stay(1))
    assert shown == [0, 0, 0, 2, 2, 3, 3, 3, 4]
    assert told == [(0, 3, False), (2, 2, True), (3, 3, False)]


ENDS = [
    "sys.exit(0)",
    "raise ValueError('the child fails')",
    "del vec; gc.collect(); os._exit(0)",
    "vec.close(); os._exit(0)",
]


class TestForks:
    """A fork of the parent does not affect the parent's workers."""

    @pytest.mark.slow
    def test_one_that_ends_changes_nothing(self, tmp_path: Path) -> None:
        text = f"""
            import gc, os, sys
            import numpy as np
            from entity_env.vec import VecEnv
            from tests.helpers.tiny_games import count
            if __name__ == "__main__":
                vec = VecEnv(count, 2, 1)
                vec.reset()
                for end in {ENDS!r}:
                    pid = os.fork()
                    if pid == 0:
                        exec(end)
                    os.waitpid(pid, 0)
                    obs = vec.act({{"Move": np.ones(2, np.int64)}})
                    print("played on", obs.reward.tolist(), flush=True)
                vec.close()
        """
        with script(tmp_path, text) as process:
            out, error = process.communicate(timeout=50)
        assert out == "played on [1.0, 1.0]\n" * len(ENDS), error
        assert error.count("the child fails") == 1
        assert "multiprocessing" not in error

    @pytest.mark.slow
    def test_it_may_not_step(self, tmp_path: Path) -> None:
        text = """
            import os
            import numpy as np
            from entity_env import ProtocolError
            from entity_env.vec import VecEnv
            from tests.helpers.worker_games import Lamp
            stay = {"Move": np.zeros(2, np.int64)}
            if __name__ == "__main__":
                vec = VecEnv(Lamp, 2, 1)
                vec.reset()
                for call in (lambda: vec.act(stay), vec.reset, vec.render, lambda: vec.send(stay)):
                    pid = os.fork()
                    if pid == 0:
                        try:
                            call()
                        except ProtocolError as error:
                            print(error, flush=True)
                        os._exit(0)
                    os.waitpid(pid, 0)
                vec.reset()
                vec.close()
        """
        with script(tmp_path, text) as process:
            out, error = process.communicate(timeout=50)
        assert out.count("was forked from it") == 4, error
        assert not error

    @pytest.mark.slow
    def test_workers_of_a_killed_parent_leave_while_its_fork_lives(self, tmp_path: Path) -> None:
        text = """
            import os, signal
            from entity_env.vec import VecEnv
            from tests.helpers.tiny_games import count
            if __name__ == "__main__":
                vec = VecEnv(count, 2, 1)
                vec.reset()
                pid = os.fork()
                if pid == 0:
                    os.close(1)
                    os.close(2)
                    signal.pause()
                print(vec._executor._workers[0].process.pid, pid, flush=True)
                os.kill(os.getpid(), signal.SIGKILL)
        """
        with script(tmp_path, text) as process:
            assert process.stdout is not None  # also kept open by its child's fork server
            worker, child = map(int, process.stdout.readline().split())
            try:
                deadline = monotonic() + 30
                while is_running(worker) and monotonic() < deadline:
                    threading.Event().wait(0.02)
                assert not is_running(worker)
                assert is_running(child)
            finally:
                os.kill(child, signal.SIGKILL)


def play_hanging(agent: Agent, *, seed: int) -> None:
    ask(agent)
    threading.Event().wait()


hanging = dots_game(play_hanging)


class TestClosing:
    def test_all_workers_share_one_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pool, "_EXIT_TIMEOUT_S", 0.2)
        until: dict[str, list[float]] = {"request_exit": [], "close": []}
        for name, seen in until.items():
            real: Callable[..., Any] = getattr(handle.WorkerHandle, name)

            def recorded(
                self: handle.WorkerHandle,
                until: float,
                seen: list[float] = seen,
                real: Callable[..., Any] = real,
            ) -> object:
                seen.append(until)
                return real(self, until)

            monkeypatch.setattr(handle.WorkerHandle, name, recorded)
        vec = VecEnv(hanging, 3, 3)
        vec.reset()
        vec.send(stay(3))
        pids = [pid_of(i) for i in range(3)]
        vec.close()
        assert not any(map(is_running, pids))
        for seen in until.values():
            assert len(seen) == 3
            assert len(set(seen)) == 1

    @pytest.mark.slow
    def test_another_thread_ends_a_call_that_waits(self) -> None:
        vec = VecEnv(hanging, 2, 2)
        vec.reset()
        vec.send(stay(2))
        raised: list[BaseException] = []
        entered = threading.Event()

        def wait() -> None:
            entered.set()
            try:
                vec.recv()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=wait)
        thread.start()
        entered.wait()
        with pytest.MonkeyPatch.context() as monkeypatch:
            monkeypatch.setattr(pool, "_EXIT_TIMEOUT_S", 0.5)
            vec.close()
        thread.join(30)
        assert [type(error) for error in raised] == [ClosedError]

    @pytest.mark.slow
    def test_where_sigchld_is_blocked(self, tmp_path: Path) -> None:
        text = """
            import signal
            from entity_env.vec import VecEnv
            from tests.helpers.tiny_games import count
            if __name__ == "__main__":
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
                vec = VecEnv(count, 2, 1)
                vec.reset()
                vec.close()
                assert signal.SIGCHLD in signal.pthread_sigmask(signal.SIG_BLOCK, ())
                print("closed")
        """
        with script(tmp_path, text) as process:
            out, error = process.communicate(timeout=50)
        assert out == "closed\n", error

    def test_again_after_an_interrupted_one(self) -> None:
        for name in ("request_exit", "close", "end"):
            for before in (True, False):
                vec = VecEnv(count, 2, 2)
                vec.reset()
                pids = pid_of(0), pid_of(1)
                with pytest.MonkeyPatch.context() as monkeypatch:
                    interrupt_once(monkeypatch, handle.WorkerHandle, name, before=before)
                    with pytest.raises(KeyboardInterrupt):
                        vec.close()
                vec.close()
                assert not any(map(is_running, pids))


def play_telling_signals(agent: Agent, *, seed: int) -> None:
    ask(agent)
    ended = subprocess.run(  # a program started by a game still ends on SIGTERM
        [sys.executable, "-c", "import os, signal; os.kill(os.getpid(), signal.SIGTERM)"],
        check=False,
    ).returncode
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        os.kill(os.getpid(), number)
    raise ValueError(f"its program ended by {-ended}, safe path {os.environ.get('PYTHONSAFEPATH')}")


def test_signals_are_the_parents_business() -> None:
    with VecEnv(dots_game(play_telling_signals), 1, 1) as vec:
        vec.reset()
        message = f"its program ended by {int(signal.SIGTERM)}, safe path None"
        with pytest.raises(WorkerError, match=message):
            vec.act(stay(1))


@pytest.mark.slow
def test_modules_in_the_current_folder_do_not_hide_pythons_own(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for name in ("json", "socket", "signal", "selectors"):
        (elsewhere / f"{name}.py").write_text("raise RuntimeError('not this one')")
    file = tmp_path / "script.py"
    text = """
        from entity_env.vec import VecEnv
        from tests.helpers.tiny_games import count
        if __name__ == "__main__":
            for method in ("forkserver", "spawn"):
                with VecEnv(count, 1, 1, start_method=method) as vec:
                    vec.reset()
            print("played")
    """
    file.write_text(textwrap.dedent(text))
    ended = subprocess.run(
        [sys.executable, str(file)],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert ended.stdout == "played\n", ended.stderr


class SlowLamp(Lamp):
    """Has a slow constructor."""

    def __init__(self) -> None:
        threading.Event().wait(20)


def test_the_time_to_start_can_be_given() -> None:
    with pytest.raises(WorkerError, match=r"within 0\.3 s: if they take that long, raise"):
        VecEnv(SlowLamp, 1, 1, start_timeout_s=0.3)


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), "5", True])
@pytest.mark.parametrize("name", ["start_timeout_s", "step_timeout_s"])
def test_times_are_seconds(name: str, seconds: object) -> None:
    with pytest.raises(UsageError, match=f"{name} must be a number of seconds above 0, at most"):
        VecEnv(count, 1, **{name: seconds})  # type: ignore[arg-type]  # on purpose


def test_a_folder_that_is_gone_is_named(tmp_path: Path) -> None:
    error = FileNotFoundError(2, "No such file or directory", str(tmp_path / "gone"))
    told = str(shared_block.machine_error("start worker 0", error))
    assert str(tmp_path / "gone") in told
    assert "TMPDIR" in told
