"""Link: the parent's end of one worker process."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Any, Final

import numpy as np

from entity_env.agents.channel import Transport
from entity_env.errors import EntityEnvError, WorkerError
from entity_env.frame import FrameLayout
from entity_env.vec.arena import Rows
from entity_env.vec.autoreset import Autoreset
from entity_env.vec.backend import Values
from entity_env.vec.batch_step import BatchStep
from entity_env.vec.doorbell import Doorbell, Wake
from entity_env.vec.local import OnError
from entity_env.vec.protocol import (
    HEADER_BYTES,
    NOBODY,
    Command,
    Descriptor,
    Failure,
    Ready,
    Reset,
    Setup,
    Word,
    words_of,
)
from entity_env.vec.shared_block import SharedBlock, machine_error
from entity_env.vec.start import started
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.wire import StepReader

_START_TIMEOUT_S: Final = 60.0
_END_TIMEOUT_S: Final = 5.0
_STACK_TIMEOUT_S: Final = 0.5
_FIRST_ACTION_BYTES: Final = 1 << 12


@dataclass(frozen=True)
class Plan:
    """What all workers of a VecEnv are started with."""

    context: BaseContext
    source: bytes
    autoreset: Autoreset
    transport: Transport
    on_error: OnError


class Link:
    """Starts a worker, tells it what to do, and reads what it shows.

    Args:
        plan: what all workers have in common.
        index: number of the worker.
        envs: its environments.
        header: common block of all workers.
        parity: half of the common rows that shows their last step, which is left alone.

    Raises:
        WorkerError: the process cannot be started.
    """

    def __init__(
        self, plan: Plan, index: int, envs: range, header: SharedBlock, parity: int = 0
    ) -> None:
        self.index = index
        self.envs = envs
        self.is_busy = False
        self.deadline: float | None = None
        """When the command that is under way counts as hanging."""
        self.error: WorkerError | None = None
        """Why the worker is of no use any more."""
        self.num_steps = 0
        self._parity = parity
        self._words = words_of(header, index)
        for word in range(len(self._words)):
            self._words[word] = 0
        self._words[Word.CURRENT] = NOBODY
        self._actions: SharedBlock | None = None
        self._reader: StepReader | None = None
        try:
            self._stacks = Descriptor(_temporary_file())
            self.bell, theirs = Doorbell.pair(header, index * HEADER_BYTES)
            self.connection, their_end = plan.context.Pipe()
            lifeline, self._lifeline = plan.context.Pipe(duplex=False)
        except OSError as error:
            raise machine_error(f"connect worker {index}", error) from error
        setup = Setup(
            index,
            plan.source,
            envs,
            plan.autoreset,
            plan.transport,
            plan.on_error,
            header,
            theirs,
            their_end,
            lifeline,
            self._stacks,
        )
        self.process = started(plan.context, setup)
        self.bell.watch(self.process.sentinel)
        theirs.close()
        their_end.close()
        lifeline.close()

    def greet(self) -> Ready:
        """Waits until the worker has made its environments.

        Raises:
            WorkerError: it died of that, or takes too long.
            EntityEnvError: what it failed of.
        """
        readable = wait([self.connection, self.process.sentinel], _START_TIMEOUT_S)
        if not readable:
            self.end()
            raise WorkerError(
                f"worker {self.index} has not made its environments within {_START_TIMEOUT_S:g} s"
            )
        try:
            message = self.connection.recv() if self.connection in readable else None
        except (EOFError, OSError):
            message = None
        if isinstance(message, Ready):
            return message
        self.process.join(_END_TIMEOUT_S)
        code = self.process.exitcode
        self.end()
        if isinstance(message, Failure):
            raise message.error()
        raise WorkerError(
            f"worker {self.index} died while it made its environments (exit code {code})",
            worker=self.index,
        )

    def begin(
        self, layout: FrameLayout, rows: Rows, block: SharedBlock, num_envs: int, num_agents: int
    ) -> None:
        """Hands over the block of all rows; the worker serves from now on.

        Raises:
            WorkerError: it died of that, or lacks memory or file descriptors.
        """
        try:
            self.connection.send(num_envs)
            block.send(self.connection)
            failure: Failure | None = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self.died() from error
        if failure is not None:
            self.end()
            raise failure.error()
        self._reader = StepReader(layout, rows, self.envs, num_agents)

    def act(self, values: Values, timeout_s: float | None) -> None:
        """Has the worker perform its actions; that it is gone, only `read` tells."""
        self._parity ^= 1
        if self.error is not None:
            return
        try:
            self._write(values)
        except OSError:
            self.died()
            return
        self.num_steps += 1
        self._ring(Command.ACT, timeout_s)

    def _write(self, values: Values) -> None:
        """Lays actions where the worker reads them."""
        arrays = [np.ascontiguousarray(a, _dtype(a)) for a in values.values()]
        num_bytes = sum(-(-array.nbytes // 8) * 8 for array in arrays)
        self._words[Word.NEW_ACTIONS] = 0
        if self._actions is None or self._actions.num_bytes < num_bytes:
            if self._actions is not None:
                self._actions.close()
            self._actions = SharedBlock.create(max(2 * num_bytes, _FIRST_ACTION_BYTES))
            self._actions.send(self.connection)
            self._words[Word.NEW_ACTIONS] = 1
        offset = 0
        for array in arrays:
            self._actions.array(offset, array.size, array.dtype.type)[:] = array.reshape(-1)
            offset += -(-array.nbytes // 8) * 8

    def reset(self, reset: Reset, timeout_s: float | None) -> None:
        """Has the worker begin new episodes; that it is gone, only `read` tells."""
        self._parity ^= 1
        self._ring(Command.RESET, timeout_s)  # first: a pipe holds less than the runs of many
        try:
            self.connection.send(reset)
        except OSError:
            self.died()

    def render(self, env_id: int, timeout_s: float | None) -> Any:  # noqa: ANN401 - an array, or None
        """What an environment of the worker draws of itself.

        Raises:
            WorkerError: the worker is gone, or hangs.
            NotImplementedError: the environment cannot be drawn.
        """
        if self.error is not None:
            raise self.error
        try:
            self.connection.send(env_id)
            self._ring(Command.RENDER, timeout_s)
            wake = self.bell.wait(timeout_s)
            if wake is Wake.TIMED_OUT:
                raise self.hangs(timeout_s or 0.0)
            if wake is Wake.PEER_GONE:
                raise self.died()
            message = self.connection.recv()
        except (EOFError, OSError) as error:
            raise self.died() from error
        self.is_busy = False
        if isinstance(message, Failure):
            raise message.error()
        if isinstance(message, NotImplementedError):
            raise message
        return message

    def read(self) -> BatchStep | EntityEnvError:
        """What the worker shows, or what it failed of; it is idle again."""
        self.is_busy = False
        if self.error is not None:
            return self.error
        try:
            if self._words[Word.STATUS]:
                failure: Failure = self.connection.recv()
                return failure.error()
            if self._reader is None:
                return WorkerError("the worker has not begun", worker=self.index)
            if self._words[Word.NEW_ARENA]:
                self._reader.receive(self._parity, self.connection)
        except (EOFError, OSError):
            return self.died()
        return self._reader.read(self._parity)

    @property
    def parity(self) -> int:
        """Which half of the common rows the last step is in."""
        return self._parity

    def died(self) -> WorkerError:
        """Ends a worker that has died by itself, and says so."""
        self.process.join(_END_TIMEOUT_S)
        code = self.process.exitcode
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
        return self._fail(f"worker {self.index}, which runs {self._whom()}, died ({how})")

    def hangs(self, timeout_s: float) -> WorkerError:
        """Ends a worker that does not answer, and says where it hangs."""
        stack = self._stack()
        message = f"worker {self.index}, which runs {self._whom()}, hangs: no answer for"
        return self._fail(f"{message} {timeout_s:g} s", stack)

    def _fail(self, message: str, stack: str = "") -> WorkerError:
        current = self._words[Word.CURRENT]
        env_id = None if current == NOBODY else self.envs.start + current
        if env_id is not None:
            message = f"{message}, while it stepped env {env_id}"
        self.error = WorkerError(message, env_id=env_id, worker=self.index, game_traceback=stack)
        self.end()
        return self.error

    def _whom(self) -> str:
        first, last = self.envs.start, self.envs.stop - 1
        return f"env {first}" if first == last else f"env {first} to {last}"

    def statistics(self) -> WorkerStatistics:
        """Totals of the worker."""
        words = self._words
        return WorkerStatistics(
            num_envs=len(self.envs),
            num_steps=self.num_steps,
            games_s=words[Word.GAMES_NS] / 1e9,
            packing_s=words[Word.PACKING_NS] / 1e9,
            waiting_s=words[Word.WAITING_NS] / 1e9,
            num_restarts=words[Word.NUM_RESTARTS],
            num_bytes=0 if self._reader is None else self._reader.num_bytes,
        )

    def close(self) -> EntityEnvError | None:
        """Has the worker unwind its games and leave; returns what went wrong with that."""
        if self.error is not None:
            return None
        failure: EntityEnvError | None = None
        if self._reader is None:
            self.connection.close()  # the worker waits for what `begin` says
            self.process.join(_END_TIMEOUT_S)
        elif self.is_busy and self.bell.wait(self._patience_s()) is Wake.RUNG:
            self.read()  # what it says must not be taken for the answer to what follows
        if not (self._reader is None or self.is_busy):
            self._ring(Command.CLOSE, None)
            if self.bell.wait(_END_TIMEOUT_S) is Wake.RUNG and self._words[Word.STATUS]:
                with contextlib.suppress(EOFError, OSError):
                    failure = self.connection.recv().error()
            self.process.join(_END_TIMEOUT_S)
        self.end()
        return failure

    def _patience_s(self) -> float:
        """How long a worker that is to leave may still go on."""
        left_s = _END_TIMEOUT_S if self.deadline is None else self.deadline - monotonic()
        return min(max(left_s, 0.0), _END_TIMEOUT_S)

    def end(self) -> None:
        """Ends the process whatever it does, and lets go of all that belongs to it; the memory of
        its last step stays mapped as long as somebody looks at it."""
        self.is_busy = False
        if self.error is None:
            self.error = WorkerError(f"worker {self.index} was ended", worker=self.index)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()
        self.bell.close()
        self.connection.close()
        self._lifeline.close()
        self._stacks.close()
        if self._reader is not None:
            self._reader.close()
        if self._actions is not None:
            self._actions.close()

    def _ring(self, command: Command, timeout_s: float | None) -> None:
        words = self._words
        words[Word.COMMAND] = command
        words[Word.PARITY] = self._parity
        self.deadline = None if timeout_s is None else monotonic() + timeout_s
        self.is_busy = True
        self.bell.ring()

    def _stack(self) -> str:
        """Where the worker is, in its own words; empty where there are no such signals."""
        if not hasattr(signal, "SIGUSR1") or self.process.pid is None:
            return ""
        number = self._stacks.number
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGUSR1)
        deadline = monotonic() + _STACK_TIMEOUT_S
        size = 0
        while monotonic() < deadline:  # until it has been written, and no longer grows
            wait([self.process.sentinel], 0.02)
            before, size = size, os.fstat(number).st_size
            if size and size == before:
                break
        return os.pread(number, size, 0).decode(errors="replace").rstrip()


def split(num_envs: int, num_workers: int) -> list[range]:
    """Shares of environments that differ by one at most."""
    edges = [num_envs * i // num_workers for i in range(num_workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(edges)]


def _temporary_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("entity_env stacks")
    file, name = tempfile.mkstemp()
    os.unlink(name)
    return file


def _dtype(array: Any) -> type[np.generic]:  # noqa: ANN401 - of any dtype
    return np.float32 if array.dtype.kind == "f" else np.int64
