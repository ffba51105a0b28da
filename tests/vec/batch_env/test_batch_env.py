"""The interface of batch environments: StepResult, BatchEnv and its defaults."""

from collections.abc import Mapping

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import ActionSpace, Entity, GlobalCategoricalActionSpace, ObsSpace, SchemaError
from entity_env.errors import UsageError
from entity_env.vec.batch_env.batch_env import (
    BatchActions,
    BatchEnv,
    BatchSeed,
    ResetMask,
    StepResult,
)


class Counters(BatchEnv):
    """Counts to its limit; implements only the required methods."""

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, obs_size=2)
        self._counts = np.zeros((num_envs, 2), np.float32)
        self._rewards = np.zeros(num_envs, np.float32)
        self._flags = np.zeros((2, num_envs), np.uint8)

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Counters": Entity(("count", "limit"))})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"Count": GlobalCategoricalActionSpace(("NO", "YES"))}

    def reset(self, seed: BatchSeed | None = None) -> None:
        self._counts[:] = 0

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        self._counts[:, 0] += actions
        self._rewards[:] = actions
        self._flags[0] = self._counts[:, 0] == 3
        return self.view()

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        self._counts[mask.indices()] = 0
        self._flags[:, mask.indices()] = 0

    def view(self) -> StepResult:
        return StepResult(self._counts, self._rewards, *self._flags)


def result_of(terminals: list[int], truncations: list[int]) -> StepResult:
    num_envs = len(terminals)
    return StepResult(
        np.arange(3 * num_envs, dtype=np.float32).reshape(num_envs, 3),
        np.zeros(num_envs, np.float32),
        np.array(terminals, np.uint8),
        np.array(truncations, np.uint8),
    )


def test_a_result_tells_of_each_environment() -> None:
    result = result_of([1, 0, 0, 1], [0, 1, 0, 1])
    assert (result.num_envs, result.obs_size) == (4, 3)
    assert [result.is_terminal(i) for i in range(4)] == [True, False, False, True]
    assert [result.is_truncated(i) for i in range(4)] == [False, True, False, True]
    assert [result.is_done(i) for i in range(4)] == [True, True, False, True]
    assert result.obs(1).tolist() == [3, 4, 5]
    assert list(result.to_reset_mask().iter_set()) == [0, 1, 3]
    assert repr(result) == "StepResult(num_envs=4, obs_size=3, ended=3)"


def test_an_observation_is_a_view() -> None:
    result = result_of([0, 0], [0, 0])
    result.observations[1] = 7
    assert result.obs(1).tolist() == [7, 7, 7]
    assert np.shares_memory(result.obs(0), result.observations)


@pytest.mark.parametrize("method", ["obs", "is_terminal", "is_truncated", "is_done"])
@pytest.mark.parametrize("env_id", [-1, 2, 10**9])
def test_a_result_refuses_an_index_out_of_range(method: str, env_id: int) -> None:
    with pytest.raises(UsageError, match="env_id must be from 0 to 1: got"):
        getattr(result_of([0, 0], [0, 0]), method)(env_id)


def test_the_defaults_of_both_steps() -> None:
    env, other = Counters(3), Counters(3)
    for _ in range(3):
        env.step(np.array([1, 0, 1]))
        other.step_no_reset(np.array([1, 0, 1]))
    assert env.view().observations[:, 0].tolist() == [0, 0, 0]
    assert not env.view().terminals.any()
    assert env.view().rewards.tolist() == [1, 0, 1]
    assert other.view().observations[:, 0].tolist() == [3, 0, 3]
    assert other.view().terminals.tolist() == [1, 0, 1]


@pytest.mark.parametrize(
    ("method", "out"),
    [
        ("write_observations", np.zeros((3, 3), np.float32)),
        ("write_observations", np.zeros(6, np.float32)),
        ("write_observations", np.zeros((3, 2), np.float64)),
        ("write_rewards", np.zeros(2, np.float32)),
        ("write_rewards", np.zeros((3, 1), np.float32)),
        ("write_terminals", np.zeros(3, np.bool_)),
        ("write_truncations", np.zeros(3, np.int64)),
        ("write_truncations", [0, 0, 0]),
    ],
)
def test_writes_refuse_what_does_not_fit(method: str, out: NDArray[np.generic]) -> None:
    with pytest.raises(SchemaError, match=rf"Counters.{method}: out must be an array \(3,.*got"):
        getattr(Counters(3), method)(out)


def test_writes_refuse_what_cannot_be_written() -> None:
    out = np.zeros(3, np.float32)
    out.flags.writeable = False
    with pytest.raises(SchemaError, match="out is read-only"):
        Counters(3).write_rewards(out)
