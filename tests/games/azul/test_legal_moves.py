"""Options: what they tell of a move is what comes of it, by the rules and by `GreedyAgent`."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings

from entity_env.games.azul import ACTIONS, Action, GameState, apply_action, legal_actions
from entity_env.games.azul.engine.rules import CENTRE, COLOUR_CELLS, COLUMNS, FLOOR, ROWS, column_of
from entity_env.games.azul.entities import (
    Option,
    fullest_row,
    options_of,
    seats_of,
    standing_of,
    table_of,
)
from entity_env.games.azul.players.heuristics import (
    greedy_worth,
    move_values,
    pending_points,
    pending_wall,
)
from tests.games.azul.recorded_games import board, position, states


def best(state: GameState, *, but: int = FLOOR) -> float:
    """The most that a move is worth to whose turn it is, in points, a line left out."""
    actions = [
        action for action in legal_actions(state) if action.destination in (FLOOR, *range(5))
    ]
    actions = [action for action in actions if action.destination != but or but == FLOOR]
    return max(move_values(state, actions, greedy_worth)) / 100


def taken(state: GameState, action: Action) -> GameState | None:
    """The position once the tiles are taken, wherever to; None if the round is over then."""
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
def test_values_are_those_of_the_greedy_agent(state: GameState) -> None:
    options, actions = options_of(state), legal_actions(state)
    values = move_values(state, actions, greedy_worth)
    assert [option.value for option in options] == [value / 100 for value in values]
    player = state.players[state.current_player]
    for option, (_, colour, row) in zip(options, actions, strict=True):
        worth = 0 if row == FLOOR else greedy_worth(player, row, colour)
        assert option.worth == worth / 100


@settings(max_examples=25, deadline=None)
@given(state=states())
def test_what_is_to_come_is_what_greedy_agents_would_find(state: GameState) -> None:
    for option, action in sampled(state):
        after = taken(state, action)
        assert option.ends_round == (after is None)
        if after is None:
            assert (option.again, option.reply) == (0, 0)
            continue
        assert option.reply == best(after)
        # The same player once more, on the board from before.
        after.players[state.current_player] = state.players[state.current_player]
        after.current_player = state.current_player
        assert option.again == best(after, but=action.destination)


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
        table, seats = table_of(state, player), seats_of(state, player)
        others = [state.players[i] for i in range(state.num_players) if i != player]
        mine = standing_of(state.players[player])
        assert table.lead == mine - max(standing_of(other) for other in others)
        assert table.my_row == seats[0].fullest_row
        assert table.their_row == max(seat.fullest_row for seat in seats[1:])
        assert table.tiles == sum(map(sum, state.factories)) + sum(state.centre)
        for seat in seats:
            told = state.players[(player + seat.seat) % state.num_players]
            assert seat.pending == pending_points(told)
            assert seat.score + seat.pending - seat.floor_cost == standing_of(told)
            assert seat.fullest_row == fullest_row(told)


def test_full_lines_count_as_if_they_were_on_the_wall() -> None:
    player = board(score=3, lines=[(0, 1), (1, 2), (2, 2)], wall=[(1, 0), (1, 2)], floor=[1])
    assert pending_wall(player).bit_count() == 4
    assert fullest_row(player) == 3
    assert standing_of(player) == 3 + pending_points(player) - 1


def test_an_option_of_a_position_made_by_hand() -> None:
    """Two blue ones are missing: they lie at one other place, three at another."""
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
    assert option.value == pytest.approx(option.worth * 1 / 8, abs=0.01)
    full = of(state, 2, 0, 3)
    assert (full.completes, full.left, full.exact, full.enough) == (True, 0, 0, 0)
    assert full.value == full.worth > full.points > 0


def test_the_last_tiles_end_the_round() -> None:
    state = position([board(), board()], centre=(0, 0, 3, 0, 0))
    for option in options_of(state):
        assert option.ends_round
        assert option.takes_marker
        assert (option.rest, option.elsewhere, option.again, option.reply) == (0, 0, 0, 0)


def test_what_the_next_player_wants_is_told() -> None:
    """Who takes the white tiles leaves him nothing but the floor."""
    full = [(row, colour) for row in range(5) for colour in range(4) if row != 4]
    rival = board(wall=full, lines=[(4, 0), (4, 1), (4, 2), (4, 3), (3, 1)])
    rival.line_colours[0] = -1
    state = position([board(), rival], factories=[(2, 0, 0, 0, 0), (0, 0, 0, 0, 2)], marker=0)
    leaves_white, leaves_blue = of(state, 0, 0, 1), of(state, 1, 4, 1)
    assert leaves_blue.reply < 0 < leaves_white.reply
