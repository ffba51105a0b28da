"""PackedState: every number of a position lies where the table of the module says."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env.games.azul import ENDS, GameState, legal_actions, new_game
from entity_env.games.azul.kernels import packed_state as module
from entity_env.games.azul.kernels.packed_state import (
    FIELD,
    NUM_WORDS,
    ONES,
    pack_state,
    pack_tiles,
    unpack_state,
    unpack_tiles,
)
from tests.games.azul.recorded_games import blocked, board, position, states

NUM_FIELDS = 5
COUNTS = st.lists(st.integers(0, 20), min_size=NUM_FIELDS, max_size=NUM_FIELDS)


@given(state=states())
def test_the_head_is_as_the_table_says(state: GameState) -> None:
    words = pack_state(state).tolist()
    assert words[:6] == [
        state.num_players,
        state.current_player,
        state.starting_player,
        state.marker,
        state.round,
        0 if state.end is None else 1 + ENDS.index(state.end),
    ]
    assert unpack_tiles(words[6]) == state.bag
    assert unpack_tiles(words[7]) == state.lid


@given(state=states())
def test_the_sources_are_as_the_table_says(state: GameState) -> None:
    words = pack_state(state).tolist()
    for source in range(9):
        is_there = source < len(state.factories)
        tiles = state.factories[source] if is_there else (0,) * 5
        assert unpack_tiles(words[8 + source]) == list(tiles)
    assert unpack_tiles(words[17]) == state.centre


@given(state=states())
def test_a_board_is_as_the_table_says(state: GameState) -> None:
    words = pack_state(state).tolist()
    for i, player in enumerate(state.players):
        score, wall, lines, floor, length, _ = words[18 + 6 * i : 24 + 6 * i]
        assert (score, wall, length) == (player.score, player.wall, len(player.floor))
        for row in range(5):
            line = lines >> 6 * row & 63
            assert line & 7 == player.line_counts[row]
            if line:
                assert line >> 3 == player.line_colours[row]
        assert [floor >> 3 * slot & 7 for slot in range(length)] == player.floor
        assert floor >> 3 * length == 0
        assert lines >> 30 == 0


@given(state=states())
def test_who_is_not_there_is_nothing(state: GameState) -> None:
    words = pack_state(state)
    assert words.shape == (NUM_WORDS,)
    assert words.dtype == np.int64
    assert not words[18 + 6 * state.num_players :].any()


@given(state=states())
def test_fits_choose_the_legal_moves(state: GameState) -> None:
    """A colour that lies in a source has the bits that `fits` has of it, and no other has any."""
    if state.is_over:
        return
    words = pack_state(state).tolist()
    fits = words[18 + 6 * state.current_player + 5]
    found = []
    for source in range(10):
        tiles = words[8 + source]
        for colour in range(5):
            if tiles >> 6 * colour & FIELD:
                bits = fits >> 6 * colour & FIELD
                found += [(source, colour, place) for place in range(6) if bits >> place & 1]
    assert found == [tuple(action) for action in legal_actions(state)]


@given(state=states())
def test_the_floor_takes_every_colour_of_everybody(state: GameState) -> None:
    words = pack_state(state).tolist()
    for i in range(state.num_players):
        fits = words[18 + 6 * i + 5]
        assert all(fits >> 6 * colour + 5 & 1 for colour in range(5))


@given(counts=COUNTS, more=COUNTS)
def test_packed_tiles_add_up(counts: list[int], more: list[int]) -> None:
    both = [a + b for a, b in zip(counts, more, strict=True)]
    assert unpack_tiles(pack_tiles(counts) + pack_tiles(more)) == both


def test_the_lowest_bits() -> None:
    assert unpack_tiles(ONES) == [1] * 5
    assert unpack_tiles(ONES * 20) == [20] * 5
    assert pack_tiles([0, 0, 0, 0, 20]).bit_length() <= 30


def test_a_position_made_by_hand() -> None:
    """Red on the first line, two white ones on the third, the marker and a white on the floor."""
    me = board(score=7, lines=[(2, 1), (0, 0), (4, 2)], wall=[(0, 0), (3, 1)], floor=[5, 4])
    state = position([me, board()], centre=(0, 3, 0, 0, 0), marker=0, current_player=1)
    words = pack_state(state).tolist()
    assert words[:6] == [2, 1, 0, 0, 1, 0]
    assert words[17] == 3 << 6
    assert words[18] == 7
    assert words[19] == 1 | 1 << 15 + 4
    assert words[20] == (1 | 2 << 3) | (2 | 4 << 3) << 12
    assert words[21] == 5 | 4 << 3
    assert words[22] == 2
    # Line 0 is full, line 2 is for white alone, and row 3 of the wall has its yellow.
    places = ([1, 3, 4, 5], [1, 4, 5], [1, 3, 4, 5], [1, 3, 4, 5], [1, 2, 3, 4, 5])
    fits = [sum(1 << place for place in each) for each in places]
    assert words[23] == sum(bits << 6 * colour for colour, bits in enumerate(fits))


@settings(max_examples=40)
@given(state=states())
def test_a_state_has_no_part_in_its_words(state: GameState) -> None:
    words = pack_state(state)
    before = words.copy()
    unpacked = unpack_state(words, state.rng)
    unpacked.players[0].score += 1
    unpacked.bag[0] += 1
    unpacked.players[0].floor.append(3)
    assert (words == before).all()
    words[:] = 0
    assert unpack_state(before, state.rng) == state


@pytest.mark.parametrize("fours_left", [True, False])
def test_ends_are_packed(fours_left: bool) -> None:
    state = blocked(fours_left)
    for end in (None, *ENDS):
        state.end = end
        back = unpack_state(pack_state(state), state.rng)
        assert back.end == end
        assert back == state


def test_the_source_of_draws_comes_along() -> None:
    rng = np.random.default_rng(1)
    state = new_game(3, rng=rng)
    back = unpack_state(pack_state(state), rng, max_of)
    assert back.rng is rng
    assert back.draw is max_of
    assert unpack_state(pack_state(state), rng).draw is None


def max_of(bag: tuple[int, ...]) -> int:
    return bag.index(max(bag))


def test_positions_side_by_side_begin_on_cache_lines() -> None:
    assert NUM_WORDS * 8 % 64 == 0
    assert module.PLAYERS + 4 * module.PLAYER_WORDS <= NUM_WORDS
