"""Legal actions of a batch environment become masks of a VecEnv and of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import SchemaError, VecObs
from entity_env.core.vec_obs import VecCategoricalActionMask
from entity_env.games.azul import ACTION_SPACE_SIZE, AzulBatch
from entity_env.games.classic import CartPole, MountainCar
from entity_env.interop.gymnasium import AutoresetMode, BatchVectorEnv
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from tests.vec.batch_env.corridor import Corridor

SHORT = partial(AzulBatch, max_rounds=1)


class Told(Corridor):
    """Returns any given legal masks."""

    told: Any = None

    @property
    def legal_masks(self) -> Any:  # noqa: ANN401 - wrong on purpose
        return self.told


def masks_of(obs: VecObs, name: str = "Move") -> VecCategoricalActionMask:
    mask = obs.action_masks[name]
    assert isinstance(mask, VecCategoricalActionMask)
    return mask


def test_without_masks_everything_is_allowed() -> None:
    assert Corridor(2).legal_masks is None
    assert CartPole(2).legal_masks is None
    with BatchVecEnv(Corridor(2)) as vec:
        assert masks_of(vec.reset(), "Walk").mask is None


def test_the_masks_are_those_of_the_environments_without_a_copy() -> None:
    azul = AzulBatch(5)
    with BatchVecEnv(azul) as vec:
        obs = vec.reset(3)
        for _ in range(20):
            mask = masks_of(obs).mask
            assert mask is not None
            assert mask.values.shape == (5, ACTION_SPACE_SIZE)
            assert mask.lengths.tolist() == [1] * 5
            assert np.shares_memory(mask.values, azul.legal_masks)
            np.testing.assert_array_equal(mask.values, azul.legal_masks)
            obs = vec.act({"Move": mask.values.argmax(axis=1)})


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**32), way=st.sampled_from(["act", "send"]), data=st.data())
def test_what_is_not_allowed_is_refused_and_nothing_has_happened(
    seed: int, way: str, data: st.DataObject
) -> None:
    with BatchVecEnv(AzulBatch(3)) as vec:
        obs = vec.reset(seed)
        mask = masks_of(obs).mask
        assert mask is not None
        before = mask.values.copy(), obs.features["Azul"].values.copy()
        env_id = data.draw(st.integers(0, 2))
        wrong = data.draw(st.sampled_from(np.flatnonzero(~before[0][env_id]).tolist()))
        actions = before[0].argmax(axis=1)
        actions[env_id] = wrong
        with pytest.raises(SchemaError, match=f"{wrong}.*which its mask forbids|forbids"):
            (vec.act if way == "act" else vec.send)({"Move": actions})
        actions[env_id] = before[0][env_id].argmax()
        np.testing.assert_array_equal(mask.values, before[0])
        np.testing.assert_array_equal(obs.features["Azul"].values, before[1])
        vec.act({"Move": actions})


@pytest.mark.parametrize(
    ("told", "message"),
    [
        (np.ones((2, 2), np.bool_), r"must be \(2, 3\) bool, got \(2, 2\) bool"),
        (np.ones((3, 3), np.bool_), r"must be \(2, 3\) bool, got \(3, 3\) bool"),
        (np.ones((2, 3), np.uint8), r"must be \(2, 3\) bool, got \(2, 3\) uint8"),
        ([[True] * 3] * 2, r"must be \(2, 3\) bool, got a list"),
    ],
)
def test_masks_that_fit_nothing_are_refused(told: object, message: str) -> None:
    env = Told(2)
    env.told = told
    with BatchVecEnv(env) as vec, pytest.raises(SchemaError, match=f"Told: legal_masks {message}"):
        vec.reset()


def test_numbers_have_no_masks() -> None:
    env = Told(2, kind="continuous")
    env.told = np.ones((2, 1), np.bool_)
    with BatchVecEnv(env) as vec, pytest.raises(SchemaError, match="None for a continuous action"):
        vec.reset()


# --------------------------------------------------------------------------- Gymnasium


Vector = gym.vector.VectorEnv[Any, Any, Any]


def made(make: Callable[[int], BatchEnv], mode: AutoresetMode) -> Vector:
    return BatchVectorEnv(make(4), autoreset_mode=mode)


def legal(infos: dict[str, Any], rng: np.random.Generator) -> NDArray[np.int64]:
    """A random legal action per environment; 0, even if illegal, for waiting ones."""
    rows = infos["action_mask"]
    return np.array([rng.choice(np.flatnonzero(row)) if row.any() else 0 for row in rows])


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_gymnasium_is_told_what_is_allowed(mode: AutoresetMode) -> None:
    envs = made(SHORT, mode)
    rng = np.random.default_rng(0)
    _, infos = envs.reset(seed=1)
    num_ended = 0
    for _ in range(60):
        masks = infos["action_mask"]
        assert masks.shape == (4, ACTION_SPACE_SIZE)
        assert masks.dtype == np.int8
        assert infos["_action_mask"].all()
        _, _, terminated, truncated, infos = envs.step(legal(infos, rng))
        ended = terminated | truncated
        num_ended += int(ended.sum())
        if mode == AutoresetMode.DISABLED and ended.any():
            _, infos = envs.reset(options={"reset_mask": ended})
            assert infos["_action_mask"].tolist() == ended.tolist()
            assert (infos["action_mask"].any(axis=1) == ended).all()
            break
    assert num_ended >= 1
    envs.close()


def test_gymnasium_is_told_nothing_where_everything_is_allowed() -> None:
    envs = made(partial(MountainCar, backend="numpy"), AutoresetMode.NEXT_STEP)
    _, infos = envs.reset(seed=1)
    assert infos == {}
    assert envs.step(np.zeros(4, np.int64))[-1] == {}
    envs.close()
