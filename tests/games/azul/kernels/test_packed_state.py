"""PackedState: every number of a position is where the module's table says."""

import pytest
from hypothesis import given, strategies as st

from entity_env.games.azul import ENDS, End, GameState, new_game
from entity_env.games.azul.kernels import packed_state as module
from entity_env.games.azul.kernels.packed_state import (
    NUM_WORDS,
    ONES,
    pack_tiles,
    unpack_tiles,
)
from tests.games.azul.recorded_games import board, position, states

NUM_FIELDS = 5
COUNTS = st.lists(st.integers(0, 20), min_size=NUM_FIELDS, max_size=NUM_FIELDS)


@given(state=states())
def test_the_head_is_as_the_table_says(state: GameState) -> None:
    words = state.words
    assert words[:6] == [
        state.num_players,
        state.current_player,
        state.starting_player,
        state.marker,
        state.round,
        0 if state.end is None else 1 + ENDS.index(state.end),
    ]
    assert tuple(unpack_tiles(words[6])) == state.bag
    assert tuple(unpack_tiles(words[7])) == state.lid


@given(state=states())
def test_the_sources_are_as_the_table_says(state: GameState) -> None:
    words = state.words
    for source in range(9):
        is_there = source < len(state.factories)
        tiles = state.factories[source] if is_there else (0,) * 5
        assert unpack_tiles(words[8 + source]) == list(tiles)
    assert tuple(unpack_tiles(words[17])) == state.centre


@given(state=states())
def test_a_board_is_as_the_table_says(state: GameState) -> None:
    words = state.words
    for i, player in enumerate(state.players):
        score, wall, lines, floor, length, _ = words[18 + 6 * i : 24 + 6 * i]
        assert (score, wall, length) == (player.score, player.wall, len(player.floor))
        for row in range(5):
            line = lines >> 6 * row & 63
            assert line & 7 == player.line_counts[row]
            if line:
                assert line >> 3 == player.line_colours[row]
        assert tuple(floor >> 3 * slot & 7 for slot in range(length)) == player.floor
        assert floor >> 3 * length == 0
        assert lines >> 30 == 0


@given(state=states())
def test_who_is_not_there_is_nothing(state: GameState) -> None:
    assert len(state.words) == NUM_WORDS
    assert {type(word) for word in state.words} == {int}
    assert not any(state.words[18 + 6 * state.num_players :])


@given(counts=COUNTS, more=COUNTS)
def test_packed_tiles_add_up(counts: list[int], more: list[int]) -> None:
    both = [a + b for a, b in zip(counts, more, strict=True)]
    assert unpack_tiles(pack_tiles(counts) + pack_tiles(more)) == both


def test_the_lowest_bits() -> None:
    assert unpack_tiles(ONES) == [1] * 5
    assert unpack_tiles(ONES * 20) == [20] * 5
    assert pack_tiles([0, 0, 0, 0, 20]).bit_length() <= 30


def test_a_position_made_by_hand() -> None:
    """Red on the first line, two white tiles on the third, marker and white on the floor."""
    me = board(score=7, lines=[(2, 1), (0, 0), (4, 2)], wall=[(0, 0), (3, 1)], floor=[5, 4])
    state = position([me, board()], centre=(0, 3, 0, 0, 0), marker=0, current_player=1)
    words = state.words
    assert words[:6] == [2, 1, 0, 0, 1, 0]
    assert words[17] == 3 << 6
    assert words[18] == 7
    assert words[19] == 1 | 1 << 15 + 4
    assert words[20] == (1 | 2 << 3) | (2 | 4 << 3) << 12
    assert words[21] == 5 | 4 << 3
    assert words[22] == 2
    # Line 0 is full, line 2 takes only white, and row 3 of the wall already has yellow.
    places = ([1, 3, 4, 5], [1, 4, 5], [1, 3, 4, 5], [1, 3, 4, 5], [1, 2, 3, 4, 5])
    fits = [sum(1 << place for place in each) for each in places]
    assert words[23] == sum(bits << 6 * colour for colour, bits in enumerate(fits))


@given(state=states())
def test_what_was_set_is_there(state: GameState) -> None:
    """A state built from the attributes of another state equals it, including `fits`."""
    other = GameState([0] * NUM_WORDS, state.rng)
    for name in (
        *("num_players", "current_player", "starting_player", "marker", "round", "end"),
        *("factories", "centre", "bag", "lid"),
    ):
        setattr(other, name, getattr(state, name))
    boards = [
        board(
            score=player.score,
            lines=list(zip(player.line_colours, player.line_counts, strict=True)),
            floor=player.floor,
        )
        for player in state.players
    ]
    for made, player in zip(boards, state.players, strict=True):
        made.wall = player.wall
    other.players = boards
    assert other.words == state.words
    assert other == state


@pytest.mark.parametrize("end", [None, *ENDS])
def test_ends_are_packed(end: End | None) -> None:
    state = new_game(2)
    state.end = end
    assert state.end == end
    assert state.is_over == (end is not None)


def test_positions_side_by_side_begin_on_cache_lines() -> None:
    assert NUM_WORDS * 8 % 64 == 0
    assert module.PLAYERS + 4 * module.PLAYER_WORDS <= NUM_WORDS
