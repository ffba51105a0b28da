"""Action masks that a vector environment of Gymnasium reports in `info`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import SchemaError
from entity_env.interop.gymnasium.from_gymnasium import AllowedActions

NUM_ENVS = 3
Flags = list[bool]
FLAGS = st.lists(st.booleans(), min_size=NUM_ENVS, max_size=NUM_ENVS)


def flags(*values: bool) -> NDArray[np.bool_]:
    return np.array(values, np.bool_)


def test_nothing_is_forbidden_before_a_mask_is_told() -> None:
    allowed = AllowedActions(NUM_ENVS, 2, "source")
    allowed.read({})
    allowed.read({"action_mask": None})
    assert allowed.of(flags(True, True, True)) is None


@given(FLAGS, FLAGS)
def test_a_mask_lasts_until_the_next_one_of_that_environment(told: Flags, ready: Flags) -> None:
    allowed = AllowedActions(NUM_ENVS, 2, "source")
    first, second = np.tile([True, False], (NUM_ENVS, 1)), np.tile([False, True], (NUM_ENVS, 1))
    allowed.read({"action_mask": first.astype(np.int8)})
    allowed.read({"action_mask": second, "_action_mask": np.array(told)})
    allowed.read({"reward": 1})
    found = allowed.of(np.array(ready))
    assert found is not None
    assert found.dtype == np.bool_
    whose = [is_told for is_told, is_ready in zip(told, ready, strict=True) if is_ready]
    assert found.tolist() == [[not is_told, is_told] for is_told in whose]


def test_masks_of_actions_that_are_no_choice_are_not_read() -> None:
    allowed = AllowedActions(NUM_ENVS, 0, "source")
    allowed.read({"action_mask": np.zeros((9, 9))})
    assert allowed.of(flags(True, True, True)) is None


def test_masks_that_cannot_be_are_told_where_they_came_from() -> None:
    allowed = AllowedActions(NUM_ENVS, 2, "CartPole")
    for shape in ((3,), (2, 2), (3, 3)):
        with pytest.raises(SchemaError, match=r"CartPole: .* needs the shape \(3, 2\)"):
            allowed.read({"action_mask": np.ones(shape)})
    assert allowed.of(flags(True, True, True)) is None  # what was refused has changed nothing
    allowed.read({"action_mask": [[1, 0], [0, 0], [1, 1]]})
    with pytest.raises(SchemaError, match="of env 1 allows nothing"):
        allowed.of(flags(True, True, False))
    assert allowed.of(flags(True, False, True)) is not None  # nobody asks that one
