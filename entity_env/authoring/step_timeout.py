"""`StepTimeout`: raises an exception in a game that hangs in this process."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from time import monotonic, sleep
from types import FrameType, TracebackType
from typing import Final, Protocol

from entity_env.errors import UsageError, shown

_TICKS: Final = 4
"""Timer ticks per timeout. A process that was stopped (Ctrl-Z, a debugger) gets one tick for all
missed ticks, so its games do not count as hanging."""
_MAX_S: Final = 1e6


class GameHangs(BaseException):
    """Raised in a game that exceeds its step timeout.

    A `BaseException`: `except Exception` in a game does not catch it.

    Attributes:
        stack: stack of the game, if the traceback does not contain it.
    """

    stack = ""


class AgentHangs(GameHangs):
    """Raised in an agent that exceeds its timeout.

    Attributes:
        agent: the agent in words; set by its run.
    """

    agent = "an agent"


class StepTimeout:
    """Context that raises `GameHangs` in the main thread when a step takes too long.

    A step begins with `start`, which entering the context calls, and ends with `stop`, or with
    `start_agent`, which begins a decision of an agent and raises `AgentHangs` after `agent_s`. Uses
    SIGALRM, and restores its previous handler and timer on exit. On systems without this signal
    (Windows) it uses a watchdog thread, which cannot interrupt a game that sleeps. Does nothing
    outside the main thread. It cannot interrupt a game that hangs in C or catches `BaseException`;
    run such a game in a worker process, which can be killed.

    Args:
        timeout_s: of a step of the game; None = no limit.
        agent_s: of a decision of an agent; None = no limit.
        timer: another one than these two.
    """

    def __init__(
        self, timeout_s: float | None, agent_s: float | None = None, timer: Timer | None = None
    ) -> None:
        require_timeout(timeout_s)
        require_timeout(agent_s, "agent_timeout_s")
        self._timeout_s, self._agent_s = timeout_s, agent_s
        is_limited = timeout_s is not None or agent_s is not None
        self._timer = (timer or _new_timer()) if is_limited else None
        self._open: Timer | None = None
        """The timer between enter and exit."""

    def __enter__(self) -> StepTimeout:
        if self._timer is not None and threading.current_thread() is threading.main_thread():
            self._timer.open()
            self._open = self._timer
            self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._timer is None or self._open is None:
            return
        self.stop()
        self._open = None
        self._timer.close()

    def start(self) -> None:
        """Begins a step and starts its timeout."""
        self._start(self._timeout_s, None)

    def start_agent(self, agent_id: int) -> None:
        """Begins a decision of an agent, which is not part of a step, and starts its timeout."""
        self._start(self._agent_s, agent_id)

    def _start(self, seconds: float | None, agent_id: int | None) -> None:
        if seconds is None:
            self.stop()
        elif self._open is not None:
            self._open.start(seconds, agent_id)

    def stop(self) -> None:
        """Ends a step: no timeout until the next `start`."""
        if self._open is not None:
            self._open.stop()


class Timer(Protocol):
    """Raises an exception in the main thread one timeout after `start`, unless stopped before."""

    def open(self) -> None:
        """Called before the first start."""

    def start(self, timeout_s: float, agent_id: int | None) -> None:
        """Starts, or starts again, for an agent that decides, or for the game."""

    def stop(self) -> None:
        """Called before the end of the timeout."""

    def close(self) -> None:
        """Called after the last stop."""


def _new_timer() -> Timer:
    if sys.platform != "win32" and hasattr(signal, "setitimer"):
        return _Alarm()
    return _Watchdog()


if sys.platform != "win32":

    class _Alarm:
        """Timer of SIGALRM; replaces its handler between `open` and `close`."""

        def __init__(self) -> None:
            self._timeout_s = 0.0
            self._kind: type[GameHangs] = GameHangs
            self._is_running = False
            self._num_ticks = 0
            self._handler: signal._HANDLER = signal.SIG_DFL
            self._replaced = (0.0, 0.0)
            """Seconds left on the timer that was set before, and its interval in seconds."""
            self._opened = 0.0

        def open(self) -> None:
            self._opened = monotonic()
            self._replaced = signal.setitimer(signal.ITIMER_REAL, 0)
            self._handler = signal.signal(signal.SIGALRM, self._tick)

        def close(self) -> None:
            signal.signal(signal.SIGALRM, self._handler)
            left_s, interval_s = self._replaced
            if left_s:
                left_s = max(left_s - (monotonic() - self._opened), 1e-6)
                signal.setitimer(signal.ITIMER_REAL, left_s, interval_s)

        def start(self, timeout_s: float, agent_id: int | None) -> None:
            self._timeout_s = timeout_s
            self._kind = GameHangs if agent_id is None else AgentHangs
            self._num_ticks = 0
            self._is_running = True
            tick_s = timeout_s / _TICKS
            signal.setitimer(signal.ITIMER_REAL, tick_s, tick_s)

        def stop(self) -> None:
            if self._is_running:
                self._is_running = False
                signal.setitimer(signal.ITIMER_REAL, 0)

        def _tick(self, number: int, frame: FrameType | None) -> None:
            if not self._is_running:
                return
            self._num_ticks += 1
            if self._num_ticks >= _TICKS:
                self._num_ticks = 0  # a restarted game gets the full time
                raise self._kind(f"no answer for {self._timeout_s:g} s")

    class _Repeated(_Alarm):
        """Calls a function at every tick of SIGALRM."""

        def __init__(self, call: Callable[[FrameType | None], None]) -> None:
            super().__init__()
            self._call = call

        def _tick(self, number: int, frame: FrameType | None) -> None:
            if self._is_running:
                self._call(frame)


@contextmanager
def called_every(period_s: float, call: Callable[[FrameType | None], None]) -> Iterator[None]:
    """Calls a function with the frame that runs, again and again while the block runs.

    It is called in the main thread, and may raise an exception there. Does nothing in other threads
    and on systems without SIGALRM.
    """
    is_main = threading.current_thread() is threading.main_thread()
    alarm: Timer | None = None
    if sys.platform != "win32" and sys.platform not in ("emscripten", "wasi") and is_main:
        alarm = _Repeated(call)
    if alarm is None:
        yield
        return
    alarm.open()
    alarm.start(_TICKS * period_s, None)
    try:
        yield
    finally:
        alarm.stop()
        alarm.close()


class _Watchdog:
    """Timer in a thread.

    The thread ends if no step runs for one timeout; `start` then makes a new thread. `close` does
    nothing, because a game may be played again soon.
    """

    def __init__(self) -> None:
        self._kind: type[GameHangs] = GameHangs
        self._tick_s = 0.0
        self._lock = threading.Lock()
        self._is_running = False
        self._has_fired = False
        self._num_ticks = 0
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def start(self, timeout_s: float, agent_id: int | None) -> None:
        self.stop()
        kind = _hang_of(agent_id is not None, timeout_s)
        with self._lock:
            self._kind, self._tick_s = kind, timeout_s / _TICKS
            self._num_ticks = 0
            self._is_running = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        if not self._is_running:
            return
        self._is_running = False
        with self._lock:
            self._num_ticks = 0
            has_fired, self._has_fired = self._has_fired, False
        if has_fired:
            self._absorb()

    def _absorb(self) -> None:
        """Catches an exception that the main thread may not have raised yet.

        Canceling it would slow this process down: CPython 3.11 then looks for it forever.
        """
        try:
            raise_in(_main_ident(), self._kind)  # replaces a pending one, or is a second one
            while True:
                pass
        except self._kind:
            pass

    def _watch(self) -> None:
        while True:
            sleep(self._tick_s)
            with self._lock:
                self._num_ticks += 1
                if self._num_ticks < _TICKS:
                    continue
                self._num_ticks = 0  # a restarted game gets the full time
                if not self._is_running:
                    self._thread = None
                    return
                self._has_fired = True
                raise_in(_main_ident(), self._kind)


@cache
def _hang_of(is_agent: bool, timeout_s: float) -> type[GameHangs]:
    """A class with the timeout in its message: the interpreter raises it without arguments."""
    kind = AgentHangs if is_agent else GameHangs

    class Hang(kind):  # type: ignore[misc, valid-type]  # one of two classes
        def __init__(self) -> None:
            super().__init__(f"no answer for {timeout_s:g} s")

    return Hang


def _main_ident() -> int:
    return threading.main_thread().ident or 0


def raise_in(ident: int, kind: type[BaseException] | None) -> None:
    """Raises an exception in another thread once it runs Python; None cancels a pending one."""
    import ctypes  # takes 5 ms, and is rarely needed

    what = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), what)


def require_timeout(timeout_s: object, name: str = "step_timeout_s") -> None:
    """Raises `UsageError` unless a timeout is None, or above 0 and at most `_MAX_S` seconds."""
    if timeout_s is None:
        return
    is_flag = isinstance(timeout_s, bool)
    if is_flag or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= _MAX_S:
        raise UsageError(
            f"{name} must be a number of seconds above 0, at most {_MAX_S:g}, or None: "
            f"got {shown(timeout_s)}"
        )
