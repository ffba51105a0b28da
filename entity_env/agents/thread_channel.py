"""ThreadChannel: a game in an OS thread of its own."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable

from entity_env.agents.channel import MAX_SWALLOWED_EXITS
from entity_env.errors import ClosedError, GameExit, ProtocolError

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
        self._go = threading.Semaphore(0)
        self._done = threading.Semaphore(0)
        self._error: BaseException | None = None
        self._context = contextvars.copy_context()
        self._thread: threading.Thread | None = None
        self._is_running = False
        self._is_exiting = False
        self._num_swallowed = 0
        self.is_finished = False

    def resume(self) -> None:
        if self.is_finished:
            raise ClosedError(f"{self._name} is finished: nothing is left to resume")
        if self._is_running:
            raise ProtocolError(f"{self._name}: the game is still running: it was interrupted")
        self._is_running = True
        if self._thread is None:
            # Daemonic, so that a game stuck in a foreign call cannot keep the process alive.
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()
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
        if self._is_running and not self._done.acquire(timeout=_CLOSE_TIMEOUT_S):
            self.is_finished = True
            raise ProtocolError(
                f"{self._name}: the game has not asked its agent for {_CLOSE_TIMEOUT_S:g} s, so it "
                "cannot be closed; its thread is left to end with the process"
            )
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
        """Tells that the game has been unwound and `target` begins anew on the same stack."""
        self._is_exiting = False

    def _wait(self) -> None:
        """Waits until the game hands over, and raises what it raised."""
        self._done.acquire()
        self._is_running = False
        if self.is_finished and self._thread is not None:
            self._thread.join()
        error, self._error = self._error, None
        if error is not None:
            raise error

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
