"""Main function of a worker process, which executes the parent's commands."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable
from functools import partial
from multiprocessing.connection import wait
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.authoring.game_traceback import is_a, stack_at
from entity_env.batching.frame import FrameLayout
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.errors import WorkerError
from entity_env.processes import exit_group, lead_group
from entity_env.vec.in_process.make_batch import make_process_batch
from entity_env.vec.options import VecOptions
from entity_env.vec.process_batch import ProcessBatch
from entity_env.vec.step import CollectedStep, StepMemory
from entity_env.vec.workers.protocol import (
    NO_ENV,
    SAFE_PATH,
    Command,
    Failure,
    Lifeline,
    Ready,
    Reset,
    Setup,
    Word,
    state_words,
)
from entity_env.vec.workers.shared_memory import SharedBlock
from entity_env.vec.workers.step_codec import SharedRows, StepWriter
from entity_env.vec.workers.wakeup_event import Wake

_NOTHING: Final[NDArray[np.int64]] = np.zeros(0, np.int64)
_POLL_S: Final = 1.0
"""Interval at which a worker checks whether its parent is alive, on systems without pidfd."""
_GRACE_S: Final = 1.0
"""Time for a worker to close its games after its parent is gone."""


def run_worker(setup: Setup) -> None:
    """Steps environments until the parent closes the worker or is gone."""
    setup.imports.restore()
    lead_group()  # what its games start ends with it
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGBREAK"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), _ignore_signal)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # the parent may block it
    if not setup.keeps_safe_path:
        os.environ.pop(SAFE_PATH, None)
    _exit_with_parent(setup)
    if sys.platform != "win32" and setup.stacks is not None:  # the parent reads it if a game hangs
        faulthandler.register(signal.SIGUSR1, file=setup.stacks.number, all_threads=False)
    sender = _Sender(setup.connection)
    try:
        options: VecOptions = pickle.loads(setup.options)  # noqa: S301 - pickled by the parent
        batch = make_process_batch(options, setup.envs)
    except BaseException as error:
        sender.send_failure(error, setup.index)
        return
    worker: _Worker | None = None
    try:
        worker = _started(setup, options.num_envs, batch, sender)
        if worker is not None:
            with contextlib.suppress(ConnectionError):  # the parent is gone
                worker.serve()
    finally:
        if worker is None or not worker.has_closed:  # else the parent has the error, if any
            batch.close()


def _started(setup: Setup, num_envs: int, batch: ProcessBatch, sender: _Sender) -> _Worker | None:
    """The worker; None if it cannot be made or the parent is already closing."""
    try:
        worker = _Worker(setup, num_envs, batch, sender)
        sender.send_message(None)
    except (EOFError, ConnectionError):
        return None
    except Exception as error:
        sender.send_failure(error, setup.index)
        return None
    return worker


class _Sender:
    """Sends blocks and pickled messages to the parent, numbered consecutively."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._num_sent = 0
        self._messages: list[SharedBlock] = []
        """Kept open until the next command: by then the parent has received them."""

    def send(self, block: SharedBlock) -> int:
        """Sends memory; returns its number."""
        self._num_sent += 1
        block.send(self._connection, self._num_sent)
        return self._num_sent

    def send_message(self, message: object) -> int:
        """Sends a message; returns the number of its block."""
        data = pickle.dumps(message)
        try:
            block = SharedBlock.create(len(data))
        except WorkerError:  # out of memory, but this message is short
            self._num_sent += 1
            SharedBlock.send_copy(data, self._connection, self._num_sent)
            return self._num_sent
        block.buffer[:] = data
        self._messages.append(block)
        return self.send(block)

    def send_failure(self, error: BaseException, index: int) -> None:
        """Sends an error if the parent can still read it."""
        with contextlib.suppress(ConnectionError):
            self.send_message(Failure.of(error, index))

    def clear(self) -> None:
        while self._messages:
            self._messages.pop().close()


class _Worker:
    def __init__(self, setup: Setup, num_envs: int, batch: ProcessBatch, sender: _Sender) -> None:
        self._setup = setup
        self._batch = batch
        self._sender = sender
        self._process = os.getpid()
        self.has_closed = False
        """The environments were closed when the parent requested it."""
        self._words = state_words(setup.header, setup.index)
        batch.current = self._words[Word.CURRENT :]
        self._command: SharedBlock | None = None
        """Actions, or a message from the parent."""
        self._command_number = 0
        self._num_actors = {name: 0 for name in batch.spaces[1]}
        self._writer = self._start(num_envs)

    def serve(self) -> None:
        """Executes commands until `CLOSE` or until the parent is gone."""
        event, words = self._setup.event, self._words
        while True:
            begin = perf_counter_ns()
            if event.wait() is not Wake.NOTIFIED:
                return
            words[Word.WAITING_NS] += perf_counter_ns() - begin
            words[Word.MESSAGE_BLOCK] = 0
            self._sender.clear()
            command = words[Word.COMMAND]
            if command == Command.CLOSE:
                self._close()
                event.notify()
                return
            try:
                self._execute(command)
            except BaseException as error:
                self._leave_fork()
                # A `LocalBatch` adds the place to an `Exception` but not to a `SystemExit`.
                current = words[Word.CURRENT]
                has_place = is_a(error, Exception) and command != Command.RENDER
                env_id = (
                    None if has_place or current == NO_ENV else self._setup.envs.start + current
                )
                self._send_result(Failure.of(error, self._setup.index, env_id))
                self._note_numbers(range(len(self._setup.envs)))
            self._leave_fork()
            words[Word.CURRENT] = NO_ENV
            event.notify()

    def _leave_fork(self) -> None:
        """Ends a process that an environment forked, before it answers the parent.

        A `LocalBatch` ends such a process earlier, before it writes to shared memory.
        """
        if os.getpid() != self._process:
            os._exit(1)

    def _start(self, num_envs: int) -> StepWriter:
        """Sends the spaces to the parent and receives the block of all rows."""
        batch, num_agents = self._batch, self._batch.num_agents
        self._sender.send_message(Ready(batch.spaces, num_agents, batch.can_reset_envs))
        layout = FrameLayout(*batch.spaces)
        block = SharedBlock.receive(self._setup.connection, timeout_s=None)
        rows = SharedRows(block, layout, num_envs, num_agents)
        self._numbers = rows.numbers[rows.slice_of(self._setup.envs)]
        return StepWriter(rows, self._setup.envs)

    def _execute(self, command: int) -> None:
        words = self._words
        if command == Command.ACT:
            values = self._read_actions()
            self._step(partial(self._batch.act, values))
        elif command == Command.RESET:
            reset: Reset = self._read_message()
            for env_id, run in reset.runs.items():
                self._batch.seed_env(env_id, run)
            self._step(partial(self._batch.reset, reset.env_ids))
            self._note_numbers(reset.env_ids)
        elif command == Command.RENDER:
            rendered: int = self._read_message()
            words[Word.CURRENT] = rendered
            try:
                self._send_result(self._batch.render(rendered))
            except NotImplementedError as error:
                self._send_result(error)

    def _step(self, take: Callable[[StepMemory], CollectedStep]) -> None:
        words, batch = self._words, self._batch
        parity = words[Word.PARITY]
        self._writer.begin(parity)
        memory = self._writer.memory[parity]
        step = take(memory).written(memory)
        self._writer.end(parity, step, words[Word.KNOWN_NAMES])
        for name, where in step.frame.layout.actions.items():
            self._num_actors[name] = int(step.frame.lengths[where.row].sum())
        words[Word.GAMES_NS] = int(batch.games_s * 1e9)
        words[Word.PACKING_NS] = int(batch.packing_s * 1e9)
        words[Word.NUM_RESTARTS] = batch.num_restarts
        for episodes in (step.ended, step.lost):
            if len(episodes):
                self._note_numbers(set((episodes.rows // batch.num_agents).tolist()))
        words[Word.ARENA_BLOCK] = 0
        arena = self._writer.unknown_arena(parity, words[Word.KNOWN_ARENA_0 + parity])
        if arena is not None:
            arena.number = words[Word.ARENA_BLOCK] = self._sender.send(arena.block)

    def _note_numbers(self, env_ids: Iterable[int]) -> None:
        """Writes the indices of the environments' current, or next, episodes for the parent."""
        num_agents = self._batch.num_agents
        for env_id in env_ids:
            first = env_id * num_agents
            self._numbers[first : first + num_agents] = self._batch.numbers(env_id)

    def _read_message(self) -> Any:  # noqa: ANN401 - any message
        buffer = self._command_block().buffer
        return pickle.loads(buffer[: self._words[Word.COMMAND_BYTES]])  # noqa: S301 - the parent's

    def _command_block(self) -> SharedBlock:
        number = self._words[Word.COMMAND_BLOCK]
        if self._command is None or number != self._command_number:
            old, self._command = self._command, SharedBlock.receive(self._setup.connection, number)
            self._command_number = number
            if old is not None:
                old.close()
        return self._command

    def _read_actions(self) -> dict[str, NDArray[Any]]:
        """One value per actor of the last step, in the order of the actions."""
        block = self._command_block()
        values: dict[str, NDArray[Any]] = {}
        offset = 0
        for name, space in self._batch.spaces[1].items():
            count = self._num_actors[name]
            if not count:
                values[name] = _NOTHING
            elif isinstance(space, ContinuousActionSpace):
                flat = block.array(offset, count * len(space), np.float32)
                values[name] = flat.reshape(count, len(space))
                offset += -(-4 * flat.size // 8) * 8
            else:
                values[name] = block.array(offset, count, np.int64)
                offset += 8 * count
        return values

    def _send_result(self, message: object) -> None:
        self._words[Word.MESSAGE_BLOCK] = self._sender.send_message(message)

    def _close(self) -> None:
        self.has_closed = True
        try:
            self._batch.close()
            self._leave_fork()
        except BaseException as error:
            self._leave_fork()
            self._send_result(Failure.of(error, self._setup.index))
        self._writer.close()


def _ignore_signal(number: int, frame: FrameType | None) -> None:
    """Does nothing: the parent also gets the signal, and closes its workers.

    Not `SIG_IGN`: every program started by a game would inherit it.
    """


def _exit_with_parent(setup: Setup) -> None:
    """Starts a thread that ends this process soon after its parent, even while a game hangs.

    The lifeline stays open while a fork of the parent lives, so the parent is also watched.
    """
    handles: list[Any] = [setup.lifeline]
    if hasattr(os, "pidfd_open"):
        with contextlib.suppress(OSError):  # not supported before Linux 5.3
            handles.append(os.pidfd_open(setup.parent))
            setup.event.watch(handles[-1])
    poll_s = _POLL_S if len(handles) == 1 else None

    def watch() -> None:
        is_over = False
        while not is_over:
            ready = wait(handles, poll_s)
            if ready == [setup.lifeline]:
                is_over = not _sends_stack(setup.lifeline)
            else:
                is_over = bool(ready) or not _is_alive(setup.parent)
        # Meanwhile a waiting worker notices that its parent is gone, and closes its games.
        threading.Event().wait(_GRACE_S)
        exit_group()

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _sends_stack(lifeline: Lifeline[Any, Any]) -> bool:
    """Answers a request for the game's stack; False if the parent is gone."""
    try:
        lifeline.recv_bytes()
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        lifeline.send_bytes(stack_at(frame).encode())
    except (EOFError, OSError):
        return False
    return True


def _is_alive(process: int) -> bool:
    """True if a process exists, or if the system cannot tell."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
