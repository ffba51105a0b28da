"""FastGame: equal to the reference, move by move, on recorded games and at random."""

import copy
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import MissingExtraError, SchemaError, UsageError
from entity_env.core import validation
from entity_env.games.azul import (
    ACTIONS,
    Action,
    ActionEncoder,
    FastGame,
    GameState,
    IllegalAction,
    InvalidActionId,
    apply_action,
    legal_actions,
    new_game,
    single_game,
    winners,
)
from entity_env.games.azul.kernels import engine as engine_compiled
from entity_env.games.azul.kernels.packed_state import (
    NUM_WORDS,
    pack_state,
    pack_tiles,
    unpack_state,
    unpack_tiles,
)
from tests.games.azul.recorded_games import (
    DATA,
    NUM_PLAYERS,
    POLICIES,
    SEEDS,
    WHOLE,
    Policy,
    Recorded,
    blocked,
    board,
    play_on,
    position,
    recorded_draw,
    recorded_games,
    states,
    tables,
)

GAMES = recorded_games(DATA)


def ids_of(state: GameState) -> list[int]:
    return [ActionEncoder.encode(action) for action in legal_actions(state)]


def check_equal(game: FastGame, state: GameState) -> None:
    assert game.state() == state
    assert np.flatnonzero(game.legal_mask()).tolist() == ids_of(state)
    assert game.current_player == state.current_player
    assert game.num_players == state.num_players
    assert game.round == state.round
    assert game.end == state.end
    assert game.is_over == state.is_over
    assert game.scores == state.scores
    # Also what a state does not show: `fits`, which is kept up move by move, and unused bits.
    np.testing.assert_array_equal(game.words, pack_state(state))


def replay(recorded: Recorded) -> None:
    game = FastGame(
        recorded["players"], starting_player=recorded["start"], draw=recorded_draw(recorded)
    )
    for i, fields in enumerate(recorded["moves"]):
        assert game.current_player == int(recorded["player"][i])
        mask = sum(1 << int(action_id) for action_id in np.flatnonzero(game.legal_mask()))
        assert mask == int(recorded["legal"][i], 16)
        game.play(ActionEncoder.encode(Action(*fields)))
    assert game.end == recorded["end"]
    assert game.scores == recorded["final"]
    assert winners(game.state()) == recorded["winners"]


@pytest.mark.parametrize("recorded", GAMES, ids=[game["id"] for game in GAMES])
def test_a_recorded_game(recorded: Recorded) -> None:
    replay(recorded)


@pytest.mark.slow
@pytest.mark.skipif(not WHOLE.exists(), reason="the whole set of recorded games is not here")
def test_the_whole_set_of_recorded_games() -> None:
    for recorded in recorded_games(WHOLE):
        replay(recorded)


@settings(max_examples=40)
@given(seed=SEEDS, num_players=NUM_PLAYERS, policy=st.sampled_from(POLICIES))
def test_it_equals_the_reference_move_by_move(seed: int, num_players: int, policy: Policy) -> None:
    """Equal random numbers deal the same tiles."""
    start = seed % num_players
    state = new_game(num_players, starting_player=start, rng=np.random.default_rng(seed))
    game = FastGame(num_players, starting_player=start, rng=np.random.default_rng(seed))
    for now, _, action in play_on(state, policy, random.Random(seed)):
        check_equal(game, now)
        game.play(ActionEncoder.encode(action))
    check_equal(game, state)


@given(state=states(), seed=SEEDS)
def test_every_move_leads_where_the_reference_goes(state: GameState, seed: int) -> None:
    for action_id in ids_of(state)[::3]:
        state.rng = np.random.default_rng(seed)
        game = FastGame.from_state(state)
        after = apply_action(state, ACTIONS[action_id])
        state.rng = np.random.default_rng(seed)
        game = FastGame.from_state(state)
        game.play(action_id)
        check_equal(game, after)


@pytest.mark.slow
@pytest.mark.parametrize("num_players", [2, 3, 4])
@pytest.mark.parametrize("policy", POLICIES)
def test_it_equals_the_reference_for_long(num_players: int, policy: Policy) -> None:
    for seed in range(40):
        start = seed % num_players
        state = new_game(num_players, starting_player=start, rng=np.random.default_rng(seed))
        game = FastGame(num_players, starting_player=start, rng=np.random.default_rng(seed))
        for now, actions, action in play_on(state, policy, random.Random(seed)):
            np.testing.assert_array_equal(game.words, pack_state(now))
            assert np.count_nonzero(game.legal_mask()) == len(actions)
            game.play(ActionEncoder.encode(action))
        check_equal(game, state)


def test_placements_and_bonuses_are_the_recorded_ones() -> None:
    for wall, row, column, points in tables()["placement"]:
        assert engine_compiled.placement_points_packed(wall, row, column) == points
    for wall, rows, *_, points in tables()["bonus"]:
        assert engine_compiled.bonus_points_packed(wall) == points
        assert engine_compiled.rows_of(wall) == rows


def test_floors_are_the_recorded_ones() -> None:
    """Those without a gain; points of placements have a test of their own."""
    for score, gain, floor_length, after in tables()["floor"]:
        if gain:
            continue
        mine = board(score=score, floor=[4] * floor_length)
        words = pack_state(position([mine, board()]))
        engine_compiled.tile_walls_packed(words)
        (result, *_) = unpack_state(words, np.random.default_rng(0)).scores
        assert result == after


@given(counts=st.lists(st.integers(0, 20), min_size=5, max_size=5))
def test_tiles_packed_and_unpacked(counts: list[int]) -> None:
    tiles = pack_tiles(counts)
    assert 0 <= tiles < 2**30
    assert unpack_tiles(tiles) == counts
    present = engine_compiled.colour_fields(tiles)
    assert present == sum(63 << 6 * colour for colour in range(5) if counts[colour])


@given(state=states())
def test_packed_and_unpacked(state: GameState) -> None:
    words = pack_state(state)
    assert words.shape == (NUM_WORDS,)
    assert words.dtype == np.int64
    assert unpack_state(words, state.rng) == state


@pytest.mark.parametrize("fours_left", [True, False])
def test_games_that_can_never_go_on(fours_left: bool) -> None:
    state = blocked(fours_left)
    action = Action(9, 4, 5 if fours_left else 2)
    game = FastGame.from_state(state)
    game.play(ActionEncoder.encode(action))
    check_equal(game, apply_action(state, action))
    assert game.end == ("no_progress" if fours_left else "no_tiles")
    assert not game.legal_mask().any()


def test_a_short_deal() -> None:
    players = blocked(fours_left=True).players
    players[0].line_colours[4], players[0].line_counts[4] = 4, 1
    state = position(players, centre=(0, 0, 0, 0, 1), current_player=3)
    for seed in range(20):
        state.rng = np.random.default_rng(seed)
        game = FastGame.from_state(state)
        game.play(ActionEncoder.encode(Action(9, 4, 5)))
        state.rng = np.random.default_rng(seed)
        check_equal(game, apply_action(state, Action(9, 4, 5)))


@given(state=states(), action_id=st.integers(0, 299))
def test_whatever_is_not_legal_is_refused(state: GameState, action_id: int) -> None:
    game = FastGame.from_state(state)
    if action_id in ids_of(state):
        return
    with pytest.raises(IllegalAction, match="may not take"):
        game.play(action_id)
    check_equal(game, state)


@pytest.mark.parametrize("action_id", [-1, 300, True, 1.0, float("nan"), None])
def test_whatever_is_no_id_is_refused(action_id: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidActionId):
        FastGame(2).play(action_id)


def test_a_copy_is_on_its_own() -> None:
    game = FastGame(3, rng=np.random.default_rng(1))
    other = game.copy()
    check_equal(other, game.state())
    before = game.state()
    other.play(int(np.flatnonzero(other.legal_mask())[0]))
    check_equal(game, before)
    assert other.rng is game.rng


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_it_travels_to_another_process(copied: Callable[[FastGame], FastGame]) -> None:
    game = FastGame(3, rng=np.random.default_rng(1))
    game.play(int(np.flatnonzero(game.legal_mask())[3]))
    other = copied(game)
    check_equal(other, game.state())
    while not game.is_over:
        action_id = int(np.flatnonzero(game.legal_mask())[0])
        game.play(action_id)
        other.play(action_id)
        assert other.state() == game.state(), "its random numbers have gone along"


def test_the_state_is_a_copy() -> None:
    state = new_game(2, rng=np.random.default_rng(1))
    game = FastGame.from_state(state)
    game.state().players[0].score = 9
    state.players[0].score = 7
    assert game.scores == [0, 0]


def test_a_draw_that_answers_nonsense_changes_nothing() -> None:
    state = position([board(), board()], centre=(1, 0, 0, 0, 0))
    state.draw = lambda bag: 7
    game = FastGame.from_state(state)
    with pytest.raises(SchemaError, match="draw must return a colour that is in the bag"):
        game.play(ActionEncoder.encode(Action(9, 0, 5)))
    check_equal(game, state)
    with pytest.raises(SchemaError, match="draw must return"):
        FastGame(2, draw=lambda bag: 7)


@pytest.mark.parametrize(("num_players", "start"), [(1, 0), (5, 0), (2, 2), (2, -1), (2.0, 0)])
def test_games_that_cannot_be(num_players: int, start: int) -> None:
    with pytest.raises(UsageError, match="must be"):
        FastGame(num_players, starting_player=start)


def test_without_numba_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "has_numba", lambda: False)
    single_game._load.cache_clear()
    with pytest.raises(MissingExtraError, match="FastGame"):
        FastGame(2)
