"""Monte Carlo tree search, compiled; `players.mcts` is the reference, visit by visit."""

from __future__ import annotations

from math import sqrt
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.numba_utils import compiled
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.kernels.engine import (
    bits_of,
    colour_fields,
    end_round,
    fits_of,
    pass_turn,
    rows_of,
    seat,
    take_packed,
)
from entity_env.games.azul.kernels.heuristics import (
    GREEDY,
    Worths,
    best_move,
    move_value,
    potential_packed,
    write_worths,
)
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    END,
    NUM_PLAYERS,
    NUM_WORDS,
    SCORE,
    SOURCES,
    WALL,
    PackedState,
    pack_state,
)
from entity_env.games.azul.kernels.playouts import deal_by
from entity_env.games.azul.players.heuristics import POINT
from entity_env.games.azul.players.mcts import (
    EXPLORATION,
    MARGIN_SCALE,
    MAX_DEPTH,
    UNVISITED_LOSS,
    Tree,
)

_ROOM: Final = 246
"""Bound on the legal moves of a position: 41 groups, 6 destinations each."""

Ints = NDArray[np.int32]
Floats = NDArray[np.float64]


class CompiledSearch:
    """Search on the compiled engine; arguments and attributes as of `PlainSearch`."""

    def __init__(self, state: GameState, tree: Tree, rounds: int, word: int) -> None:
        self._root: Final = pack_state(state)
        self._tree: Final = tree
        self._rounds: Final = rounds
        self._word = np.uint64(word)
        self.num_moves = 0

    def run(self, num_visits: int) -> None:
        """Makes more visits."""
        word, num_moves = _run(num_visits, self._rounds, self._root, self._word, *self._tree)
        self._word = np.uint64(word)
        self.num_moves += int(num_moves)


@compiled()
def _run(
    num_visits: int,
    rounds: int,
    root: PackedState,
    word: np.uint64,
    num_nodes: NDArray[np.int64],
    first_child: Ints,
    num_children: Ints,
    actions: Ints,
    visits: Ints,
    totals: Floats,
    priors: Floats,
) -> tuple[np.uint64, int]:
    """`PlainSearch.run`; returns the state of the draws, and the number of moves made."""
    words, worths = np.zeros(NUM_WORDS, np.int64), np.zeros(30, np.int64)
    uniforms, values = np.zeros(36, np.float64), np.zeros(4, np.float64)
    path, movers = np.zeros(MAX_DEPTH, np.int64), np.zeros(MAX_DEPTH, np.int64)
    num_moves = 0
    for _ in range(num_visits):
        words[:] = root
        node = depth = 0
        is_empty = False
        while not is_empty:
            if num_children[node] == 0:
                if node and visits[node] == 0:
                    break
                first = num_nodes[0]
                count = _expand(words, worths, first, actions, priors)
                if count == 0:
                    break
                first_child[node], num_children[node] = first, count
                num_nodes[0] = first + count
            node = _choose(first_child[node], num_children[node], visits, totals, priors)
            path[depth], movers[depth] = node, words[CURRENT]
            depth += 1
            source = actions[node] // 30
            is_empty = take_packed(words, source, actions[node] - 30 * source)
            if not is_empty:
                pass_turn(words)
        num_moves += depth
        if not is_empty:
            num_moves += _play_round(words, worths)
        end_round(words)
        for _ in range(rounds):
            if words[END]:
                break
            word = deal_by(words, word, uniforms)
            num_moves += _play_round(words, worths)
            end_round(words)
        _write_outcome(words, values)
        visits[0] += 1
        for i in range(depth):
            visits[path[i]] += 1
            totals[path[i]] += values[movers[i]]
    return word, num_moves


@compiled(inline=True)
def _play_round(words: PackedState, worths: Worths) -> int:
    """Best moves until the table is empty, which it must not be before; returns their number."""
    count = 0
    while True:
        source, choice = best_move(words, GREEDY, worths)
        count += 1
        if take_packed(words, source, choice):
            return count
        pass_turn(words)


@compiled()
def _expand(words: PackedState, worths: Worths, first: int, actions: Ints, priors: Floats) -> int:
    """Writes the children of a node; returns their number, 0 if the tree is full."""
    fits = fits_of(words)
    count = 0
    for source in range(10):
        count += bits_of(fits & colour_fields(words[SOURCES + source]))
    if first + count > len(actions):
        return 0
    write_worths(words, GREEDY, worths)
    values = np.zeros(_ROOM, np.int64)
    i = 0
    best = -(2**62)
    for source in range(10):
        moves = fits & colour_fields(words[SOURCES + source])
        while moves:
            choice = bits_of((moves & -moves) - 1)
            moves &= moves - 1
            values[i] = move_value(words, source, choice, worths)
            best = max(best, values[i])
            actions[first + i] = 30 * source + choice
            i += 1
    total = 0.0
    for i in range(count):
        share = 1.0 + (best - values[i]) / POINT
        priors[first + i] = 1.0 / (share * share)
        total += priors[first + i]
    for i in range(count):
        priors[first + i] /= total
    return count


@compiled(inline=True)
def _choose(first: int, count: int, visits: Ints, totals: Floats, priors: Floats) -> int:
    seen, total = 0, 0.0
    for child in range(first, first + count):
        seen += visits[child]
        total += totals[child]
    unvisited = (total / seen if seen else 0.0) - UNVISITED_LOSS
    scale = EXPLORATION * sqrt(seen + 1)
    best, chosen = -1e9, first
    for child in range(first, first + count):
        visited = visits[child]
        mean = totals[child] / visited if visited else unvisited
        value = mean + scale * priors[child] / (1 + visited)
        if value > best:
            best, chosen = value, child
    return chosen


@compiled(inline=True)
def _write_outcome(words: PackedState, values: Floats) -> None:
    """`players.mcts.outcome`."""
    num_players = words[NUM_PLAYERS]
    points = np.zeros(4, np.int64)
    is_over = words[END] != 0
    for player in range(num_players):
        if is_over:
            points[player] = words[seat(player) + SCORE]
        else:
            points[player] = potential_packed(words, player)
    num_first = 0
    for player in range(num_players):
        num_first += is_over and _is_first(words, points, player)
    for player in range(num_players):
        best_other = -(2**62)
        for other in range(num_players):
            if other != player:
                best_other = max(best_other, points[other])
        margin = float(points[player] - best_other)
        if is_over:
            result = 1.0 / num_first if _is_first(words, points, player) else 0.0
            values[player] = 0.5 * _squashed(margin) + 0.5 * (2.0 * result - 1.0)
        else:
            values[player] = _squashed(margin / POINT)


@compiled(inline=True)
def _is_first(words: PackedState, points: NDArray[np.int64], player: int) -> bool:
    mine = 8 * points[player] + rows_of(words[seat(player) + WALL])
    for other in range(words[NUM_PLAYERS]):
        if 8 * points[other] + rows_of(words[seat(other) + WALL]) > mine:
            return False
    return True


@compiled(inline=True)
def _squashed(margin: float) -> float:
    return margin / (abs(margin) + MARGIN_SCALE)
