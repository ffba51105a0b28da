"""Entities written by compiled code equal those of the game, for any number of players."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env import Obs
from entity_env.agents import PolicyAgent
from entity_env.core.observation import Observation
from entity_env.games.azul import ACTIONS, GameState, azul, legal_actions, new_game
from entity_env.games.azul.entities import options_of
from entity_env.games.azul.game import PICK, observe
from entity_env.games.azul.kernels import entities as module
from entity_env.games.azul.kernels.entities import (
    SCRATCH_SIZES,
    EntityRows,
    Scratch,
    write_entities,
)
from entity_env.games.azul.kernels.kernel import machine_code
from entity_env.games.azul.kernels.playouts import nth_move
from tests.games.azul.recorded_games import NUM_PLAYERS, states

# The first call compiles, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)

ENTITIES = azul.obs_space().entities
Rows = dict[str, NDArray[np.float32]]


class Witness(PolicyAgent):
    """Records its observation and leaves."""

    seen: Observation

    def decide(self, observation: Observation) -> None:
        self.seen = observation


def shown_by_the_game(state: GameState) -> Rows:
    witness = Witness()
    obs: Obs = observe(state, state.current_player)
    witness.act(obs.entities(options_of(state)), PICK)
    return {name: np.asarray(witness.seen.features[name], np.float32) for name in ENTITIES}


def written(*states: GameState) -> Rows:
    """All rows of some positions; the arrays contain other data before."""
    most = 250 * len(states)
    shown = EntityRows(
        *(np.full((most, len(each.features)), 77, np.float32) for each in ENTITIES.values())
    )
    at = np.zeros(3, np.int64)
    scratch: Any = (np.zeros(size, np.int64) for size in SCRATCH_SIZES)
    scratch = Scratch(*scratch)
    counts = dict.fromkeys(ENTITIES, 0)
    for state in states:
        words = np.array(state.words)
        groups, num_options = machine_code(write_entities)(words, at, shown, scratch)
        assert words.tolist() == state.words
        assert num_options == len(legal_actions(state))
        players = state.num_players
        each = (1, 2 * players + 2, groups, players, 5 * players, 5 * players, num_options)
        for name, count in zip(ENTITIES, each, strict=True):
            counts[name] += count
    assert at.tolist() == [len(states), counts["Group"], counts["Option"]]
    for name, rows in zip(ENTITIES, shown, strict=True):
        assert (rows[counts[name] :] == 77).all()
    return {n: rows[: counts[n]] for n, rows in zip(ENTITIES, shown, strict=True)}


def assert_same(mine: Rows, theirs: Rows) -> None:
    for name, entity in ENTITIES.items():
        assert mine[name].shape == theirs[name].shape
        for column, feature in enumerate(entity.features):
            assert_array_equal(
                mine[name][:, column], theirs[name][:, column], f"{name}.{feature}", strict=True
            )


@settings(max_examples=60, deadline=None)
@given(state=states())
def test_a_position(state: GameState) -> None:
    if not state.is_over:
        assert_same(written(state), shown_by_the_game(state))


@settings(max_examples=15, deadline=None)
@given(seeds=st.lists(st.integers(0, 999), min_size=1, max_size=4), num_players=NUM_PLAYERS)
def test_positions_follow_one_another(seeds: list[int], num_players: int) -> None:
    games = [new_game(num_players, rng=np.random.default_rng(seed)) for seed in seeds]
    each = [shown_by_the_game(state) for state in games]
    together = {name: np.concatenate([rows[name] for rows in each]) for name in ENTITIES}
    assert_same(written(*games), together)


def test_the_places_of_features_are_those_of_the_schema() -> None:
    """Compiled code uses fixed indices."""
    features = list(ENTITIES["Option"].features)
    for name in (
        "source",
        "count",
        "placed",
        "completes",
        "left",
        "line_points",
        "groups",
        "next_drop",
    ):
        assert getattr(module, f"_{name.upper()}") == features.index(name)
    assert features[module._COLOUR] == "colour.is_BLUE"
    assert features[module._LINE] == "line.0"
    assert features[module._NEXT_LINES] == "next_lines.0"
    assert len(features) == module._NEXT_ROOM + 1


def test_options_are_in_the_order_of_their_ids() -> None:
    """So the index of a row is a legal move, as used by `AzulSelfPlay`."""
    state = new_game(2, rng=np.random.default_rng(4))
    rows = written(state)["Option"]
    for place, (action, option) in enumerate(
        zip(legal_actions(state), options_of(state), strict=True)
    ):
        assert ACTIONS[option.action_id] == action
        source, choice = nth_move(state.words, place)
        assert (source, *divmod(choice, 6)) == action
        assert rows[place, 0] == action.source
        assert rows[place, 7] == action.destination
    assert nth_move(state.words, len(rows)) == (-1, -1)
