"""Action ids: 300, and a bijection."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import SchemaError
from entity_env.games.azul import (
    ACTION_SPACE_SIZE,
    ACTIONS,
    Action,
    ActionEncoder,
    Agent,
    AzulAgent,
    AzulEnv,
    Color,
    DraftDestination,
    DraftSource,
    InvalidActionId,
    Observation,
)
from tests.games.azul.recorded_games import tables

FIELDS = st.builds(Action, st.integers(0, 9), st.integers(0, 4), st.integers(0, 5))


def test_there_are_300() -> None:
    assert ACTION_SPACE_SIZE == ActionEncoder.action_space_size() == len(set(ACTIONS)) == 300


def test_ids_are_the_recorded_ones() -> None:
    for action_id, *fields in tables()["actions"]:
        assert ActionEncoder.decode(action_id) == tuple(fields)
        assert ActionEncoder.encode(Action(*fields)) == action_id


def test_every_id_decodes_to_fields_in_range_and_back() -> None:
    for action_id in range(300):
        action = ActionEncoder.decode(action_id)
        assert 0 <= action.source <= 9
        assert 0 <= action.colour <= 4
        assert 0 <= action.destination <= 5
        assert ActionEncoder.encode(action) == action_id


@given(action=FIELDS)
def test_every_action_encodes_and_back(action: Action) -> None:
    action_id = ActionEncoder.encode(action)
    assert 0 <= action_id < 300
    assert ActionEncoder.decode(action_id) == action


def test_ids_may_be_integers_of_numpy() -> None:
    assert ActionEncoder.decode(np.int16(299)) == Action(9, 4, 5)  # type: ignore[arg-type]
    assert type(ActionEncoder.encode(Action(*np.array([9, 4, 5])))) is int


NO_IDS = [
    -1,
    300,
    2**70,
    True,
    np.True_,
    1.0,
    np.float32(1),
    float("nan"),
    None,
    "1",
    np.array([1]),
]


@pytest.mark.parametrize("value", NO_IDS)
def test_other_ids_are_refused(value: int) -> None:
    with pytest.raises(InvalidActionId, match="an integer from 0 to 299, got"):
        ActionEncoder.decode(value)


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ((10, 0, 0), "source"),
        ((-1, 0, 0), "source"),
        ((0, 5, 0), "colour"),
        ((0, -1, 0), "colour"),
        ((0, 0, 6), "destination"),
        ((0, 0, 1.0), "destination"),
        ((0, True, 0), "colour"),
    ],
)
def test_other_fields_are_refused(fields: tuple[Any, Any, Any], name: str) -> None:
    with pytest.raises(SchemaError, match=f"{name} of an action must be an integer from 0 to"):
        ActionEncoder.encode(Action(*fields))


@pytest.mark.parametrize("value", [None, 5, (0, 1), (0, 1, 2, 3), [0, 1, 2], "012", {}])
def test_what_is_no_action_is_refused(value: Any) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=r"must be Action\(source, colour, destination\), got"):
        ActionEncoder.encode(value)


def test_a_plain_tuple_is_an_action() -> None:
    assert ActionEncoder.encode((9, 4, 5)) == 299  # type: ignore[arg-type]


def test_an_action_reads_as_a_player_says_it() -> None:
    assert str(Action(9, 0, 5)) == "blue from the center to the floor"
    assert str(Action(3, 4, 0)) == "white from factory 3 to line 0"


@given(st.integers(0, 299))
def test_sources_destinations_and_colours_have_names(action_id: int) -> None:
    action = ActionEncoder.decode(action_id)
    source = DraftSource.Center if action.source == 9 else DraftSource.Factory(action.source)
    place = action.destination
    destination = DraftDestination.Floor if place == 5 else DraftDestination.PatternLine(place)
    named = Action(source, Color.from_index(action.colour), destination)
    assert named == action
    assert str(named) == str(action)
    assert ActionEncoder.encode(named) == action_id


def test_other_names_of_the_same() -> None:
    assert Agent is AzulAgent
    observation: Observation = AzulEnv(seed=1).reset().observations[0]
    assert observation.dtype == np.float32


def test_names_of_what_there_is_not() -> None:
    for make, number in (
        (DraftSource.Factory, 9),
        (DraftDestination.PatternLine, 5),
        (Color.from_index, -1),
    ):
        with pytest.raises(SchemaError, match=f"an integer from 0 to ., got {number}"):
            make(number)
