"""The rules in the order of the rulebook, one move at a time, compiled and interpreted."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env.games.azul import (
    Action,
    ActionEncoder,
    FastGame,
    GameState,
    IllegalAction,
    Phase,
    apply_action,
    apply_in_place,
    legal_actions,
    new_game,
    winners,
)
from entity_env.games.azul.engine.tile_draws import SplitMix
from tests.games.azul.recorded_games import SEEDS, board, count_tiles, position

CENTRE, FLOOR = 9, 5
BLUE, YELLOW, RED, BLACK, WHITE = range(5)

Play: TypeAlias = Callable[..., GameState]


def purely(state: GameState, *actions: tuple[int, int, int]) -> GameState:
    for action in actions:
        state = apply_action(state, Action(*action))
    return state


def in_place(state: GameState, *actions: tuple[int, int, int]) -> GameState:
    state = state.copy()
    for action in actions:
        apply_in_place(state, Action(*action))
    return state


def compiled(state: GameState, *actions: tuple[int, int, int]) -> GameState:
    game = FastGame.from_state(state)
    for action in actions:
        game.play(ActionEncoder.encode(Action(*action)))
    return game.state()


@pytest.fixture(params=[purely, in_place, compiled])
def play(request: pytest.FixtureRequest) -> Play:
    made: Play = request.param
    return made


def tiles(**counts: int) -> tuple[int, int, int, int, int]:
    """Tiles by the names of their colors."""
    blue, yellow, red, black, white = (
        counts.get(name, 0) for name in ("blue", "yellow", "red", "black", "white")
    )
    return blue, yellow, red, black, white


def places(state: GameState, source: int, colour: int) -> list[int]:
    """Places where the current player may put the tiles of a source."""
    return [a.destination for a in legal_actions(state) if a[:2] == (source, colour)]


# ---------------------------------------------------------------------------------- taking tiles


def test_all_tiles_of_a_colour_are_taken_and_the_rest_goes_to_the_centre(play: Play) -> None:
    state = position(
        [board(), board()],
        factories=[tiles(blue=2, red=1, white=1), tiles(black=4)],
        centre=tiles(red=1),
    )
    after = play(state, (0, BLUE, 2))
    assert after.factories[0] == tiles()
    assert tuple(after.centre) == tiles(red=2, white=1)
    assert after.players[0].line_counts == (0, 0, 2, 0, 0)
    assert after.marker == -1
    assert after.current_player == 1


def test_the_rest_of_the_centre_stays(play: Play) -> None:
    state = position([board(), board()], centre=tiles(blue=2, red=1))
    after = play(state, (CENTRE, BLUE, 1))
    assert tuple(after.centre) == tiles(red=1)
    assert after.players[0].line_counts == (0, 2, 0, 0, 0)


def test_the_first_from_the_centre_takes_the_marker_and_the_second_does_not(play: Play) -> None:
    state = position([board(), board()], centre=tiles(blue=1, red=1, white=1))
    after = play(state, (CENTRE, BLUE, 0), (CENTRE, RED, 0))
    assert after.marker == 0
    assert [player.floor for player in after.players] == [(5,), ()]


@pytest.mark.parametrize("taken", range(8))
def test_the_marker_goes_to_the_leftmost_free_slot_before_the_tiles(play: Play, taken: int) -> None:
    state = position([board(floor=[BLUE] * taken), board()], centre=tiles(red=3, white=1))
    after = play(state, (CENTRE, RED, FLOOR))
    assert after.players[0].floor == (*[BLUE] * taken, 5, RED, RED, RED)[:7]
    assert after.lid[RED] == max(0, taken + 1 + 3 - 7) - (taken == 7)
    assert after.marker == 0


# ---------------------------------------------------------------------------------- pattern lines


@pytest.mark.parametrize("line", range(5))
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_line_takes_what_it_has_room_for(play: Play, line: int, count: int) -> None:
    factories = [tiles(red=count, blue=4 - count), tiles(white=4)]
    after = play(position([board(), board()], factories=factories), (0, RED, line))
    placed = min(count, line + 1)
    assert after.players[0].line_counts[line] == placed
    assert after.players[0].line_colours[line] == RED
    assert after.players[0].floor == (RED,) * (count - placed)


def test_where_tiles_may_go() -> None:
    """Not to a full line, a line of another color, or a line whose wall row has the color."""
    lines = [(RED, 1), (RED, 1), (BLUE, 1), (-1, 0), (-1, 0)]
    me = board(lines=lines, wall=[(3, RED), (4, BLUE)])
    state = position([me, board()], factories=[tiles(red=1, blue=1, black=2)])
    assert places(state, 0, RED) == [1, 4, FLOOR]
    assert places(state, 0, BLUE) == [2, 3, FLOOR]
    assert places(state, 0, BLACK) == [3, 4, FLOOR]


def test_the_same_colour_may_lie_on_several_lines(play: Play) -> None:
    state = position(
        [board(lines=[(-1, 0), (RED, 1)]), board()], factories=[tiles(red=2, blue=2), tiles(red=4)]
    )
    after = play(state, (0, RED, 2))
    assert after.players[0].line_colours[:3] == (-1, RED, RED)


def test_tiles_of_one_move_are_never_shared_between_lines(play: Play) -> None:
    factories = [tiles(red=4), tiles(blue=4)]
    after = play(position([board(), board()], factories=factories), (0, RED, 0))
    assert after.players[0].line_counts == (1, 0, 0, 0, 0)
    assert after.players[0].floor == (RED,) * 3


@pytest.mark.parametrize("action", [(0, RED, 0), (0, RED, 3), (0, BLUE, 1), (1, RED, 1)])
def test_other_moves_are_refused(play: Play, action: tuple[int, int, int]) -> None:
    me = board(lines=[(RED, 1)], wall=[(3, RED)])
    state = position([me, board()], factories=[tiles(red=4), tiles(white=4)])
    before = state.copy()
    with pytest.raises(IllegalAction):
        play(state, action)
    assert state == before


def test_the_floor_is_always_legal() -> None:
    state = position([board(floor=[BLUE] * 7), board()], centre=tiles(red=1, white=2))
    assert FLOOR in places(state, CENTRE, RED)
    assert FLOOR in places(state, CENTRE, WHITE)


# ---------------------------------------------------------------------------------- the floor


@pytest.mark.parametrize(
    ("length", "cost"), [(0, 0), (1, 1), (2, 2), (3, 4), (4, 6), (5, 8), (6, 11), (7, 14)]
)
def test_what_a_floor_costs(play: Play, length: int, cost: int) -> None:
    state = position(
        [board(), board(score=20, floor=[BLUE] * length)], centre=tiles(red=1), marker=0
    )
    after = play(state, (CENTRE, RED, 0))
    assert after.players[1].score == 20 - cost
    assert after.players[1].floor == ()


def test_a_marker_on_the_floor_costs_as_a_tile_does(play: Play) -> None:
    state = position([board(score=9), board(score=9)], centre=tiles(red=1))
    after = play(state, (CENTRE, RED, FLOOR))
    assert after.scores == [9 - 2, 9]


def test_a_score_never_falls_below_zero(play: Play) -> None:
    """Placements count first: 2 points plus 1 for the tile minus 4 for the floor gives 0."""
    state = position(
        [board(score=2, floor=[BLUE] * 3), board()], factories=[tiles(red=1)], marker=1
    )
    assert play(state, (0, RED, 0)).players[0].score == 0
    state.players[0].score = 5
    assert play(state, (0, RED, 0)).players[0].score == 5 + 1 - 4


def test_tiles_of_the_floor_go_to_the_lid_and_the_marker_does_not(play: Play) -> None:
    state = position(
        [board(floor=[5, BLUE, WHITE]), board(floor=[BLUE])], centre=tiles(red=1), marker=0
    )
    after = play(state, (CENTRE, RED, 0))
    assert sum(after.lid) == 3
    assert tuple(after.lid) == tiles(blue=2, white=1)
    assert after.marker == -1


# ---------------------------------------------------------------------------------- tiling


def cells(*places: tuple[int, int]) -> int:
    """Bits of a wall, by row and column."""
    return sum(1 << 5 * row + column for row, column in places)


@pytest.mark.parametrize(
    ("around", "points"),
    [
        ([], 1),
        ([(1, 2)], 2),
        ([(2, 1)], 2),
        ([(2, 1), (2, 3)], 3),
        ([(1, 2), (3, 2)], 3),
        ([(2, 1), (1, 2)], 4),
        ([(2, 0), (2, 1), (2, 3), (1, 2)], 6),
        ([(1, 1), (3, 3), (1, 3), (3, 1)], 1),
        ([(2, 0), (2, 4), (0, 2), (4, 2)], 1),
    ],
)
def test_a_tile_scores_its_runs(play: Play, around: Sequence[tuple[int, int]], points: int) -> None:
    """The tile goes to the middle, which is blue; the line below is full."""
    me = board(lines=[(-1, 0), (-1, 0), (BLUE, 3)])
    me.wall = cells(*around)
    state = position([me, board()], centre=tiles(red=1), marker=1, current_player=1)
    after = play(state, (CENTRE, RED, FLOOR))
    assert after.players[0].score == points
    assert after.players[0].wall == cells(*around, (2, 2))


def test_lines_are_tiled_from_the_top_and_count_for_those_below(play: Play) -> None:
    """Blue is in columns 0, 1, 2 of the first rows, so red 0, yellow 1 and blue 2 form a stack."""
    me = board(lines=[(RED, 1), (YELLOW, 2), (BLUE, 3)])
    state = position([me, board()], centre=tiles(white=1), marker=1, current_player=1)
    after = play(state, (CENTRE, WHITE, FLOOR))
    assert after.players[0].wall == cells((0, 2), (1, 2), (2, 2))
    assert after.players[0].score == 1 + 2 + 3


def test_one_tile_goes_to_the_wall_and_the_others_to_the_lid(play: Play) -> None:
    me = board(lines=[(-1, 0), (-1, 0), (-1, 0), (-1, 0), (BLACK, 5)])
    state = position([me, board()], centre=tiles(white=1), marker=1, current_player=1)
    after = play(state, (CENTRE, WHITE, 0))
    assert tuple(after.lid) == tiles(black=4)
    assert after.players[0].line_counts == (0,) * 5
    assert after.players[0].line_colours == (-1,) * 5


def test_lines_that_are_not_full_stay(play: Play) -> None:
    me = board(lines=[(-1, 0), (RED, 1), (BLUE, 2), (WHITE, 3), (BLACK, 4)])
    state = position([me, board()], centre=tiles(white=1), marker=1, current_player=1)
    after = play(state, (CENTRE, WHITE, 0))
    assert after.players[0].line_counts == (0, 1, 2, 3, 4)
    assert after.players[0].wall == 0


# ---------------------------------------------------------------------------------- rounds


@pytest.mark.parametrize("holder", [0, 1, 2])
def test_who_holds_the_marker_begins_the_next_round(play: Play, holder: int) -> None:
    players = [board(), board(), board()]
    players[holder].floor = [5]
    state = position(players, centre=tiles(red=1), marker=holder)
    after = play(state, (CENTRE, RED, 0))
    assert (after.starting_player, after.current_player) == (holder, holder)
    assert (after.round, after.marker) == (2, -1)


@pytest.mark.parametrize("starter", [0, 1, 2])
def test_if_nobody_took_it_the_old_starter_begins_again(play: Play, starter: int) -> None:
    state = position([board(), board(), board()], factories=[tiles(red=4)], current_player=1)
    state.starting_player = starter
    after = play(state, (0, RED, 3))
    assert (after.starting_player, after.current_player, after.round) == (starter, starter, 2)


@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_turns_go_round(play: Play, num_players: int) -> None:
    state = position(
        [board() for _ in range(num_players)], factories=[tiles(red=4)] * 3 + [tiles(blue=4)] * 2
    )
    movers = []
    for source, colour in enumerate([RED, RED, RED, BLUE]):
        movers.append(state.current_player)
        state = play(state, (source, colour, FLOOR))
    assert movers == [i % num_players for i in range(4)]


@given(seed=SEEDS, num_players=st.sampled_from((2, 3, 4)))
@settings(max_examples=25)
def test_the_first_deal(seed: int, num_players: int) -> None:
    state = new_game(num_players, rng=SplitMix(seed))
    assert len(state.factories) == 2 * num_players + 1
    assert all(sum(factory) == 4 for factory in state.factories)
    assert sum(state.bag) == 100 - 4 * len(state.factories)
    assert state.lid == (0,) * 5
    assert state.centre == (0,) * 5
    assert count_tiles(state) == [20] * 5
    assert state.phase is Phase.FactoryOffer


# ---------------------------------------------------------------------------------- the end


def last_row(missing: int) -> GameState:
    """The current player can fill the first row with a white tile, except for `missing` others."""
    row = [(0, colour) for colour in (BLUE, YELLOW, RED, BLACK)][: 4 - missing]
    return position([board(wall=row), board()], centre=tiles(white=1), marker=1)


def test_a_full_row_ends_the_game(play: Play) -> None:
    after = play(last_row(0), (CENTRE, WHITE, 0))
    assert (after.end, after.phase) == ("row", Phase.GameOver)
    assert after.scores == [5 + 2, 0]
    assert after.current_player == 0
    assert legal_actions(after) == []
    assert sum(map(sum, after.factories)) == 0, "nothing is dealt any more"


def test_four_in_a_row_do_not(play: Play) -> None:
    after = play(last_row(1), (CENTRE, WHITE, 0))
    assert (after.end, after.round) == (None, 2)
    assert sum(map(sum, after.factories)) == 20


def test_all_players_tile_before_the_game_is_over(play: Play) -> None:
    state = last_row(0)
    boards = [state.players[0], board(lines=[(-1, 0), (RED, 2)], score=3)]
    state = position(boards, centre=tiles(white=1), marker=1)
    after = play(state, (CENTRE, WHITE, 0))
    assert after.end == "row"
    assert after.scores[1] == 3 + 1


def test_bonuses(play: Play) -> None:
    """A row, the first column and all blue tiles: 2, 7 and 10, plus the score of the last tile."""
    state = last_row(0)
    for row in range(5):
        state.players[0].wall |= 1 << 5 * row
        state.players[0].wall |= 1 << 5 * row + (row + BLUE) % 5
    state = position(state.players, centre=tiles(white=1), marker=1)
    after = play(state, (CENTRE, WHITE, 0))
    assert after.players[0].score == 5 + 2 + 7 + 10


@pytest.mark.parametrize(
    ("scores", "rows", "expected"),
    [
        ((10, 9), (1, 3), [0]),
        ((10, 10), (1, 2), [1]),
        ((10, 10), (1, 1), [0, 1]),
        ((7, 10, 10), (5, 0, 0), [1, 2]),
        ((10, 10, 10), (0, 1, 1), [1, 2]),
        ((1, 2, 3, 3), (5, 5, 1, 0), [2]),
    ],
)
def test_who_wins(scores: Sequence[int], rows: Sequence[int], expected: list[int]) -> None:
    players = [
        board(score=score, wall=[(row, colour) for row in range(full) for colour in range(5)])
        for score, full in zip(scores, rows, strict=True)
    ]
    assert winners(position(players)) == expected


# ---------------------------------------------------------------------------------- the bag


def test_the_lid_goes_into_an_empty_bag_and_only_then(play: Play) -> None:
    """Two players: 20 tiles are dealt. 8 are in the bag, the rest in the lid."""
    lid = (18, 18, 18, 18, 19)
    state = position([board(), board()], centre=tiles(white=1), lid=lid, marker=0)
    assert sum(state.bag) == 8
    state.rng = SplitMix(3)
    after = play(state, (CENTRE, WHITE, 0))
    assert sum(after.bag) == 8 + sum(lid) - 20
    assert sum(after.lid) == 0
    first_two = np.sum(after.factories[:2], axis=0)
    assert tuple(first_two.tolist()) == state.bag, "the bag is emptied first"


def test_a_bag_that_empties_on_the_last_draw_stays_empty(play: Play) -> None:
    lid = (16, 16, 16, 16, 15)
    state = position([board(), board()], centre=tiles(white=1), lid=lid, marker=0)
    assert sum(state.bag) == 20
    after = play(state, (CENTRE, WHITE, FLOOR))
    assert sum(after.bag) == 0
    assert sum(after.lid) == sum(lid) + 1
