"""FastGame: errors and copies; its rules are tested against `oracle` elsewhere."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import SchemaError, UsageError
from entity_env.games.azul import (
    Action,
    ActionEncoder,
    FastGame,
    GameState,
    IllegalAction,
    InvalidActionId,
    new_game,
)
from entity_env.games.azul.engine.engine import legal_ids
from entity_env.games.azul.kernels.observation import OBS_SIZE
from entity_env.games.azul.kernels.step import ILLEGAL
from tests.games.azul.recorded_games import board, position, states


def check_equal(game: FastGame, state: GameState) -> None:
    assert game == state
    assert np.flatnonzero(game.legal_mask()).tolist() == legal_ids(state)
    # Includes data not in a state: `fits`, which is updated with every move, and unused bits.
    assert list(map(int, game.words)) == state.words


@given(state=states(), action_id=st.integers(0, 299))
def test_whatever_is_not_legal_is_refused(state: GameState, action_id: int) -> None:
    game = FastGame.from_state(state)
    if action_id in legal_ids(state):
        return
    with pytest.raises(IllegalAction, match="may not take"):
        game.play(action_id)
    check_equal(game, state)


@pytest.mark.parametrize("action_id", [-1, 300, True, 1.0, float("nan"), None])
def test_whatever_is_no_id_is_refused(action_id: Any) -> None:  # noqa: ANN401
    with pytest.raises(InvalidActionId):
        FastGame(2).play(action_id)


@pytest.mark.parametrize("copied", [FastGame.copy, copy.copy])
def test_a_copy_is_on_its_own(copied: Callable[[FastGame], FastGame]) -> None:
    game = FastGame(3, rng=np.random.default_rng(1))
    other = copied(game)
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
    with pytest.raises(SchemaError, match="draw must return a color that is in the bag"):
        game.play(ActionEncoder.encode(Action(9, 0, 5)))
    check_equal(game, state)
    with pytest.raises(SchemaError, match="draw must return"):
        FastGame(2, draw=lambda bag: 7)


@pytest.mark.parametrize(("num_players", "start"), [(1, 0), (5, 0), (2, 2), (2, -1), (2.0, 0)])
def test_games_that_cannot_be(num_players: int, start: int) -> None:
    with pytest.raises(UsageError, match="must be"):
        FastGame(num_players, starting_player=start)


def test_without_rows_no_observation_is_filled() -> None:
    game = FastGame(3)
    nothing = np.zeros((0, OBS_SIZE), np.float32)
    mask, rewards = np.zeros(300, np.bool_), np.zeros(4, np.float32)
    assert game.show(nothing, mask) == 0
    action_id, wrong = int(mask.argmax()), int(mask.argmin())
    mask[:] = False
    assert game.move(wrong, nothing, mask, rewards) == ILLEGAL
    assert not mask.any()
    assert game.move(action_id, nothing, mask, rewards) == 1
    assert mask.any()
