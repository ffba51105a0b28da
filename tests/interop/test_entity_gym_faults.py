"""Faults in entity-gym's contract are not repeated here: one test for each."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import entity_env
from entity_env import (
    Action,
    ActionMask,
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    Environment,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    SchemaError,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    VecObs,
    questions,
)
from entity_env.agents import random_action, random_actions
from entity_env.batching.observation_batcher import ObservationBatcher
from tests.helpers.batches import finish
from tests.helpers.strategies import untyped

SPACE = ObsSpace(["t"], {"Rock": Entity(["x"]), "Ship": Entity(["x", "y"])})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(["left", "right"]),
    "stance": GlobalCategoricalActionSpace(["calm", "angry", "asleep"]),
    "shoot": SelectEntityActionSpace(),
}


def shown(actions: Mapping[str, ActionMask], **changes: object) -> Observation:
    """Three rocks without ids, and two ships with ids."""
    given: dict[str, object] = {
        "features": {"Rock": [[1], [2], [3]], "Ship": [[4, 5], [6, 7]]},
        "ids": {"Ship": ["one", "two"]},
    }
    return Observation(
        reward=0.0, global_features=[0.5], actions=actions, **untyped({**given, **changes})
    )


def batch_of(*observations: Observation) -> VecObs:
    writer = ObservationBatcher(SPACE, ACTIONS)
    for observation in observations:
        writer.add(observation)
    return finish(writer)


class Still(Environment):
    def obs_space(self) -> ObsSpace:
        return SPACE

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {}

    def reset(self, *, seed: int | None = None) -> Observation:
        return shown({})

    def act(self, actions: Mapping[str, Action]) -> Observation:
        return shown({})


def test_filters_filter() -> None:
    wanted = ObsSpace([], {"Ship": Entity(["y"])})
    for observation in (Still().reset_filter(wanted), Still().act_filter({}, wanted)):
        assert list(observation.features) == ["Ship"]
        assert untyped(observation.features["Ship"]).tolist() == [[5], [7]]
        assert len(observation.global_features) == 0


def test_entities_without_ids_do_not_shift_those_of_later_types() -> None:
    mask = CategoricalActionMask(actor_ids=["two"])
    assert batch_of(shown({"move": mask})).action_masks["move"].actors.values.tolist() == [4]


def test_one_id_in_two_types_is_an_error() -> None:
    mask = CategoricalActionMask(actor_ids=["two"])
    both = {"Rock": ["two", "b", "c"], "Ship": ["one", "two"]}
    with pytest.raises(SchemaError, match="'two' belongs to more than one entity"):
        batch_of(shown({"move": mask}, ids=both))


def test_a_global_mask_may_have_one_dimension() -> None:
    flat = GlobalCategoricalActionMask(mask=[True, False, True])
    nested = GlobalCategoricalActionMask(mask=[[True, False, True]])
    for mask in (flat, nested):
        batch = batch_of(shown({"stance": mask}))
        assert untyped(batch.action_masks["stance"]).mask.values.tolist() == [[True, False, True]]


def test_an_action_may_be_absent_from_some_observations_of_a_batch() -> None:
    every: dict[str, ActionMask] = {
        "move": CategoricalActionMask(actor_types=["Ship"]),
        "stance": GlobalCategoricalActionMask(),
        "shoot": SelectEntityActionMask(actor_types=["Ship"], actee_types=["Rock"]),
    }
    for name in every:
        rest = {other: mask for other, mask in every.items() if other != name}
        batch = batch_of(shown(every), shown(rest), shown({}), shown(every))
        lengths = batch.action_masks[name].actors.lengths
        assert (lengths > 0).tolist() == [True, False, False, True]
        answers = random_actions(batch, ACTIONS, np.random.default_rng(0))
        assert len(answers[name]) == lengths.sum()


def test_a_select_action_without_an_actee_is_an_error_and_draws_nothing() -> None:
    nobody = SelectEntityActionMask(actor_types=["Ship"], actee_ids=[])
    with pytest.raises(SchemaError, match="2 actors have no legal choice"):
        batch_of(shown({"shoot": nobody}))
    with pytest.raises(SchemaError, match="2 actors have no legal choice"):
        questions(shown({"shoot": nobody}), SPACE, ACTIONS)


def test_the_mask_of_a_select_action_counts() -> None:
    allowed = np.array([[0, 0, 1], [1, 0, 0]])
    mask = SelectEntityActionMask(actor_types=["Ship"], actee_types=["Rock"], mask=allowed)
    observation = shown({"shoot": mask})
    batch = batch_of(*[observation] * 20)
    rng = np.random.default_rng(0)
    assert random_actions(batch, ACTIONS, rng)["shoot"].tolist() == [2, 0] * 20
    [question] = questions(observation, SPACE, ACTIONS)
    action = random_action(question, rng)
    assert untyped(action).actees == [("Rock", 2), ("Rock", 0)]
    with pytest.raises(SchemaError, match="which its mask forbids"):
        question.action([0, 0])


@pytest.mark.parametrize("dtype", ["float64", "float16", "int64", "uint8", "bool"])
def test_features_may_have_any_numeric_dtype(dtype: str) -> None:
    rocks = np.array([[1], [0]], dtype=dtype)
    many = np.ones((200, 2), dtype=dtype)
    batch = batch_of(shown({}, features={"Rock": rocks, "Ship": many}, ids={}))
    assert batch.features["Rock"].values.dtype == np.float32
    assert batch.features["Rock"].values.tolist() == [[1], [0]]
    assert batch.features["Ship"].values.sum() == 400


@pytest.mark.parametrize("dtype", ["bool", "int64", "uint8", "float32"])
def test_masks_may_have_any_dtype_of_zeros_and_ones(dtype: str) -> None:
    mask = np.array([[1, 0], [0, 1]], dtype=dtype)
    given = CategoricalActionMask(actor_types=["Ship"], mask=untyped(mask))
    batch = batch_of(shown({"move": given}))
    values = untyped(batch.action_masks["move"]).mask.values
    assert values.dtype == np.bool_
    assert values.tolist() == [[True, False], [False, True]]


@pytest.mark.slow
def test_no_assertion_serves_as_validation() -> None:
    package = Path(inspect.getfile(entity_env)).parent
    for path in package.rglob("*.py"):
        asserted = [
            node for node in ast.walk(ast.parse(path.read_text())) if type(node) is ast.Assert
        ]
        assert not asserted, path


def test_what_is_wrong_is_found_with_assertions_switched_off() -> None:
    script = "from entity_env import CategoricalActionSpace; CategoricalActionSpace([])"
    done = subprocess.run(
        [sys.executable, "-O", "-c", script], stderr=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 1
    assert "SchemaError: a categorical action needs at least one label" in done.stderr
