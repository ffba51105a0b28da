"""Differences of spaces: none means equal JSON, each change is one sentence, sides can swap."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import ActionSpace, ObsSpace, SchemaError
from entity_env.core.spaces import (
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
    Spaces,
    differences,
    spaces_from_json,
    spaces_to_json,
)
from tests.helpers.strategies import action_spaces, obs_spaces, untyped

SPACES = st.tuples(obs_spaces(), action_spaces())
OBS = ObsSpace(["time"], {"Head": Entity(["x", "y"]), "Rock": Entity([])})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(["up", "down"]),
    "call": GlobalCategoricalActionSpace(["a", "b"]),
    "eat": SelectEntityActionSpace(),
    "push": ContinuousActionSpace([-1], [1], ["force"]),
}
DATA = spaces_to_json(OBS, ACTIONS)


@given(first=SPACES, second=SPACES)
def test_no_difference_means_the_same_json(first: Spaces, second: Spaces) -> None:
    same = json.dumps(spaces_to_json(*first)) == json.dumps(spaces_to_json(*second))
    assert (differences(first, second) == []) == same


@given(first=SPACES, second=SPACES)
def test_swapped_sides_tell_the_same_of_each_other(first: Spaces, second: Spaces) -> None:
    there = differences(first, second, expected_name="A-side", got_name="B-side")
    back = differences(second, first, expected_name="B-side", got_name="A-side")
    assert len(there) == len(back) == len(set(there))
    assert {sentence for sentence in there if sentence.endswith(" has not")} == {
        sentence for sentence in back if sentence.endswith(" has not")
    }
    assert not any("checkpoint" in sentence or "the game" in sentence for sentence in there)


@given(spaces=SPACES, random=st.randoms(use_true_random=False))
def test_another_order_is_a_difference_of_its_own(spaces: Spaces, random: Random) -> None:
    names = [*spaces[1]]
    random.shuffle(names)
    told = differences(spaces, (spaces[0], {name: spaces[1][name] for name in names}))
    assert told == [
        f"action order differs: the checkpoint has {', '.join(spaces[1])}; "
        f"the game has {', '.join(names)}"
    ] * (names != [*spaces[1]])


@given(spaces=SPACES)
def test_json_keeps_the_order_of_everything(spaces: Spaces) -> None:
    obs_space, action_space = spaces_from_json(json.loads(json.dumps(spaces_to_json(*spaces))))
    assert list(obs_space.entities) == list(spaces[0].entities)
    assert list(action_space) == list(spaces[1])
    for name, space in action_space.items():
        assert type(space) is type(spaces[1][name])
    assert differences(spaces, (obs_space, action_space)) == []


def test_bounds_of_numpy_are_numbers_of_json() -> None:
    space = ContinuousActionSpace(untyped(np.array([-1, 0])), untyped([np.float32(1), 2.5]))
    (told,) = json.loads(json.dumps(spaces_to_json(ObsSpace(), {"push": space})))["actions"]
    assert told == {
        "name": "push",
        "kind": "continuous",
        "labels": ["0", "1"],
        "low": [-1.0, 0.0],
        "high": [1.0, 2.5],
    }


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda d: d.pop("entities"), "a list under 'entities', got None"),
        (lambda d: d.update(global_features="time"), "a list under 'global_features', got 'time'"),
        (lambda d: d["entities"].append("Head"), "an entity in JSON must be an object, got str"),
        (lambda d: d["entities"][0].pop("name"), "a text under 'name', got None"),
        (lambda d: d["entities"][0].update(features=[1]), r"texts under 'features', got \[1\]"),
        (lambda d: d["entities"][0].update(features=["x", "x"]), "got x more than once"),
        (lambda d: d["entities"][0].update(name="__global__"), "'__global__' is reserved"),
        (lambda d: d["actions"].append(d["actions"][0]), "an action more than once"),
        (lambda d: d["actions"][0].update(name="go\0"), "actions need names without NUL"),
        (lambda d: d["actions"].append([]), "an action in JSON must be an object, got list"),
        (lambda d: d["actions"][0].update(labels=[]), "at least one label"),
        (lambda d: d["actions"][0].pop("labels"), "a list under 'labels', got None"),
        (lambda d: d["actions"][0].pop("kind"), "got None"),
        (
            lambda d: d["actions"][2].update(kind="select"),
            "select_entity, continuous: got 'select'",
        ),
        (lambda d: d["actions"][3].update(low=["-1"]), r"numbers under 'low', got \['-1'\]"),
        (lambda d: d["actions"][3].update(high=[True]), r"numbers under 'high', got \[True\]"),
        (lambda d: d["actions"][3].update(low=[-(10**400)]), "numbers under 'low', got"),
        (lambda d: d["actions"][3].update(low=[2]), "low < high: got low 2.0, high 1.0"),
        (lambda d: d["actions"][3].update(high=[float("nan")]), "finite bounds"),
        (lambda d: d["actions"][3].update(high=[1, 2]), "got 1 low, 2 high"),
    ],
)
def test_each_fault_of_the_json_is_named(spoil: Callable[[Any], object], message: str) -> None:
    data = copy.deepcopy(DATA)
    spoil(data)
    with pytest.raises(SchemaError, match=message):
        spaces_from_json(data)


def test_a_tuple_of_spaces_says_which_action_changed_and_how() -> None:
    changed: dict[str, ActionSpace] = ACTIONS | {
        "move": CategoricalActionSpace(["up", "left"]),
        "push": ContinuousActionSpace([-1], [2], ["torque"]),
    }
    assert differences((OBS, ACTIONS), (OBS, changed), expected_name="A", got_name="B") == [
        "action 'move': A has the label 'down', B does not",
        "action 'move': B has the label 'left', A does not",
        "action 'push': A has the label 'force', B does not",
        "action 'push': B has the label 'torque', A does not",
        "action 'push': A has the bounds [-1.0] to [1.0], B has [-1.0] to [2.0]",
    ]
