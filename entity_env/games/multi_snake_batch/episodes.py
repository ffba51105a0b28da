"""What is reported of the episodes that a step of many boards has ended."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import overload

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.games.multi_snake_batch.state import TERMINATED, TRUNCATED


class Episodes(Sequence[Episode]):
    """Summaries of ended episodes, made when somebody looks.

    Args:
        ended: `(num_episodes, 6)`, kept.
        max_grown: how much all snakes of a board grow in a perfect episode.
    """

    def __init__(self, ended: NDArray[np.int64], max_grown: int) -> None:
        self._ended = ended
        self._max_grown = max_grown

    @cached_property
    def _made(self) -> list[Episode]:
        return [
            Episode(
                reward=grown / self._max_grown,
                length=step,
                terminated=over == TERMINATED,
                truncated=over == TRUNCATED,
                seed=seed,
                number=number,
                env_id=env_id,
            )
            for env_id, grown, step, over, seed, number in self._ended.tolist()
        ]

    @overload
    def __getitem__(self, index: int) -> Episode: ...

    @overload
    def __getitem__(self, index: slice) -> list[Episode]: ...

    def __getitem__(self, index: int | slice) -> Episode | list[Episode]:
        return self._made[index]

    def __len__(self) -> int:
        return len(self._ended)

    def __repr__(self) -> str:
        return repr(self._made)
