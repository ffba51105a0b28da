"""What runs in a worker process: its share of the environments, at the parent's command."""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import signal
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection
from time import perf_counter_ns
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.frame import FrameLayout
from entity_env.spaces import ContinuousActionSpace
from entity_env.vec.arena import Rows
from entity_env.vec.backend import Batch, act_on, make_batch, render_env
from entity_env.vec.batch_step import BatchStep
from entity_env.vec.doorbell import Wake
from entity_env.vec.protocol import (
    NOBODY,
    Command,
    Failure,
    Ready,
    Reset,
    Setup,
    Word,
    words_of,
)
from entity_env.vec.shared_block import SharedBlock
from entity_env.vec.wire import StepWriter

_NOTHING: Final[NDArray[np.int64]] = np.zeros(0, np.int64)
_GRACE_S: Final = 1.0
"""How long a worker whose parent is gone may take to unwind its games."""


def run_worker(setup: Setup) -> None:
    """Steps environments until the parent closes, or is gone."""
    # Sent to the whole group, these are the parent's: it closes its workers.
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    _leave_with_parent(setup.lifeline)
    _tell_stacks(setup)
    try:
        batch = make_batch(
            pickle.loads(setup.source),  # noqa: S301 - what the parent has just pickled
            len(setup.envs),
            setup.autoreset,
            setup.transport,
            setup.on_error,
            setup.envs.start,
        )
    except BaseException as error:
        setup.connection.send(Failure.of(error, setup.index))
        return
    try:
        worker = _started(setup, batch)
        if worker is not None:
            with contextlib.suppress(ConnectionError):  # the parent is gone: nobody is to be told
                worker.serve()
    finally:
        batch.close()


def _started(setup: Setup, batch: Batch) -> _Worker | None:
    """Whoever serves; None when that fails, or the parent has changed its mind."""
    try:
        worker = _Worker(setup, batch)
        setup.connection.send(None)
    except (EOFError, ConnectionError):
        return None
    except Exception as error:
        setup.connection.send(Failure.of(error, setup.index))
        return None
    return worker


class _Worker:
    """Serves one parent."""

    def __init__(self, setup: Setup, batch: Batch) -> None:
        self._setup = setup
        self._batch = batch
        self._connection = setup.connection
        self._words = words_of(setup.header, setup.index)
        batch.current = self._words[Word.CURRENT :]
        self._actions: SharedBlock | None = None
        self._num_actors = {name: 0 for name in batch.action_space()}
        self._waiting_ns = 0
        self._writer = self._start()

    def serve(self) -> None:
        """Does what the parent rings for."""
        bell, words = self._setup.bell, self._words
        while True:
            begin = perf_counter_ns()
            if bell.wait() is not Wake.RUNG:
                return
            words[Word.WAITING_NS] += perf_counter_ns() - begin
            words[Word.STATUS] = 0
            command = words[Word.COMMAND]
            if command == Command.CLOSE:
                self._close()
                bell.ring()
                return
            try:
                self._obey(command)
            except BaseException as error:
                # `sys.exit` of a game, say: a batch of environments explains exceptions, but not it
                env_id = self._setup.envs.start + words[Word.CURRENT]
                is_explained = isinstance(error, Exception)
                self._say(Failure.of(error, self._setup.index, None if is_explained else env_id))
            words[Word.CURRENT] = NOBODY
            bell.ring()

    def _start(self) -> StepWriter:
        """Tells the parent what it deals with, and takes the block of all rows from it."""
        batch, num_agents = self._batch, self._batch.num_agents
        self._connection.send(Ready(batch.obs_space(), batch.action_space(), num_agents))
        num_envs = self._connection.recv()
        layout = FrameLayout(batch.obs_space(), batch.action_space())
        block = SharedBlock.receive(self._connection)
        rows = Rows(block, layout, num_envs * num_agents, num_envs)
        return StepWriter(layout, rows, self._setup.envs, num_agents)

    def _obey(self, command: int) -> None:
        words = self._words
        if command == Command.ACT:
            values = self._read_actions()
            self._step(lambda memory: act_on(self._batch, values, memory))
        elif command == Command.RESET:
            reset: Reset = self._connection.recv()
            for env_id, run in reset.runs.items():
                self._batch.seed_env(env_id, run)
            self._step(lambda memory: self._batch.reset(reset.env_ids, memory))
        elif command == Command.RENDER:
            env_id = self._connection.recv()
            words[Word.CURRENT] = env_id
            try:
                self._say(render_env(self._batch, env_id))
            except NotImplementedError as error:
                self._say(error)

    def _step(self, take: Callable[[Any], BatchStep]) -> None:
        """Has the environments take a step, and leaves it in the arena."""
        words, batch = self._words, self._batch
        parity = words[Word.PARITY]
        self._writer.begin(parity)
        step = take(self._writer.memory[parity])
        self._writer.end(parity, step)
        for name, where in step.frame.layout.actions.items():
            self._num_actors[name] = int(step.frame.lengths[where.row].sum())
        words[Word.GAMES_NS] = int(batch.games_s * 1e9)
        words[Word.PACKING_NS] = int(batch.packing_s * 1e9)
        words[Word.NUM_RESTARTS] = batch.num_restarts
        blocks = self._writer.new_blocks(parity)
        words[Word.NEW_ARENA] = len(blocks)
        for block in blocks:
            block.send(self._connection)

    def _read_actions(self) -> dict[str, NDArray[Any]]:
        """One value for each actor of the last step, in the order of the actions."""
        if self._words[Word.NEW_ACTIONS]:
            if self._actions is not None:
                self._actions.close()
            self._actions = SharedBlock.receive(self._connection)
        values: dict[str, NDArray[Any]] = {}
        offset = 0
        for name, space in self._batch.action_space().items():
            count = self._num_actors[name]
            if self._actions is None or not count:
                values[name] = _NOTHING
            elif isinstance(space, ContinuousActionSpace):
                flat = self._actions.array(offset, count * len(space), np.float32)
                values[name] = flat.reshape(count, len(space))
                offset += -(-4 * flat.size // 8) * 8
            else:
                values[name] = self._actions.array(offset, count, np.int64)
                offset += 8 * count
        return values

    def _say(self, message: object) -> None:
        self._words[Word.STATUS] = 1
        self._connection.send(message)

    def _close(self) -> None:
        try:
            self._batch.close()
        except BaseException as error:
            self._say(Failure.of(error, self._setup.index))
        self._writer.close()


def _leave_with_parent(lifeline: Connection[Any, Any]) -> None:
    """Ends this process soon after its parent, also while a game hangs."""

    def watch() -> None:
        with contextlib.suppress(EOFError, OSError):
            lifeline.recv_bytes()
        # A worker that waits for its parent sees that it is gone, and unwinds its games by itself.
        threading.Event().wait(_GRACE_S)
        os._exit(1)

    threading.Thread(target=watch, name="lifeline", daemon=True).start()


def _tell_stacks(setup: Setup) -> None:
    """Writes the stack of whatever runs when the parent asks, by a signal."""
    if hasattr(faulthandler, "register"):
        faulthandler.register(signal.SIGUSR1, file=setup.stacks.number, all_threads=False)
