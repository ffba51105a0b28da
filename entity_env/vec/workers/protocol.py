"""Commands and messages between a parent and its workers, except steps."""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing import reduction
from typing import Any, Final, TypeAlias

from entity_env import errors
from entity_env.authoring.game_traceback import (
    is_a,
    name_of,
    notes_of,
    shortened,
    shortened_trace,
    summary_of,
    text_of,
    trace_of,
)
from entity_env.authoring.named_code.finder import ImportState
from entity_env.core.files import Descriptor
from entity_env.core.seeding import Run
from entity_env.core.spaces import Spaces
from entity_env.errors import EntityEnvError, WorkerError
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.wakeup_event import NUM_BYTES as EVENT_BYTES, WakeUpEvent

if sys.platform == "win32":
    from multiprocessing.connection import PipeConnection

    Lifeline: TypeAlias = PipeConnection
else:
    from multiprocessing.connection import Connection

    Lifeline: TypeAlias = Connection

HEADER_BYTES: Final = EVENT_BYTES + 128
"""Size of a worker's part of the common block: its wake-up event and words."""


NO_ENV: Final = -1
SAFE_PATH: Final = "PYTHONSAFEPATH"
"""Environment variable that keeps the current folder out of `sys.path`."""
_COUNTERS: Final = ("seed", "episode", "step")


class Command:
    """Commands of the parent; plain numbers, because an Enum costs 50 ns per use."""

    ACT: Final = 1
    """Step by the actions in the command block."""
    RESET: Final = 2
    """Start new episodes, by a pickled `Reset` in the command block."""
    RENDER: Final = 3
    """Render the environment whose index is pickled in the command block."""
    CLOSE: Final = 4
    """Close all games and exit."""


class Word:
    """Indices of the 8-byte words after a wake-up event.

    Blocks are sent through the connection and numbered in order. Some words hold the number of the
    block to use; blocks of interrupted commands are skipped.
    """

    COMMAND: Final = 0
    PARITY: Final = 1
    """Arena of the step, 0 or 1."""
    COMMAND_BLOCK: Final = 2
    """Number of the block with actions or a message to the worker; 0 = none yet."""
    COMMAND_BYTES: Final = 3
    """Length of the actions or the message in the command block."""
    MESSAGE_BLOCK: Final = 4
    """0: the result is a step in the arena. Otherwise the number of a block with a message."""
    ARENA_BLOCK: Final = 5
    """Number of the new arena sent with this step; 0 = none."""
    KNOWN_ARENA_0: Final = 6
    KNOWN_ARENA_1: Final = 7
    """Numbers of the arenas that the parent has. The worker sends an arena whose number differs."""
    KNOWN_NAMES: Final = 8
    """Number of metric names that the parent knows."""
    CURRENT: Final = 9
    """Index in the worker of the environment being stepped; `NO_ENV` while the worker waits."""
    GAMES_NS: Final = 10
    PACKING_NS: Final = 11
    WAITING_NS: Final = 12
    NUM_RESTARTS: Final = 13


class SentDescriptor(Descriptor):
    """File descriptor that can be an argument of a starting process; not on Windows."""

    if sys.platform != "win32":

        def __reduce__(self) -> tuple[Any, ...]:
            return _received, (reduction.DupFd(self.number),)


def _received(carrier: Any) -> SentDescriptor:  # noqa: ANN401 - a class of multiprocessing
    return SentDescriptor(carrier.detach())


@dataclass
class Setup:
    """Arguments of a worker process, with its ends of the connections to the parent.

    Blocks of shared memory, and messages in blocks, go through `connection`. The lifeline becomes
    readable when the parent and all its forks are gone. SIGUSR1 writes the stack of a hanging game
    to `stacks`; None = no such signal, so the worker answers bytes in the lifeline with the stack.
    `keeps_safe_path`: the parent has `SAFE_PATH` set; otherwise it is set only while workers start.
    `imports` is the parent's.
    """

    index: int
    options: bytes
    envs: range
    header: SharedBlock
    event: WakeUpEvent
    connection: socket.socket
    lifeline: Lifeline[Any, Any]
    parent: int
    stacks: SentDescriptor | None
    keeps_safe_path: bool
    imports: ImportState


@dataclass(frozen=True)
class Ready:
    """Message of a worker that has created its environments."""

    spaces: Spaces
    num_agents: int
    can_reset_envs: bool


@dataclass(frozen=True)
class Reset:
    """Environments that start new episodes, and their new runs, by index in the worker."""

    env_ids: Sequence[int]
    runs: Mapping[int, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """Exception in a form that any process can unpickle.

    `kind` is the name of a class in `entity_env.errors`, or "" for other classes; `place` has
    attributes of a `WorkerError`.
    """

    kind: str
    message: str
    notes: Sequence[str]
    place: Mapping[str, Any]

    @classmethod
    def of(cls, error: BaseException, worker: int, env_id: int | None = None) -> Failure:
        notes = notes_of(error)
        if is_a(error, WorkerError):
            place = {name: getattr(error, name, None) for name in ("env_id", *_COUNTERS)}
            place = {k: v if isinstance(v, int) else None for k, v in place.items()}
            message, trace = shortened(str(error.reason)), shortened_trace(error.game_traceback)
            return cls(
                "WorkerError", message, notes, {**place, "worker": worker, "game_traceback": trace}
            )
        name = name_of(error)
        if is_a(error, EntityEnvError) and hasattr(errors, name):
            return cls(name, shortened(text_of(error)), [*notes, f"in worker {worker}"], {})
        place = {"worker": worker, "env_id": env_id, "game_traceback": trace_of(error)}
        return cls("", summary_of(error), notes, place)

    def error(self) -> EntityEnvError:
        """The exception to raise in the parent."""
        if self.kind in ("", "WorkerError"):
            error: EntityEnvError = WorkerError(self.message, **self.place)
        else:
            kind: type[EntityEnvError] = getattr(errors, self.kind)
            error = kind.__new__(kind)
            error.args = (self.message,)
        for note in self.notes:
            error.add_note(note)
        return error


def message_in(block: SharedBlock) -> Any:  # noqa: ANN401 - any pickled object
    """Reads the message in a block and closes the block."""
    data = bytes(block.buffer)
    block.close()
    return pickle.loads(data)  # noqa: S301 - pickled by a worker


def state_words(header: SharedBlock, index: int) -> memoryview:
    """The words of a worker."""
    first = index * HEADER_BYTES + EVENT_BYTES
    return header.buffer[first : first + HEADER_BYTES - EVENT_BYTES].cast("q")
