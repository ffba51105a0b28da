"""Takes sequences out of a rollout, compiled.

Whoever needs it imports it when asked for: it imports numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.attention import Ints, compiled


@compiled
def take_sequences(
    values: NDArray[np.generic], offsets: Ints, index: Ints, out: NDArray[np.generic]
) -> None:
    """Copies sequences one after another; nothing is checked.

    Args:
        values: `(num_values, width)`.
        offsets: `(num_sequences + 1,)` where each sequence begins.
        index: `(num_taken,)` sequences.
        out: `(num_values_taken, width)`, is written.
    """
    width = values.shape[1]
    at = 0
    for i in index:
        for j in range(offsets[i], offsets[i + 1]):
            for c in range(width):
                out[at, c] = values[j, c]
            at += 1
