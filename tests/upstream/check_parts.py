"""Decisions in several parts in entity-gym: masks that depend on a choice are refused."""

from __future__ import annotations

import pytest

from entity_env import SchemaError
from entity_env.interop.entity_gym import environment, vec_env
from tests.games.composite_games import pair

REFUSED = r"'Pair\.second' depends on the choice before it, and entity-gym has no such masks"


def test_masks_that_depend_on_a_choice_are_refused() -> None:
    envs = vec_env(pair, 2)
    with pytest.raises(SchemaError, match=REFUSED):
        envs.reset(envs.obs_space())
    envs.close()
    with pytest.raises(SchemaError, match=REFUSED):
        environment(pair)().reset()
