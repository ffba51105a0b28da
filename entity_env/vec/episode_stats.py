"""Endings: the episodes that ended in a step, column by column."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, repeat
from typing import Any, Final, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode

NUM_INTS: Final = 8
"""Row, agent, length, terminated, truncated, seed, number, how many metrics."""
ROW, AGENT, LENGTH, TERMINATED, TRUNCATED, SEED, NUMBER, NUM_METRICS = range(NUM_INTS)
REWARD, EARNED = range(2)


class Ended(NamedTuple):
    """One episode that ended in a step."""

    row: int
    """Row of the batch."""
    reward: float
    """What the last action earned."""
    episode: Episode


class EndedColumns:
    """Gathers episodes that end in a step, of environments for one agent, without an object each.

    Args:
        first_env: index of the environment of row 0.
    """

    def __init__(self, first_env: int = 0) -> None:
        self._first_env = first_env
        self._ints: list[int] = []
        self._floats: list[float] = []
        self._metrics: list[dict[str, float]] = []

    def add(
        self,
        row: int,
        numbers: tuple[int, bool, bool, int, int],
        rewards: tuple[float, float],
        metrics: dict[str, float],
    ) -> None:
        """Adds one.

        Args:
            row: of the batch.
            numbers: length, terminated, truncated, seed and number of the episode.
            rewards: of the episode, and of its last action.
            metrics: of the episode, which keeps them.
        """
        self._ints += (row, 0, *numbers, len(metrics))
        self._floats += rewards
        self._metrics.append(metrics)

    def clear(self) -> None:
        """Begins a new step."""
        self._ints.clear()
        self._floats.clear()
        self._metrics = []  # the old ones belong to who reads the episodes

    def __len__(self) -> int:
        return len(self._metrics)

    def told(self, index: int) -> Sequence[int]:
        """The integers of one of them, as in `Endings.ints`."""
        return self._ints[index * NUM_INTS : (index + 1) * NUM_INTS]

    def endings(self) -> Endings:
        """All of them; the episodes are made when somebody looks."""
        if not self._metrics:
            return NO_ENDINGS
        ints = np.array(self._ints, dtype=np.int64).reshape(-1, NUM_INTS)
        floats = np.array(self._floats, dtype=np.float64).reshape(-1, 2)
        metrics, first_env = self._metrics, self._first_env
        return Endings(
            ints,
            floats,
            Episodes(len(ints), lambda: _episodes(ints, floats, metrics, 1, first_env)),
        )


class Episodes(Sequence[Episode]):
    """Summaries of episodes, made when somebody looks at them first."""

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

    __hash__ = None  # type: ignore[assignment]  # as of a list

    def __repr__(self) -> str:
        return repr(self._all())

    def _all(self) -> list[Episode]:
        if self._made is None:
            self._made = self._make()
        return self._made


class Endings:
    """The episodes that ended in a step, in the order of their rows and ends.

    Args:
        ints: `(num_ended, NUM_INTS)` int64.
        floats: `(num_ended, 2)` float64: the episode's reward, and what its last action earned.
        episodes: the same as objects.
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
    def of(cls, ended: Sequence[Ended]) -> Endings:
        """Those of a list."""
        if not ended:
            return NO_ENDINGS
        ints = [
            (
                one.row,
                one.episode.agent_id,
                one.episode.length,
                one.episode.terminated,
                one.episode.truncated,
                one.episode.seed,
                one.episode.number,
                len(one.episode.metrics),
            )
            for one in ended
        ]
        floats = [(one.episode.reward, one.reward) for one in ended]
        return cls(
            np.array(ints, dtype=np.int64),
            np.array(floats, dtype=np.float64),
            [one.episode for one in ended],
        )

    @classmethod
    def read(
        cls,
        ints: NDArray[np.int64],
        floats: NDArray[np.float64],
        metrics: NDArray[np.float64],
        names: Sequence[str],
        num_agents: int,
    ) -> Endings:
        """Those that arrays say; the episodes are made when somebody looks.

        Args:
            ints, floats: as of `Endings`, and kept.
            metrics: `(num_metrics, 2)` for one episode after another the number of a name, and
                the value; kept.
            names: of metrics; may grow meanwhile.
            num_agents: rows an environment.
        """

        def make() -> list[Episode]:
            pairs = iter(metrics.tolist())
            told = [
                {names[int(i)]: value for i, value in islice(pairs, count)}
                for count in ints[:, NUM_METRICS].tolist()
            ]
            return _episodes(ints, floats, told, num_agents)

        return cls(ints, floats, Episodes(len(ints), make))

    @property
    def rows(self) -> NDArray[np.int64]:
        """`(num_ended,)` row of the batch of each."""
        return self.ints[:, ROW]

    def moved(self, offset: int) -> Endings:
        """The same episodes, by their rows in a batch that begins `offset` rows later."""
        if not offset or not len(self):
            return self
        ints = self.ints.copy()
        ints[:, ROW] -= offset
        return Endings(ints, self.floats, self.episodes)

    def __add__(self, other: Endings) -> Endings:
        if not len(other):
            return self
        if not len(self):
            return other
        mine, theirs = self.episodes, other.episodes
        return Endings(
            np.concatenate([self.ints, other.ints]),
            np.concatenate([self.floats, other.floats]),
            Episodes(len(mine) + len(theirs), lambda: [*mine, *theirs]),
        )

    def __len__(self) -> int:
        return len(self.ints)


NO_ENDINGS: Final = Endings(
    np.zeros((0, NUM_INTS), dtype=np.int64), np.zeros((0, 2), dtype=np.float64), []
)


def _episodes(
    ints: NDArray[np.int64],
    floats: NDArray[np.float64],
    metrics: Sequence[Mapping[str, float]],
    num_agents: int,
    first_env: int = 0,
) -> list[Episode]:
    """The episodes that arrays say, field after field: a third of the time of a call for each."""
    told = ints.T.tolist()
    columns: dict[str, Iterable[Any]] = {
        "reward": floats[:, REWARD].tolist(),
        "length": told[LENGTH],
        "terminated": map(bool, told[TERMINATED]),
        "truncated": map(bool, told[TRUNCATED]),
        "seed": told[SEED],
        "number": told[NUMBER],
        "env_id": [first_env + row // num_agents for row in told[ROW]],
        "agent_id": told[AGENT],
        "metrics": metrics,
    }
    made = list(map(object.__new__, repeat(Episode, len(ints))))
    for name, values in columns.items():  # as the `__init__` of a frozen dataclass does
        deque(map(getattr(Episode, name).__set__, made, values), maxlen=0)
    return made
