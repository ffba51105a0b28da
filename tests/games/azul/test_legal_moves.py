"""Options: their features are consequences of a move by the rules, not an agent's heuristic."""

import copy
from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from entity_env.games.azul import ACTIONS, Action, GameState, Player, apply_action, legal_actions
from entity_env.games.azul.engine.rules import CENTRE, COLOUR_CELLS, COLUMNS, FLOOR, ROWS, column_of
from entity_env.games.azul.entities import (
    Five,
    Option,
    entities_of,
    options_of,
)
from entity_env.games.azul.kernels.heuristics import pending_points_packed, pending_wall_packed
from tests.games.azul.recorded_games import board, position, states


def pending_points(player: Player) -> int:
    return pending_points_packed(player.words, player.first, 5, 0)


def pending_wall(player: Player) -> int:
    return pending_wall_packed(player.words, player.first)


def completing(state: GameState, line: int) -> set[int]:
    """The colors that the current player could take to complete a line."""
    before = state.players[state.current_player].line_counts[line]
    return {
        action.colour
        for action in legal_actions(state)
        if action.destination == line and on_offer(state, action) >= line + 1 - before
    }


def least_dropped(state: GameState, *, but: int = FLOOR) -> int:
    """The fewest tiles that a move would drop to the floor, without moves to one line."""
    counts = state.players[state.current_player].line_counts
    return min(
        on_offer(state, action)
        - (0 if line == FLOOR else min(on_offer(state, action), line + 1 - counts[line]))
        for action in legal_actions(state)
        for line in [action.destination]
        if line != but or but == FLOOR
    )


def on_offer(state: GameState, action: Action) -> int:
    """Number of tiles that a move takes."""
    tiles = state.centre if action.source == CENTRE else state.factories[action.source]
    return tiles[action.colour]


def taken(state: GameState, action: Action) -> GameState | None:
    """The position after the tiles are taken, to any place; None if the round is then over."""
    after = apply_action(state, Action(action.source, action.colour, FLOOR))
    return None if after.is_over or after.round != state.round else after


def of(state: GameState, *action: int) -> Option:
    """The option of a legal move."""
    [option] = [each for each in options_of(state) if ACTIONS[each.action_id] == action]
    return option


def sampled(state: GameState) -> Iterator[tuple[Option, Action]]:
    for option in options_of(state)[:: 1 + state.round % 4]:
        yield option, ACTIONS[option.action_id]


@settings(max_examples=40, deadline=None)
@given(state=states())
def test_points_are_those_of_the_tiling(state: GameState) -> None:
    """If the line were full, a tiling now would score the line's points more."""
    player = state.players[state.current_player]
    before = pending_points(player)
    for option, (_, colour, row) in sampled(state):
        if row == FLOOR:
            assert (option.points, option.line_points) == (0, 0)
            continue
        full = copy.deepcopy(player)
        full.set_line(row, colour, row + 1)
        assert option.line_points == pending_points(full) - before
        assert option.points == (option.line_points if option.completes else 0)


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(state=states())
def test_what_is_left_is_what_both_could_take_then(state: GameState) -> None:
    for option, action in sampled(state):
        after = taken(state, action)
        assert option.ends_round == (after is None) == (option.groups == 0)
        if after is None:
            assert option.my_lines == option.next_lines == option.centre == (0, 0, 0, 0, 0)
            assert (option.my_drop, option.next_drop) == (0, 0)
            continue
        assert option.groups == len({action[:2] for action in legal_actions(after)})
        assert option.centre == after.centre
        assert option.next_lines == tuple(len(completing(after, line)) for line in range(5))
        assert option.next_drop == least_dropped(after)
        # The same player again, on the earlier board.
        boards = list(after.players)
        boards[state.current_player] = state.players[state.current_player]
        after.players = boards
        after.current_player = state.current_player
        row = action.destination
        lines = [0 if line == row else len(completing(after, line)) for line in range(5)]
        assert list(option.my_lines) == lines
        assert option.my_drop == least_dropped(after, but=row)


@settings(max_examples=25, deadline=None)
@given(state=states())
def test_the_next_players_lines_of_the_colour_are_counted(state: GameState) -> None:
    rival = state.players[(state.current_player + 1) % state.num_players]
    for option, action in sampled(state):
        rows = [i for i in range(5) if rival.line_colours[i] == action.colour]
        rows = [i for i in rows if 0 < rival.line_counts[i] < i + 1]
        assert option.next_held == sum(rival.line_counts[i] for i in rows)
        assert option.next_held + option.next_room == sum(i + 1 for i in rows)


@settings(max_examples=25, deadline=None)
@given(state=states())
def test_tiles_are_counted_where_they_are(state: GameState) -> None:
    player = state.players[state.current_player]
    wall = pending_wall(player)
    for option, (source, colour, row) in sampled(state):
        tiles = [*state.factories, state.centre][-1 if source == CENTRE else source]
        assert option.rest == sum(tiles) - option.count
        total = sum(each[colour] for each in state.factories) + state.centre[colour]
        assert option.elsewhere == total - option.count
        others = [each.count for each in _groups(state, colour, but=source)]
        assert option.exact == sum(count == option.left for count in others)
        assert option.enough == (sum(count >= option.left for count in others) * (option.left > 0))
        assert option.line == tuple(int(i == row) for i in range(5))
        if row == FLOOR:
            nothing = (option.left, option.is_fresh, option.fills_row)
            assert nothing == (0, False, False)
            assert (option.row_tiles, option.column_tiles, option.colour_tiles) == (0, 0, 0)
            continue
        assert option.left == row + 1 - player.line_counts[row] - option.placed
        assert option.is_fresh == (player.line_counts[row] == 0)
        assert option.row_tiles == (wall & ROWS[row]).bit_count()
        assert option.column_tiles == (wall & COLUMNS[column_of(row, colour)]).bit_count()
        assert option.colour_tiles == (wall & COLOUR_CELLS[colour]).bit_count()
        assert option.fills_row == (option.completes and option.row_tiles == 4)


class _Group:
    def __init__(self, count: int) -> None:
        self.count = count


def _groups(state: GameState, colour: int, but: int) -> list[_Group]:
    sources = [*enumerate(state.factories), (CENTRE, state.centre)]
    return [_Group(t[colour]) for i, t in sources if i != but and t[colour]]


@settings(max_examples=25, deadline=None)
@given(state=states())
def test_the_table_tells_who_is_ahead(state: GameState) -> None:
    for player in range(state.num_players):
        seen = entities_of(state, player)
        [table], seats = seen.table, seen.seats
        mine, *others = [seat.score + seat.pending - seat.floor_cost for seat in seats]
        assert table.lead == mine - max(others)
        assert table.my_row == seats[0].fullest_row
        assert table.their_row == max(seat.fullest_row for seat in seats[1:])
        rival = state.players[(player + 1) % state.num_players]
        assert (table.floor, table.next_floor) == (seats[0].floor, seats[1].floor)
        assert [*table.my_room, *table.next_room] == [line.room for line in seen.lines[:10]]
        check_begun(state.players[player], table.my_points)
        check_begun(rival, table.next_points)
        assert table.tiles == sum(map(sum, state.factories)) + sum(state.centre)
        for seat in seats:
            told = state.players[(player + seat.seat) % state.num_players]
            assert seat.pending == pending_points(told)
            rows = [pending_wall(told) >> 5 * row & 31 for row in range(5)]
            assert seat.fullest_row == max(row.bit_count() for row in rows)


def check_begun(player: Player, points: Five) -> None:
    before = pending_points(player)
    for row, count in enumerate(player.line_counts):
        full = copy.deepcopy(player)
        full.set_line(row, player.line_colours[row], row + 1)
        is_begun = 0 < count <= row
        assert points[row] == (pending_points(full) - before if is_begun else 0)


def test_full_lines_count_as_if_they_were_on_the_wall() -> None:
    player = board(score=3, lines=[(0, 1), (1, 2), (2, 2)], wall=[(1, 0), (1, 2)], floor=[1])
    assert pending_wall(player).bit_count() == 4
    seen = entities_of(position([player, board()], centre=(0, 0, 0, 0, 1)), 0)
    assert seen.seats[0].fullest_row == 3
    assert seen.table[0].lead == 3 + pending_points(player) - 1


def test_an_option_of_a_position_made_by_hand() -> None:
    """Two blue tiles are missing: one other source has two, another has three."""
    mine = board(lines=[(0, 0), (0, 0), (0, 0), (0, 1)], wall=[(3, 1), (3, 2)])
    other = board(lines=[(0, 0), (0, 1)])
    state = position(
        [mine, other], factories=[(1, 0, 0, 1, 2), (2, 0, 0, 2, 0), (3, 1, 0, 0, 0)], marker=1
    )
    option = of(state, 0, 0, 3)
    assert (option.placed, option.left, option.completes, option.is_fresh) == (1, 2, False, False)
    assert (option.elsewhere, option.exact, option.enough, option.rest) == (5, 1, 2, 3)
    assert (option.row_tiles, option.fills_row, option.ends_round) == (2, False, False)
    assert option.line == (0, 0, 0, 1, 0)
    assert (option.points, option.line_points) == (0, 2)
    assert (option.groups, option.centre) == (6, (0, 0, 0, 1, 2))
    assert (option.next_held, option.next_room) == (1, 1)
    full = of(state, 2, 0, 3)
    assert (full.completes, full.left, full.exact, full.enough) == (True, 0, 0, 0)
    assert full.points == full.line_points == 2


def test_the_last_tiles_end_the_round() -> None:
    state = position([board(), board()], centre=(0, 0, 3, 0, 0))
    for option in options_of(state):
        assert option.ends_round
        assert option.takes_marker
        assert (option.rest, option.elsewhere, option.groups, option.next_drop) == (0, 0, 0, 0)


def test_what_the_next_player_must_take_is_counted() -> None:
    """Taking the white tiles leaves the next player only the floor."""
    full = [(row, colour) for row in range(5) for colour in range(4) if row != 4]
    rival = board(wall=full, lines=[(4, 0), (4, 1), (4, 2), (4, 3), (3, 1)])
    rival.set_line(0, -1, 0)
    state = position([board(), rival], factories=[(2, 0, 0, 0, 0), (0, 0, 0, 0, 2)], marker=0)
    leaves_white, leaves_blue = of(state, 0, 0, 1), of(state, 1, 4, 1)
    assert (leaves_blue.next_drop, leaves_white.next_drop) == (2, 1)
    assert (leaves_blue.next_lines, leaves_white.next_lines) == ((0, 0, 0, 0, 0), (1, 1, 1, 1, 0))


def test_the_line_that_tiles_go_to_is_left_out() -> None:
    """Only the last line has room, only for white, and its row lacks nothing else."""
    full = [(0, 1), (0, 2), (0, 3), (0, 4), (-1, 0)]
    me = board(lines=full, wall=[(4, colour) for colour in range(4)])
    state = position([me, board()], factories=[(0, 0, 0, 0, 2)], centre=(0, 0, 0, 0, 5), marker=1)
    begun, dropped, complete = of(state, 0, 4, 4), of(state, 0, 4, FLOOR), of(state, 9, 4, 4)
    assert (begun.my_drop, dropped.my_drop) == (5, 0)
    assert (begun.row_tiles, begun.fills_row, complete.fills_row) == (4, False, True)
