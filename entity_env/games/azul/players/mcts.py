"""Monte Carlo tree search, on the reference engine; `kernels.mcts` is the compiled twin.

The tree branches over the moves of one round, which hide nothing; a deal ends it, and is a chance
node: each visit draws again. A leaf is evaluated by a rollout of the best moves by `heuristics`:
random moves score too little to tell positions apart.

Selection is that of Silver et al. 2017 ("Mastering the game of Go without human knowledge"): the
child with the highest `mean + EXPLORATION * prior * sqrt(visits of the parent) / (1 + visits)`.
Priors fall with the square of the difference between the values of the best move and of this one.
A leaf that was visited before gets its children first, unless the tree is full.
"""

from __future__ import annotations

from math import sqrt
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.engine.actions import ACTIONS, Action, ActionEncoder
from entity_env.games.azul.engine.engine import (
    add_bonuses,
    begin_round,
    end_of_game,
    legal_actions,
    take,
    tile_walls,
    winners,
)
from entity_env.games.azul.engine.state import GameState, is_table_empty
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.players.heuristics import (
    POINT,
    best_action,
    greedy_worth,
    leader_margins,
    move_values,
    potential,
)

EXPLORATION: Final = 0.7
UNVISITED_LOSS: Final = 0.1
"""By how much the value of an unvisited child is below the mean of the visited ones."""
MARGIN_SCALE: Final = 15.0
"""Points ahead that have half of the highest value."""
MAX_NODES: Final = 2_000_000
MAX_DEPTH: Final = 64
"""Longer than any round: 36 tiles are dealt, and each move takes one or more."""


class Tree(NamedTuple):
    """Nodes in the order in which they were made, the root first; children are neighbours.

    Attributes:
        num_nodes: `(1,)` int64.
        first_child, num_children: `(max_nodes,)` int32; a leaf has no children.
        actions: `(max_nodes,)` int32: the id that led to a node.
        visits: `(max_nodes,)` int32.
        totals: `(max_nodes,)` float64: sums of the values of the visits, for the player who moved.
        priors: `(max_nodes,)` float64: shares among siblings.
    """

    num_nodes: NDArray[np.int64]
    first_child: NDArray[np.int32]
    num_children: NDArray[np.int32]
    actions: NDArray[np.int32]
    visits: NDArray[np.int32]
    totals: NDArray[np.float64]
    priors: NDArray[np.float64]

    @classmethod
    def empty(cls, max_nodes: int = MAX_NODES) -> Tree:
        """A root without children."""
        first, counts, actions, visits = (np.zeros(max_nodes, np.int32) for _ in range(4))
        totals, priors = (np.zeros(max_nodes, np.float64) for _ in range(2))
        return cls(np.ones(1, np.int64), first, counts, actions, visits, totals, priors)

    def clear(self) -> None:
        """Removes all nodes but the root."""
        count = int(self.num_nodes[0])
        for values in (self.num_children, self.visits, self.totals):
            values[:count] = 0
        self.num_nodes[0] = 1

    def root_children(self) -> range:
        """The nodes of the legal moves at the root."""
        first = int(self.first_child[0])
        return range(first, first + int(self.num_children[0]))

    def best_action_id(self) -> int:
        """The move with most visits, of equals the first."""
        children = self.root_children()
        return int(self.actions[children.start + int(self.visits[children].argmax())])


class PlainSearch:
    """Search on the reference engine.

    Args:
        state: the root.
        tree: empty; grows.
        rounds: rounds of a rollout after the deal that ends the tree.
        word: start of the sequence of draws; see `SplitMix`.

    Attributes:
        num_moves: moves made so far, of descents and rollouts.
    """

    def __init__(self, state: GameState, tree: Tree, rounds: int, word: int) -> None:
        self._root: Final = state
        self._tree: Final = tree
        self._rounds: Final = rounds
        self._numbers: Final = SplitMix(word)
        self.num_moves = 0

    def run(self, num_visits: int) -> None:
        """Makes more visits."""
        for _ in range(num_visits):
            self._visit()

    def _visit(self) -> None:
        tree, state = self._tree, self._root.copy()
        state.rng, state.draw = self._numbers, None
        node, path = 0, []
        while self._has_children(node, state):
            node = self._choose(node)
            path.append((node, state.current_player))
            take(state, ACTIONS[tree.actions[node]])
            if is_table_empty(state):
                break
            state.current_player = (state.current_player + 1) % state.num_players
        self.num_moves += len(path)
        values = self._roll_out(state)
        tree.visits[0] += 1
        for node, player in path:
            tree.visits[node] += 1
            tree.totals[node] += values[player]

    def _has_children(self, node: int, state: GameState) -> bool:
        """Whether a node has children, after expanding it if it may be."""
        tree = self._tree
        if tree.num_children[node]:
            return True
        if node and not tree.visits[node]:
            return False
        actions = legal_actions(state)
        first = int(tree.num_nodes[0])
        if first + len(actions) > len(tree.visits):
            return False
        self._expand(node, first, state, actions)
        return True

    def _expand(self, node: int, first: int, state: GameState, actions: list[Action]) -> None:
        tree = self._tree
        values = move_values(state, actions, greedy_worth)
        best = max(values)
        weights = [prior_weight(best - value) for value in values]
        total = 0.0
        for weight in weights:
            total += weight
        for i, action in enumerate(actions):
            tree.actions[first + i] = ActionEncoder.encode(action)
            tree.priors[first + i] = weights[i] / total
        tree.first_child[node] = first
        tree.num_children[node] = len(actions)
        tree.num_nodes[0] = first + len(actions)

    def _choose(self, node: int) -> int:
        tree = self._tree
        first = int(tree.first_child[node])
        children = slice(first, first + int(tree.num_children[node]))
        visits, totals = tree.visits[children], tree.totals[children]
        num_visits = int(visits.sum())
        total = sum(totals.tolist())  # in order: rounded as by the compiled search
        unvisited = (total / num_visits if num_visits else 0.0) - UNVISITED_LOSS
        means = np.where(visits, totals / np.maximum(visits, 1), unvisited)
        scale = EXPLORATION * sqrt(num_visits + 1)
        values = means + scale * tree.priors[children] / (1 + visits)
        return first + int(values.argmax())

    def _roll_out(self, state: GameState) -> list[float]:
        """Plays to the end of the round, and of the rounds after it; returns the outcome."""
        self._play_round(state)
        tile_walls(state)
        state.end = end_of_game(state)
        for _ in range(self._rounds):
            if state.end is not None:
                break
            begin_round(state)
            self._play_round(state)
            tile_walls(state)
            state.end = end_of_game(state)
        if state.end is not None:
            add_bonuses(state)
        return outcome(state)

    def _play_round(self, state: GameState) -> None:
        while not is_table_empty(state):
            take(state, best_action(state, legal_actions(state), greedy_worth))
            self.num_moves += 1
            if not is_table_empty(state):
                state.current_player = (state.current_player + 1) % state.num_players


def prior_weight(gap: int) -> float:
    """The weight of a move by the gap to the best value, in hundredths."""
    share = 1.0 + gap / POINT
    return 1.0 / (share * share)


def outcome(state: GameState) -> list[float]:
    """The value for each player, from -1 to 1, between two rounds or at the end."""
    if state.end is None:
        values = [potential(player) for player in state.players]
        return [squashed(margin / POINT) for margin in leader_margins(values)]
    first = winners(state)
    margins = leader_margins(state.scores)
    results = [(1.0 / len(first) if i in first else 0.0) for i in range(state.num_players)]
    return [
        0.5 * squashed(float(margin)) + 0.5 * (2.0 * result - 1.0)
        for margin, result in zip(margins, results, strict=True)
    ]


def squashed(margin: float) -> float:
    """A margin in points, from -1 to 1."""
    return margin / (abs(margin) + MARGIN_SCALE)
