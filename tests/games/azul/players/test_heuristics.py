"""What moves look worth: by hand, and the compiled twin comes to the same numbers."""

import numpy as np
from hypothesis import given, settings, strategies as st

from entity_env.games.azul import ACTIONS, Action, GameState, Player, apply_action, legal_actions
from entity_env.games.azul.engine.engine import tile_walls
from entity_env.games.azul.engine.rules import bonus_points
from entity_env.games.azul.kernels import heuristics as compiled
from entity_env.games.azul.kernels.packed_state import PLAYERS, PackedState, pack_state
from entity_env.games.azul.players.heuristics import (
    best_action,
    greedy_worth,
    leader_margins,
    move_values,
    pending_points,
    pending_wall,
    potential,
    rush_worth,
)
from tests.games.azul.recorded_games import board, position, states


@settings(max_examples=60)
@given(state=states())
def test_the_compiled_twin_agrees(state: GameState) -> None:
    words = pack_state(state)
    for i, player in enumerate(state.players):
        assert compiled.potential_packed(words, i) == potential(player)
    actions = legal_actions(state)
    if not actions:
        return
    for idea, worth in ((compiled.GREEDY, greedy_worth), (compiled.RUSH, rush_worth)):
        assert ACTIONS[compiled.best_action_id(words, idea)] == best_action(state, actions, worth)
        worths = np.zeros(30, np.int64)
        compiled.write_worths(words, idea, worths)
        found = [compiled.move_value(words, a.source, 6 * a.colour + a[2], worths) for a in actions]
        assert found == move_values(state, actions, worth)


@settings(max_examples=40)
@given(state=states(max_moves=60))
def test_pending_points_are_those_of_the_tiling(state: GameState) -> None:
    """Whoever could play on without changing a board would get just these."""
    before = [pending_points(player) for player in state.players]
    if state.is_over:
        return
    empty = state.copy()
    empty.factories = [(0,) * 5] * len(state.factories)
    empty.centre = [0, 0, 0, 0, 1]
    empty.players[empty.current_player].floor.clear()
    after = apply_action(empty, Action(9, 4, 5))
    for i, player in enumerate(after.players):
        if i != empty.current_player and not after.is_over:
            cost = (0, 1, 2, 4, 6, 8, 11, 14)[len(empty.players[i].floor)]
            assert player.score == max(0, empty.players[i].score + before[i] - cost)


@st.composite
def boards(draw: st.DrawFn) -> Player:
    """Any board on which the rules allow all lines, also those that nobody would reach."""
    wall = draw(st.integers(0, 2**25 - 1))
    player = board(floor=draw(st.lists(st.integers(0, 4), max_size=7)))
    player.wall, player.score = wall, draw(st.integers(0, 150))
    for row in range(5):
        free = [colour for colour in range(5) if not wall >> 5 * row + (row + colour) % 5 & 1]
        is_begun: bool = draw(st.booleans())
        if free and is_begun:
            player.line_colours[row] = draw(st.sampled_from(free))
            player.line_counts[row] = draw(st.integers(1, row + 1))
    return player


def words_of(*players: Player) -> PackedState:
    """Of a position with these boards; how many tiles there are does not matter here."""
    state = position([board(), board()], centre=(0, 0, 0, 0, 1))
    state.players[: len(players)] = players
    return pack_state(state)


@given(player=boards())
def test_what_is_pending_on_any_board(player: Player) -> None:
    words = words_of(player)
    wall = pending_wall(player)
    before = pending_points(player)
    assert compiled.pending_wall_packed(words, PLAYERS) == wall
    assert compiled.pending_points_packed(words, PLAYERS, 5, 0) == before
    for row in range(5):
        for colour in range(5):
            if player.line_colours[row] in (-1, colour) and not (
                wall >> 5 * row + (row + colour) % 5 & 1
            ):
                points = pending_points(player, row, colour)
                assert points > before
                assert compiled.pending_points_packed(words, PLAYERS, row, colour) == points
                worth = greedy_worth(player, row, colour)
                assert (
                    compiled.greedy_worth_packed(words, PLAYERS, row, colour, before, wall) == worth
                )
                assert worth > 0


@given(player=boards())
def test_the_pending_wall_is_that_of_the_tiling(player: Player) -> None:
    expected, points = pending_wall(player), pending_points(player)
    state = position([board(), board()], centre=(0, 0, 0, 0, 1))
    state.players[0] = player
    floor, score = len(player.floor), player.score
    tile_walls(state)
    assert player.wall == expected
    cost = (0, 1, 2, 4, 6, 8, 11, 14)[floor]
    assert player.score == max(0, score + points - cost)
    assert pending_points(player) == 0


@given(player=boards(), other=boards())
def test_any_two_boards_are_valued_alike(player: Player, other: Player) -> None:
    words = words_of(player, other)
    assert compiled.potential_packed(words, 0) == potential(player)
    assert compiled.potential_packed(words, 1) == potential(other)


@given(player=boards(), more=st.integers(1, 50))
def test_a_point_is_a_point(player: Player, more: int) -> None:
    before = potential(player)
    player.score += more
    assert potential(player) == before + 100 * more


@given(player=boards(), row=st.integers(0, 4), colour=st.integers(0, 4))
def test_rush_looks_at_the_line_alone(player: Player, row: int, colour: int) -> None:
    assert rush_worth(player, row, colour) == 600 - 100 * row


def test_a_move_that_completes_a_line_is_worth_its_points() -> None:
    """Blue on line 0 lies beside nothing; red on line 1 continues a run of three."""
    player = board(wall=[(1, 0), (1, 1)])
    state = position(
        [player, board()], factories=[(1, 0, 2, 1, 0)], centre=(0, 0, 0, 0, 3), marker=1
    )
    actions = [Action(0, 0, 0), Action(0, 2, 1), Action(0, 3, 5), Action(9, 4, 3)]
    assert pending_points(player, 0, 0) == 1
    assert pending_points(player, 1, 2) == 3
    share_blue = 4 * (2 * 1 + 7 * 1 + 10 * 3)
    share_red = 4 * (2 * 5 + 7 * 1 + 10 * 1)
    started = (100 + 4 * (2 * 1 + 7 * 3 + 10 * 1)) * 3 // 8
    assert move_values(state, actions, greedy_worth) == [
        100 + share_blue,
        300 + share_red,
        -100,
        started,
    ]
    assert best_action(state, actions, greedy_worth) == actions[1]


def test_the_floor_costs_what_it_does() -> None:
    state = position([board(floor=[0] * 5), board()], centre=(0, 0, 4, 0, 0))
    assert move_values(state, [Action(9, 2, 5)], greedy_worth) == [-600]
    full = position([board(floor=[0] * 7), board()], centre=(0, 0, 4, 0, 0))
    assert move_values(full, [Action(9, 2, 5)], greedy_worth) == [0]


def test_rush_likes_the_upper_lines() -> None:
    state = position([board(), board()], factories=[(1, 0, 3, 0, 0)])
    actions = legal_actions(state)
    assert best_action(state, actions, rush_worth) == Action(0, 0, 0)
    assert rush_worth(board(), 0, 0) > rush_worth(board(), 4, 0) > 0


def test_equal_moves_go_to_the_first() -> None:
    state = position([board(), board()], factories=[(1, 0, 0, 0, 0), (1, 0, 0, 0, 0)])
    assert best_action(state, legal_actions(state), rush_worth) == Action(0, 0, 0)


def test_shares_of_bonuses_add_up() -> None:
    """A whole wall is worth the bonuses, in hundredths."""
    whole = [(row, colour) for row in range(5) for colour in range(5)]
    player = board(wall=whole, score=3)
    assert potential(player) == 100 * (3 + bonus_points(player.wall))
    assert potential(board()) == 0
    assert potential(board(lines=[(0, 0), (2, 1)])) == (100 + 4 * 19) // 4


def test_margins() -> None:
    assert leader_margins([5, 3]) == [2, -2]
    assert leader_margins([5, 7, 7]) == [-2, 0, 0]
