"""RowParts: what the numbers of a batch environment's observations are the features of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class RowParts:
    """Splits rows of observations into the features of entities, and the global ones after them.

    Args:
        num_entities: entities in a row.
        num_features: of each.
        num_globals: global features of a row.
    """

    num_entities: int
    num_features: int
    num_globals: int

    @property
    def obs_size(self) -> int:
        """Numbers in a row."""
        return self.num_entities * self.num_features + self.num_globals

    @property
    def are_views(self) -> bool:
        """Whether the parts of rows that follow each other are views; else some are copies."""
        return not self.num_globals

    def entities(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(num_rows * num_entities, num_features)` float32."""
        own = rows[:, : self.num_entities * self.num_features]
        return own.reshape(len(rows) * self.num_entities, self.num_features)

    def globals(self, rows: NDArray[np.float32]) -> NDArray[np.float32]:
        """`(num_rows, num_globals)` float32."""
        return np.ascontiguousarray(rows[:, self.obs_size - self.num_globals :])
