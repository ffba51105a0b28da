"""Entities: they match the table, counted here in another way."""

from collections import Counter

from hypothesis import given, settings

from entity_env.games.azul import Action, GameState, legal_actions
from entity_env.games.azul.engine.engine import apply_action
from entity_env.games.azul.entities import (
    Colour,
    Filling,
    MoveId,
    Seat,
    Table,
    entities_of,
)
from tests.games.azul.recorded_games import board, count_tiles, position, states

COSTS = (1, 1, 2, 2, 2, 3, 3)


def on_table(state: GameState) -> list[tuple[int, ...]]:
    return [*state.factories, state.centre]


def table(state: GameState, player: int) -> Table:
    [shown] = entities_of(state, player).table
    return shown


def standing(state: GameState, number: int) -> int:
    """Points of a player if the round ended now, without the limit at 0."""
    seat = entities_of(state, number).seats[0]
    return seat.score + seat.pending - seat.floor_cost


@given(state=states())
def test_sources_hold_all_that_is_on_offer(state: GameState) -> None:
    sources = entities_of(state, 0).sources
    assert [source.tiles for source in sources] == on_table(state)
    assert [source.total for source in sources] == [sum(tiles) for tiles in on_table(state)]
    assert [source.is_centre for source in sources] == [False] * len(state.factories) + [True]
    assert [source.has_marker for source in sources[:-1]] == [False] * len(state.factories)
    assert sources[-1].has_marker == (state.marker == -1)


@given(state=states())
def test_groups_are_what_the_legal_moves_take(state: GameState) -> None:
    if state.is_over:
        return
    groups = entities_of(state, 0).groups
    taken = {(action.source, action.colour) for action in legal_actions(state)}
    assert [(group.source, group.colour.value) for group in groups] == sorted(taken)
    for group in groups:
        tiles = state.centre if group.source == 9 else state.factories[group.source]
        assert group.count == tiles[group.colour.value] > 0
        assert group.count + group.rest == sum(tiles)
        assert group.is_centre == (group.source == 9)
        after = apply_action(state, Action(group.source, group.colour.value, 5))
        if after.round == state.round and not after.is_over:
            assert group.brings_marker == (state.marker != after.marker)


@given(state=states())
def test_groups_and_sources_add_up(state: GameState) -> None:
    counts: Counter[int] = Counter()
    for group in entities_of(state, 0).groups:
        counts[group.colour.value] += group.count
    for colour in range(5):
        assert counts[colour] == sum(
            source.tiles[colour] for source in entities_of(state, 0).sources
        )
    assert sum(counts.values()) == table(state, 0).tiles


@given(state=states())
def test_seats_go_round_from_who_observes(state: GameState) -> None:
    for observer in range(state.num_players):
        seats = entities_of(state, observer).seats
        assert [seat.seat for seat in seats] == list(range(state.num_players))
        for seat in seats:
            check_seat(state, seat, (observer + seat.seat) % state.num_players)
        assert sum(seat.starts_next for seat in seats) == 1
        assert sum(seat.holds_marker for seat in seats) == (state.marker != -1)


def check_seat(state: GameState, seat: Seat, number: int) -> None:
    player = state.players[number]
    assert seat.score == player.score
    assert seat.floor == len(player.floor)
    assert seat.floor_cost == sum(COSTS[: seat.floor])
    assert seat.next_slot_cost == sum(COSTS[seat.floor : seat.floor + 1])
    assert seat.holds_marker == (state.marker == number)
    assert seat.starts_next == (state.starting_player_next_round == number)


@given(state=states())
def test_lines_tell_what_is_missing(state: GameState) -> None:
    for observer in range(state.num_players):
        lines = entities_of(state, observer).lines
        assert [(line.seat, line.row) for line in lines] == [
            (seat, row) for seat in range(state.num_players) for row in range(5)
        ]
        for line in lines:
            player = state.players[(observer + line.seat) % state.num_players]
            assert line.count + line.room == line.row + 1
            assert line.count == player.line_counts[line.row]
            assert line.colour.value == player.line_colours[line.row]
            assert (line.colour is Filling.EMPTY) == (line.count == 0)


@given(state=states())
def test_walls_are_told_by_cell_and_by_colour(state: GameState) -> None:
    for observer in range(state.num_players):
        for wall in entities_of(state, observer).walls:
            player = state.players[(observer + wall.seat) % state.num_players]
            for column in range(5):
                is_there = player.wall >> 5 * wall.row + column & 1
                assert wall.cells[column] == is_there
                assert wall.has[(column - wall.row) % 5] == is_there


@given(state=states())
def test_all_tiles_can_be_found(state: GameState) -> None:
    """Twenty of each color, except on floors, where colors are not shown."""
    seen = table(state, 0)
    lines, walls = entities_of(state, 0).lines, entities_of(state, 0).walls
    for colour in range(5):
        count = seen.bag[colour] + seen.lid[colour]
        count += sum(source.tiles[colour] for source in entities_of(state, 0).sources)
        count += sum(line.count for line in lines if line.colour.value == colour)
        count += sum(wall.has[colour] for wall in walls)
        on_floors = sum(player.floor.count(colour) for player in state.players)
        assert count + on_floors == count_tiles(state)[colour] == 20


@given(state=states())
def test_the_table_tells_when_the_observer_plays(state: GameState) -> None:
    seats = [table(state, player).seat for player in range(state.num_players)]
    assert sorted(seats) == list(range(state.num_players))
    assert seats[state.starting_player] == 0
    for player in range(state.num_players):
        seen = table(state, player)
        assert (seen.round, seen.num_players) == (state.round, state.num_players)
        assert seen.marker_in_centre == (state.marker == -1)


@settings(max_examples=60)
@given(state=states())
def test_standings_are_the_scores_after_a_tiling(state: GameState) -> None:
    """A standing of 0 or more equals the score, without final bonuses."""
    if state.is_over:
        return
    before = [standing(state, number) for number in range(state.num_players)]
    state.factories, state.centre = [(0,) * 5] * len(state.factories), (0, 0, 0, 0, 1)
    mover = state.current_player
    after = apply_action(state, Action(9, 4, 5))
    for player, points in enumerate(before):
        if player != mover and not after.is_over:
            assert after.players[player].score == max(0, points)


@given(state=states())
def test_the_fullest_row_is_the_most_of_all_rows(state: GameState) -> None:
    for number, player in enumerate(state.players):
        most = 0
        for row in range(5):
            tiles = (player.wall >> 5 * row & 31).bit_count()
            most = max(most, tiles + (player.line_counts[row] == row + 1))
        assert entities_of(state, number).seats[0].fullest_row == most
        assert table(state, number).my_row == most


def test_codes() -> None:
    names = [colour.name for colour in Colour]
    assert names == [filling.name for filling in Filling][1:]
    assert [colour.value for colour in Colour] == list(range(5))
    assert [filling.value for filling in Filling] == list(range(-1, 5))


def test_moves_by_name() -> None:
    assert MoveId["red_from_factory_3_to_line_2"].value == (3 * 5 + 2) * 6 + 2
    assert MoveId["black_from_centre_to_floor"].value == (9 * 5 + 3) * 6 + 5
    assert len(MoveId) == 300


def test_a_board_made_by_hand() -> None:
    me = board(score=4, lines=[(1, 1), (2, 1)], wall=[(0, 0), (4, 3)], floor=[5, 1, 1])
    state = position([board(), me], centre=(2, 0, 0, 0, 0), marker=1)
    seat, other = entities_of(state, 1).seats
    assert (seat.score, seat.floor, seat.floor_cost, seat.next_slot_cost) == (4, 3, 4, 2)
    assert (seat.holds_marker, seat.starts_next) == (True, True)
    # Yellow next to the blue tile makes a run of two.
    assert (seat.pending, seat.fullest_row) == (2, 2)
    assert standing(state, 1) == 4 + 2 - 4
    assert (other.pending, other.fullest_row, other.holds_marker) == (0, 0, False)
    assert table(state, 1).lead == 2
    assert table(state, 0).lead == -2
    assert [line.room for line in entities_of(state, 1).lines[:5]] == [0, 1, 3, 4, 5]
    assert entities_of(state, 1).walls[4].has == (0, 0, 0, 1, 0)
    assert entities_of(state, 1).walls[4].cells == (0, 0, 1, 0, 0)
