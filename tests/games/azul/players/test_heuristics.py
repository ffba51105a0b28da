"""Heuristic values of moves and boards, compared with values computed by hand."""

from hypothesis import assume, given, settings, strategies as st

from entity_env.games.azul import ACTIONS, Action, GameState, Player, apply_action, legal_actions
from entity_env.games.azul.kernels.engine import bonus_points_packed, tile_walls_packed
from entity_env.games.azul.kernels.heuristics import (
    GREEDY,
    RUSH,
    best_action_id,
    greedy_worth_packed,
    pending_points_packed,
    pending_wall_packed,
    potential_packed,
)
from tests.games.azul.recorded_games import board, move_values, position, states


def pending_points(player: Player, row: int = 5, colour: int = 0) -> int:
    return pending_points_packed(player.words, player.first, row, colour)


def pending_wall(player: Player) -> int:
    return pending_wall_packed(player.words, player.first)


def potential(player: Player) -> int:
    state = position([board(), board()], centre=(0, 0, 0, 0, 1))
    state.players = [player, board()]
    return potential_packed(state.words, 0)


@settings(max_examples=60)
@given(state=states(), idea=st.sampled_from((GREEDY, RUSH)))
def test_the_best_move_is_the_first_of_the_highest_value(state: GameState, idea: int) -> None:
    assume(not state.is_over)
    actions = legal_actions(state)
    values = move_values(state, actions, idea)
    best = actions[values.index(max(values))]
    assert ACTIONS[best_action_id(state.words, idea)] == best


@settings(max_examples=40)
@given(state=states(max_moves=60))
def test_pending_points_are_those_of_the_tiling(state: GameState) -> None:
    """A tiling without further moves would score exactly these points."""
    before = [pending_points(player) for player in state.players]
    if state.is_over:
        return
    empty = state.copy()
    empty.factories = [(0,) * 5] * len(state.factories)
    empty.centre = [0, 0, 0, 0, 1]
    empty.players[empty.current_player].floor = ()
    after = apply_action(empty, Action(9, 4, 5))
    for i, player in enumerate(after.players):
        if i != empty.current_player and not after.is_over:
            cost = (0, 1, 2, 4, 6, 8, 11, 14)[len(empty.players[i].floor)]
            assert player.score == max(0, empty.players[i].score + before[i] - cost)


@st.composite
def boards(draw: st.DrawFn) -> Player:
    """Any board on which the rules allow all lines, including unreachable boards."""
    wall = draw(st.integers(0, 2**25 - 1))
    player = board(floor=draw(st.lists(st.integers(0, 4), max_size=7)))
    player.wall, player.score = wall, draw(st.integers(0, 150))
    for row in range(5):
        free = [colour for colour in range(5) if not wall >> 5 * row + (row + colour) % 5 & 1]
        is_begun: bool = draw(st.booleans())
        if free and is_begun:
            player.set_line(row, draw(st.sampled_from(free)), draw(st.integers(1, row + 1)))
    return player


@given(player=boards())
def test_what_is_pending_on_any_board(player: Player) -> None:
    wall, before = pending_wall(player), pending_points(player)
    for row in range(5):
        for colour in range(5):
            if player.line_colours[row] in (-1, colour) and not (
                wall >> 5 * row + (row + colour) % 5 & 1
            ):
                assert pending_points(player, row, colour) > before
                worth = greedy_worth_packed(player.words, player.first, row, colour, before, wall)
                assert worth > 0


@given(player=boards())
def test_the_pending_wall_is_that_of_the_tiling(player: Player) -> None:
    expected, points = pending_wall(player), pending_points(player)
    state = position([board(), board()], centre=(0, 0, 0, 0, 1))
    state.players = [player, board()]
    floor, score = len(player.floor), player.score
    tile_walls_packed(state.words)
    player = state.players[0]
    assert player.wall == expected
    cost = (0, 1, 2, 4, 6, 8, 11, 14)[floor]
    assert player.score == max(0, score + points - cost)
    assert pending_points(player) == 0


@given(player=boards(), more=st.integers(1, 50))
def test_a_point_is_a_point(player: Player, more: int) -> None:
    before = potential(player)
    player.score += more
    assert potential(player) == before + 100 * more


def test_a_move_that_completes_a_line_is_worth_its_points() -> None:
    """Blue on line 0 has no neighbors; red on line 1 continues a run of three."""
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
    assert move_values(state, actions, GREEDY) == [
        100 + share_blue,
        300 + share_red,
        -100,
        started,
    ]


def test_the_floor_costs_what_it_does() -> None:
    state = position([board(floor=[0] * 5), board()], centre=(0, 0, 4, 0, 0))
    assert move_values(state, [Action(9, 2, 5)], GREEDY) == [-600]
    full = position([board(floor=[0] * 7), board()], centre=(0, 0, 4, 0, 0))
    assert move_values(full, [Action(9, 2, 5)], GREEDY) == [0]


def test_rush_likes_the_upper_lines() -> None:
    state = position([board(), board()], factories=[(1, 0, 3, 0, 0)])
    assert ACTIONS[best_action_id(state.words, RUSH)] == Action(0, 0, 0)
    assert move_values(state, [Action(0, 0, 0)], RUSH) == [600]


def test_equal_moves_go_to_the_first() -> None:
    state = position([board(), board()], factories=[(1, 0, 0, 0, 0), (1, 0, 0, 0, 0)])
    assert ACTIONS[best_action_id(state.words, RUSH)] == Action(0, 0, 0)


def test_shares_of_bonuses_add_up() -> None:
    """A whole wall is worth the bonuses, in hundredths."""
    whole = [(row, colour) for row in range(5) for colour in range(5)]
    player = board(wall=whole, score=3)
    assert potential(player) == 100 * (3 + bonus_points_packed(player.wall))
    assert potential(board()) == 0
    assert potential(board(lines=[(0, 0), (2, 1)])) == (100 + 4 * 19) // 4
