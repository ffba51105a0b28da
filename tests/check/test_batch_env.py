"""check_batch_env finds broken environments and accepts correct ones."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import (
    ActionSpace,
    ContractError,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    ProtocolError,
    SchemaError,
    check_env,
)
from entity_env.check import check_batch_env
from entity_env.games import snake
from entity_env.vec import BatchEnv, BatchSeed, ResetMask, StepResult
from entity_env.vec.batch_env.batch_env import BatchActions
from tests.check.test_env import Sound as SoundEnvironment
from tests.helpers.strategies import untyped
from tests.vec.batch_env.test_array_env import Driven, Walk

SHARED = np.zeros(1000, np.float32)


class Sound(BatchEnv):
    """Walks along a line with random steps; follows the contract, in plain numpy."""

    space: ActionSpace = GlobalCategoricalActionSpace(["BACK", "STAY", "ON"])

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, obs_size=3)
        self.rngs: list[np.random.Generator] = []
        self.state = np.zeros((num_envs, 2), np.int64)
        self.result = StepResult(
            np.zeros((num_envs, 3), np.float32),
            np.zeros(num_envs, np.float32),
            np.zeros(num_envs, np.uint8),
            np.zeros(num_envs, np.uint8),
        )

    def obs_space(self) -> ObsSpace:
        return ObsSpace(["num_envs"], {"Walker": Entity(["x", "time"])})

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"Walk": self.space}

    def reset(self, seed: BatchSeed | None = None) -> None:
        if not self.rngs:
            self.rngs = [np.random.default_rng(i) for i in range(self.num_envs)]
        self.result.rewards[:] = 0
        self.begin(np.arange(self.num_envs), seed)

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        self.view()
        self.begin(mask.indices(), seed)

    def begin(self, env_ids: NDArray[np.int64], seed: BatchSeed | None) -> None:
        if seed is not None:
            for i, own in zip(env_ids, self.env_seeds(seed, env_ids), strict=True):
                self.rngs[i] = np.random.default_rng(int(own))
        for i in env_ids:
            self.state[i] = self.rngs[i].integers(-3, 4), 0
        self.result.terminals[env_ids] = self.result.truncations[env_ids] = 0
        self.show(env_ids)

    def show(self, env_ids: NDArray[np.int64] | slice) -> None:
        self.result.observations[env_ids, :2] = self.state[env_ids]
        self.result.observations[env_ids, 2] = 0

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        self.require_running()
        self.advance(self.checked(actions))
        return self.result

    def require_running(self) -> None:
        if self.view().to_reset_mask().any():
            raise ProtocolError("call reset_envs")

    def checked(self, actions: BatchActions) -> NDArray[np.int64]:
        is_right = actions.shape == (self.num_envs,) and actions.dtype.kind in "iu"
        if not is_right or not ((actions >= 0) & (actions < 3)).all():
            raise SchemaError("wrong actions")
        return actions.astype(np.int64)

    def advance(self, actions: NDArray[np.int64]) -> None:
        self.state[:, 0] += actions - 1
        self.state[:, 1] += 1
        self.result.rewards[:] = self.state[:, 0]
        self.result.terminals[:] = np.abs(self.state[:, 0]) > 5
        self.result.truncations[:] = self.state[:, 1] >= 12
        self.show(slice(None))

    def view(self) -> StepResult:
        if not self.rngs:
            raise ProtocolError("call reset")
        return self.result


def bugs() -> dict[str, tuple[type[BatchEnv], str]]:
    """One class per bug, with the expected message."""
    found: dict[str, tuple[type[BatchEnv], str]] = {}

    def says(text: str) -> Callable[[type[BatchEnv]], type[BatchEnv]]:
        def keep(kind: type[BatchEnv]) -> type[BatchEnv]:
            found[kind.__name__] = kind, text
            return kind

        return keep

    @says("environment 0 ends no episode within 200 steps.*if step_no_reset resets, the check")
    class ResetsByItself(Sound):
        def advance(self, actions: NDArray[np.int64]) -> None:
            super().advance(actions)
            self.begin(self.result.to_reset_mask().indices(), None)

    @says("the last observation of an episode is the first one of the next")
    class ShowsTheNextStart(Sound):
        def advance(self, actions: NDArray[np.int64]) -> None:
            super().advance(actions)
            flags = self.result.terminals.copy(), self.result.truncations.copy()
            self.begin(self.result.to_reset_mask().indices(), None)
            self.result.terminals[:], self.result.truncations[:] = flags

    @says(r"step_no_reset while the episodes of environments \[.*\] have ended is accepted")
    class ContinuesAfterTheEnd(Sound):
        def require_running(self) -> None:
            self.view()

    @says("terminals of environment . is 2, expected 0 or 1")
    class TwoAsFlag(Sound):
        def advance(self, actions: NDArray[np.int64]) -> None:
            super().advance(actions)
            self.result.terminals[:] *= 2

    @says(r"truncations must be \(5,\) uint8, got \(5,\) bool")
    class BoolFlags(Sound):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.result.truncations = untyped(np.zeros(num_envs, np.bool_))

    @says(r"rewards must be \(5,\) float32, got \(5,\) float64")
    class DoubleRewards(Sound):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.result.rewards = untyped(np.zeros(num_envs))

    @says(r"observations must be \(5, 3\) float32, got \(5, 4\) float32")
    class WiderObservations(Sound):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.result.observations = np.zeros((num_envs, 4), np.float32)

    @says(r"legal_masks must be \(5, 3\) bool, got \(5, 2\) bool")
    class NarrowMasks(Sound):
        @property
        def legal_masks(self) -> NDArray[np.bool_]:
            return np.ones((self.num_envs, 2), np.bool_)

    @says("legal_masks allows no choice in environment 4, which has not ended")
    class NoChoice(Sound):
        @property
        def legal_masks(self) -> NDArray[np.bool_]:
            masks = np.ones((self.num_envs, 3), np.bool_)
            masks[4] = self.result.observations[0, 1] != 2
            return masks

    @says("an action that legal_masks does not allow is accepted, expected a SchemaError")
    class MaskIgnored(Sound):
        @property
        def legal_masks(self) -> NDArray[np.bool_]:
            return np.tile([True, False, True], (self.num_envs, 1))

    @says("feature 'time' of environment 2 is nan, expected a finite number")
    class ShowsNan(Sound):
        def advance(self, actions: NDArray[np.int64]) -> None:
            super().advance(actions)
            self.result.observations[2:, 1] = np.nan

    @says("feature 'num_envs' of environment 0 is inf")
    class BeginsInfinite(Sound):
        is_always_finite = True

        def begin(self, env_ids: NDArray[np.int64], seed: BatchSeed | None) -> None:
            super().begin(env_ids, seed)
            self.result.observations[env_ids, 2] = np.inf

    @says("the reward of environment 0 is inf")
    class InfiniteReward(Sound):
        def advance(self, actions: NDArray[np.int64]) -> None:
            super().advance(actions)
            self.result.rewards[:] = np.inf

    @says(r"in a batch of one, .* environment \d differs: .*feature 'num_envs' is first 5.0")
    class KnowsItsBatch(Sound):
        def show(self, env_ids: NDArray[np.int64] | slice) -> None:
            super().show(env_ids)
            self.result.observations[env_ids, 2] = self.num_envs

    @says("in a batch of one, .* environment . differs")
    class OneGenerator(Sound):
        def begin(self, env_ids: NDArray[np.int64], seed: BatchSeed | None) -> None:
            super().begin(env_ids, seed)
            self.rngs = self.rngs[:1] * self.num_envs

    @says("one seed gives different episodes: step 0, environment .")
    class SeedIgnored(Sound):
        def env_seeds(
            self, seed: BatchSeed, env_ids: NDArray[np.int64] | None = None
        ) -> NDArray[np.uint64]:
            return super().env_seeds(self._new_seed(), env_ids)

    @says(r"reset\(env_seeds\(seed\)\) begins different episodes than reset\(seed\)")
    class SeedsOfAllIgnored(Sound):
        def begin(self, env_ids: NDArray[np.int64], seed: BatchSeed | None) -> None:
            super().begin(env_ids, 7 if isinstance(seed, np.ndarray) else seed)

    @says(r"reset_envs\(mask, seed\) begins different episodes than reset\(seed\)")
    class SeedOfSomeIgnored(Sound):
        def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
            super().reset_envs(mask)

    @says("reset without a seed begins the same episodes again")
    class RepeatsItsSeed(Sound):
        last: BatchSeed = 0

        def reset(self, seed: BatchSeed | None = None) -> None:
            self.last = self.last if seed is None else seed
            super().reset(self.last)

    @says("reset leaves rewards, expected 0")
    class KeepsRewards(Sound):
        def reset(self, seed: BatchSeed | None = None) -> None:
            super().reset(seed)
            self.result.rewards[:] = 1

    @says("reset leaves flags set, expected 0")
    class BeginsEnded(Sound):
        def reset(self, seed: BatchSeed | None = None) -> None:
            super().reset(seed)
            self.result.terminals[1] = 1

    @says("reset_envs leaves the flags of environments .* set")
    class KeepsFlags(Sound):
        def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
            flags = self.view().truncations.copy()
            super().reset_envs(mask, seed)
            self.result.truncations[:] = flags

    @says("reset_envs changes the rewards")
    class ClearsRewards(Sound):
        def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
            super().reset_envs(mask, seed)
            self.result.rewards[mask.indices()] = 0

    @says("step 0: reset_envs changes an environment that is not in its mask: environment 0")
    class ResetsAll(Sound):
        def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
            self.view()
            self.begin(np.arange(self.num_envs), seed)

    @says("step .*: reset_envs changes an environment that is not in its mask")
    class ResetsUpTo(Sound):
        def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
            self.view()
            self.begin(np.arange(max(mask.indices(), default=-1) + 1), seed)

    @says("step differs from step_no_reset and reset_envs")
    class StepDoesNotReset(Sound):
        def step(self, actions: BatchActions) -> None:
            if not self.view().to_reset_mask().any():
                self.step_no_reset(actions)

    @says("step_no_reset with action 3 of 3 choices is accepted, expected a SchemaError")
    class TakesAnyAction(Sound):
        def checked(self, actions: BatchActions) -> NDArray[np.int64]:
            return np.minimum(super().checked(np.minimum(actions, 2)), 2)

    @says("step_no_reset with action -1 raised IndexError.*, expected a SchemaError")
    class OtherError(Sound):
        def checked(self, actions: BatchActions) -> NDArray[np.int64]:
            if np.min(actions) < 0:
                raise IndexError("wrong")
            return super().checked(actions)

    @says("a step that refuses its actions changes episodes")
    class StepsBeforeItChecks(Sound):
        def checked(self, actions: BatchActions) -> NDArray[np.int64]:
            self.state[:, 1] += actions.shape != (self.num_envs,)
            return super().checked(actions)

    @says("view before reset is accepted, expected a ProtocolError")
    class ViewsBeforeReset(Sound):
        def view(self) -> StepResult:
            return self.result

    @says("step_no_reset_with_result writes to the actions")
    class WritesToActions(Sound):
        def checked(self, actions: BatchActions) -> NDArray[np.int64]:
            checked = super().checked(actions)
            actions[:] = 0
            return checked

    @says("actions of dtype uint8 give different episodes: convert them")
    class UnsignedActions(Sound):
        def checked(self, actions: BatchActions) -> NDArray[np.int64]:
            super().checked(actions)
            return actions  # type: ignore[return-value]

        def advance(self, actions: NDArray[np.int64]) -> None:
            super().advance((actions - 1).astype(np.int64) + 1)

    @says("writing to the arrays of a StepResult changes episodes")
    class StateIsShown(Sound):
        def advance(self, actions: NDArray[np.int64]) -> None:
            self.state[:] = self.result.observations[:, :2]
            super().advance(actions)

    @says("rewards of two batches share memory: make the arrays in __init__")
    class ArrayOfTheClass(Sound):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.result.rewards = SHARED[:num_envs]

    @says("rewards and terminals share memory")
    class OneBuffer(Sound):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs)
            self.result.terminals = self.result.rewards.view(np.uint8)[:num_envs]

    @says("view differs from the result of the step")
    class StaleView(Sound):
        def view(self) -> StepResult:
            result = super().view()
            shown = np.zeros_like(result.observations)
            return StepResult(shown, result.rewards, result.terminals, result.truncations)

    @says("view changes the result of the step")
    class ViewsOnce(Sound):
        def view(self) -> StepResult:
            result = super().view()
            fresh = StepResult(
                result.observations.copy(), result.rewards, result.terminals, result.truncations
            )
            if self.state[0, 1]:
                result.observations[:] = 0
            return fresh

    @says("making a batch of 5 gave a batch of 6")
    class OneMore(Sound):
        def __init__(self, num_envs: int) -> None:
            super().__init__(num_envs + 1)

    @says("step_no_reset_with_result gave a NoneType, expected a StepResult")
    class NoResult(Sound):
        def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
            super().step_no_reset_with_result(actions)
            nothing: StepResult = untyped(None)
            return nothing

        def step(self, actions: BatchActions) -> None:
            super().step_no_reset_with_result(actions)

    @says("step_no_reset_with_result raised ZeroDivisionError")
    class Raises(Sound):
        def advance(self, actions: NDArray[np.int64]) -> None:
            raise ZeroDivisionError

    @says("close for the second time raised RuntimeError")
    class ClosesOnce(Sound):
        def close(self) -> None:
            if self._is_closed:
                raise RuntimeError("closed")
            self._is_closed = True

    return found


BUGS = bugs()


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_is_found(bug: str) -> None:
    kind, expected = BUGS[bug]
    with pytest.raises(ContractError) as caught:
        check_batch_env(kind, max_steps=200)
    assert re.search(expected, str(caught.value), re.DOTALL), caught.value
    assert str(caught.value).startswith(f"{bug}: ")


def test_calls_before_reset_hide_no_other_bug() -> None:
    class Both(BUGS["TwoAsFlag"][0]):  # type: ignore[misc]  # one class per bug
        def view(self) -> StepResult:
            result: StepResult = self.result
            return result

    with pytest.raises(ContractError) as caught:
        check_batch_env(Both)
    assert "view before reset is accepted" in str(caught.value)
    assert "expected 0 or 1" in str(caught.value)


@pytest.mark.parametrize("source", [Sound, Sound(3), Walk, Driven, Walk(1)])
def test_a_sound_batch_passes(
    source: BatchEnv | Callable[[int], BatchEnv], caplog: pytest.LogCaptureFixture
) -> None:
    check_batch_env(source)
    assert not [each for each in caplog.messages if "score" not in each]


@pytest.mark.slow
@settings(max_examples=10)
@given(st.integers(1, 70), st.integers(0, 2**62))
def test_any_size_and_seed_of_a_sound_batch_passes(num_envs: int, seed: int) -> None:
    check_batch_env(Sound, num_envs=num_envs, seed=seed, episodes=1)


@settings(max_examples=10)
@given(
    st.sampled_from(["ResetsByItself", "ContinuesAfterTheEnd", "TwoAsFlag", "ClearsRewards"]),
    st.integers(0, 2**62),
)
@example("TwoAsFlag", 188881)
def test_a_bug_is_found_with_any_seed(bug: str, seed: int) -> None:
    # Finds seeds for which none of 15 episodes is terminated.
    with pytest.raises(ContractError):
        check_batch_env(BUGS[bug][0], episodes=30, max_steps=500, seed=seed)


def test_a_likely_running_score_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Accumulates(Sound):
        def begin(self, env_ids: NDArray[np.int64], seed: BatchSeed | None) -> None:
            super().begin(env_ids, seed)
            self.score = getattr(self, "score", np.zeros(self.num_envs))
            self.score[env_ids] = 0

        def advance(self, actions: NDArray[np.int64]) -> None:
            super().advance(actions)
            self.score += 1
            self.result.rewards[:] = self.score

    check_batch_env(Accumulates)
    assert "return the reward of the step, not the score so far" in caplog.text


def test_rounding_of_a_batch_of_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Rounds(Sound):
        def show(self, env_ids: NDArray[np.int64] | slice) -> None:
            super().show(env_ids)
            self.result.observations[env_ids, 2] = 1 if self.num_envs > 1 else 1 + 1e-6

    check_batch_env(Rounds)
    assert "environment 0 differs by rounding" in caplog.text


@pytest.mark.parametrize(
    ("source", "hint"), [(snake, "check_game"), (SoundEnvironment, "check_env")]
)
def test_another_kind_has_another_check(source: object, hint: str) -> None:
    with pytest.raises(SchemaError, match=f"use {hint}"):
        check_batch_env(untyped(source))


@pytest.mark.parametrize("source", [Sound, Sound(2)])
def test_check_env_names_this_check(source: object) -> None:
    with pytest.raises(SchemaError, match="use check_batch_env"):
        check_env(untyped(source))
    with pytest.raises(ContractError, match=r"gave a Sound, expected an Env.*use check_batch_env"):
        check_env(untyped(lambda: Sound(2)))


def test_what_makes_no_batch() -> None:
    with pytest.raises(ContractError, match="gave a list, expected a BatchEnv"):
        check_batch_env(untyped(lambda num_envs: [num_envs]))


"""Excluded: the game `pixel` needs a file of the user."""
