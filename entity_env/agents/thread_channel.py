"""ThreadChannel: a game in an OS thread of its own."""

from __future__ import annotations

import contextvars
import ctypes
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from entity_env.agents.channel import MAX_SWALLOWED_EXITS
from entity_env.errors import ClosedError, GameExit, ProtocolError
from entity_env.game_traceback import stack_at
from entity_env.step_timeout import GameHangs

_CLOSE_TIMEOUT_S = 5.0


class ThreadChannel:
    """Runs a game in a thread; see `Channel`.

    Costs about 13 µs a round trip (`benchmarks/inversion.py`). Only one of the two threads runs at
    a time, handed over by a pair of locks; any thread may drive it, one at a time.

    Args:
        target: the game.
        name: what errors and the thread call it.
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._name = name
        self._target = target
        # Plain locks, taken by one side and released by the other: half the cost of semaphores.
        self._go = threading.Lock()
        self._done = threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._error: BaseException | None = None
        self._context = contextvars.copy_context()
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._is_exiting = False
        self._num_swallowed = 0
        self.is_finished = False

    @property
    def frame(self) -> FrameType | None:
        thread = self._thread
        if thread is None or thread.ident is None or self.is_finished:
            return None
        return sys._current_frames().get(thread.ident)

    def resume(self) -> None:
        if self.is_finished:
            raise ClosedError(f"{self._name} is finished: nothing is left to resume")
        if self._is_running:
            raise ProtocolError(f"{self._name}: the game is still running: it was interrupted")
        self._is_running = True
        if self._thread is None:
            self._start()
        else:
            self._go.release()
        self._wait()

    def suspend(self) -> None:
        if threading.current_thread() is not self._thread:
            raise ProtocolError(
                f"{self._name}: an agent was asked from outside its game's own thread; a game asks "
                "its agents from the thread that runs play, and not after it has ended"
            )
        if self._is_exiting:
            self._num_swallowed += 1
            if self._num_swallowed <= MAX_SWALLOWED_EXITS:
                raise GameExit
        self._done.release()
        self._go.acquire()
        if self._is_exiting:
            raise GameExit

    def throw(self) -> None:
        if self._is_running:  # the driver was interrupted while it waited
            self._wait(_CLOSE_TIMEOUT_S)
            if self.is_finished:
                return
        self._is_exiting = self._is_running = True
        self._num_swallowed = 0
        self._go.release()
        self._wait()
        if self._num_swallowed > MAX_SWALLOWED_EXITS:
            self.is_finished = True
            raise ProtocolError(
                f"{self._name}: the game swallows GameExit and goes on asking, so it cannot be "
                "closed; catch Exception rather than BaseException, and leave when act gives None"
            )

    def close(self) -> None:
        if not self.is_finished and self._thread is not None:
            self.throw()
        self.is_finished = True

    def ready_again(self) -> None:
        self._is_exiting = False

    def _start(self) -> None:
        # Daemonic, so that a game stuck in a foreign call cannot keep the process alive.
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.is_finished = True
            error.add_note('the system starts no more threads: choose transport="greenlet"')
            raise

    def _wait(self, timeout_s: float = -1) -> None:
        """Waits until the game hands over, and raises what it raised; -1 = as long as it takes."""
        try:
            if not self._done.acquire(timeout=timeout_s):
                self._give_up()
        except GameHangs as hang:
            self._end_hanging(hang)
        self._is_running = False
        if self.is_finished and self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # whose traceback refers to this frame

    def _end_hanging(self, hang: GameHangs) -> None:
        """Raises `hang` in the game's own thread, and waits until that has ended it."""
        thread = self._thread
        if thread is None or thread.ident is None:
            raise hang
        stack = stack_at(self.frame)
        _raise_in(thread.ident, GameHangs)
        try:
            is_done = self._done.acquire(timeout=_CLOSE_TIMEOUT_S)
        except GameHangs:
            is_done = False
        if not is_done:
            self.is_finished = self._is_exiting = True
            self._go.release()
            hang.stack = stack
            raise hang
        if not self.is_finished:
            _raise_in(thread.ident, None)  # it asked its agent at the last moment
        elif isinstance(self._error, GameHangs):
            self._error.args = hang.args

    def _give_up(self) -> NoReturn:
        """Leaves a game that is stuck to itself: it is told to leave when it asks again."""
        self.is_finished = self._is_exiting = True
        self._go.release()  # it may be just about to wait
        raise ProtocolError(
            f"{self._name}: the game has not asked its agent for {_CLOSE_TIMEOUT_S:g} s, so it "
            "cannot be closed; its thread is left to end with the process"
        )

    def _run(self) -> None:
        try:
            self._context.run(self._target)
        except GameExit:
            pass
        except BaseException as error:  # KeyboardInterrupt and SystemExit too: the driver decides
            self._error = error
        finally:
            self.is_finished = True
            self._done.release()


def _raise_in(ident: int, kind: type[BaseException] | None) -> None:
    """Raises an exception in another thread, once it runs Python; None takes that back."""
    what = None if kind is None else ctypes.py_object(kind)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), what)
