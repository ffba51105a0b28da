"""Compiled rules of multi_snake for many boards. The game `multi_snake` defines the rules.

Boards are processed one after another, so a board's rows stay in the cache until they are written.
Functions called for every board are force-inlined. Compiled code allocates nothing, so numba needs
no reference counts (`_nrt`: False). Together, these three choices make a step six times as fast as
a compiled version without them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from entity_env.core import vec_env_base
from entity_env.games.multi_snake_batch import draws
from entity_env.games.multi_snake_batch.draws import GAMMA, MASK, OUT, POWERS_A, U1, U6, U32, U63
from entity_env.games.multi_snake_batch.state import (
    BEGIN,
    BLOCKED,
    DRAWN,
    ENDED_ENV,
    ENDED_GROWN,
    ENDED_NUMBER,
    ENDED_OVER,
    ENDED_SEED,
    ENDED_STEP,
    FOOD,
    FREE,
    GROWN,
    MOVE,
    NEXT,
    OVER,
    PLAYS,
    RUN,
    SEED,
    STEP,
    TERMINATED,
    TRUNCATED,
    BoardArrays,
    BoardLayout,
    FilledCounts,
    ObsArrays,
)

Function = TypeVar("Function", bound=Callable[..., object])

_OPTIONS: Final[dict[str, Any]] = {"nogil": True, "_nrt": False}


def _called(function: Function) -> Function:
    return cast(Function, njit(**_OPTIONS)(function))


def _inlined(function: Function) -> Function:
    return cast(Function, njit(**_OPTIONS, forceinline=True)(function))


def _entered(function: Function) -> Function:
    try:
        return cast(Function, njit(**_OPTIONS, cache=True)(function))
    except RuntimeError:  # no writable cache: a read-only installation and no home directory
        return cast(Function, njit(**_OPTIONS)(function))


_splitmix64 = _inlined(vec_env_base.splitmix64)
_index_of = _inlined(draws.index_of)
_absorbed = _inlined(draws.absorbed)
_generated = _inlined(draws.generated)


def step_boards(
    layout: BoardLayout,
    boards: BoardArrays,
    shown: ObsArrays,
    final: ObsArrays,
    ended: NDArray[np.int64],
    moves: NDArray[np.int64],
    todo: NDArray[np.uint8],
    same_step: bool,
) -> FilledCounts:
    """Executes each board's entry in `todo` (SHOW, BEGIN or MOVE) and writes all observations."""
    eaten = np.empty(layout.num_snakes, dtype=np.int64)
    filled = _step_boards(
        *(layout, *boards, *shown, *final[:3], ended, moves, todo, same_step, eaten)
    )
    return FilledCounts(*filled)


@_called
def _free_cell(
    i: int, inside: NDArray[np.int32], cells: NDArray[np.uint8], seeds: NDArray[np.uint64]
) -> np.int32:
    num_cells = np.uint64(len(inside))
    while True:
        seeds[i, DRAWN] += GAMMA
        cell: np.int32 = inside[_index_of(_splitmix64(seeds[i, DRAWN]), num_cells)]
        if cells[i, cell] == FREE:
            return cell


@_inlined
def _seed_of(i: int, seeds: NDArray[np.uint64]) -> np.uint64:
    """Seed of the next episode: `EpisodeSeeds(seed, env_id)[seeds[i, NEXT]]`."""
    block = seeds[i, NEXT] >> U6
    first = 2 * np.int64(seeds[i, NEXT] & U63)
    k = first & 3
    low = _absorbed(seeds[i, k], seeds[i, RUN] * POWERS_A[k] & MASK, block)
    high = _absorbed(seeds[i, k + 1], seeds[i, RUN] * POWERS_A[k + 1] & MASK, block)
    low = _generated(low, OUT[first], OUT[first + 1])
    high = _generated(high, OUT[first + 1], OUT[first + 2])
    seed: np.uint64 = (low | high << U32) >> U1
    return seed


@_called
def _begin(
    i: int,
    layout: BoardLayout,
    cells: NDArray[np.uint8],
    snakes: NDArray[np.int32],
    seeds: NDArray[np.uint64],
) -> None:
    seeds[i, SEED] = seeds[i, DRAWN] = _seed_of(i, seeds)
    seeds[i, NEXT] += U1
    for k in range(len(layout.empty)):
        cells[i, k] = layout.empty[k]
    snakes[i, GROWN] = 0
    snakes[i, STEP] = 0
    snakes[i, OVER] = PLAYS
    for color in range(layout.num_snakes):
        cell = _free_cell(i, layout.inside, cells, seeds)
        cells[i, cell] = BLOCKED
        snakes[i, layout.head + color] = cell
        snakes[i, layout.length + color] = 0
        snakes[i, layout.end + color] = 0
    for color in range(layout.num_snakes):
        cell = _free_cell(i, layout.inside, cells, seeds)
        cells[i, cell] = FOOD
        snakes[i, layout.food + color] = cell


@_inlined
def _follow(
    i: int,
    color: int,
    grows: bool,
    layout: BoardLayout,
    cells: NDArray[np.uint8],
    snakes: NDArray[np.int32],
) -> None:
    """Puts a segment in the head's place: a new one if `grows`, else the tail, freeing its cell.

    A snake without segments that does not grow only frees the head's cell.
    """
    head = snakes[i, layout.head + color]
    length = snakes[i, layout.length + color]
    end = snakes[i, layout.end + color]
    first = layout.body + color * layout.max_segments
    if grows:
        segment = snakes[i, GROWN]
        snakes[i, GROWN] += 1
        snakes[i, layout.color + segment] = color
        snakes[i, layout.length + color] = length + 1
    elif length == 0:
        cells[i, head] = FREE
        return
    else:
        segment = snakes[i, first + end]
        cells[i, snakes[i, layout.segment + segment]] = FREE
        snakes[i, layout.end + color] = end + 1 if end + 1 < layout.max_segments else 0
    snakes[i, layout.segment + segment] = head
    behind = end + length
    if behind >= layout.max_segments:
        behind -= layout.max_segments
    snakes[i, first + behind] = segment


@_inlined
def _move(
    i: int,
    first: int,
    moves: NDArray[np.int64],
    eaten: NDArray[np.int64],
    layout: BoardLayout,
    cells: NDArray[np.uint8],
    snakes: NDArray[np.int32],
    seeds: NDArray[np.uint64],
) -> int:
    """Moves a board's snakes; returns PLAYS, TERMINATED or TRUNCATED."""
    is_over = False
    num_eaten = 0
    for color in range(layout.num_snakes):
        cell = snakes[i, layout.head + color] + layout.moves[moves[first + color]]
        eats = cells[i, cell] == FOOD
        if cells[i, cell] == BLOCKED or (eats and snakes[i, layout.food + color] != cell):
            is_over = True
            continue
        if eats:
            eaten[num_eaten] = color
            num_eaten += 1
        grows = eats and snakes[i, layout.length + color] < layout.max_segments
        _follow(i, color, grows, layout, cells, snakes)
        cells[i, cell] = BLOCKED
        snakes[i, layout.head + color] = cell
    for k in range(num_eaten):  # after all moves, so no snake runs into new food in this step
        cell = _free_cell(i, layout.inside, cells, seeds)
        cells[i, cell] = FOOD
        snakes[i, layout.food + eaten[k]] = cell
    snakes[i, STEP] += 1
    if is_over or snakes[i, GROWN] == layout.num_snakes * layout.max_segments:
        return TERMINATED
    return TRUNCATED if snakes[i, STEP] >= layout.max_step else PLAYS


@_inlined
def _record_end(
    i: int,
    row: int,
    snakes: NDArray[np.int32],
    seeds: NDArray[np.uint64],
    ended: NDArray[np.int64],
) -> None:
    ended[row, ENDED_ENV] = i
    ended[row, ENDED_GROWN] = snakes[i, GROWN]
    ended[row, ENDED_STEP] = snakes[i, STEP]
    ended[row, ENDED_OVER] = snakes[i, OVER]
    ended[row, ENDED_SEED] = np.int64(seeds[i, SEED])
    ended[row, ENDED_NUMBER] = np.int64(seeds[i, NEXT] - U1)


@_inlined
def _write(out: NDArray[np.float32], row: int, cell: int, color: int, layout: BoardLayout) -> None:
    out[row, 0] = layout.places[cell, 0]
    out[row, 1] = layout.places[cell, 1]
    out[row, 2] = color


@_inlined
def _show(
    i: int,
    row: int,
    segment: int,
    layout: BoardLayout,
    snakes: NDArray[np.int32],
    entities: NDArray[np.float32],
    counts: NDArray[np.int64],
    numbers: NDArray[np.float32],
) -> int:
    """Writes a board's entities, its segments from index `segment` on; returns the next index."""
    first = row * layout.num_snakes
    first_food = len(snakes) * layout.num_snakes + first
    for color in range(layout.num_snakes):
        _write(entities, first + color, snakes[i, layout.head + color], color, layout)
        _write(entities, first_food + color, snakes[i, layout.food + color], color, layout)
    grown = snakes[i, GROWN]
    for k in range(grown):
        cell, color = snakes[i, layout.segment + k], snakes[i, layout.color + k]
        _write(entities, segment + k, cell, color, layout)
    counts[0, row] = grown
    numbers[0, row] = snakes[i, STEP]
    end: int = segment + grown
    return end


@_entered
def _step_boards(
    layout: BoardLayout,
    cells: NDArray[np.uint8],
    snakes: NDArray[np.int32],
    seeds: NDArray[np.uint64],
    entities: NDArray[np.float32],
    counts: NDArray[np.int64],
    numbers: NDArray[np.float32],
    flags: NDArray[np.bool_],
    actors: NDArray[np.int64],
    final_entities: NDArray[np.float32],
    final_counts: NDArray[np.int64],
    final_numbers: NDArray[np.float32],
    ended: NDArray[np.int64],
    moves: NDArray[np.int64],
    todo: NDArray[np.uint8],
    same_step: bool,
    eaten: NDArray[np.int64],
) -> tuple[int, int, int, int]:
    max_grown = layout.num_snakes * layout.max_segments
    # Not a literal 0: numba would compile the called functions again for the literal.
    num_moves = num_actors = num_ended = 0 * len(snakes)
    segment = final_segment = 2 * len(snakes) * layout.num_snakes
    for i in range(len(snakes)):
        begins = todo[i] == BEGIN
        over = PLAYS if begins else snakes[i, OVER]
        reward = 0.0
        if todo[i] == MOVE:
            before = snakes[i, GROWN]
            over = _move(i, num_moves, moves, eaten, layout, cells, snakes, seeds)
            num_moves += layout.num_snakes
            reward = snakes[i, GROWN] / max_grown - before / max_grown
            if over != PLAYS:
                snakes[i, OVER] = over
                _record_end(i, num_ended, snakes, seeds, ended)
                if same_step:
                    final_segment = _show(
                        i,
                        num_ended,
                        final_segment,
                        layout,
                        snakes,
                        final_entities,
                        final_counts,
                        final_numbers,
                    )
                begins = same_step
                num_ended += 1
        if begins:
            _begin(i, layout, cells, snakes, seeds)
        numbers[1, i] = reward
        flags[0, i] = over == TERMINATED
        flags[1, i] = over == TRUNCATED
        segment = _show(i, i, segment, layout, snakes, entities, counts, numbers)
        counts[1, i] = layout.num_snakes if snakes[i, OVER] == PLAYS else 0
        for color in range(counts[1, i]):
            actors[num_actors + color] = color
        num_actors += counts[1, i]
    return segment, num_actors, num_ended, final_segment
