"""Statistics of running episodes, and arrays of finished ones, for many environments."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Final, overload

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.validation import plain_numbers

NUM_INTS: Final = 8
"""Number of rows of `FinishedEpisodes.ints`; the next constants are their indices."""
ROW, AGENT, LENGTH, TERMINATED, TRUNCATED, SEED, NUMBER, NUM_METRICS = range(NUM_INTS)
REWARD, LAST_REWARD = range(2)
"""Rows of `FinishedEpisodes.floats`."""
STATS_REWARD, STATS_LENGTH, STATS_NUMBER = range(3)
"""Rows of `EpisodeStats.counts`."""


class EpisodeStats:
    """Return, length, seed and number of each row's current episode, as arrays.

    Compare Gymnasium's `RecordEpisodeStatistics`.

    Args:
        num_agents: rows per environment.
        seed_dtype: `object` if seeds may have more than 63 bits.

    Attributes:
        counts: `(3, num_rows)` float64, for kernels: its rows are `reward`, `length` and `number`.
        reward: `(num_rows,)` sum of rewards so far.
        length: `(num_rows,)` number of actions so far, minus `clock`.
        number: `(num_rows,)` index of the current episode; -1 before the first.
        seed: `(num_rows,)` seed of the current episode.
        clock: number of steps in which every row took an action. For each step, a caller either
            advances `clock` or adds to `length`.
    """

    def __init__(
        self, num_rows: int, num_agents: int = 1, seed_dtype: str | type[Any] = "int64"
    ) -> None:
        self.counts = np.zeros((3, num_rows))
        self.reward, self.length, self.number = self.counts
        self.number[:] = -1
        self.seed: NDArray[Any] = np.zeros(num_rows, seed_dtype)
        self.clock = 0
        self._num_agents = num_agents

    def begin(self, rows: NDArray[Any] | slice, *, is_late: bool = False) -> None:
        self.reset(rows, is_late=is_late)
        self.number[rows] += 1

    def reset(self, rows: NDArray[Any] | slice, *, is_late: bool = False) -> None:
        """Sets reward and length of some rows to 0, without changing the number.

        With `is_late`, the length starts at -1, because the next advance of `clock` counts a step
        before the episode.
        """
        self.reward[rows] = 0
        self.length[rows] = -self.clock - is_late

    def length_of(self, row: int) -> int:
        return self.clock + int(self.length[row])

    def place(self, row: int, num_steps: int = 0) -> str:
        """Episode and step of a row, for error messages; `num_steps` is added to the step."""
        return f"episode {int(self.number[row])}, step {self.length_of(row) + num_steps}"

    def episode(
        self,
        row: int,
        terminated: bool,
        truncated: bool,
        metrics: Mapping[str, float] | None = None,
    ) -> Episode:
        env_id, agent_id = divmod(row, self._num_agents)
        return Episode(
            reward=float(self.reward[row]),
            length=self.length_of(row),
            terminated=bool(terminated),
            truncated=bool(truncated),
            seed=int(self.seed[row]),
            number=int(self.number[row]),
            env_id=env_id,
            agent_id=agent_id,
            metrics={} if metrics is None else metrics,
        )


class LazyEpisodes(Sequence[Episode]):
    """List of `count` episodes, created on first access."""

    def __init__(self, count: int, make: Callable[[], list[Episode]]) -> None:
        self._count = count
        self._make = make
        self._made: list[Episode] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Episode: ...
    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...
    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        return self._all()[index]

    def __iter__(self) -> Iterator[Episode]:
        return iter(self._all())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._all() == list(other)

    __hash__ = None  # type: ignore[assignment]  # like a list

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> list[Episode]:
        if self._made is None:
            self._made = self._make()
        return self._made


class FinishedEpisodes:
    """Return, length, seed and flags of the episodes that ended in one step, as arrays.

    Args:
        ints: `(NUM_INTS, num_episodes)` int64, sorted by row, then by time.
        floats: `(2, num_episodes)` float64: reward of the episode, and of its last action.
        episodes: the episodes as objects.
    """

    __slots__ = ("episodes", "floats", "ints")

    def __init__(
        self,
        ints: NDArray[np.int64],
        floats: NDArray[np.float64],
        episodes: Sequence[Episode],
    ) -> None:
        self.ints = ints
        self.floats = floats
        self.episodes = episodes

    @classmethod
    def from_arrays(
        cls,
        ints: NDArray[np.int64],
        floats: NDArray[np.float64],
        metrics: NDArray[np.float64] | None = None,
        names: Sequence[str] = (),
        num_agents: int = 1,
    ) -> FinishedEpisodes:

        def make() -> list[Episode]:
            pairs = iter([] if metrics is None else metrics.tolist())
            own = [
                {names[int(i)]: value for i, value in islice(pairs, count)}
                for count in ints[NUM_METRICS].tolist()
            ]
            return _episodes(ints, floats, own, num_agents)

        return cls(ints, floats, LazyEpisodes(ints.shape[1], make))

    @property
    def rows(self) -> NDArray[np.int64]:
        """`(num_episodes,)` batch row of each episode."""
        rows: NDArray[np.int64] = self.ints[ROW]
        return rows

    @property
    def terminated(self) -> NDArray[np.bool_]:
        """`(num_episodes,)`, a copy."""
        is_set: NDArray[np.bool_] = self.ints[TERMINATED] != 0
        return is_set

    @property
    def truncated(self) -> NDArray[np.bool_]:
        """`(num_episodes,)`, a copy."""
        is_set: NDArray[np.bool_] = self.ints[TRUNCATED] != 0
        return is_set

    @property
    def last_reward(self) -> NDArray[np.float32]:
        """`(num_episodes,)` reward of each episode's last action, a copy."""
        rewards: NDArray[np.float64] = self.floats[LAST_REWARD]
        with np.errstate(over="ignore"):  # detected later, with the name of the row
            return rewards.astype(np.float32)

    def shifted(self, offset: int) -> FinishedEpisodes:
        """These episodes in a batch whose first row is `offset` rows later."""
        if not offset or not len(self):
            return self
        ints = self.ints.copy()
        ints[ROW] -= offset
        return FinishedEpisodes(ints, self.floats, self.episodes)

    def __add__(self, other: FinishedEpisodes) -> FinishedEpisodes:
        if not len(other):
            return self
        if not len(self):
            return other
        first, second = self.episodes, other.episodes
        return FinishedEpisodes(
            np.concatenate([self.ints, other.ints], axis=1),
            np.concatenate([self.floats, other.floats], axis=1),
            LazyEpisodes(len(first) + len(second), lambda: [*first, *second]),
        )

    def __len__(self) -> int:
        return int(self.ints.shape[1])


NO_EPISODES: Final = FinishedEpisodes(
    np.zeros((NUM_INTS, 0), dtype=np.int64), np.zeros((2, 0), dtype=np.float64), []
)


class EpisodeCollector:
    """Collects the episodes that end in a step; row 0 belongs to `first_env`."""

    def __init__(self, first_env: int = 0, num_agents: int = 1) -> None:
        self._first_env = first_env
        self._num_agents = num_agents
        self._ints: list[int] = []
        self._floats: list[float] = []
        self._metrics: list[Mapping[str, float]] = []

    def add(
        self,
        row: int,
        numbers: tuple[int, bool, bool, int, int],
        rewards: tuple[float, float],
        metrics: Mapping[str, float],
    ) -> None:
        self._ints += (row, row % self._num_agents, *numbers, len(metrics))
        self._floats += rewards
        self._metrics.append(metrics)

    def add_episode(self, row: int, last_reward: float, one: Episode) -> None:
        numbers = one.length, one.terminated, one.truncated, one.seed, one.number
        self.add(row, numbers, (one.reward, last_reward), one.metrics)

    def clear(self) -> None:
        """Removes all episodes; earlier results of `finished` stay valid."""
        self._ints.clear()
        self._floats.clear()
        self._metrics = []

    def __len__(self) -> int:
        return len(self._metrics)

    def ints(self, index: int) -> Sequence[int]:
        return self._ints[index * NUM_INTS : (index + 1) * NUM_INTS]

    def finished(self) -> FinishedEpisodes:
        if not self._metrics:
            return NO_EPISODES
        ints = np.array(self._ints, dtype=np.int64).reshape(-1, NUM_INTS).T
        floats = np.array(self._floats, dtype=np.float64).reshape(-1, 2).T
        metrics, num_agents, first_env = self._metrics, self._num_agents, self._first_env
        episodes = LazyEpisodes(
            len(metrics), lambda: _episodes(ints, floats, metrics, num_agents, first_env)
        )
        return FinishedEpisodes(ints, floats, episodes)


def _episodes(
    ints: NDArray[np.int64],
    floats: NDArray[np.float64],
    metrics: Sequence[Mapping[str, float]],
    num_agents: int,
    first_env: int = 0,
) -> list[Episode]:
    """Creates episodes field by field: three times as fast as one constructor call per episode."""
    lists = ints.tolist()
    columns: dict[str, Iterable[Any]] = {
        "reward": floats[REWARD].tolist(),
        "length": lists[LENGTH],
        "terminated": map(bool, lists[TERMINATED]),
        "truncated": map(bool, lists[TRUNCATED]),
        "seed": lists[SEED],
        "number": lists[NUMBER],
        "env_id": [first_env + row // num_agents for row in lists[ROW]],
        "agent_id": lists[AGENT],
        "metrics": map(plain_numbers, metrics),
    }
    made = list(map(object.__new__, repeat(Episode, ints.shape[1])))
    for name, values in columns.items():  # writes frozen fields, as `__init__` does
        deque(map(getattr(Episode, name).__set__, made, values), maxlen=0)
    return made
