"""GreenletChannel: a game as a greenlet in the driver's thread."""

from __future__ import annotations

import contextvars
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Final

from entity_env.agents.channels.channel import (
    MAX_SWALLOWED_EXITS,
    USE_THREADS,
    asked_from_outside,
    swallows_exit,
)
from entity_env.authoring.game_traceback import add_note
from entity_env.errors import ClosedError, GameExit, MissingExtraError, ProtocolError

try:
    import greenlet as greenlet
    from greenlet import getcurrent as getcurrent
except ModuleNotFoundError as error:
    raise MissingExtraError("greenlet", "", 'a game with transport="greenlet"') from error

_modules: Final = sys.modules

_given_up: Final[list[greenlet.greenlet]] = []
"""Games that catch every `GameExit`; kept forever, because greenlet raises an exception in a
suspended greenlet when it is garbage-collected."""


class GreenletChannel:
    """Runs a game in a greenlet; see `Channel`.

    A round trip takes 0.4 µs; a suspended game uses 6 kB (`benchmarks/inversion.py`). The channel
    is bound to the thread that creates it.
    """

    # With 10,000 suspended games every access misses the cache; slots save 1 of 4 µs per trip.
    __slots__ = (
        "_driver",
        "_greenlet",
        "_is_exiting",
        "_is_finished",
        "_name",
        "_target",
        "_thread",
        "num_swallowed",
    )

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._name = name
        self._target = target
        self._greenlet = greenlet.greenlet(self._run)
        # A greenlet starts with an empty context; games see their creator's context variables.
        self._greenlet.gr_context = contextvars.copy_context()
        self._driver: greenlet.greenlet | None = None
        # The thread, not its id, which another thread may reuse later: greenlet crashes on a throw
        # into a greenlet of a dead thread.
        self._thread = threading.current_thread()
        self._is_exiting = False
        self.num_swallowed = 0
        self._is_finished = False

    @property
    def is_finished(self) -> bool:
        # A dead greenlet is finished even if an interrupt hit the end of `_run`; but not if its
        # thread has ended, which `throw` reports.
        return self._is_finished or (self._greenlet.dead and self._thread.is_alive())

    @property
    def frame(self) -> FrameType | None:
        return self._greenlet.gr_frame

    def resume(self) -> None:
        if self._is_finished:
            raise ClosedError(f"{self._name} is finished: nothing is left to resume")
        driver = getcurrent()
        if driver is not self._driver:
            self._set_driver(driver)
        try:
            if "torch" in _modules and _torch_mode_is_changed():
                _call_in_default_mode(self._greenlet.switch)
            else:
                self._greenlet.switch()
        except RuntimeError as error:
            _explain_event_loop(error)
            raise

    def suspend(self) -> None:
        game = self._greenlet
        driver = self._driver
        if getcurrent() is not game or driver is None:
            is_here = threading.current_thread() is self._thread
            hint = f"; a game that switches between its own greenlets needs {USE_THREADS}"
            raise asked_from_outside(self._name, hint if is_here else "")
        if self._is_exiting:
            self._swallowed()
        if "torch" in _modules and _torch_mode_is_changed():
            _call_in_default_mode(driver.switch)
        else:
            driver.switch()

    def throw(self) -> None:
        if not (self._greenlet or self._greenlet.dead):  # interrupted before it started
            self.resume()
            return
        self._set_driver(getcurrent())
        self._is_exiting = True
        self.num_swallowed = 0
        throw = partial(self._greenlet.throw, GameExit())
        try:
            if "torch" in _modules and _torch_mode_is_changed():
                _call_in_default_mode(throw)
            else:
                throw()
        except RuntimeError as error:  # raised by a game that restarts
            _explain_event_loop(error)
            raise
        if self.num_swallowed > MAX_SWALLOWED_EXITS:
            _given_up.append(self._greenlet)
            self._is_finished = True
            raise swallows_exit(self._name)

    def close(self) -> None:
        if self._greenlet and not self._is_finished:  # otherwise there is nothing to unwind
            self.throw()
        self._is_finished = True

    def settle(self) -> None:
        """Does nothing: both sides share the thread, so an interrupt ends the turn."""

    def ready_again(self) -> None:
        self._is_exiting = False

    def _run(self) -> None:
        try:
            self._target()
        except GameExit:
            pass
        finally:
            self._is_finished = True
            if "torch" in _modules and _torch_mode_is_changed():
                # torch.set_grad_enabled(False) in a game must not affect its driver.
                _modules["torch"].set_grad_enabled(True)

    def _swallowed(self) -> None:
        self.num_swallowed += 1
        if self.num_swallowed <= MAX_SWALLOWED_EXITS:
            raise GameExit

    def _set_driver(self, driver: greenlet.greenlet) -> None:
        """Makes the caller the parent: different greenlets may step the environment."""
        if threading.current_thread() is not self._thread:
            raise self._other_thread()
        self._greenlet.parent = driver
        self._driver = driver

    def _other_thread(self) -> ProtocolError:
        if self._thread.is_alive():
            return ProtocolError(
                f"{self._name}: a game on the greenlet transport can only be stepped and closed by "
                f"the thread that reset it ({self._thread.name}), not by "
                f'{threading.current_thread().name}; step it there, or choose transport="thread"'
            )
        self._is_finished = True
        return ProtocolError(
            f"{self._name}: the thread that played this game ({self._thread.name}) has ended, "
            "which on the greenlet transport ends the game too: its finally blocks never run; "
            'close it in its own thread, or choose transport="thread"'
        )


def _torch_mode_is_changed() -> bool:
    torch = _modules["torch"]
    return not torch.is_grad_enabled() or bool(torch.is_inference_mode_enabled())


def _call_in_default_mode(switch: Callable[[], object]) -> None:
    """Switches to another greenlet with torch in its default mode.

    torch keeps grad and inference mode per thread, so `with torch.no_grad()` on one side would
    affect the other, and two games that exit such blocks out of order would disable gradients for
    good.
    """
    with _modules["torch"].inference_mode(False):
        switch()


_EVENT_LOOPS: Final = ("asyncio", "trio", "anyio", "uvloop")


def _explain_event_loop(error: RuntimeError) -> None:
    """Adds the remedy to an error raised by an event loop package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = trace.tb_frame.f_globals.get("__name__", "") if trace is not None else ""
    if module.partition(".")[0] in _EVENT_LOOPS:
        add_note(
            error,
            "on the greenlet transport all games of a process share one thread, which can run only "
            f"one event loop at a time: a game that runs one needs {USE_THREADS}",
        )
