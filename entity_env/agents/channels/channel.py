"""Channel: runs a game on a stack of its own, so that it can wait in the middle of a call.

Two transports behind one interface. `greenlet` switches within the thread, in under a microsecond;
`thread` gives the game an OS thread, for games that need one (asyncio, callbacks out of C).
"""

from __future__ import annotations

from types import FrameType
from typing import Literal, Protocol, TypeAlias, get_args

from entity_env.errors import UsageError

Transport: TypeAlias = Literal["greenlet", "thread"]

MAX_SWALLOWED_EXITS = 100
"""A game that catches `GameExit` this often and goes on asking is given up."""


class Channel(Protocol):
    """Runs a function until it waits, again and again.

    `resume`, `throw` and `close` belong to the driver, `suspend` to the game.
    """

    @property
    def is_finished(self) -> bool:
        """The function has returned, raised, or was unwound."""

    @property
    def frame(self) -> FrameType | None:
        """The innermost frame of the game while it waits; None if there is none."""

    def resume(self) -> None:
        """Runs the game until it waits in `suspend`, or is finished.

        What the game raises comes out here, with the game's own frames.

        Raises:
            ProtocolError: called from a thread that this transport cannot be driven from; nothing
                has happened then.
            ClosedError: the game is finished.
        """

    def suspend(self) -> None:
        """Called by the game: hands over to the driver, and returns when it resumes.

        Raises:
            GameExit: the driver wants the game to unwind.
            ProtocolError: called from elsewhere than the game's own stack.
        """

    def throw(self) -> None:
        """Raises `GameExit` where the game waits, and runs it until it waits again or is finished.

        A game that has not begun, since an interrupt came first, begins. After an interrupt in any
        of these methods `throw` and `close` work as ever.

        Raises:
            ProtocolError: the game swallows `GameExit`; it is given up, suspended for good. Or as
                `resume`.
        """

    def ready_again(self) -> None:
        """Tells that the game has been unwound, and `target` begins anew on the same stack."""

    def close(self) -> None:
        """Unwinds the game, so that its `finally` blocks run; may be called twice.

        Raises:
            ProtocolError: as `throw`.
        """


def require_transport(transport: str) -> None:
    """Checks the name of a transport.

    Raises:
        UsageError: there is none of this name.
    """
    if transport not in get_args(Transport):
        raise UsageError(
            f"transport must be one of {', '.join(get_args(Transport))}, got {transport!r}"
        )
