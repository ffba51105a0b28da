"""What a parent and its worker say to each other, beside the steps themselves."""

from __future__ import annotations

import pickle
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from multiprocessing import reduction
from multiprocessing.connection import Connection
from typing import Any, Final

from entity_env import errors
from entity_env.agents.channels.channel import Transport
from entity_env.authoring.game_traceback import (
    notes_of,
    shortened,
    shortened_trace,
    text_of,
    trace_of,
)
from entity_env.core.files import Descriptor
from entity_env.core.seeding import Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.vec_env_base import Autoreset
from entity_env.errors import EntityEnvError, WorkerError
from entity_env.vec.in_process.base import OnError
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.wakeup_event import NUM_BYTES as EVENT_BYTES, WakeUpEvent

HEADER_BYTES: Final = EVENT_BYTES + 128
"""Of each worker in the common block: its wake-up event, and the words below."""


NOBODY: Final = -1
SAFE_PATH: Final = "PYTHONSAFEPATH"
"""Environment variable that keeps the current folder out of `sys.path`."""
_COUNTERS: Final = ("seed", "episode", "step")


class Command(IntEnum):
    """What the parent wants when it rings."""

    ACT = 1
    """Perform the actions that lie in the command block."""
    RESET = 2
    """Begin new episodes, as a pickled `Reset` in the command block says."""
    RENDER = 3
    """Draw the environment whose index is pickled in the command block."""
    CLOSE = 4
    """End all games and leave."""


class Word(IntEnum):
    """Where a number lies among the words behind a wake-up event, in eights of bytes.

    Blocks are sent through the connection, and numbered in the order in which they are sent. A word
    names the block that is meant, so that one whose command or step was interrupted is passed over.
    """

    COMMAND = 0
    PARITY = 1
    """Which of the two arenas the step goes to."""
    COMMAND_BLOCK = 2
    """Number of the block that holds actions and messages to the worker; 0 = none yet."""
    COMMAND_BYTES = 3
    """Length of the message in it."""
    MESSAGE_BLOCK = 4
    """0: a step lies in the arena. Else the number of a block with a message to the parent."""
    ARENA_BLOCK = 5
    """Number of the new arena that was sent with this step; 0 = none."""
    KNOWN_ARENA_0 = 6
    KNOWN_ARENA_1 = 7
    """The arenas that the parent has; the worker sends its own again if it is another."""
    KNOWN_NAMES = 8
    """How many names of metrics the parent has."""
    CURRENT = 9
    """Index in the worker of the environment that is being stepped; `NOBODY` while it waits."""
    GAMES_NS = 10
    PACKING_NS = 11
    WAITING_NS = 12
    NUM_RESTARTS = 13


class SentDescriptor(Descriptor):
    """A file descriptor that can be an argument of a process that is being started."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _received, (reduction.DupFd(self.number),)


def _received(carrier: Any) -> SentDescriptor:  # noqa: ANN401 - multiprocessing has a class a platform
    return SentDescriptor(carrier.detach())


@dataclass
class Setup:
    """What a worker is started with.

    Args:
        index: number of the worker.
        source: what to run, pickled by cloudpickle.
        envs: which environments are its own.
        num_envs: how many there are in all.
        header: common block of all workers; its own part begins at `index * HEADER_BYTES`.
        event: its end of the wake-up event.
        connection: to the parent, for blocks of shared memory; messages lie in some of them.
        lifeline: readable when the parent is gone, and all that it has forked.
        parent: process id of the parent.
        stacks: where a signal writes the stack of a game that hangs.
        keeps_safe_path: the parent's environment has `SAFE_PATH`, which is otherwise set only
            while workers start.
    """

    index: int
    source: bytes
    envs: range
    num_envs: int
    autoreset: Autoreset
    transport: Transport
    on_error: OnError
    header: SharedBlock
    event: WakeUpEvent
    connection: socket.socket
    lifeline: Connection[Any, Any]
    parent: int
    stacks: SentDescriptor
    keeps_safe_path: bool


@dataclass(frozen=True)
class Ready:
    """A worker has made its environments."""

    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    num_agents: int


@dataclass(frozen=True)
class Reset:
    """Which environments begin new episodes, by index in the worker.

    Args:
        env_ids: those.
        runs: those that are new, by the index of their environment.
    """

    env_ids: Sequence[int]
    runs: Mapping[int, Run] = field(default_factory=dict)


@dataclass(frozen=True)
class Failure:
    """An exception, in a form that any process can read.

    Args:
        kind: name of a class of `entity_env.errors`, or "" for any other.
        message: its text.
        notes: what was added to it.
        place: attributes of a `WorkerError`.
    """

    kind: str
    message: str
    notes: Sequence[str]
    place: Mapping[str, Any]

    @classmethod
    def of(cls, error: BaseException, worker: int, env_id: int | None = None) -> Failure:
        """The failure that an exception of a worker means.

        Args:
            error: what was raised.
            worker: where.
            env_id: what was being stepped, if that is known.
        """
        notes = notes_of(error)
        if isinstance(error, WorkerError):
            place = {name: getattr(error, name, None) for name in ("env_id", *_COUNTERS)}
            place = {k: v if isinstance(v, int) else None for k, v in place.items()}
            message, trace = shortened(str(error.reason)), shortened_trace(error.game_traceback)
            return cls(
                "WorkerError", message, notes, {**place, "worker": worker, "game_traceback": trace}
            )
        if isinstance(error, EntityEnvError) and hasattr(errors, type(error).__name__):
            message = shortened(text_of(error))
            return cls(type(error).__name__, message, [*notes, f"in worker {worker}"], {})
        place = {"worker": worker, "env_id": env_id, "game_traceback": trace_of(error)}
        return cls("", f"{type(error).__name__}: {shortened(text_of(error))}", notes, place)

    def error(self) -> EntityEnvError:
        """The exception, as the parent raises it."""
        if self.kind in ("", "WorkerError"):
            error: EntityEnvError = WorkerError(self.message, **self.place)
        else:
            kind: type[EntityEnvError] = getattr(errors, self.kind)
            error = kind.__new__(kind)
            error.args = (self.message,)
        for note in self.notes:
            error.add_note(note)
        return error


def message_in(block: SharedBlock) -> Any:  # noqa: ANN401 - whatever was pickled
    """The message in a block, which is closed."""
    data = bytes(block.buffer)
    block.close()
    return pickle.loads(data)  # noqa: S301 - of a process of our own


def words_of(header: SharedBlock, index: int) -> memoryview:
    """The words of one worker."""
    first = index * HEADER_BYTES + EVENT_BYTES
    return header.buffer[first : first + HEADER_BYTES - EVENT_BYTES].cast("q")


def pickled(source: object) -> bytes:
    """What to run, by value where it lives in `__main__`.

    Raises:
        WorkerError: it holds something that cannot be sent to another process.
    """
    import cloudpickle  # not before workers are wanted: it takes 10 ms

    try:
        data: bytes = cloudpickle.dumps(source)
    except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
        raise WorkerError(
            f"what a VecEnv runs must be sent to its workers, and {source!r} cannot be pickled: "
            f"{error}; make what it holds inside of play, or use num_workers=0"
        ) from error
    return data
