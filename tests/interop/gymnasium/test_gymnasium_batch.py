"""Batch environments as Gymnasium vector environments, also made by `make_vec`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import VectorizeMode
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import ClipAction

from entity_env import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    SchemaError,
    SelectEntityActionSpace,
    UsageError,
)
from entity_env.games.classic import CartPole, MountainCar, Pendulum
from entity_env.interop.gymnasium import BatchVectorEnv, make_vector_env
from entity_env.vec.batch_env.batch_env import BatchEnv
from tests.interop.gymnasium.counting_envs import CountBatch

each_mode = pytest.mark.parametrize("mode", AutoresetMode)


def cart_poles(num_envs: int, mode: AutoresetMode, limit: int = 500) -> BatchVectorEnv:
    return BatchVectorEnv(CartPole(num_envs, limit, backend="numpy"), autoreset_mode=mode)


@pytest.mark.parametrize("kind", [CartPole, MountainCar, Pendulum])
def test_spaces(kind: type[BatchEnv]) -> None:
    envs = make_vector_env(kind, 3, backend="numpy")
    assert envs.num_envs == 3
    assert envs.single_observation_space.shape == (envs.reset(seed=1)[0].shape[1],)
    assert envs.observation_space.shape == envs.reset(seed=1)[0].shape
    assert envs.single_observation_space.dtype == np.float32
    expected: Mapping[type[BatchEnv], spaces.Space[Any]] = {
        CartPole: spaces.Discrete(2),
        MountainCar: spaces.Discrete(3),
        Pendulum: spaces.Box(-2, 2, (1,), np.float32),
    }
    assert envs.single_action_space == expected[kind]
    obs, rewards, *_ = envs.step(envs.action_space.sample())
    assert obs in envs.observation_space
    assert rewards.shape == (3,)
    envs.close()


def test_a_list_of_seeds_is_a_seed_each() -> None:
    envs = cart_poles(4, AutoresetMode.DISABLED)
    by_one, _ = envs.reset(seed=7)
    np.testing.assert_array_equal(envs.reset(seed=[7, 8, 9, 10])[0], by_one)
    np.testing.assert_array_equal(envs.reset(seed=[10, 9, 8, 7])[0], by_one[::-1])
    same, _ = envs.reset(seed=[0, 0, 0, 2**100])
    assert (same[0] == same[:3]).all()
    assert (same[3] != same[0]).any()


def test_partial_resets_repeat_the_starts_of_their_seeds() -> None:
    envs = cart_poles(3, AutoresetMode.DISABLED)
    starts, _ = envs.reset(seed=[0, 1, 2])
    envs.action_space.seed(123)
    for _ in range(3):
        stepped, *_ = envs.step(envs.action_space.sample())
    mask = np.array([True, True, False])
    obs, infos = envs.reset(seed=[0, 1, 0], options={"reset_mask": mask})
    np.testing.assert_array_equal(obs[:2], starts[:2])
    np.testing.assert_array_equal(obs[2], stepped[2])
    assert infos == {}


def test_later_episodes_start_elsewhere() -> None:
    envs = cart_poles(3, AutoresetMode.DISABLED)
    starts = [envs.reset(seed=1)[0], *(envs.reset()[0] for _ in range(5))]
    assert len(np.unique(np.concatenate(starts), axis=0)) == 18
    again = [envs.reset(seed=1)[0], *(envs.reset()[0] for _ in range(5))]
    np.testing.assert_array_equal(starts, again)
    fresh = [cart_poles(3, AutoresetMode.DISABLED).reset()[0] for _ in range(2)]
    assert (fresh[0] != fresh[1]).all()


def test_numbers_out_of_bounds_are_refused_and_can_be_clipped() -> None:
    envs = BatchVectorEnv(Pendulum(2, backend="numpy"))
    envs.reset(seed=1)
    with pytest.raises(SchemaError, match=r"from -2 to 2: got 3\.0 for environment 1"):
        envs.step(np.array([[0.0], [3.0]]))
    for wrong in (np.zeros(2), np.zeros((2, 2)), np.zeros((2, 1), np.bool_), "ab"):
        with pytest.raises(SchemaError, match=r"Pendulum: actions must be \(2, 1\) numbers"):
            envs.step(wrong)
    assert ClipAction(envs).step(np.array([[0.0], [3.0]]))[1].shape == (2,)


@each_mode
def test_bad_choices_are_refused_before_anything_changes(mode: AutoresetMode) -> None:
    envs, other = (cart_poles(2, mode) for _ in range(2))
    envs.reset(seed=1)
    other.reset(seed=1)
    for wrong in ([0, 2], [0], [[0, 1]], [0.5, 1.0]):
        with pytest.raises(SchemaError):
            envs.step(wrong)
    assert data_equivalence(envs.step([0, 1]), other.step([0, 1]), exact=True)


class Picky(CountBatch):
    """Has an action that no interface supports."""

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Pick": SelectEntityActionSpace()}


class Steered(CountBatch):
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Steer": ContinuousActionSpace([0, 0], [1, 1])}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Picky, "Picky has the actions .*Pick.*one, of labels or of one number"),
        (Steered, "Steered has the actions .*Steer"),
    ],
)
def test_batches_that_cannot_be_shown(kind: type[CountBatch], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        BatchVectorEnv(kind([2]))


@pytest.fixture
def cart_pole_id() -> Iterator[str]:
    gymnasium.register(
        "OurCartPole-v0",
        vector_entry_point="entity_env.interop.gymnasium:make_vector_env",
        kwargs={"source": CartPole, "backend": "numpy"},
        max_episode_steps=20,
    )
    yield "OurCartPole-v0"
    del gymnasium.registry["OurCartPole-v0"]


@pytest.mark.parametrize("num_envs", [1, 3, 10])
def test_make_vec(cart_pole_id: str, num_envs: int) -> None:
    envs = gymnasium.make_vec(cart_pole_id, num_envs=num_envs)
    assert isinstance(envs, BatchVectorEnv)
    assert envs.num_envs == num_envs
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert repr(envs) == f"BatchVectorEnv(OurCartPole-v0, num_envs={num_envs})"
    envs.reset(seed=1)
    truncated = [envs.step(np.arange(num_envs) * 0 + i % 2)[3].any() for i in range(20)]
    assert truncated == [False] * 19 + [True]  # the step limit of the registration
    envs.close()


def test_make_vec_with_other_settings(cart_pole_id: str) -> None:
    envs = gymnasium.make_vec(
        cart_pole_id,
        num_envs=2,
        vectorization_mode=VectorizeMode.VECTOR_ENTRY_POINT,
        max_episode_steps=3,
        autoreset_mode=AutoresetMode.SAME_STEP,
    )
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    envs.reset(seed=1)
    assert [envs.step(np.array([0, 1]))[3].all() for _ in range(3)] == [False, False, True]
    assert envs.spec is not None
    again = gymnasium.make_vec(envs.spec)
    assert again.spec == envs.spec
    assert (again.num_envs, type(again)) == (2, BatchVectorEnv)
    assert again.observation_space == envs.observation_space
    assert again.action_space == envs.action_space
    assert again.metadata == envs.metadata
    with pytest.raises(gymnasium.error.Error, match="doesn't have an entry point defined"):
        gymnasium.make_vec(cart_pole_id, vectorization_mode="sync")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_workers": 2}, "CartPole is a batch environment, and has no num_workers"),
        ({"max_entities": {"CartPole": 2}}, "has no max_entities"),
        ({"illegal_actions": "next"}, "has no illegal_actions"),
        ({"render_mode": "rgb_array"}, "has no render_mode"),
        ({"max_episode_steps": 0}, "max_episode_steps must be an integer, 1 or more"),
        ({"num_envs": 0}, "num_envs must be an integer, 1 or more"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        make_vector_env(CartPole, **settings)


def test_a_limit_that_a_batch_does_not_have() -> None:
    with pytest.raises(UsageError, match="CountBatch takes no max_episode_steps"):
        make_vector_env(CountBatch, max_episode_steps=5)
