"""Environment: methods inherited by subclasses, and filters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from entity_env import (
    Action,
    ActionSpace,
    CategoricalActionMask,
    Entity,
    Environment,
    Observation,
    ObsSpace,
    SchemaError,
)
from entity_env.core.environment import filter_observation
from tests.helpers.strategies import untyped

SPACE = ObsSpace(
    ["t", "u"], {"A": Entity(["x", "y"]), "B": Entity(["z"]), "C": Entity([]), "D": Entity(["w"])}
)


class Still(Environment):
    """Always returns the same observation."""

    def obs_space(self) -> ObsSpace:
        return SPACE

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {}

    def reset(self, *, seed: int | None = None) -> Observation:
        return self._observe(0.0)

    def act(self, actions: Mapping[str, Action]) -> Observation:
        return self._observe(1.0)

    def _observe(self, reward: float) -> Observation:
        return Observation(
            reward=reward,
            terminated=True,
            truncated=True,
            global_features=[1, 2],
            features={"A": [[1, 2], [3, 4]], "B": np.array([[5]]), "C": np.zeros((2, 0))},
            ids={"A": ["a", "b"], "B": ["c"]},
            actions={"act": CategoricalActionMask(actor_types=["A"])},
            visible={"A": [True, False], "B": [True]},
            metrics={"won": 1.0},
        )


def test_an_environment_must_say_four_things() -> None:
    with pytest.raises(TypeError, match="abstract"):
        untyped(Environment)()


def test_the_rest_has_defaults() -> None:
    env = Still()
    env.close()
    env.close()
    with pytest.raises(NotImplementedError, match=r"Still has no render\(\)"):
        env.render()


@pytest.mark.parametrize("reward", [0.0, 1.0])
def test_filters_keep_what_they_name_in_their_order(reward: float) -> None:
    wanted = ObsSpace(["u"], {"C": Entity([]), "A": Entity(["y", "x"]), "D": Entity(["w"])})
    env = Still()
    seen = env.act_filter({}, wanted) if reward else env.reset_filter(wanted)
    assert untyped(seen.global_features).tolist() == [2.0]
    assert {name: untyped(rows).tolist() for name, rows in seen.features.items()} == {
        "C": [[], []],
        "A": [[2.0, 1.0], [4.0, 3.0]],
    }
    assert list(seen.features) == ["C", "A"]
    assert seen.ids == {"A": ["a", "b"]}
    assert seen.visible == {"A": [True, False]}
    assert (seen.reward, seen.terminated, seen.truncated) == (reward, True, True)
    assert list(seen.actions) == ["act"]
    assert seen.metrics == {"won": 1.0}


def test_an_empty_filter_leaves_nothing() -> None:
    assert Still().reset_filter(ObsSpace()).is_blank


def test_no_entities_stay_none() -> None:
    shown = Observation(reward=0.0, features={"A": [], "B": np.zeros((0, 1))})
    filtered = filter_observation(
        shown, ObsSpace([], SPACE.entities), ObsSpace([], {"A": Entity(["y"]), "B": Entity(["z"])})
    )
    assert untyped(filtered.features["A"]).shape == (0, 1)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (ObsSpace([], {"E": Entity(["x"])}), "names entity 'E', expected one of A, B, C, D"),
        (ObsSpace([], {"A": Entity(["z"])}), "names feature 'z' of entity 'A', which has"),
        (ObsSpace(["v"], {}), "names feature 'v' of the globals"),
    ],
)
def test_a_filter_that_names_what_is_not_there_is_refused(wanted: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=message):
        Still().reset_filter(wanted)
