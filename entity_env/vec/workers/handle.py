"""WorkerHandle: the parent's end of one worker process."""

from __future__ import annotations

import contextlib
import faulthandler
import itertools
import os
import pickle
import signal
import socket
import sys
import tempfile
import weakref
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.context import BaseContext
from time import monotonic
from typing import Any, Final

import numpy as np

from entity_env.authoring.named_code.finder import ImportState
from entity_env.errors import EntityEnvError, WorkerError
from entity_env.processes import kill_group_of
from entity_env.vec.process_batch import ActionValues
from entity_env.vec.statistics import WorkerStatistics
from entity_env.vec.step import BatchStep
from entity_env.vec.workers.protocol import (
    HEADER_BYTES,
    NO_ENV,
    SAFE_PATH,
    Command,
    Failure,
    Ready,
    Reset,
    SentDescriptor,
    Setup,
    Word,
    message_in,
    state_words,
)
from entity_env.vec.workers.shared_memory import SharedBlock, machine_error
from entity_env.vec.workers.start import started
from entity_env.vec.workers.step_codec import SharedRows, StepReader
from entity_env.vec.workers.wakeup_event import Wake, WakeUpEvent

_END_TIMEOUT_S: Final = 5.0
_STACK_TIMEOUT_S: Final = 0.5
_FIRST_COMMAND_BYTES: Final = 1 << 12


class WorkerHandle:
    """Starts a worker, sends it commands, and reads its steps.

    The half `parity` of the shared rows holds the last step of its environments; the next step goes
    to the other half. Raises `WorkerError` if the process cannot be started.
    """

    def __init__(
        self,
        context: BaseContext,
        options: bytes,
        index: int,
        envs: range,
        header: SharedBlock,
        parity: int = 0,
    ) -> None:
        self.index = index
        self.envs = envs
        self.deadline: float | None = None
        """Monotonic time at which the current command counts as hanging; None = never."""
        self.error: WorkerError | None = None
        """Why the worker is unusable; None = it is usable."""
        self.resetting: Sequence[int] = ()
        """Environments that the last command resets, by index in the worker."""
        self.num_steps = 0
        self.parity = parity
        """Half of the shared rows with the step read last."""
        self._words = state_words(header, index)
        for word in range(len(self._words)):
            self._words[word] = 0
        self._words[Word.CURRENT] = NO_ENV
        self._command: tuple[SharedBlock, int] | None = None
        """Block of actions or of a message to the worker, and its number among the blocks sent."""
        self._num_sent = 0
        self._num_read = 0
        """Number of commands whose results were read, including interrupted reads."""
        self._reader: StepReader | None = None
        self._is_exiting = False
        self._is_released = False
        try:
            self._stacks = SentDescriptor(_temporary_file()) if _has_stack_signal() else None
            self.event, theirs = WakeUpEvent.pair(header, index * HEADER_BYTES)
            self.connection, their_end = socket.socketpair()
            self._release = weakref.finalize(self, self.connection.close)
            weakref.finalize(self, their_end.close)
            lifeline, self._lifeline = context.Pipe(duplex=self._stacks is None)
        except OSError as error:
            raise machine_error(f"connect worker {index}", error) from error
        setup = Setup(
            index,
            options,
            envs,
            header,
            theirs,
            their_end,
            lifeline,
            os.getpid(),
            self._stacks,
            SAFE_PATH in os.environ,
            ImportState.of_this_process(),
        )
        self.process = started(context, setup)
        self._watch()
        theirs.close()
        their_end.close()
        lifeline.close()

    def _watch(self) -> None:
        """Prepares to notice the end of the process."""
        self._pid: int = self.process.ident  # type: ignore[assignment]  # started
        self._gone: Any = self.process.sentinel
        """Readable when the process has ended."""
        self._release_pidfd: Callable[[], object] = lambda: None
        if hasattr(os, "pidfd_open"):  # a process that its game forks holds the sentinel open
            with contextlib.suppress(OSError):  # it has ended, or before Linux 5.3
                self._gone = os.pidfd_open(self._pid)
                self._release_pidfd = weakref.finalize(self, os.close, self._gone)
        self.event.watch(self._gone)

    def wait_until_ready(self, timeout_s: float | None) -> Ready:
        readable = wait([self.connection, self._gone], timeout_s)
        if not readable:
            self.end()
            raise WorkerError(
                f"worker {self.index} has not made its environments within {timeout_s:g} s: if "
                "they take that long, raise start_timeout_s",
                worker=self.index,
            )
        try:
            message = self._message() if self.connection in readable else None
        except (EOFError, OSError):
            message = None
        if isinstance(message, Ready):
            return message
        code = self._exit_code(_END_TIMEOUT_S)
        self.end()
        if isinstance(message, Failure):
            raise message.error()
        raise WorkerError(
            f"worker {self.index} died while it made its environments (exit code {code})",
            worker=self.index,
        )

    def begin(self, rows: SharedRows, block: SharedBlock) -> None:
        """Sends the block of all rows; from now on the worker executes commands."""
        try:
            self._num_sent += 1
            block.send(self.connection, self._num_sent)
            wait([self.connection, self._gone])
            failure: Failure | None = self._message()
        except (EOFError, OSError) as error:
            raise self.died() from error
        if failure is not None:
            self.end()
            raise failure.error()
        self._reader = StepReader(rows, self.envs)

    @property
    def is_ready(self) -> bool:
        """True while the worker executes commands: fully started, and not ended."""
        return self.error is None and self._reader is not None

    @property
    def is_new(self) -> bool:
        """True before the first command: the environments have no runs, even after an interrupt."""
        return self.error is None and not self.event.num_notifications

    @property
    def is_busy(self) -> bool:
        """True while a command is executed or its result has not been read."""
        return self.error is None and self.event.num_notifications != self._num_read

    def act(self, values: ActionValues, timeout_s: float | None) -> None:
        """Starts a step; if the worker is gone, does nothing: `read` returns the error."""
        parts = [np.ascontiguousarray(a, _dtype(a)).tobytes() for a in values.values()]
        data = b"".join(part.ljust(-(-len(part) // 8) * 8) for part in parts)
        self.resetting = ()
        self.num_steps += self._send(Command.ACT, data, self.parity ^ 1, timeout_s)

    def reset(self, reset: Reset, timeout_s: float | None) -> None:
        """Starts new episodes; if the worker is gone, does nothing: `read` returns the error."""
        self.resetting = reset.env_ids
        self._send(Command.RESET, pickle.dumps(reset), self.parity ^ 1, timeout_s)

    def render(self, env_id: int, timeout_s: float | None) -> None:
        """Starts rendering an environment; `read_image` returns the result."""
        self._send(Command.RENDER, pickle.dumps(env_id), self.parity, timeout_s)

    def read_image(self) -> Any:  # noqa: ANN401 - an array, or None
        if self.error is not None:
            raise self.error
        self._num_read = self.event.num_notifications
        try:
            message = self._message(self._words[Word.MESSAGE_BLOCK])
        except (EOFError, OSError) as error:
            raise self.died() from error
        if isinstance(message, Failure):
            raise message.error()
        if isinstance(message, NotImplementedError):
            raise message
        return message

    def read(self) -> BatchStep | EntityEnvError:
        """The worker's step, or its error; the worker becomes idle, even if this is interrupted.

        The worker may then be reset; it resends everything that was not received.
        """
        if self.error is not None:
            return self.error
        words, parity = self._words, self._words[Word.PARITY]
        self._num_read = self.event.num_notifications
        try:
            if number := words[Word.MESSAGE_BLOCK]:
                message = self._message(number)
                if isinstance(message, Failure):
                    return message.error()
                return WorkerError("the worker has rendered, and not stepped", worker=self.index)
            if self._reader is None:
                return WorkerError("the worker has not begun", worker=self.index)
            if number := words[Word.ARENA_BLOCK]:
                self._reader.receive(parity, self.connection, number)
                words[Word.KNOWN_ARENA_0 + parity] = number
        except (EOFError, OSError):
            return self.died()
        step = self._reader.read(parity)
        words[Word.KNOWN_NAMES] = self._reader.num_names
        self.parity = parity
        return step

    def _message(self, number: int = 0) -> Any:  # noqa: ANN401 - any pickled object
        """The message in the block with this number, or in the next block."""
        return message_in(SharedBlock.receive(self.connection, number))

    def _send(self, command: int, data: bytes, parity: int, timeout_s: float | None) -> bool:
        """Sends a command with its data; False if the worker is gone."""
        block = self._room(len(data)) if self.error is None else None
        if block is None:
            return False
        block.buffer[: len(data)] = data
        self._words[Word.COMMAND_BYTES] = len(data)
        self._notify(command, parity, timeout_s)
        return True

    def _room(self, num_bytes: int) -> SharedBlock | None:
        """Block for commands, of at least this size; None if the worker is gone."""
        if self._command is not None and self._command[0].num_bytes >= num_bytes:
            return self._command[0]
        self._num_sent += 1
        block = SharedBlock.create(max(2 * num_bytes, _FIRST_COMMAND_BYTES))
        try:
            block.send(self.connection, self._num_sent)
        except OSError:
            self.died()
            return None
        old, self._command = self._command, (block, self._num_sent)
        if old is not None:
            old[0].close()
        return block

    def died(self) -> WorkerError:
        """Releases a worker whose process died; returns its error."""
        code = self._exit_code(_END_TIMEOUT_S)
        how = f"exit code {code}" if code is None or code >= 0 else f"signal {-code}"
        return self._fail(f"worker {self.index}, which runs {self._env_names()}, died ({how})")

    def hangs(self, timeout_s: float) -> WorkerError:
        """Kills a worker that does not finish in time; returns an error with its stack."""
        stack = self._stack()
        message = f"worker {self.index}, which runs {self._env_names()}, hangs: no answer for"
        return self._fail(f"{message} {timeout_s:g} s", stack)

    def _fail(self, message: str, stack: str = "") -> WorkerError:
        current = self._words[Word.CURRENT]
        env_id = None if current == NO_ENV else self.envs.start + current
        if env_id is not None:
            message = f"{message}, while it stepped env {env_id}"
        self.error = WorkerError(message, env_id=env_id, worker=self.index, game_traceback=stack)
        self.end()
        return self.error

    def _env_names(self) -> str:
        first, last = self.envs.start, self.envs.stop - 1
        return f"env {first}" if first == last else f"env {first} to {last}"

    def statistics(self) -> WorkerStatistics:
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

    def request_exit(self, until: float) -> None:
        """Makes the worker close its games and exit, if its current command ends in time.

        That is, before `until`, and before the command counts as hanging.
        """
        if self.error is not None or self._is_exiting:
            return
        if self._reader is None:
            self._release()  # the worker waits for `begin`
            self._is_exiting = True
            return
        if self.is_busy and self._words[Word.COMMAND] == Command.CLOSE:
            self._is_exiting = True  # already sent, by an interrupted call
            return
        if self.is_busy:
            if self.deadline is not None:
                until = min(until, self.deadline)
            if self.event.wait(max(until - monotonic(), 0.0)) is not Wake.NOTIFIED:
                return
            self.read()  # not to be mistaken for the next command's result
            if self._is_released:
                return
        self._notify(Command.CLOSE, self.parity, None)
        self._is_exiting = True

    def close(self, until: float) -> EntityEnvError | None:
        """Kills the process; first waits for a requested exit, at most until `until`.

        May be called twice. Returns the error that its games raised while they were closed, if any.
        """
        failure: EntityEnvError | None = None
        if self.error is None and self._is_exiting:
            if self._reader is not None and (
                self.event.wait(max(until - monotonic(), 0.0)) is Wake.NOTIFIED
                and (number := self._words[Word.MESSAGE_BLOCK])
            ):
                with contextlib.suppress(EOFError, OSError):
                    failure = self._message(number).error()
            self._exit_code(max(until - monotonic(), 0.0))
        self.end()
        return failure

    def end(self) -> None:
        """Kills the process and releases its resources; may be called twice.

        The memory of its last step stays mapped while views of it exist.
        """
        if self.error is None:
            self.error = WorkerError(f"worker {self.index} was ended", worker=self.index)
        if self._is_released:
            return
        if self.process.is_alive():
            self.process.kill()
            self._exit_code(_END_TIMEOUT_S)  # without SIGCHLD a fork server never reports it
        kill_group_of(self._pid, has_ended=self.process.exitcode is not None)
        self.event.close()
        self._release()
        self._lifeline.close()
        if self._stacks is not None:
            self._stacks.close()
        if self._reader is not None:
            self._reader.close()
        if self._command is not None:
            self._command[0].close()
        self._is_released = True
        self._release_pidfd()
        with contextlib.suppress(ValueError):  # killed but not yet reported
            self.process.close()

    def _exit_code(self, timeout_s: float) -> int | None:
        """Waits until the process has ended; returns its exit code, if it is known."""
        if wait([self._gone], timeout_s):
            self.process.join(0 if self.process.exitcode is not None else _END_TIMEOUT_S)
        return self.process.exitcode

    def _notify(self, command: int, parity: int, timeout_s: float | None) -> None:
        words = self._words
        words[Word.COMMAND] = command
        words[Word.PARITY] = parity
        words[Word.COMMAND_BLOCK] = 0 if self._command is None else self._command[1]
        self.deadline = None if timeout_s is None else monotonic() + timeout_s
        self.event.notify()

    def _stack(self) -> str:
        """Stack of the worker; without SIGUSR1, empty if the game hangs in C and keeps the GIL."""
        if sys.platform != "win32" and self._stacks is not None:
            return self._signaled_stack(self._stacks.number)
        with contextlib.suppress(EOFError, OSError):
            self._lifeline.send_bytes(b"stack")
            if self._lifeline.poll(_STACK_TIMEOUT_S):
                return self._lifeline.recv_bytes().decode(errors="replace")
        return ""

    if sys.platform != "win32":

        def _signaled_stack(self, number: int) -> str:
            """Stack that the worker writes to a file on SIGUSR1."""
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid or 0, signal.SIGUSR1)
            deadline = monotonic() + _STACK_TIMEOUT_S
            size = 0
            while monotonic() < deadline:  # until it stops growing
                wait([self._gone], 0.02)
                before, size = size, os.fstat(number).st_size
                if size and size == before:
                    break
            return os.pread(number, size, 0).decode(errors="replace").rstrip()


def split_evenly(num_envs: int, num_workers: int) -> list[range]:
    """Ranges of environments whose sizes differ by at most one."""
    edges = [num_envs * i // num_workers for i in range(num_workers + 1)]
    return [range(first, last) for first, last in itertools.pairwise(edges)]


def _has_stack_signal() -> bool:
    return hasattr(signal, "SIGUSR1") and hasattr(faulthandler, "register")


def _temporary_file() -> int:
    if hasattr(os, "memfd_create"):
        file: int = os.memfd_create("entity_env stacks")
        return file
    file, name = tempfile.mkstemp()
    os.unlink(name)
    return file


def _dtype(array: Any) -> type[np.generic]:  # noqa: ANN401 - of any dtype
    return np.float32 if array.dtype.kind == "f" else np.int64
