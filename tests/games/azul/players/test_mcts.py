"""Tree search: the tree is valid, and the best moves are found."""

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from entity_env.games.azul import ACTIONS, Action, GameState, legal_actions
from entity_env.games.azul.engine.state import is_table_empty
from entity_env.games.azul.kernels.engine import end_round
from entity_env.games.azul.kernels.mcts import MAX_DEPTH, write_outcome
from entity_env.games.azul.players.mcts import Search, Tree
from tests.games.azul.recorded_games import SEEDS, board, position, reached, states, take, to_lines


@settings(max_examples=30)
@given(state=states(max_moves=120), word=SEEDS)
def test_the_tree_is_sound(state: GameState, word: int) -> None:
    assume(not state.is_over)
    tree = Tree.empty(50_000)
    Search(state, tree, 1, word).run(300)
    children = tree.root_children()
    ids = [ACTIONS[i] for i in tree.actions[children].tolist()]
    assert ids == legal_actions(state)
    assert tree.visits[children].sum() == tree.visits[0] == 300
    assert tree.priors[children].sum() == pytest.approx(1)
    assert (abs(tree.totals) <= tree.visits).all()
    for node in range(int(tree.num_nodes[0])):
        first, count = int(tree.first_child[node]), int(tree.num_children[node])
        if node and count:
            below = int(tree.visits[first : first + count].sum())
            assert below == tree.visits[node] - 1
    tree.clear()
    assert len(tree.root_children()) == 0
    assert not tree.visits.any()
    assert not tree.totals.any()


def outcome(state: GameState) -> list[float]:
    """The value for each player."""
    values = [0.0] * 4
    write_outcome(state.words, values)
    return values[: state.num_players]


def value_of(state: GameState, player: int) -> float:
    """A player's value of the rest of a round under optimal play, by exhaustive search."""
    if is_table_empty(state):
        end_round(state.words)
        return outcome(state)[player]
    choose = max if state.current_player == player else min
    return choose(value_of(after(state, action), player) for action in legal_actions(state))


def after(state: GameState, action: Action) -> GameState:
    """The position after a move, before the tiling if it was the last."""
    state = state.copy()
    take(state, action)
    state.current_player = 1 - state.current_player
    return state


@settings(max_examples=6, deadline=None)
@given(
    seed=SEEDS,
    num_moves=st.integers(0, 60),
    centre=st.permutations([0, 0, 1, 1, 3]),
    word=SEEDS,
)
def test_it_finds_what_trying_all_finds(
    seed: int, num_moves: int, centre: list[int], word: int
) -> None:
    """The last three moves of a round of two players."""
    state = reached(seed, 2, num_moves, to_lines)
    assume(not state.is_over)
    state.factories = [(0,) * 5] * 5
    state.centre = centre
    me = state.current_player
    tree = Tree.empty(100_000)
    Search(state, tree, 0, word).run(20_000)
    values = {action: value_of(after(state, action), me) for action in legal_actions(state)}
    assert values[ACTIONS[tree.best_action_id()]] > max(values.values()) - 0.02


def test_it_finds_the_win_that_is_there() -> None:
    """Completing a row wins now; after any other move the game continues."""
    row = [(0, colour) for colour in range(4)]
    state = position([board(score=30, wall=row), board(score=10)], centre=(0, 0, 0, 0, 1), marker=1)
    tree = Tree.empty()
    Search(state, tree, 1, 1).run(100)
    assert ACTIONS[tree.best_action_id()] == Action(9, 4, 0)


def test_it_does_not_end_a_game_that_it_would_lose() -> None:
    row = [(0, colour) for colour in range(4)]
    state = position([board(score=10, wall=row), board(score=40)], centre=(0, 0, 0, 0, 1), marker=1)
    tree = Tree.empty()
    Search(state, tree, 0, 1).run(1000)
    assert ACTIONS[tree.best_action_id()] != Action(9, 4, 0)


def test_a_full_tree_is_searched_on() -> None:
    state = position([board(), board()], centre=(3, 3, 3, 3, 3))
    tree = Tree.empty(60)
    Search(state, tree, 0, 1).run(500)
    assert tree.visits[0] == 500
    assert tree.num_nodes[0] <= 60


def test_outcomes_are_fair() -> None:
    """Outcomes are from -1 to 1, sum to 0 for two players, and a win is worth more than a lead."""
    ahead = position([board(score=30), board(score=10)])
    first, second = outcome(ahead)
    assert first == -second == 20 / 35
    ahead.end = "row"
    won, lost = outcome(ahead)
    assert won == -lost == 0.5 + 0.5 * 20 / 35 > first
    tied = position([board(score=8), board(score=8), board(score=1)])
    tied.end = "row"
    assert outcome(tied)[:2] == [0.0, 0.0]
    assert outcome(tied)[2] < -0.5


def test_priors_fall_with_the_square_of_the_gap() -> None:
    """For moves to the floor, which cost 1, 2 and 4 points."""
    full = [(0, 1), (0, 2), (0, 3), (0, 4), (0, 5)]
    state = position([board(lines=full), board()], centre=(1, 2, 0, 3, 0), marker=1)
    tree = Tree.empty(100)
    Search(state, tree, 0, 1).run(1)
    weights = tree.priors[tree.root_children()]
    assert weights / weights[0] == pytest.approx([1, 1 / 4, 1 / 16])


def test_a_round_is_shorter_than_a_path() -> None:
    assert MAX_DEPTH > 36
    assert Tree.empty(5).visits.dtype == np.int32
