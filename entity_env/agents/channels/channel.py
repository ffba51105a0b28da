"""Channel: runs a game on its own stack, where it can wait in the middle of a call.

The transports: `greenlet` switches within the driver's thread; `thread` runs the game in another.
"""

from __future__ import annotations

import threading
from types import FrameType
from typing import Final, Protocol

from entity_env.authoring.game import Transport as Transport
from entity_env.errors import ProtocolError

USE_THREADS: Final = 'transport="thread" of Game or VecEnv, on the command line --transport thread'
"""Remedy for a game that cannot share its thread."""

MAX_SWALLOWED_EXITS = 100
"""A game that catches `GameExit` more than this many times, and does not return, is abandoned."""


class Channel(Protocol):
    """Runs a function that can repeatedly suspend itself.

    `resume`, `throw` and `close` belong to the driver, `suspend` to the game.

    Attributes:
        num_swallowed: how often the game has caught `GameExit` and asked again since `throw`.
    """

    num_swallowed: int

    @property
    def is_finished(self) -> bool:
        """True if the function has returned or raised."""

    @property
    def frame(self) -> FrameType | None:
        """Innermost frame of the game, for example where it waits; None if there is none."""

    def resume(self) -> None:
        """Runs the game until it waits in `suspend` or finishes; raises the game's exceptions."""

    def suspend(self) -> None:
        """Called by the game: returns control to the driver until the next `resume`."""

    def throw(self) -> None:
        """Raises `GameExit` where the game waits, and runs it until it waits again or finishes.

        If an interrupt kept the game from starting, starts it instead. `throw` and `close` work
        after an interrupt in any method of the channel. Raises the game's exceptions, and
        `ProtocolError` if the game cannot be unwound.
        """

    def settle(self) -> None:
        """Waits for the end of a turn that an interrupt of `resume` left running.

        The game may end episodes in that turn. Returns early if the game hangs.
        """

    def ready_again(self) -> None:
        """Ends the unwinding; called by the game before it restarts on the same stack."""

    def close(self) -> None:
        """Unwinds the game, running its `finally` blocks; may be called twice.

        Raises the exceptions of `throw`.
        """


def swallows_exit(name: str) -> ProtocolError:
    """Error for a game that catches `GameExit` more than `MAX_SWALLOWED_EXITS` times."""
    return ProtocolError(
        f"{name}: the game swallows GameExit and keeps asking for actions, so it cannot be closed; "
        "catch Exception rather than BaseException, and return when act returns None"
    )


def asked_from_outside(name: str, hint: str = "") -> ProtocolError:
    """Error for an agent called outside the stack of its game."""
    return ProtocolError(
        f"{name}: act or game_over was called outside the game's own call stack, in the thread "
        f"{threading.current_thread().name!r}: call act and game_over in the thread that runs "
        "play, and before play returns; other threads can pass their results to it, for example "
        f"through a queue.Queue{hint}"
    )
