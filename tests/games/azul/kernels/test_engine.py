"""The parts of the compiled engine, one by one, against the reference."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env.games.azul import ACTIONS, ENDS, ActionEncoder, GameState, legal_actions, new_game
from entity_env.games.azul.engine import engine, rules
from entity_env.games.azul.engine.rules import ROWS
from entity_env.games.azul.engine.state import is_table_empty
from entity_env.games.azul.engine.tile_draws import SplitMix, deal_numbers
from entity_env.games.azul.kernels import engine as compiled
from entity_env.games.azul.kernels.packed_state import (
    CURRENT,
    END,
    FIELD,
    FITS,
    NUM_WORDS,
    PackedState,
    pack_state,
    pack_tiles,
    unpack_state,
)
from tests.games.azul.recorded_games import SEEDS, blocked, board, position, states

# The first calls compile, which takes a while where the cores are shared.
pytestmark = pytest.mark.timeout(240)

WALLS = st.integers(0, 2**25 - 1)
PLACES = st.integers(0, 4)
COUNTS = st.lists(st.integers(0, 20), min_size=5, max_size=5)


def choice_of(action_id: int) -> tuple[int, int]:
    """Source, and colour with destination."""
    return divmod(action_id, 30)


@given(number=st.integers(0, 2**62 - 1))
def test_bits_are_counted(number: int) -> None:
    assert compiled.bits_of(number) == number.bit_count()


@given(counts=COUNTS)
def test_colours_are_spread_over_their_fields(counts: list[int]) -> None:
    expected = sum(FIELD << 6 * colour for colour, count in enumerate(counts) if count)
    assert compiled.colour_fields(pack_tiles(counts)) == expected


@given(wall=WALLS, row=PLACES, column=PLACES)
def test_placements(wall: int, row: int, column: int) -> None:
    wall &= ~(1 << 5 * row + column)
    expected = rules.placement_points(wall, row, column)
    assert compiled.placement_points_packed(wall, row, column) == expected


@given(wall=WALLS, rows=st.sets(PLACES))
def test_full_rows(wall: int, rows: set[int]) -> None:
    for row in rows:
        wall |= ROWS[row]
    assert compiled.rows_of(wall) == rules.full_rows(wall)


@given(wall=WALLS, more=WALLS, most=WALLS)
def test_bonuses(wall: int, more: int, most: int) -> None:
    """Of walls with many tiles, so that something is complete."""
    for each in (wall, wall | more, wall | more | most, 2**25 - 1 & ~(1 << wall % 25)):
        assert compiled.bonus_points_packed(each) == rules.bonus_points(each)


@settings(max_examples=60)
@given(state=states())
def test_legal_is_what_the_reference_says(state: GameState) -> None:
    words = pack_state(state)
    mask = np.zeros(300, np.bool_)
    compiled.write_mask(words, mask)
    ids = [ActionEncoder.encode(action) for action in legal_actions(state)]
    assert np.flatnonzero(mask).tolist() == ids
    one_by_one = [
        compiled.is_legal_packed(words, *choice_of(action_id)) for action_id in range(300)
    ]
    assert one_by_one == mask.tolist()
    assert compiled.num_factories_packed(words) == len(state.factories)


@settings(max_examples=60)
@given(state=states(), which=st.integers(0, 299))
def test_a_move(state: GameState, which: int) -> None:
    """Taking tiles, and the turn that passes on, without the end of the round."""
    actions = legal_actions(state)
    if not actions:
        return
    action = actions[which % len(actions)]
    words = pack_state(state)
    is_empty = compiled.take_packed(words, *choice_of(ActionEncoder.encode(action)))
    engine.take(state, action)
    assert is_empty == is_table_empty(state)
    assert_array_equal(words, pack_state(state))
    compiled.pass_turn(words)
    assert words[CURRENT] == (state.current_player + 1) % state.num_players


@settings(max_examples=60)
@given(state=states())
def test_a_tiling(state: GameState) -> None:
    """At any time of a round: it looks at lines and floors alone."""
    words = pack_state(state)
    compiled.tile_walls_packed(words)
    engine.tile_walls(state)
    assert_array_equal(words, pack_state(state))
    end = compiled.end_of_game_packed(words)
    expected = engine.end_of_game(state)
    assert end == (0 if expected is None else 1 + ENDS.index(expected))


def emptied(state: GameState) -> GameState:
    """The state with what was on the table in the lid."""
    for tiles in (*state.factories, state.centre):
        state.lid = [a + b for a, b in zip(state.lid, tiles, strict=True)]
    state.factories = [(0,) * 5] * len(state.factories)
    state.centre = [0] * 5
    return state


@settings(max_examples=60)
@given(state=states(), seed=SEEDS)
def test_the_end_of_a_round(state: GameState, seed: int) -> None:
    if state.is_over:
        return
    state = emptied(state)
    words = pack_state(state)
    is_over = compiled.end_round(words)
    engine.tile_walls(state)
    state.end = engine.end_of_game(state)
    assert is_over == state.is_over == bool(words[END])
    if state.is_over:
        engine.add_bonuses(state)
    else:
        numbers = deal_numbers(SplitMix(seed), 4 * len(state.factories))
        compiled.deal_packed(words, numbers)
        state.rng = SplitMix(seed)
        engine.begin_round(state)
    assert_array_equal(words, pack_state(state))


@pytest.mark.parametrize("fours_left", [True, False])
def test_games_that_could_go_on_for_ever(fours_left: bool) -> None:
    words = pack_state(blocked(fours_left))
    assert compiled.take_packed(words, 9, 6 * 4 + (5 if fours_left else 2))
    assert compiled.end_round(words)
    expected = compiled.NO_PROGRESS if fours_left else compiled.NO_TILES
    assert words[END] == expected
    assert ENDS[expected - 1] == ("no_progress" if fours_left else "no_tiles")
    assert compiled.fits_of(words) == 0


@settings(max_examples=40)
@given(bag=COUNTS, lid=COUNTS, seed=SEEDS, num_players=st.sampled_from((2, 3, 4)))
def test_a_deal_from_any_bag_and_lid(
    bag: list[int], lid: list[int], seed: int, num_players: int
) -> None:
    """Also where both run out: then factories stay short, or empty."""
    state = new_game(num_players, rng=SplitMix(seed))
    state.bag, state.lid = bag[:], lid[:]
    state.factories = [(0,) * 5] * len(state.factories)
    words = pack_state(state)
    compiled.deal_packed(words, deal_numbers(SplitMix(seed), 4 * len(state.factories)))
    state.rng = SplitMix(seed)
    engine.deal(state)
    assert_array_equal(words, pack_state(state))
    dealt = sum(map(sum, state.factories))
    assert dealt == min(4 * len(state.factories), sum(bag) + sum(lid))


@settings(max_examples=20)
@given(seed=SEEDS, num_players=st.sampled_from((2, 3, 4)))
def test_a_new_game(seed: int, num_players: int) -> None:
    start = seed % num_players
    words: PackedState = np.full(NUM_WORDS, 77, np.int64)
    compiled.start_game(words, num_players, start)
    compiled.deal_packed(words, deal_numbers(SplitMix(seed), 4 * (2 * num_players + 1)))
    state = new_game(num_players, starting_player=start, rng=SplitMix(seed))
    assert_array_equal(words, pack_state(state))


@settings(max_examples=40)
@given(state=states(max_moves=400), seed=SEEDS)
def test_what_fits_is_kept_up_to_date(state: GameState, seed: int) -> None:
    """`fits` changes with lines and walls; made anew from the position it is the same."""
    words = pack_state(state)
    for number in range(200):
        mask = np.zeros(300, np.bool_)
        compiled.write_mask(words, mask)
        ids = np.flatnonzero(mask)
        if not len(ids):
            return
        action_id = int(ids[(seed + number) % len(ids)])
        if not compiled.take_packed(words, *choice_of(action_id)):
            compiled.pass_turn(words)
        elif compiled.end_round(words):
            return
        else:
            size = 4 * compiled.num_factories_packed(words)
            compiled.deal_packed(words, SplitMix(seed + number).random(size))
        again = pack_state(unpack_state(words, state.rng))
        assert_array_equal(words, again)
        assert words[18 + FITS] == again[18 + FITS]


def test_the_marker_lies_before_the_tiles() -> None:
    state = position([board(floor=[0] * 5), board()], centre=(0, 4, 0, 0, 0))
    words = pack_state(state)
    compiled.take_packed(words, 9, 6 * 1 + 5)
    assert unpack_state(words, state.rng).players[0].floor == [0, 0, 0, 0, 0, 5, 1]
    assert unpack_state(words, state.rng).lid == [0, 3, 0, 0, 0]


def test_a_full_floor_takes_nothing() -> None:
    state = position([board(floor=[0] * 7), board()], centre=(0, 2, 0, 0, 1))
    words = pack_state(state)
    compiled.take_packed(words, 9, 6 * 1 + 5)
    after = unpack_state(words, state.rng)
    assert after.players[0].floor == [0] * 7
    assert after.marker == 0
    assert after.lid == [0, 2, 0, 0, 0]


def test_every_id_is_a_source_and_a_choice() -> None:
    for action_id, action in enumerate(ACTIONS):
        source, choice = choice_of(action_id)
        assert action == (source, choice // 6, choice % 6)
