"""ThreadChannel: a game in an OS thread."""

from __future__ import annotations

import contextvars
import os
import signal
import sys
import threading
from collections.abc import Callable
from time import monotonic
from types import FrameType
from typing import Final, NoReturn

from entity_env.agents.channels.channel import (
    MAX_SWALLOWED_EXITS,
    asked_from_outside,
    swallows_exit,
)
from entity_env.authoring.game_traceback import stack_at
from entity_env.authoring.step_timeout import GameHangs, raise_in
from entity_env.errors import ClosedError, GameExit, ProtocolError

_CLOSE_TIMEOUT_S = 5.0
_NO_LIMIT_S: Final = -1 if hasattr(signal, "setitimer") else 0.1
"""Without SIGALRM (Windows) neither `StepTimeout` nor Ctrl-C ends a wait for a lock, so poll."""


class ThreadChannel:
    """Runs a game in a thread; see `Channel`.

    A round trip takes about 13 µs (`benchmarks/inversion.py`). The two threads take turns. Any
    thread may drive the channel, but only one at a time.

    Two counters define which side runs: turns given, written by the driver, and turns completed,
    written by the game. The locks only wake the other side, which then reads the counters, so an
    extra wake-up is harmless, and an interrupted driver can repeat its call.
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._name = name
        self._target = target
        # One side acquires these locks, the other releases them; semaphores cost twice as much.
        self._go = threading.Lock()
        self._done = threading.Lock()
        self._go.acquire()
        self._done.acquire()
        self._turns_given = 0
        self._turns_done = 0
        self._process = os.getpid()
        self._begun = threading.Lock()
        """Taken by the first thread that starts."""
        self._error: BaseException | None = None
        self._context = contextvars.copy_context()
        self._thread: threading.Thread | None = None
        self._is_exiting = False
        self.num_swallowed = 0
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
        if self._turns_done < self._turns_given:
            raise ProtocolError(f"{self._name}: the game is still running after an interrupt")
        if os.getpid() != self._process:
            self._leave_to_parent()
        self._turns_given += 1
        self._wake()
        self._wait()

    def suspend(self) -> None:
        if threading.current_thread() is not self._thread:
            raise asked_from_outside(self._name)
        if self._is_exiting:
            self.num_swallowed += 1
            if self.num_swallowed <= MAX_SWALLOWED_EXITS:
                raise GameExit
        if os.getpid() != self._process:
            os._exit(1)  # forked by the game: the thread that would wake this one is missing here
        turn = self._turns_given
        self._complete(turn)
        while self._turns_given == turn:
            self._go.acquire()
        if self._is_exiting:
            raise GameExit

    def throw(self) -> None:
        if os.getpid() != self._process:
            self._leave_to_parent()
        self.num_swallowed = 0
        while True:
            # Read first: a running game may exit and restart as soon as `_is_exiting` is set.
            is_running = self._turns_done < self._turns_given
            if self.is_finished and not is_running:
                self._wait()
                return
            self._is_exiting = True
            if not is_running:
                self._turns_given += 1
            self._wake()  # also if it runs: an interrupt may have prevented the last wake-up
            self._wait(_CLOSE_TIMEOUT_S if is_running else _NO_LIMIT_S)
            if not self._is_exiting or self.num_swallowed > MAX_SWALLOWED_EXITS:
                break
        if self.num_swallowed > MAX_SWALLOWED_EXITS:
            self.is_finished = True
            raise swallows_exit(self._name)

    def close(self) -> None:
        if not self.is_finished and self._turns_given and os.getpid() == self._process:
            self.throw()
        self.is_finished = True

    def settle(self) -> None:
        if self._thread is None or os.getpid() != self._process:
            return
        while self._turns_done < self._turns_given:
            self._wake()  # an interrupt may have prevented the last wake-up
            if not self._done.acquire(timeout=_CLOSE_TIMEOUT_S):
                return  # it hangs; `throw` and `close` report it

    def ready_again(self) -> None:
        self._is_exiting = False

    def _wake(self) -> None:
        """Makes the game read the counters; starts its thread if there is none."""
        if self._thread is None:
            self._start()
        elif self._go.locked():
            self._go.release()

    def _complete(self, turn: int) -> None:
        """Called by the game to end its turn."""
        self._turns_done = turn
        if self._done.locked():
            self._done.release()

    def _start(self) -> None:
        # A daemon: a game stuck in a C call cannot keep the process alive.
        thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            self.is_finished = True
            error.add_note('the system cannot start more threads: choose transport="greenlet"')
            raise

    def _wait(self, timeout_s: float = _NO_LIMIT_S) -> None:
        """Waits for the end of the turn, and raises what the game raised.

        Gives up if the turn takes longer than `timeout_s`, unless that is `_NO_LIMIT_S`.
        """
        try:
            while self._turns_done < self._turns_given:
                if not self._done.acquire(timeout=timeout_s) and timeout_s != _NO_LIMIT_S:
                    self._give_up()
        except GameHangs as hang:
            self._end_hanging(hang)
        if self.is_finished and self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame

    def _end_hanging(self, hang: GameHangs) -> None:
        """Raises `GameHangs` in the game's thread, and waits a limited time for its turn to end."""
        thread = self._thread
        if thread is None or thread.ident is None:
            raise hang
        stack = stack_at(self.frame)
        raise_in(thread.ident, GameHangs)
        deadline = monotonic() + _CLOSE_TIMEOUT_S
        try:
            while self._turns_done < self._turns_given and monotonic() < deadline:
                self._done.acquire(timeout=max(deadline - monotonic(), 0.0))
        except GameHangs:
            pass
        if self._turns_done < self._turns_given:
            self.is_finished = self._is_exiting = True
            self._turns_given += 1  # the game may be about to wait for a turn
            self._wake()
            hang.stack = stack
            raise hang
        if not self.is_finished:
            raise_in(thread.ident, None)  # the turn ended after all: withdraw the exception
        elif isinstance(self._error, GameHangs):
            self._error.args = hang.args

    def _leave_to_parent(self) -> NoReturn:
        self.is_finished = True
        raise ProtocolError(
            f"{self._name}: its thread runs in process {self._process}, from which this one was "
            'forked: make a new environment here, or fork with transport="greenlet"'
        )

    def _give_up(self) -> NoReturn:
        """Abandons a stuck game; its next `act` raises `GameExit`."""
        self.is_finished = self._is_exiting = True
        self._turns_given += 1  # the game may be about to wait for a turn
        self._wake()
        raise ProtocolError(
            f"{self._name}: the game has not asked its agent for {_CLOSE_TIMEOUT_S:g} s, so it "
            "cannot be closed; its thread is left to end with the process"
        )

    def _run(self) -> None:
        if not self._begun.acquire(blocking=False):
            return  # the driver was interrupted after it started another thread
        self._thread = threading.current_thread()
        try:
            self._context.run(self._target)
        except GameExit:
            pass
        except (
            BaseException
        ) as error:  # KeyboardInterrupt and SystemExit too: the driver raises them
            self._error = error
        finally:
            self.is_finished = True
            self._complete(self._turns_given)
