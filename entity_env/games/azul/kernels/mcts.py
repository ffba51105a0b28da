"""Monte Carlo tree search.

The tree branches over the moves of one round, which has no hidden information. A deal ends the
round and is a chance node: each visit draws again. Leaves are evaluated by rollouts of the best
moves by `heuristics`; random moves score too little to tell positions apart.

Selection follows Silver et al. 2017 ("Mastering the game of Go without human knowledge"): the child
with the highest `mean + EXPLORATION * prior * sqrt(visits of the parent) / (1 + visits)`. Priors
fall with the squared difference between the value of the move and the best value. A leaf is
expanded on its second visit, unless the tree is full.
"""

from __future__ import annotations

from math import sqrt
from typing import Any, Final, TypeAlias

from entity_env.games.azul.kernels import packed_state as at
from entity_env.games.azul.kernels.engine import (
    MAX_LEGAL,
    end_round,
    pass_turn,
    rows_of,
    seat,
    take_packed,
    write_ids,
)
from entity_env.games.azul.kernels.heuristics import (
    GREEDY,
    POINT,
    Worths,
    best_move,
    move_value,
    potential_packed,
    write_worths,
)
from entity_env.games.azul.kernels.kernel import as_word, kernel, new_floats, new_ints
from entity_env.games.azul.kernels.packed_state import NUM_WORDS, PackedState
from entity_env.games.azul.kernels.playouts import deal_by

EXPLORATION: Final = 0.7
UNVISITED_LOSS: Final = 0.1
"""Unvisited children are valued this much below the mean of visited ones."""
MARGIN_SCALE: Final = 15.0
"""Lead, in points, at which the value is half of its maximum."""
MAX_DEPTH: Final = 64
"""Above the length of a round: 36 tiles, at least one per move."""

Array: TypeAlias = Any
"""An array of a `Tree`."""


@kernel()
def run_search(
    num_visits: int,
    rounds: int,
    root: PackedState,
    word: int,
    num_nodes: Array,
    first_child: Array,
    num_children: Array,
    actions: Array,
    visits: Array,
    totals: Array,
    priors: Array,
) -> tuple[int, int]:
    """Makes more visits; returns the generator state and the number of moves."""
    words, worths = new_ints(NUM_WORDS), new_ints(30)
    uniforms, values = new_floats(36), new_floats(4)
    path, movers = new_ints(MAX_DEPTH), new_ints(MAX_DEPTH)
    num_moves, word = 0, as_word(word)
    for _ in range(num_visits):
        words[:] = root
        node = depth = 0
        is_empty = False
        while not is_empty:
            if num_children[node] == 0:
                if node and visits[node] == 0:
                    break
                first = int(num_nodes[0])
                count = _expand(words, worths, first, actions, priors)
                if count == 0:
                    break
                first_child[node], num_children[node] = first, count
                num_nodes[0] = first + count
            node = _choose(int(first_child[node]), int(num_children[node]), visits, totals, priors)
            path[depth], movers[depth] = node, words[at.CURRENT]
            depth += 1
            action_id = int(actions[node])
            source = action_id // 30
            is_empty = take_packed(words, source, action_id - 30 * source)
            if not is_empty:
                pass_turn(words)
        num_moves += depth
        if not is_empty:
            num_moves += _play_round(words, worths)
        end_round(words)
        for _ in range(rounds):
            if words[at.END]:
                break
            word = deal_by(words, word, uniforms)
            num_moves += _play_round(words, worths)
            end_round(words)
        write_outcome(words, values)
        visits[0] += 1
        for i in range(depth):
            visits[path[i]] += 1
            totals[path[i]] += values[movers[i]]
    return word, num_moves


@kernel(inline=True)
def _play_round(words: PackedState, worths: Worths) -> int:
    """Plays best moves on a table with tiles until it is empty; returns their number."""
    count = 0
    while True:
        source, choice = best_move(words, GREEDY, worths)
        count += 1
        if take_packed(words, source, choice):
            return count
        pass_turn(words)


@kernel()
def _expand(words: PackedState, worths: Worths, first: int, actions: Array, priors: Array) -> int:
    """Writes a node's children; returns their number, 0 if the tree is full."""
    ids, values = new_ints(MAX_LEGAL), new_ints(MAX_LEGAL)
    count = write_ids(words, ids)
    if first + count > len(actions):
        return 0
    write_worths(words, GREEDY, worths)
    best = -(2**62)
    for i in range(count):
        source = ids[i] // 30
        values[i] = move_value(words, source, ids[i] - 30 * source, worths)
        best = max(best, values[i])
        actions[first + i] = ids[i]
    total = 0.0
    for i in range(count):
        share = 1.0 + (best - values[i]) / POINT
        priors[first + i] = 1.0 / (share * share)
        total += priors[first + i]
    for i in range(count):
        priors[first + i] /= total
    return count


@kernel(inline=True)
def _choose(first: int, count: int, visits: Array, totals: Array, priors: Array) -> int:
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


@kernel(inline=True)
def write_outcome(words: PackedState, values: list[float]) -> None:
    """Writes each player's value, from -1 to 1, between rounds or at the end of the game."""
    num_players = words[at.NUM_PLAYERS]
    points = new_ints(4)
    is_over = words[at.END] != 0
    for player in range(num_players):
        if is_over:
            points[player] = words[seat(player) + at.SCORE]
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


@kernel(inline=True)
def _is_first(words: PackedState, points: list[int], player: int) -> bool:
    mine = 8 * points[player] + rows_of(words[seat(player) + at.WALL])
    for other in range(words[at.NUM_PLAYERS]):
        if 8 * points[other] + rows_of(words[seat(other) + at.WALL]) > mine:
            return False
    return True


@kernel(inline=True)
def _squashed(margin: float) -> float:
    return margin / (abs(margin) + MARGIN_SCALE)
