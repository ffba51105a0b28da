"""Monte Carlo tree search from a position; the algorithm is in `kernels.mcts`."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.kernels.kernel import copied_words, fastest
from entity_env.games.azul.kernels.mcts import run_search

MAX_NODES: Final = 2_000_000


class Tree(NamedTuple):
    """Nodes of a search in order of creation, the root first. Siblings are adjacent.

    Attributes:
        num_nodes: `(1,)` int64.
        first_child, num_children: `(max_nodes,)` int32; a leaf has no children.
        actions: `(max_nodes,)` int32: id that led to a node.
        visits: `(max_nodes,)` int32.
        totals: `(max_nodes,)` float64: sums of visit values, for the player that moved.
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
        first, counts, actions, visits = (np.zeros(max_nodes, np.int32) for _ in range(4))
        totals, priors = (np.zeros(max_nodes, np.float64) for _ in range(2))
        return cls(np.ones(1, np.int64), first, counts, actions, visits, totals, priors)

    def clear(self) -> None:
        count = int(self.num_nodes[0])
        for values in (self.num_children, self.visits, self.totals):
            values[:count] = 0
        self.num_nodes[0] = 1

    def root_children(self) -> range:
        first = int(self.first_child[0])
        return range(first, first + int(self.num_children[0]))

    def best_action_id(self) -> int:
        """Move with the most visits, the first of equals."""
        children = self.root_children()
        return int(self.actions[children.start + int(self.visits[children].argmax())])


class Search:
    """A search from a position.

    Args:
        tree: an empty tree; grows with the search.
        rounds: number of rounds that a rollout plays after the current one.
        word: initial state of the draws; see `SplitMix`.

    Attributes:
        num_moves: moves made in descents and rollouts.
    """

    def __init__(self, state: GameState, tree: Tree, rounds: int, word: int) -> None:
        self._root: Final = copied_words(state.words)
        self._tree: Final = tree
        self._rounds: Final = rounds
        self._word: int | np.uint64 = np.uint64(word)
        self.num_moves = 0

    def run(self, num_visits: int) -> None:
        word, num_moves = fastest(run_search)(
            num_visits, self._rounds, self._root, self._word, *self._tree
        )
        self._word = np.uint64(word)
        self.num_moves += int(num_moves)
