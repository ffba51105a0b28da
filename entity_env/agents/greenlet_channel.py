"""GreenletChannel: a game as a greenlet of the driver's own thread."""

from __future__ import annotations

import contextvars
import logging
import sys
import threading
from collections.abc import Callable
from typing import Any, Final

import greenlet

from entity_env.agents.channel import MAX_SWALLOWED_EXITS
from entity_env.errors import ClosedError, GameExit, ProtocolError

_logger = logging.getLogger(__name__)

_given_up: Final[list[greenlet.greenlet]] = []
"""Games that swallow every exit. They are kept alive: collecting one would throw into it again."""


class GreenletChannel:
    """Runs a game in a greenlet; see `Channel`.

    Costs 0.4 µs a round trip and 6 kB a suspended game (`benchmarks/inversion.py`). Bound to the
    thread that resumes it first.

    Args:
        target: the game.
        name: what errors call it.
    """

    def __init__(self, target: Callable[[], None], name: str) -> None:
        self._name = name
        self._target = target
        self._greenlet = greenlet.greenlet(self._run)
        # A greenlet starts with an empty context; games should see the variables of their maker.
        self._greenlet.gr_context = contextvars.copy_context()
        self._thread_id = threading.get_ident()
        self._is_exiting = False
        self._num_swallowed = 0
        self.is_finished = False

    def resume(self) -> None:
        game = self._greenlet
        if self.is_finished:
            raise ClosedError(f"{self._name} is finished: nothing is left to resume")
        driver = greenlet.getcurrent()
        try:
            # Whoever resumes gets the control back: an environment may be stepped by another one.
            if game.parent is not driver:
                game.parent = driver
            _switch(game)
        except (greenlet.error, ValueError) as error:
            self._explain(error)
            raise
        if game.dead and not self.is_finished:
            self._explain(None)

    def suspend(self) -> None:
        game = self._greenlet
        if greenlet.getcurrent() is not game:
            raise ProtocolError(
                f"{self._name}: an agent was asked from outside its game's own call stack (another "
                'thread, or after the game ended); a game with threads needs transport="thread", '
                "and asks its agents from the thread that runs play"
            )
        if self._is_exiting:
            self._swallowed()
        _switch(game.parent)

    def throw(self) -> None:
        game = self._greenlet
        self._require_own_thread()
        self._is_exiting = True
        self._num_swallowed = 0
        driver = greenlet.getcurrent()
        if game.parent is not driver:
            game.parent = driver
        game.throw(GameExit())
        if self._num_swallowed > MAX_SWALLOWED_EXITS:
            _given_up.append(game)
            self.is_finished = True
            raise ProtocolError(
                f"{self._name}: the game swallows GameExit and goes on asking, so it cannot be "
                "closed; catch Exception rather than BaseException, and leave when act gives None"
            )

    def close(self) -> None:
        if self.is_finished:
            return
        if not self._greenlet:  # never started: nothing to unwind
            self.is_finished = True
            return
        self.throw()
        self.is_finished = True

    def ready_again(self) -> None:
        """Tells that the game has been unwound and `target` begins anew on the same stack."""
        self._is_exiting = False

    def _run(self) -> None:
        try:
            self._target()
        finally:
            self.is_finished = True

    def _swallowed(self) -> None:
        self._num_swallowed += 1
        if self._num_swallowed <= MAX_SWALLOWED_EXITS:
            raise GameExit

    def _require_own_thread(self) -> None:
        if threading.get_ident() != self._thread_id:
            raise self._other_thread()

    def _explain(self, error: Exception | None) -> None:
        """Raises what a greenlet's own error means, if the thread is to blame."""
        if threading.get_ident() != self._thread_id:
            raise self._other_thread() from error
        if error is None:
            raise ProtocolError(
                f"{self._name}: the thread that ran the game has ended, and the game with it"
            )

    def _other_thread(self) -> ProtocolError:
        return ProtocolError(
            f"{self._name}: a game on the greenlet transport can only be stepped and closed by the "
            f"thread that made it ({self._thread_id}), this is {threading.get_ident()}; step it "
            'there, or choose transport="thread"'
        )


def _switch(target: Any) -> None:
    """Switches to `target` with torch in its default mode.

    torch keeps grad and inference mode per thread, so one side's `with torch.no_grad()` would leak
    into the other, and two games leaving theirs in another order would disable gradients for good.
    Each side steps out of its own mode before a switch, and back into it afterwards.
    """
    torch = sys.modules.get("torch")
    if torch is None or (torch.is_grad_enabled() and not torch.is_inference_mode_enabled()):
        target.switch()
    else:
        with torch.inference_mode(False):
            target.switch()
