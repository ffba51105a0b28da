"""StateTable: all arrays of a batch in one table, so a compiled step takes one argument.

Passing an array to compiled code takes as long as several steps of one environment, so all arrays
are rows of one float32 table, passed by address. A row holds one number per environment; 64-bit
numbers take two rows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.vec.batch_env import NUM_SLOTS

# Row indices, as numpy integers: numba would compile again for each Python integer.
HEADER: Final = np.int64(0)
"""int64: the scalars, indexed by `CLOCK` and the constants after it."""
ENDED: Final = np.int64(1)
"""uint64, one bit per environment, 1 = its episode has ended and it has not been reset. Then
`NUM_SLOTS` copies of these bits, each made by a step, for masks; see `PackedResult`."""
TERMINALS: Final = np.int64(2)
"""uint8, as `TRUNCATIONS`."""
TRUNCATIONS: Final = np.int64(3)
MOVES: Final = np.int64(4)
"""Checked actions of the step: uint8 for choices, float32 for torques."""
REWARDS: Final = np.int64(5)
STREAMS: Final = np.int64(6)
"""uint64, two rows: each environment's position in its random sequence; see `start_draws`."""
DEADLINES: Final = np.int64(8)
"""int64, two rows: clock value at which each episode is truncated."""
STATE: Final = np.int64(10)
"""The state, one row per variable; then the observations, environment by environment."""

CLOCK, NUM_ENVS, MAX_STEPS, NEXT_DEADLINE, WIDTH, SLOT = range(6)
"""Steps since the last `reset`; number of environments; maximum length of an episode; earliest
deadline; floats per row; slot that steps copy `ENDED` to, from 1 (0 = none)."""

NUM_HEADERS: Final = 6

LANES: Final = 16
"""Loops run over a multiple of this many environments; the surplus is unused. So all environments
pass through the vectorized part, and rounding does not depend on an environment's index."""

_CHUNK: Final = 64
_PAD: Final = 16
"""Unused floats at the end of a row, one cache line: without them, rows may be a power of two apart
and evict each other from the cache."""


class StateTable:
    """The table of a batch, and views of its parts.

    Args:
        has_torques: actions are float32 torques instead of choices.
        has_double_state: the state is a float64 array outside the table.

    Attributes:
        table: `(num_rows, width)` float32, the whole table.
        state: `(state_size, num_envs)` float32, or float64 outside the table.
        observations: `(num_envs, obs_size)` float32.
        rewards: `(num_envs,)` float32.
        terminals, truncations: `(num_envs,)` uint8.
        ended: `(num_chunks,)` uint64, `terminals | truncations` as bits.
        slots: `NUM_SLOTS` times `(num_chunks,)` uint64; see `ENDED`.
        streams: `(num_envs,)` uint64.
        deadlines: `(num_envs,)` int64.
        header: int64.
        moves: `(num_envs,)` uint8 or float32.
    """

    def __init__(
        self,
        num_envs: int,
        state_size: int,
        obs_size: int,
        max_episode_steps: int,
        has_torques: bool = False,
        has_double_state: bool = False,
    ) -> None:
        num_chunks = (num_envs + _CHUNK - 1) // _CHUNK
        width = num_chunks * _CHUNK + _PAD
        self.table = _aligned_zeros(int(STATE) + state_size + obs_size, width)
        self.header: NDArray[np.int64] = self.table[HEADER].view(np.int64)
        bits = self.table[ENDED].view(np.uint64)[: (1 + NUM_SLOTS) * num_chunks]
        self.ended: NDArray[np.uint64] = bits[:num_chunks]
        self.slots: list[NDArray[np.uint64]] = np.split(bits, 1 + NUM_SLOTS)[1:]
        self.terminals: NDArray[np.uint8] = self.table[TERMINALS].view(np.uint8)[:num_envs]
        self.truncations: NDArray[np.uint8] = self.table[TRUNCATIONS].view(np.uint8)[:num_envs]
        self.moves = self.table[MOVES].view(np.float32 if has_torques else np.uint8)[:num_envs]
        self.rewards: NDArray[np.float32] = self.table[REWARDS, :num_envs]
        self.streams: NDArray[np.uint64] = self._wide(STREAMS).view(np.uint64)[:num_envs]
        self.deadlines: NDArray[np.int64] = self._wide(DEADLINES).view(np.int64)[:num_envs]
        self.state: NDArray[np.floating] = (
            np.zeros((state_size, num_envs), np.float64)
            if has_double_state
            else self.table[STATE : STATE + state_size, :num_envs]
        )
        shown = self.table[STATE + state_size :].reshape(-1)[: num_envs * obs_size]
        self.observations: NDArray[np.float32] = shown.reshape(num_envs, obs_size)
        self.address = int(self.table.ctypes.data)
        self.header[NUM_ENVS] = num_envs
        self.header[WIDTH] = width
        self.header[MAX_STEPS] = max_episode_steps

    def _wide(self, row: np.int64) -> NDArray[np.float32]:
        return self.table[row : row + 2].reshape(-1)


def _aligned_zeros(num_rows: int, width: int) -> NDArray[np.float32]:
    """`(num_rows, width)` float32, aligned to a cache line."""
    line = 64
    block = np.zeros(num_rows * width * 4 + line, np.uint8)
    first = -block.ctypes.data % line
    floats: NDArray[np.float32] = block[first : first + num_rows * width * 4].view(np.float32)
    return floats.reshape(num_rows, width)
