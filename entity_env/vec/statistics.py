"""Statistics of a `VecEnv`: steps, episodes and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from time import perf_counter


@dataclass(frozen=True, slots=True)
class WorkerStatistics:
    """Totals of a worker, or of this process without workers; times in seconds.

    Args:
        num_steps: number of steps; all environments of the worker step together.
        games_s: time in the games, including reading their observations.
        packing_s: time for batching.
        waiting_s: time waiting for actions.
        num_restarts: number of restarts of environments after a failure.
        num_bytes: size of the shared memory for its steps.
    """

    num_envs: int
    num_steps: int = 0
    games_s: float = 0.0
    packing_s: float = 0.0
    waiting_s: float = 0.0
    num_restarts: int = 0
    num_bytes: int = 0

    def plus(self, later: WorkerStatistics) -> WorkerStatistics:
        """Totals of a worker and its replacement."""
        return replace(
            later,
            num_steps=self.num_steps + later.num_steps,
            games_s=self.games_s + later.games_s,
            packing_s=self.packing_s + later.packing_s,
            waiting_s=self.waiting_s + later.waiting_s,
            num_restarts=self.num_restarts + later.num_restarts,
        )


@dataclass(frozen=True, slots=True)
class VecStatistics:
    """Totals since a `VecEnv` was made; times in seconds.

    Args:
        num_steps: number of calls of `act` (or `recv`) that returned a batch.
        num_env_steps: steps, summed over all environments.
        transport_s: time in `act`, `send`, `recv` and resets for checking, sending and gathering.
        waiting_s: time in `act`, `recv` and resets waiting for the games.
        caller_s: time of the caller between a batch and the next actions.
        workers: one entry per worker, or one for this process.
    """

    num_steps: int
    num_env_steps: int
    num_episodes: int
    transport_s: float
    waiting_s: float
    caller_s: float
    workers: Sequence[WorkerStatistics]

    @property
    def games_s(self) -> float:
        """Time in the games, over all workers."""
        return sum(worker.games_s for worker in self.workers)

    @property
    def packing_s(self) -> float:
        """Time for batching, over all workers."""
        return sum(worker.packing_s for worker in self.workers)

    @property
    def num_restarts(self) -> int:
        """Number of restarts of environments after a failure, over all workers."""
        return sum(worker.num_restarts for worker in self.workers)

    def __str__(self) -> str:
        return self.describe()

    def describe(self, caller: str = "caller") -> str:
        """Summary in one line; `caller` is a word for the caller's activity."""
        total = max(self.transport_s + self.waiting_s + self.caller_s, 1e-9)
        parts = {
            "waiting for games": self.waiting_s,
            "transport": self.transport_s,
            caller: self.caller_s,
        }
        shares = ", ".join(f"{name} {100 * part / total:.0f} %" for name, part in parts.items())
        restarts = f", {self.num_restarts} restarts" if self.num_restarts else ""
        counts = f"{self.num_env_steps:,} env steps, {self.num_episodes:,} episodes"
        return f"{counts}: {shares}{restarts}"


class Stopwatch:
    """Measures the time of a caller, of its calls, and of waits within them."""

    def __init__(self) -> None:
        self.transport_s = 0.0
        self.waiting_s = 0.0
        self.caller_s = 0.0
        self._last = self._wait_began = perf_counter()

    def skip(self) -> None:
        """Ignores the time since the last call."""
        self._last = perf_counter()

    def begin_call(self) -> None:
        """Adds the time since the last call to the caller's time."""
        now = perf_counter()
        self.caller_s += now - self._last
        self._last = now

    def end_call(self) -> None:
        """Adds the time since `begin_call` to the transport time."""
        now = perf_counter()
        self.transport_s += now - self._last
        self._last = now

    def begin_wait(self) -> None:
        self._wait_began = perf_counter()

    def end_wait(self) -> None:
        """Moves the time of the wait from transport to waiting."""
        waited = perf_counter() - self._wait_began
        self.waiting_s += waited
        self.transport_s -= waited
