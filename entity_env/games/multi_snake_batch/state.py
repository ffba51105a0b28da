"""What many boards of multi_snake consist of, and where they are shown.

The cells of a board have numbers, with a wall of one cell all around:
`(x + 1) * (board_size + 2) + y + 1`.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.games.multi_snake import Move

FREE: Final = 0
BLOCKED: Final = 1
"""By a wall or a snake."""
FOOD: Final = 2

PLAYS: Final = 0
TERMINATED: Final = 1
TRUNCATED: Final = 2

SHOW: Final = 0
BEGIN: Final = 1
MOVE: Final = 2
"""What is to be done with a board: nothing, its next episode, or the next step of this one."""

GROWN: Final = 0
STEP: Final = 1
OVER: Final = 2
"""Columns of `Boards.snakes`: segments of all bodies, steps of the episode; and PLAYS, or how the
episode ended that the board still shows."""
_FIRST_COLUMN: Final = 3

RUN: Final = 4
SEED: Final = 5
NEXT: Final = 6
DRAWN: Final = 7
"""Columns of `Boards.seeds`, after four words that with RUN are what `runs` returns: the seed of
this episode, the number of the next one, and the state of the generator."""

ENDED_ENV: Final = 0
ENDED_GROWN: Final = 1
ENDED_STEP: Final = 2
ENDED_OVER: Final = 3
ENDED_SEED: Final = 4
ENDED_NUMBER: Final = 5
"""Columns of what is told of an episode that has ended."""


class Rules(NamedTuple):
    """What is the same for all boards, and where it is found in a row of `Boards.snakes`.

    Args:
        num_snakes: snakes on a board.
        max_segments: cells that a body grows to, without its head.
        max_step: steps after which an episode is cut.
        head, food: columns of the cells of heads and food, one a snake.
        length, end: columns of the segments that each body has, and where in its ring its end is.
        segment, color: columns of the cells of all segments of a board, in the order in which they
            grew, and whose they are.
        body: column of `max_segments` numbers a snake, a ring: the segments from its end to its
            head.
        moves: `(4,)` int32, what a move adds to the number of a cell.
        inside: `(board_size**2,)` int32, cells within the walls, in the order of their draws.
        places: `(num_cells, 2)` float32, x and y of each cell.
        empty: `(num_cells,)` uint8, a board with walls and nothing else.
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


class Boards(NamedTuple):
    """The state of all boards, a row each; few arrays, since every one costs a compiled call.

    Args:
        cells: `(num_envs, num_cells)` uint8, FREE, BLOCKED or FOOD.
        snakes: `(num_envs, num_columns)` int32, see `Rules`.
        seeds: `(num_envs, 8)` uint64.
    """

    cells: NDArray[np.uint8]
    snakes: NDArray[np.int32]
    seeds: NDArray[np.uint64]


class Shown(NamedTuple):
    """Where observations are written.

    Args:
        entities: `(num_envs * num_snakes * (max_segments + 2), 3)` float32: x, y and color of the
            heads of all rows; from `num_envs * num_snakes` on of the food; from twice that on of
            the segments.
        counts: `(2, num_envs)` int64, segments and actors a row.
        numbers: `(2, num_envs)` float32, step and reward.
        flags: `(2, num_envs)` bool, terminated and truncated.
        actors: `(num_envs * num_snakes,)` int64, which entities of their row act.
    """

    entities: NDArray[np.float32]
    counts: NDArray[np.int64]
    numbers: NDArray[np.float32]
    flags: NDArray[np.bool_]
    actors: NDArray[np.int64]


class Filled(NamedTuple):
    """How much of the arrays has been filled.

    Args:
        entities: rows of `shown.entities`, from its first to behind the last segment.
        actors: of `shown.actors`.
        ended: rows of `ended`.
        final_entities: as `entities`, of `final`.
    """

    entities: int
    actors: int
    ended: int
    final_entities: int


class Kernel(Protocol):
    """The rules for all boards at once; compiled, or with numpy alone."""

    def __call__(
        self,
        rules: Rules,
        boards: Boards,
        shown: Shown,
        final: Shown,
        ended: NDArray[np.int64],
        moves: NDArray[np.int64],
        todo: NDArray[np.uint8],
        goes_on: bool,
    ) -> Filled:
        """Does what is to be done on every board, and shows all of them.

        Args:
            rules: of all boards.
            boards: are changed.
            shown: is written.
            final: is written when `goes_on`, a row for every row of `ended`: entities, segment
                counts and steps alone.
            ended: `(num_envs, 6)`, is written: a row for every episode that ends in this step.
            moves: from 0 to 3, one for every head of each board that is to MOVE, in their order.
            todo: `(num_envs,)`, SHOW, BEGIN or MOVE.
            goes_on: boards whose episode ends in this step begin the next one at once.
        """


def make_rules(board_size: int, num_snakes: int, max_snake_length: int, max_step: int) -> Rules:
    """The rules of these settings, which `multi_snake` must accept."""
    width = board_size + 2
    max_segments = max_snake_length - 1
    x, y = np.divmod(np.arange(width * width), width)
    is_inside = (x > 0) & (x <= board_size) & (y > 0) & (y <= board_size)
    widths = [_FIRST_COLUMN, *[num_snakes] * 4, *[num_snakes * max_segments] * 2]
    head, food, length, end, segment, color, body = np.cumsum(widths).tolist()
    return Rules(
        num_snakes=num_snakes,
        max_segments=max_segments,
        max_step=min(max_step, 2**31 - 1),
        head=head,
        food=food,
        length=length,
        end=end,
        segment=segment,
        color=color,
        body=body,
        moves=np.array([move.dx * width + move.dy for move in Move], dtype=np.int32),
        inside=np.flatnonzero(is_inside).astype(np.int32),
        places=np.stack([x - 1, y - 1], axis=1).astype(np.float32),
        empty=np.where(is_inside, FREE, BLOCKED).astype(np.uint8),
    )


def make_boards(rules: Rules, num_envs: int) -> Boards:
    """Boards on which nothing was played yet."""
    num_columns = rules.body + rules.num_snakes * rules.max_segments
    return Boards(
        cells=np.zeros((num_envs, len(rules.empty)), dtype=np.uint8),
        snakes=np.zeros((num_envs, num_columns), dtype=np.int32),
        seeds=np.zeros((num_envs, DRAWN + 1), dtype=np.uint64),
    )


def make_shown(rules: Rules, num_envs: int) -> Shown:
    """Arrays for the observations of so many boards, however long their snakes get."""
    num_heads = num_envs * rules.num_snakes
    return Shown(
        entities=np.zeros((num_heads * (rules.max_segments + 2), 3), dtype=np.float32),
        counts=np.zeros((2, num_envs), dtype=np.int64),
        numbers=np.zeros((2, num_envs), dtype=np.float32),
        flags=np.zeros((2, num_envs), dtype=np.bool_),
        actors=np.zeros(num_heads, dtype=np.int64),
    )
