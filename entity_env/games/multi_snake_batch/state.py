"""Arrays that hold many boards of multi_snake and their observations.

Cell numbers include a wall, one cell wide on all sides: `(x + 1) * (board_size + 2) + y + 1`.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.games.multi_snake import Move

FREE, BLOCKED, FOOD = 0, 1, 2
"""Cell values. Walls and snakes are BLOCKED."""

PLAYS, TERMINATED, TRUNCATED = 0, 1, 2
"""States of an episode."""

SHOW, BEGIN, MOVE = 0, 1, 2
"""Values of `todo`: only write the board's observation, start its next episode, or step."""

GROWN, STEP, OVER = 0, 1, 2
"""Columns of `BoardArrays.snakes`: number of segments of all bodies; steps taken in the episode;
state of the shown episode (PLAYS, TERMINATED or TRUNCATED)."""
_FIRST_COLUMN: Final = 3

RUN, SEED, NEXT, DRAWN = 4, 5, 6, 7
"""Columns of `BoardArrays.seeds`, after four pool words: mixing constant (the last word of
`seed_pools`), seed of this episode, number of the next episode, generator state."""

ENDED_ENV, ENDED_GROWN, ENDED_STEP, ENDED_OVER, ENDED_SEED, ENDED_NUMBER = range(6)
"""Columns of records of finished episodes."""


class BoardLayout(NamedTuple):
    """Settings of all boards, and the column layout of `BoardArrays.snakes`.

    A field that stands for several columns holds the index of the first.

    Args:
        max_segments: maximum length of a body in cells, without its head.
        max_step: steps after which an episode is truncated.
        head, food: columns of the cells of heads and food, one per snake.
        length, end: columns of each body's number of segments, and of its tail's position in the
            cyclic buffer `body`.
        segment, color: columns of the cells, and of the colors, of all segments of a board, in
            order of growth.
        body: columns of cyclic buffers, `max_segments` columns per snake: indices of its segments
            from tail to head.
        moves: `(4,)` int32, change of the cell number per move.
        inside: `(board_size**2,)` int32, cells within the walls, in draw order.
        places: `(num_cells, 2)` float32, x and y of each cell.
        empty: `(num_cells,)` uint8, a board with only walls.
    """

    num_snakes: int
    max_segments: int
    max_step: int
    head: int
    food: int
    length: int
    end: int
    segment: int
    color: int
    body: int
    moves: NDArray[np.int32]
    inside: NDArray[np.int32]
    places: NDArray[np.float32]
    empty: NDArray[np.uint8]


class BoardArrays(NamedTuple):
    """State of all boards, one row per board; few arrays, because each adds overhead to a call.

    Args:
        cells: `(num_envs, num_cells)` uint8, FREE, BLOCKED or FOOD.
        snakes: `(num_envs, num_columns)` int32, see `BoardLayout`.
        seeds: `(num_envs, 8)` uint64.
    """

    cells: NDArray[np.uint8]
    snakes: NDArray[np.int32]
    seeds: NDArray[np.uint64]


class ObsArrays(NamedTuple):
    """Observations of many boards.

    Args:
        entities: `(num_envs * num_snakes * (max_segments + 2), 3)` float32: x, y and color. Heads
            of all rows start at index 0, food at `num_envs * num_snakes`, segments at twice that
            index.
        counts: `(2, num_envs)` int64, segments and actors per row.
        numbers: `(2, num_envs)` float32, step and reward.
        flags: `(2, num_envs)` bool, terminated and truncated.
        actors: `(num_envs * num_snakes,)` int64, indices of the acting entities within their row.
    """

    entities: NDArray[np.float32]
    counts: NDArray[np.int64]
    numbers: NDArray[np.float32]
    flags: NDArray[np.bool_]
    actors: NDArray[np.int64]


class FilledCounts(NamedTuple):
    """Extent of what a step has written.

    Args:
        entities: end of the last segment in `ObsArrays.entities`.
        actors: number of rows in `ObsArrays.actors`.
        ended: number of finished episodes.
        final_entities: as `entities`, for the final observations.
    """

    entities: int
    actors: int
    ended: int
    final_entities: int


def make_layout(
    board_size: int, num_snakes: int, max_snake_length: int, max_step: int
) -> BoardLayout:
    """Layout for valid settings of `multi_snake`."""
    width = board_size + 2
    max_segments = max_snake_length - 1
    x, y = np.divmod(np.arange(width * width), width)
    is_inside = (x > 0) & (x <= board_size) & (y > 0) & (y <= board_size)
    widths = [_FIRST_COLUMN, *[num_snakes] * 4, *[num_snakes * max_segments] * 2]
    columns = zip(BoardLayout._fields[3:10], np.cumsum(widths).tolist(), strict=True)
    return BoardLayout(
        num_snakes=num_snakes,
        max_segments=max_segments,
        max_step=min(max_step, 2**31 - 1),
        **dict(columns),
        moves=np.array([move.dx * width + move.dy for move in Move], dtype=np.int32),
        inside=np.flatnonzero(is_inside).astype(np.int32),
        places=np.stack([x - 1, y - 1], axis=1).astype(np.float32),
        empty=np.where(is_inside, FREE, BLOCKED).astype(np.uint8),
    )


def make_boards(layout: BoardLayout, num_envs: int) -> BoardArrays:
    """Boards before their first episode."""
    num_columns = layout.body + layout.num_snakes * layout.max_segments
    return BoardArrays(
        cells=np.zeros((num_envs, len(layout.empty)), dtype=np.uint8),
        snakes=np.zeros((num_envs, num_columns), dtype=np.int32),
        seeds=np.zeros((num_envs, DRAWN + 1), dtype=np.uint64),
    )


def make_obs_arrays(layout: BoardLayout, num_envs: int) -> ObsArrays:
    """Arrays with room for snakes of any length."""
    num_heads = num_envs * layout.num_snakes
    return ObsArrays(
        entities=np.zeros((num_heads * (layout.max_segments + 2), 3), dtype=np.float32),
        counts=np.zeros((2, num_envs), dtype=np.int64),
        numbers=np.zeros((2, num_envs), dtype=np.float32),
        flags=np.zeros((2, num_envs), dtype=np.bool_),
        actors=np.zeros(num_heads, dtype=np.int64),
    )
