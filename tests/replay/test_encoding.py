"""Observations and actions as JSON, and checksums."""

import json
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import (
    ActionSpace,
    CategoricalActionSpace,
    Entity,
    Observation,
    ObsSpace,
    SchemaError,
)
from entity_env.core.action_request import questions, random_action
from entity_env.replay.encoding import (
    actions_from_json,
    actions_to_json,
    checksum,
    json_number,
    json_numbers,
    observation_from_json,
    observation_to_json,
)
from tests.helpers.strategies import FLOATS, action_spaces, obs_spaces, observations

Scene: TypeAlias = tuple[Observation, ObsSpace, dict[str, ActionSpace]]


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    obs_space, action_space = draw(obs_spaces()), draw(action_spaces())
    return draw(observations(obs_space, action_space)), obs_space, action_space


def through_json(value: object) -> object:
    return json.loads(json.dumps(value, allow_nan=False))


@given(st.lists(FLOATS))
def test_numbers_of_single_precision_survive(values: list[float]) -> None:
    array = np.array(values, dtype=np.float32)
    read = np.array(through_json(json_numbers(array)), dtype=np.float32)
    np.testing.assert_array_equal(read, array)


@given(
    st.floats(width=32, allow_nan=False, allow_infinity=False)
    | st.integers(-149, 127).map(lambda power: 2.0**power)
)
def test_numbers_in_lists_have_the_digits_that_numpy_gives_them(value: float) -> None:
    assert json_numbers([value]) == json_numbers(np.array([value], dtype=np.float32))


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_of_double_precision_survive(value: float) -> None:
    assert float(json.loads(json.dumps(json_number(value)))) == value


@given(scenes())
def test_an_observation_survives(
    scene: Scene,
) -> None:
    observation, obs_space, action_space = scene
    data = through_json(observation_to_json(observation, obs_space))
    assert isinstance(data, Mapping)
    read = observation_from_json(
        data,
        (obs_space, action_space),
        reward=float(observation.reward),
        terminated=observation.terminated,
        truncated=observation.truncated,
    )
    assert checksum(read, obs_space) == checksum(observation, obs_space)
    for name in obs_space.entities:
        count = observation.num_entities(name)
        assert read.num_entities(name) == count
        if count:
            np.testing.assert_array_equal(
                read.features[name], np.asarray(observation.features[name], dtype=np.float32)
            )


@given(scenes(), st.integers(0, 99))
def test_actions_survive(scene: Scene, seed: int) -> None:
    observation, obs_space, action_space = scene
    spaces = obs_space, action_space
    rng = np.random.default_rng(seed)
    actions = {each.name: random_action(each, rng) for each in questions(observation, *spaces)}
    data = through_json(actions_to_json(actions, observation, obs_space))
    assert isinstance(data, Mapping)
    read = actions_from_json(data, observation, spaces)
    assert actions_to_json(read, observation, obs_space) == data
    for name, action in actions.items():
        np.testing.assert_equal(vars(read[name]), vars(action))


@given(scenes(), st.data())
def test_a_checksum_sees_every_change(scene: Scene, data: st.DataObject) -> None:
    observation, obs_space, _ = scene
    before = checksum(observation, obs_space)
    shown = [n for n in obs_space.entities if np.size(observation.features.get(n, ()))]
    what = data.draw(st.sampled_from(["reward", "end", *shown]))
    if what == "reward":
        observation.reward = -observation.reward or 1.0
    elif what == "end":
        observation.truncated = not observation.truncated
    else:
        rows = np.array(observation.features[what], dtype=np.float32)
        at = data.draw(st.integers(0, rows.size - 1))
        rows.flat[at] = 1 if rows.flat[at] == 0 else -rows.flat[at]
        observation.features = {**observation.features, what: rows}
    assert checksum(observation, obs_space) != before


def test_minus_zero_is_zero() -> None:
    space = ObsSpace(global_features=("x",))
    plus, minus = (Observation(reward=0.0, global_features=[x]) for x in (0.0, -0.0))
    assert checksum(plus, space) == checksum(minus, space)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"o": {"Dot": [[1, 2]]}}, "entities 'Dot' needs rows of 1 finite numbers"),
        ({"o": {"Dot": [[1e39]]}}, "entities 'Dot' needs rows of 1 finite numbers"),
        ({"o": []}, "entities must be an object"),
        ({"o": {"Dot": [[1]]}, "h": {"Dot": [1]}}, "hidden entities 'Dot': needs indices below 1"),
        ({"q": [1]}, "needs 0 global features"),
        ({"o": {"Dot": [[1]]}, "m": {"Move": {"actors": [7]}}}, "needs indices below 1"),
        ({"o": {"Dot": [[1]]}, "m": {"Move": {"actors": [0], "mask": ["012"]}}}, "1 texts of 2"),
    ],
)
def test_what_does_not_fit_is_refused(data: dict[str, object], message: str) -> None:
    obs_space = ObsSpace(entities={"Dot": Entity(("x",))})
    spaces = obs_space, {"Move": CategoricalActionSpace(("a", "b"))}
    with pytest.raises(SchemaError, match=message):
        observation_from_json(data, spaces, reward=0.0)
