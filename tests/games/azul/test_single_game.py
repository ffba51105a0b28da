"""Both engines as an environment steps them: the same status, arrays and refusals."""

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env.core import validation
from entity_env.errors import MissingExtraError, SchemaError, UsageError
from entity_env.games.azul import ACTIONS, FastGame
from entity_env.games.azul.engine.engine import take
from entity_env.games.azul.engine.state import is_table_empty
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.features import OBS_SIZE, FeatureExtractor
from entity_env.games.azul.single_game import (
    ILLEGAL,
    OVER,
    Mask,
    Observations,
    PlainGame,
    Rewards,
    SteppedGame,
    plays_compiled,
)
from tests.games.azul.recorded_games import NUM_PLAYERS, SEEDS

Arrays = tuple[Observations, Mask, Rewards]


def arrays(num_rows: int = 4) -> Arrays:
    return (
        np.zeros((num_rows, OBS_SIZE), np.float32),
        np.zeros(300, np.bool_),
        np.zeros(4, np.float32),
    )


def pair(num_players: int, seed: int, start: int = 0) -> tuple[SteppedGame, SteppedGame]:
    plain = PlainGame(num_players, starting_player=start, rng=SplitMix(seed))
    return plain, FastGame(num_players, starting_player=start, rng=SplitMix(seed))


@settings(max_examples=12)
@given(seed=SEEDS, num_players=NUM_PLAYERS, every=st.integers(1, 7))
def test_both_fill_in_the_same(seed: int, num_players: int, every: int) -> None:
    plain, fast = pair(num_players, seed, seed % num_players)
    mine, theirs = arrays(), arrays()
    status = plain.show(*mine[:2])
    assert fast.show(*theirs[:2]) == status == seed % num_players
    number = 0
    while status < OVER:
        for one, other in zip(mine, theirs, strict=True):
            assert_array_equal(one, other, strict=True)
        ids = np.flatnonzero(mine[1])
        action_id = int(ids[(number * every) % len(ids)])
        number += 1
        before = plain.scores
        mine, theirs = arrays(), arrays()
        status = plain.move(action_id, *mine)
        assert fast.move(action_id, *theirs) == status
        assert plain.scores == fast.scores
        assert plain.round == fast.round
        assert plain.state() == fast.state()
        gains = [new - old for old, new in zip(before, plain.scores, strict=True)]
        assert mine[2].tolist() == [*gains, *[0] * (4 - num_players)]
    assert not mine[1].any()
    assert not theirs[1].any()
    assert status - OVER == plain.state().current_player


@settings(max_examples=12)
@given(seed=SEEDS, num_players=NUM_PLAYERS)
def test_what_is_illegal_fills_in_nothing(seed: int, num_players: int) -> None:
    for game in pair(num_players, seed):
        seen = arrays()
        game.show(*seen[:2])
        before = game.state()
        for action_id in np.flatnonzero(~seen[1])[seed % 7 :: 7].tolist():
            filled = arrays()
            assert game.move(action_id, *filled) == ILLEGAL
            assert not any(each.any() for each in filled)
        assert game.state() == before


@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_without_rows_no_observation_is_filled(num_players: int) -> None:
    for game in pair(num_players, 3):
        observations, mask, rewards = arrays(num_rows=0)
        assert game.show(observations, mask) == 0
        action_id = int(mask.argmax())
        mask[:] = False
        assert game.move(action_id, observations, mask, rewards) == 1
        assert mask.any()


@pytest.mark.parametrize("num_players", [2, 3, 4])
def test_rows_are_what_the_extractor_says(num_players: int) -> None:
    features = FeatureExtractor()
    for game in pair(num_players, 5):
        observations, mask, _ = arrays()
        game.show(observations, mask)
        state = game.state()
        for player in range(num_players):
            assert_array_equal(observations[player], features.encode(state, player))
        assert not observations[num_players:].any()


@pytest.mark.parametrize("game_type", [PlainGame, FastGame])
def test_a_draw_that_fails_changes_nothing(game_type: type[SteppedGame]) -> None:
    """The first deal is fine, the second one is answered by a colour that there is not."""
    tiles = iter([i % 5 for i in range(20)])

    def draw(bag: tuple[int, ...]) -> int:
        return next(tiles, 7)

    game: SteppedGame = game_type(2, draw=draw)  # type: ignore[call-arg]
    while True:
        filled = arrays()
        game.show(*filled[:2])
        before = game.state()
        action_id = int(filled[1].argmax())
        rest = before.copy()
        take(rest, ACTIONS[action_id])
        if is_table_empty(rest):
            with pytest.raises(SchemaError, match="draw must return a colour"):
                game.move(action_id, *arrays())
            assert game.state() == before
            assert game.round == 1
            return
        game.move(action_id, *arrays())


def test_which_engine_plays() -> None:
    assert plays_compiled("auto", "a test")
    assert plays_compiled("numba", "a test")
    assert not plays_compiled("numpy", "a test")
    assert not plays_compiled("python", "a test")  # type: ignore[arg-type]  # the old name
    for wrong in ("cython", "", None, 1):
        with pytest.raises(UsageError, match="a test: backend must be one of auto, numba, numpy"):
            plays_compiled(wrong, "a test")  # type: ignore[arg-type]


def test_which_engine_plays_without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "has_numba", lambda: False)
    assert not plays_compiled("auto", "a test")
    assert not plays_compiled("numpy", "a test")
    with pytest.raises(MissingExtraError, match=r"a test\(backend=\"numba\"\) needs .*numba.*fast"):
        plays_compiled("numba", "a test")
