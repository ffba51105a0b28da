"""Learners: a function in several processes of a Ray cluster, joined by torch.distributed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import logging.handlers
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeVar

import cloudpickle

from entity_env.agents.training.process import RESTARTS, HeldInterrupt
from entity_env.authoring.game_traceback import summary_of, trace_of
from entity_env.authoring.load_module import to_pickle
from entity_env.cluster.session import WORKER_ENV, Portable, connect, import_ray
from entity_env.errors import EntityEnvError, MissingExtraError, UsageError, WorkerError

T = TypeVar("T")

_LOGGER: Final = logging.getLogger("entity_env.cluster")
_POLL_S: Final = 0.2
_DEATHS_FIRST_S: Final = 1.5
"""How long a failed learner waits before it ends: if the death of another learner is the cause, Ray
notices that first."""
_END_S: Final = 10.0
_ANSWER_S: Final = 60.0
_Event = Literal["began", "update", "failed", "finished"]


@dataclass(frozen=True)
class RunControl:
    """A learner's connection to the program that started it.

    Attributes:
        rank: from 0.
        restarts: number of restarts of all learners so far. After a restart, the function must
            resume from its saved work. Also in `TORCHELASTIC_RESTART_COUNT`.
        report: sends an object from rank 0 to the program's `on_update`, without waiting.
        stop_requested: True if the learner must save its work and return. It turns True at slightly
            different times in the ranks, which must agree on the step at which they all stop.
    """

    rank: int
    restarts: int
    report: Callable[[object], None]
    stop_requested: Callable[[], bool]


def run_learners(
    train: Callable[[RunControl], T],
    *,
    address: str = "auto",
    num_learners: int,
    out: str | Path,
    max_failures: int = 0,
    on_update: Callable[[Any], None] | None = None,
    use_gpu: bool = False,
    timeout_s: float = 300.0,
) -> T:
    """Runs a function in several processes of a Ray cluster; returns rank 0's result.

    `torch.distributed` is initialized in each process: nccl between GPUs, gloo between CPUs. If a
    process or its machine is lost, or `train` raises a `WorkerError` or an error from outside this
    package, all processes restart, at most `max_failures` times.

    Ctrl-C, SIGTERM and SIGHUP request a stop of the learners; a second Ctrl-C, or any of these
    before the learners run, ends them at once.

    Args:
        train: sent by cloudpickle. Runs outside the main thread of its process, in the current
            folder if it exists there.
        address: of the cluster, as for `connect`.
        num_learners: number of processes; each has a CPU.
        out: folder that all machines can access; holds Ray's files while the learners run.
        on_update: called in this process with each report from rank 0.
        use_gpu: also reserves a GPU per process.
        timeout_s: seconds that processes wait for each other in `torch.distributed`.

    Raises:
        EntityEnvError: raised by a learner. All except `WorkerError` end the run at once.
        MissingExtraError: Ray is not installed.
        UsageError: as for `connect`; an invalid number, too few CPUs or GPUs, or an `out` that
            cannot be written.
        WorkerError: a learner died or failed and no restart is left; the message names the learner
            and its machine.
        StoppedBySignal: SIGTERM or SIGHUP that the program does not handle.
    """
    if num_learners < 1:
        raise UsageError(f"the number of learners must be at least 1, got {num_learners}")
    if max_failures < 0:
        raise UsageError(f"the number of failures must be at least 0, got {max_failures}")
    with connect(address, num_cpus=num_learners), HeldInterrupt() as interrupt:
        num_gpus = int(import_ray().cluster_resources().get("GPU", 0))
        if use_gpu and num_gpus < num_learners:
            raise UsageError(
                f"{num_learners} learners need a GPU each, but the Ray cluster has {num_gpus}"
            )
        with _storage(Path(out)) as storage:
            setup = _Setup(to_pickle(Portable(train)), num_learners, storage, use_gpu, timeout_s)
            on_update = on_update or (lambda _: None)
            data = _run_groups(setup, on_update, max_failures, interrupt)
    result: T = cloudpickle.loads(data)
    interrupt.deliver(result, None)  # type: ignore[arg-type]  # result of `train`
    return result


class _Setup(NamedTuple):
    train: bytes
    num_learners: int
    storage: str
    use_gpu: bool
    timeout_s: float


def _run_groups(
    setup: _Setup,
    on_update: Callable[[Any], None],
    max_failures: int,
    interrupt: HeldInterrupt,
) -> bytes:
    """Runs the learners, with restarts after failures; returns the pickled result."""
    cause: EntityEnvError | None = None
    for restarts in range(max_failures + 1):
        group = _Group(setup.num_learners, on_update)
        failure = group.run(_trainer(setup, restarts), interrupt)
        if failure is None:
            break
        if cause is None or group.has_begun:
            cause = failure
        else:  # no machine replaced a lost one
            failure = WorkerError(f"{_reason(cause)}; then {_reason(failure)}")
        is_last = restarts == max_failures or interrupt.signum is not None
        if is_last or not isinstance(failure, WorkerError):
            raise failure
        _LOGGER.warning("%s; restart %d of %d", _reason(failure), restarts + 1, max_failures)
    return group.result


@contextlib.contextmanager
def _storage(out: Path) -> Iterator[str]:
    """Folder for Ray's own files, which all machines must be able to access."""
    is_new = not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(prefix=".ray-", dir=out.resolve())
    except OSError as error:
        raise UsageError(f"cannot write in {out}: {error}") from error
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if is_new:
            with contextlib.suppress(OSError):  # learners may have written there
                out.rmdir()


def _trainer(setup: _Setup, restarts: int) -> Callable[[Any], object]:
    """Returns a function that starts the learners and waits for their end."""
    settings = {
        "RAY_TRAIN_V2_ENABLED": "1",
        "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.5",
        "RAY_TRAIN_METRICS_ENABLED": "0",
        "RAY_CHDIR_TO_TRIAL_DIR": "0",
    }
    for name, value in settings.items():
        os.environ.setdefault(name, value)  # Ray Train reads them at import and later
    try:
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        raise MissingExtraError(
            error.name or "ray[train]", "cluster", "training on a cluster"
        ) from error

    def fit(board: Any) -> object:  # noqa: ANN401 - a handle of Ray
        trainer = TorchTrainer(
            lambda: _learn(setup.train, board, restarts),
            torch_config=TorchConfig(timeout_s=int(setup.timeout_s)),
            scaling_config=ScalingConfig(num_workers=setup.num_learners, use_gpu=setup.use_gpu),
            run_config=RunConfig(
                name="learners",
                storage_path=setup.storage,
                # `_run_groups` restarts learners, because Ray retries forever without machines.
                failure_config=FailureConfig(max_failures=0, controller_failure_limit=0),
                worker_runtime_env={"env_vars": WORKER_ENV},
            ),
        )
        return trainer.fit()

    return fit


class _Board:
    """Ray actor next to the program: events from learners, and the stop request."""

    def __init__(self) -> None:
        self._events: list[tuple[_Event, int, bytes]] = []
        self._stopped = asyncio.Event()

    async def post(self, event: _Event, rank: int, data: bytes) -> None:
        self._events.append((event, rank, data))

    async def take(self) -> list[tuple[_Event, int, bytes]]:
        events, self._events = self._events, []
        return events

    async def stop(self) -> None:
        self._stopped.set()

    async def wait_for_stop(self) -> None:
        await self._stopped.wait()


def _learn(payload: bytes, board: Any, restarts: int) -> None:  # noqa: ANN401
    import ray
    import ray.train

    rank: int = ray.train.get_context().get_world_rank()
    place = f"{socket.gethostname()} ({ray.util.get_node_ip_address()}), process {os.getpid()}"
    ray.get(board.post.remote("began", rank, place.encode()))
    stopped = threading.Event()

    def watch() -> None:
        try:
            ray.get(board.wait_for_stop.remote())
            stopped.set()
        except ray.exceptions.RayError:  # the program has ended and needs no result
            os._exit(1)

    def report(update: object) -> None:
        if rank == 0:
            board.post.remote("update", rank, to_pickle(update))

    threading.Thread(target=watch, daemon=True, name="watch").start()
    os.environ[RESTARTS] = str(restarts)
    try:
        with _logs_sent(report):
            train = cloudpickle.loads(payload).value
            result = train(RunControl(rank, restarts, report, stopped.is_set))
        if rank == 0:
            ray.get(board.post.remote("finished", rank, to_pickle(result)))
    except BaseException as error:
        ray.get(board.post.remote("failed", rank, _pickled(error)))
        if not _ends_run(error):
            time.sleep(_DEATHS_FIRST_S)
        raise RuntimeError(f"learner {rank} failed") from None


@contextlib.contextmanager
def _logs_sent(report: Callable[[object], None]) -> Iterator[None]:
    """Forwards this package's warnings to the program."""

    class Sent(logging.handlers.QueueHandler):
        def enqueue(self, record: logging.LogRecord) -> None:
            report(record)

    handler = Sent(None)  # type: ignore[arg-type]  # its queue is not used
    handler.setLevel(logging.WARNING)
    logger = logging.getLogger("entity_env")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def _ends_run(error: BaseException) -> bool:
    """True if the error would occur again after a restart."""
    return isinstance(error, EntityEnvError) and not isinstance(error, WorkerError)


def _pickled(error: BaseException) -> bytes:
    """The error, if it is an `EntityEnvError` that can be sent; else its summary and traceback."""
    if isinstance(error, EntityEnvError):
        with contextlib.suppress(Exception):
            known = to_pickle(error)
            cloudpickle.loads(known)
            return known
    return to_pickle((summary_of(error), trace_of(error)))


@dataclass
class _Group:
    """One start of all learners, as seen by the program."""

    num_learners: int
    on_update: Callable[[Any], None]
    result: bytes = b""
    _places: dict[int, str] = field(default_factory=dict)
    _failures: dict[int, Any] = field(default_factory=dict)  # in order of occurrence
    _error: BaseException | None = None

    @property
    def has_begun(self) -> bool:
        return bool(self._places)

    def run(self, fit: Callable[[Any], object], interrupt: HeldInterrupt) -> EntityEnvError | None:
        """Runs the learners; returns the error that ended them, if any."""
        ray = import_ray()
        board = self._make_board(ray)

        def run_fit() -> None:
            try:
                fit(board)
            except BaseException as error:
                self._error = error

        # Outside the main thread; in it, Ray would install a Ctrl-C handler that aborts.
        thread = threading.Thread(target=run_fit, daemon=True, name="learners")
        thread.start()
        try:
            while thread.is_alive():
                thread.join(_POLL_S)
                self._take(ray.get(board.take.remote(), timeout=_ANSWER_S))
                try:
                    interrupt.check()
                except KeyboardInterrupt:
                    if not self.has_begun:  # still waiting for machines or importing torch
                        raise
                    board.stop.remote()
        except ray.exceptions.RayError as error:
            raise WorkerError(f"the Ray cluster does not answer: {_why(error)}") from error
        finally:
            ray.kill(board)  # remaining learners end themselves
            thread.join(_END_S)
        return self._failure() if self._error is not None or not self.result else None

    def _make_board(self, ray: Any) -> Any:  # noqa: ANN401 - handles of Ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        node = ray.get_runtime_context().get_node_id()
        actor = ray.remote(_Board).options(
            num_cpus=0,
            max_concurrency=2 * self.num_learners + 8,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        return actor.remote()

    def _take(self, events: list[tuple[_Event, int, bytes]]) -> None:
        for event, rank, data in events:
            if event == "began":
                self._places[rank] = data.decode()
            elif event == "failed":
                self._failures[rank] = cloudpickle.loads(data)
            elif event == "finished":
                self.result = data
            else:
                update = cloudpickle.loads(data)
                if isinstance(update, logging.LogRecord):
                    logging.getLogger(update.name).handle(update)
                else:
                    self.on_update(update)

    def _failure(self) -> EntityEnvError:
        """Why the learners ended: an error that a restart would repeat, else a death, else any."""
        for error in self._failures.values():
            if _ends_run(error):
                return error  # type: ignore[no-any-return]
        died: dict[int, Exception] = getattr(self._error, "worker_failures", {})
        dead = {rank: error for rank, error in died.items() if rank not in self._failures}
        if dead:
            rank, cause = next(iter(dead.items()))
            others = f", and {len(dead) - 1} others" if len(dead) > 1 else ""
            return WorkerError(f"{self._name(rank)} died{others}: {_why(cause)}")
        for rank, failure in self._failures.items():
            if isinstance(failure, WorkerError):
                return failure
            reason, trace = failure
            return WorkerError(f"{self._name(rank)} failed: {reason}", game_traceback=trace)
        lost = getattr(self._error, "controller_failure", self._error)
        return WorkerError(f"the learners could not be started: {_why(lost)}")

    def _name(self, rank: int) -> str:
        return f"learner {rank} of {self.num_learners} on {self._places.get(rank, 'no machine')}"


def _reason(error: EntityEnvError) -> str:
    """Message without its trace."""
    return error.reason if isinstance(error, WorkerError) else str(error)


def _why(error: BaseException | None) -> str:
    """Message of a Ray error, in one line."""
    text = str(getattr(error, "health_check_failure", error) or "it ended without a result")
    return " ".join(text.split())
