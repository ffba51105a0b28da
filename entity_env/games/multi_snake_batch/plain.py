"""The rules of multi_snake for many boards, with numpy: one snake after another, on all boards.

The readable version of `compiled`, and what is used without numba.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from entity_env.core.seeding import splitmix64
from entity_env.games.multi_snake_batch.draws import GAMMA, U1, episode_seeds, index_of
from entity_env.games.multi_snake_batch.state import (
    BEGIN,
    BLOCKED,
    DRAWN,
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
    Boards,
    Filled,
    Rules,
    Shown,
)


def advance(
    rules: Rules,
    boards: Boards,
    shown: Shown,
    final: Shown,
    ended: NDArray[np.int64],
    moves: NDArray[np.int64],
    todo: NDArray[np.uint8],
    goes_on: bool,
) -> Filled:
    """See `Kernel`."""
    snakes = boards.snakes
    moved = np.flatnonzero(todo == MOVE)
    before = snakes[:, GROWN].copy()
    _move(moved, moves.reshape(len(moved), rules.num_snakes), rules, boards)
    max_grown = rules.num_snakes * rules.max_segments
    shown.numbers[1] = snakes[:, GROWN] / max_grown - before / max_grown
    over = np.where(todo == BEGIN, PLAYS, snakes[:, OVER])
    shown.flags[0] = over == TERMINATED
    shown.flags[1] = over == TRUNCATED
    ends = moved[over[moved] != PLAYS]
    _tell(ends, boards, ended)
    begins = np.flatnonzero(todo == BEGIN)
    num_final = 2 * len(snakes) * rules.num_snakes
    if goes_on:
        num_final = _show(ends, rules, boards, final)
        begins = np.union1d(begins, ends)
    _begin(begins, rules, boards)
    num_entities = _show(np.arange(len(snakes)), rules, boards, shown)
    shown.counts[1] = np.where(snakes[:, OVER] == PLAYS, rules.num_snakes, 0)
    num_actors = int(shown.counts[1].sum())
    shown.actors[:num_actors] = np.arange(num_actors) % rules.num_snakes
    return Filled(num_entities, num_actors, len(ends), num_final)


def _begin(envs: NDArray[np.int64], rules: Rules, boards: Boards) -> None:
    """Begins the next episodes of some boards."""
    cells, snakes, seeds = boards
    seed = episode_seeds(seeds[envs, : RUN + 1], seeds[envs, NEXT])
    seeds[envs, SEED] = seeds[envs, DRAWN] = seed
    seeds[envs, NEXT] += U1
    cells[envs] = rules.empty
    snakes[envs] = 0
    for color in range(rules.num_snakes):
        cell = _free_cells(envs, rules, boards)
        cells[envs, cell] = BLOCKED
        snakes[envs, rules.head + color] = cell
    for color in range(rules.num_snakes):
        _place(envs, color, rules, boards)


def _free_cells(envs: NDArray[np.int64], rules: Rules, boards: Boards) -> NDArray[np.int32]:
    """Draws cells of each board until one is free."""
    cells, _, seeds = boards
    found = np.zeros(len(envs), dtype=np.int32)
    waiting = np.arange(len(envs))
    while len(waiting):
        mine = envs[waiting]
        seeds[mine, DRAWN] += GAMMA
        index = index_of(splitmix64(seeds[mine, DRAWN]), np.uint64(len(rules.inside)))
        found[waiting] = rules.inside[index.astype(np.int64)]
        waiting = waiting[cells[mine, found[waiting]] != FREE]
    return found


def _place(envs: NDArray[np.int64], color: int, rules: Rules, boards: Boards) -> None:
    """Lets food appear on some boards."""
    cell = _free_cells(envs, rules, boards)
    boards.cells[envs, cell] = FOOD
    boards.snakes[envs, rules.food + color] = cell


def _move(envs: NDArray[np.int64], moves: NDArray[np.int64], rules: Rules, boards: Boards) -> None:
    """Moves the snakes of some boards, and sees whether their episodes have ended."""
    cells, snakes, _ = boards
    is_over = np.zeros(len(envs), dtype=np.bool_)
    eaten = np.zeros((rules.num_snakes, len(envs)), dtype=np.bool_)
    for color in range(rules.num_snakes):
        cell = snakes[envs, rules.head + color] + rules.moves[moves[:, color]]
        there = cells[envs, cell]
        is_own = cell == snakes[envs, rules.food + color]
        goes = (there == FREE) | ((there == FOOD) & is_own)
        eats = eaten[color] = (there == FOOD) & is_own
        grows = eats & (snakes[envs, rules.length + color] < rules.max_segments)
        is_over |= ~goes
        _follow(envs[goes & ~grows], color, rules, boards)
        _grow(envs[grows], color, rules, boards)
        cells[envs[goes], cell[goes]] = BLOCKED
        snakes[envs[goes], rules.head + color] = cell[goes]
    for color in range(rules.num_snakes):  # not before all have moved
        _place(envs[eaten[color]], color, rules, boards)
    snakes[envs, STEP] += 1
    is_over |= snakes[envs, GROWN] == rules.num_snakes * rules.max_segments
    is_cut = snakes[envs, STEP] >= rules.max_step
    snakes[envs, OVER] = np.where(is_over, TERMINATED, np.where(is_cut, TRUNCATED, PLAYS))


def _follow(envs: NDArray[np.int64], color: int, rules: Rules, boards: Boards) -> None:
    """Frees the last cell of a snake: its segment becomes the one behind the head."""
    cells, snakes, _ = boards
    is_head = snakes[envs, rules.length + color] == 0
    lone, envs = envs[is_head], envs[~is_head]
    cells[lone, snakes[lone, rules.head + color]] = FREE
    end = snakes[envs, rules.end + color]
    segment = snakes[envs, rules.body + color * rules.max_segments + end]
    cells[envs, snakes[envs, rules.segment + segment]] = FREE
    snakes[envs, rules.end + color] = (end + 1) % rules.max_segments
    _put_behind_head(envs, color, segment, snakes[envs, rules.length + color] - 1, rules, boards)


def _grow(envs: NDArray[np.int64], color: int, rules: Rules, boards: Boards) -> None:
    """A new segment takes the place of the head."""
    snakes = boards.snakes
    segment = snakes[envs, GROWN]
    snakes[envs, GROWN] += 1
    snakes[envs, rules.color + segment] = color
    _put_behind_head(envs, color, segment, snakes[envs, rules.length + color], rules, boards)
    snakes[envs, rules.length + color] += 1


def _put_behind_head(
    envs: NDArray[np.int64],
    color: int,
    segment: NDArray[np.int32],
    before: NDArray[np.int32],
    rules: Rules,
    boards: Boards,
) -> None:
    """Makes a segment the one behind the head; `before` it there are so many, from the end on."""
    snakes = boards.snakes
    behind = (snakes[envs, rules.end + color] + before) % rules.max_segments
    snakes[envs, rules.body + color * rules.max_segments + behind] = segment
    snakes[envs, rules.segment + segment] = snakes[envs, rules.head + color]


def _tell(envs: NDArray[np.int64], boards: Boards, ended: NDArray[np.int64]) -> None:
    """Writes down what there is to say of the episodes that have ended."""
    _, snakes, seeds = boards
    seed, number = seeds[envs, SEED], seeds[envs, NEXT] - U1
    told = [envs, *snakes[envs][:, [GROWN, STEP, OVER]].T, seed, number]
    ended[: len(envs)] = np.stack([column.astype(np.int64) for column in told], axis=1)


def _show(envs: NDArray[np.int64], rules: Rules, boards: Boards, shown: Shown) -> int:
    """Writes some boards as rows, and returns where their last segment ends."""
    snakes = boards.snakes
    num_heads, first_food = len(envs) * rules.num_snakes, len(snakes) * rules.num_snakes
    columns = np.arange(rules.num_snakes)
    colors = np.tile(columns, len(envs))
    for first, of_type in ((0, rules.head), (first_food, rules.food)):
        cell = snakes[envs[:, np.newaxis], of_type + columns].reshape(-1)
        _write(shown.entities[first : first + num_heads], cell, colors, rules)
    grown = snakes[envs, GROWN]
    columns = np.arange(rules.num_snakes * rules.max_segments)
    row, column = np.nonzero(columns < grown[:, np.newaxis])
    end = 2 * first_food + len(row)
    cell = snakes[envs[row], rules.segment + column]
    color = snakes[envs[row], rules.color + column]
    _write(shown.entities[2 * first_food : end], cell, color, rules)
    shown.counts[0, : len(envs)] = grown
    shown.numbers[0, : len(envs)] = snakes[envs, STEP]
    return end


def _write(
    out: NDArray[np.float32],
    cell: NDArray[np.int32],
    color: NDArray[np.signedinteger],
    rules: Rules,
) -> None:
    """Writes the features of entities."""
    out[:, :2] = rules.places[cell]
    out[:, 2] = color
