"""BatchEnv: many copies of a game as arrays, with episodes that the caller can reset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from sys import getrefcount
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
    ObsSpace,
)
from entity_env.core.validation import (
    MISFIT as MISFIT,
    checked_count as checked_count,
    checked_seed,
    is_integer as is_integer,
)
from entity_env.core.vec_env_base import env_seeds
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError
from entity_env.vec.batch_env.reset_mask import ResetMask as ResetMask

_new = object.__new__
_MOST_NAMED: Final = 8

NUM_SLOTS: Final = 3
"""Number of masks that a `PackedResult` cycles through: this step's, the previous step's, which the
caller may still hold, and a free one."""

BatchActions: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.floating[Any]]
"""One action per environment, `(num_envs,)`: integer indices of labels, or floats for a continuous
action with one label."""

BatchActionSpace: TypeAlias = (
    CategoricalActionSpace | GlobalCategoricalActionSpace | ContinuousActionSpace
)

BatchSeed: TypeAlias = int | NDArray[np.integer[Any]]
"""Seed of a batch, from 0 to 2**64 - 1, or `(num_envs,)` such seeds of its environments."""


@dataclass(slots=True, eq=False, repr=False)
class StepResult:
    """Current observations, rewards and flags of every environment.

    All arrays are views of the environments' arrays, valid until the next step, `reset` or
    `reset_envs`. `view` and steps may return the same object every time. Writing to the arrays does
    not change episodes, but is visible to later readers.

    Args:
        observations: `(num_envs, obs_size)` float32.
        rewards: `(num_envs,)` float32, of the last step; 0 after `reset`.
        terminals: `(num_envs,)` uint8, 1 = terminated.
        truncations: `(num_envs,)` uint8, 1 = truncated; both may be 1.
    """

    observations: NDArray[np.float32]
    rewards: NDArray[np.float32]
    terminals: NDArray[np.uint8]
    truncations: NDArray[np.uint8]
    num_envs: int = field(init=False)
    obs_size: int = field(init=False)

    def __post_init__(self) -> None:
        self.num_envs, self.obs_size = self.observations.shape

    def obs(self, env_id: int) -> NDArray[np.float32]:
        """Observation of one environment, `(obs_size,)` float32, a view.

        Raises:
            UsageError: an index out of range; also in the next three methods.
        """
        row: NDArray[np.float32] = self.observations[self._checked(env_id)]
        return row

    def is_terminal(self, env_id: int) -> bool:
        return bool(self.terminals[self._checked(env_id)])

    def is_truncated(self, env_id: int) -> bool:
        return bool(self.truncations[self._checked(env_id)])

    def is_done(self, env_id: int) -> bool:
        return self.is_terminal(env_id) or self.is_truncated(env_id)

    def to_reset_mask(self) -> ResetMask:
        """Mask of environments that ended and have not been reset since; a copy."""
        return ResetMask.from_done_flags(self.terminals, self.truncations)

    def _checked(self, env_id: int) -> int:
        if not 0 <= env_id < self.num_envs:
            raise UsageError(f"env_id must be from 0 to {self.num_envs - 1}: got {env_id!r}")
        return env_id

    def __repr__(self) -> str:
        ended = int(np.count_nonzero(self.terminals | self.truncations))
        return f"StepResult(num_envs={self.num_envs}, obs_size={self.obs_size}, ended={ended})"


def _no_mask() -> ResetMask:
    """Placeholder for a mask that is never returned."""
    return ResetMask(1)


@dataclass(slots=True, eq=False, repr=False)
class PackedResult(StepResult):
    """`StepResult` of environments that pack the bits of a mask while they step.

    Making a mask and copying its bits takes a tenth of a step of 4,096 CartPoles. Steps therefore
    write the bits of `NUM_SLOTS` masks directly, and a mask is reused when it has no other owner. A
    caller that keeps masks gets copies.

    Args:
        observations, rewards, terminals, truncations: as for `StepResult`.
        ended: `((num_envs + 63) // 64,)` uint64, bits of a mask of `terminals` and `truncations`;
            the environments keep them and `num_ended` up to date.
        slots: `NUM_SLOTS` arrays like `ended`, or none. Each step copies `ended` to the slot that
            `slot` selects.
        slot: one int64, shared with the environments: the selected slot, from 1; 0 = none. A reset
            by the bits in this slot selects the next slot.
    """

    ended: NDArray[np.uint64]
    slots: Sequence[NDArray[np.uint64]]
    slot: memoryview
    num_ended: int = field(default=0, init=False)
    """Number of environments that have ended and have not been reset since."""
    is_fresh: bool = field(default=False, init=False)
    """True if a step was the last to change `ended`, and its mask has not been returned."""
    given: ResetMask = field(default_factory=_no_mask, init=False)
    """The mask of a slot that was returned last. The caller may have changed it."""
    _filled: ResetMask = field(default_factory=_no_mask, init=False)
    _free: ResetMask = field(default_factory=_no_mask, init=False)
    _num_owners: int = field(default=0, init=False)
    """Number of references to `_free` if the caller has none; 0 before the first mask."""

    def to_reset_mask(self) -> ResetMask:
        count, mask = self.num_ended, self._filled
        # The next step writes the slot of `_free`, so no caller may hold that mask. Without ended
        # episodes, no reset selects the next slot.
        if not (count and self.is_fresh) or getrefcount(self._free) != self._num_owners:
            return self._copied_mask()
        self.is_fresh = False
        self._filled, self._free, self.given = self._free, self.given, mask
        mask._count = count
        return mask

    def go_on(self) -> None:
        """Selects the slot of `_filled`, after a reset by bits other than those of a slot."""
        self.is_fresh = False
        if self._num_owners:
            words = self._filled._words
            self.slot[0] = 1 + [slot is words for slot in self.slots].index(True)

    def _copied_mask(self) -> ResetMask:
        if not self._num_owners and self.slots:
            self._filled, self._free, self.given = (
                ResetMask.of_words(self.num_envs, words, 0) for words in self.slots
            )
            self._num_owners = getrefcount(self._free)
            self.go_on()
        # Inlined ResetMask.of_words: the call takes too long for a single environment.
        mask = _new(ResetMask)
        mask.num_envs = self.num_envs
        mask._count = count = self.num_ended
        mask._words = self.ended.copy() if count else None
        return mask


class BatchEnv(ABC):
    """Many copies of a game as arrays, stepped together.

    `step` resets ended environments at once, which loses the flags and last observations of their
    episodes. `step_no_reset` never resets: step, read the result, then reset the environments in a
    mask::

        env.reset(seed=42)
        while learning:
            result = env.step_no_reset_with_result(actions)
            remember(result.observations, result.rewards, result.terminals)
            mask = result.to_reset_mask()
            if mask.any():
                env.reset_envs(mask)

    Every environment has its own seed, derived from the batch's seed and its index; see
    `env_seeds`. A batch of one with that seed plays the same episodes. The seed starts a sequence
    of draws; each episode continues with the next draws. An environment depends only on its seed
    and actions. Batches with different seeds share no episodes.

    Subclasses implement the abstract methods; `step` and `step_no_reset` have defaults.
    `entity_env.check.check_batch_env` checks a subclass; docs/how-to/batch_env.md has an example.

    Args:
        num_envs: number of copies, at least 1.
        obs_size: number of float32s in an observation.

    Raises:
        UsageError: an invalid number of copies.

    Attributes:
        num_entities: number of entities in every observation, constant; 1 by default.
        is_always_finite: True promises finite observations and rewards; `BatchVecEnv` then skips
            its check and saves a few microseconds per step.
    """

    num_envs: int
    obs_size: int
    num_entities: int = 1
    is_always_finite: bool = False
    _is_reset = _is_closed = False

    def __init__(self, num_envs: int, obs_size: int) -> None:
        self.num_envs = checked_count("num_envs", num_envs)
        self.obs_size = obs_size

    @abstractmethod
    def obs_space(self) -> ObsSpace:
        """Observation space: one entity type, plus optional global features.

        An observation has the features of all `num_entities` entities in turn, then the global
        features.
        """

    @abstractmethod
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """Space of the only action, one per environment."""

    @property
    def legal_masks(self) -> NDArray[np.bool_] | None:
        """Allowed choices of each environment, `(num_envs, num_choices)` bool, True = allowed.

        None = all choices are always allowed. Only a categorical action can have masks; an
        environment returns masks always or never. The array is a view, valid as long as the
        `StepResult` arrays. Every environment that is not over allows at least one choice. A step
        raises `SchemaError` for choices that are not allowed.
        """
        return None

    def env_seeds(
        self, seed: BatchSeed, env_ids: NDArray[np.int64] | None = None
    ) -> NDArray[np.uint64]:
        """Seeds of the environments' sequences of episodes.

        Args:
            seed: of the batch, from which the environments' seeds are derived; or the seeds of all
                environments.
            env_ids: the chosen environments; None = all.

        Returns:
            `(len(env_ids),)` uint64. For a batch seed, environment 0 has that seed; the others have
            large numbers that differ between neighboring seeds.

        Raises:
            UsageError: a seed that is not an integer, is negative or has more than 64 bits; an
                array of the wrong shape or dtype.
        """
        if not isinstance(seed, np.ndarray):
            env_ids = np.arange(self.num_envs) if env_ids is None else env_ids
            return env_seeds(checked_seed(seed, bits=64), env_ids)
        is_right = seed.shape == (self.num_envs,) and seed.dtype.kind in "iu"
        if not is_right or seed.min() < 0:
            raise UsageError(
                f"{type(self).__name__}: seeds must be ({self.num_envs},) integers, 0 or more, one "
                f"per environment: got {seed.shape} {seed.dtype}"
                + (f", {seed.min()}" if is_right else "")
            )
        return (seed if env_ids is None else seed[env_ids]).astype(np.uint64)

    @abstractmethod
    def reset(self, seed: BatchSeed | None = None) -> None:
        """Starts a new episode in every environment, whatever its state; clears rewards and flags.

        Args:
            seed: every environment starts a new sequence from its seed in `env_seeds(seed)`. None
                continues with the next episodes, or draws a random seed at the first reset.

        Raises:
            ClosedError: after `close`; also in all following methods except `close`.
            UsageError: see `env_seeds`.
        """

    def step(self, actions: BatchActions) -> None:
        """Steps every environment, and resets those whose episode ends.

        Rewards belong to the step. A reset environment shows the first observation of its next
        episode, with cleared flags.

        Raises:
            ProtocolError: before `reset`, or if an environment has ended and has not been reset.
            SchemaError: actions of the wrong number, shape or dtype, out of range, or not allowed
                by `legal_masks`; nothing has changed.
        """
        mask = self.step_no_reset_with_result(actions).to_reset_mask()
        if mask.any():
            self.reset_envs(mask)

    @abstractmethod
    def view(self) -> StepResult:
        """Current observations, rewards and flags, without a copy; see `StepResult`.

        Raises:
            ProtocolError: before `reset`.
        """

    def step_no_reset(self, actions: BatchActions) -> None:
        """Steps every environment without resets, keeping flags and last observations.

        Reset ended environments before the next step.

        Raises:
            ProtocolError: before `reset`, or if environments have ended and have not been reset;
                the message names these environments.
            SchemaError: as `step`.
        """
        self.step_no_reset_with_result(actions)

    @abstractmethod
    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        """Like `step_no_reset`, and returns the result; see `StepResult`."""

    @abstractmethod
    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        """Starts a new episode in the chosen environments and clears their flags.

        Rewards do not change, nor do the arrays of other environments.

        Args:
            mask: the environments to reset, ended or not.
            seed: the chosen environments start new sequences, as by `reset(seed)`; None continues
                with their next episodes. Incrementing the seed in a loop repeats no sequence.

        Raises:
            ProtocolError: before `reset`.
            SchemaError: not a `ResetMask`, or a mask for another number of environments.
            UsageError: see `env_seeds`.
        """

    def write_observations(self, out: NDArray[np.float32]) -> None:
        """Copies the current observations to `out`, `(num_envs, obs_size)` float32.

        Raises:
            ProtocolError: before `reset`; also in the next three methods.
            SchemaError: `out` is read-only or has the wrong shape or dtype; also in the next three
                methods.
        """
        self._write("observations", self.view().observations, out)

    def write_rewards(self, out: NDArray[np.float32]) -> None:
        """Copies the rewards of the last step to `out`, `(num_envs,)` float32."""
        self._write("rewards", self.view().rewards, out)

    def write_terminals(self, out: NDArray[np.uint8]) -> None:
        """Copies the terminated flags to `out`, `(num_envs,)` uint8."""
        self._write("terminals", self.view().terminals, out)

    def write_truncations(self, out: NDArray[np.uint8]) -> None:
        """Copies the truncated flags to `out`, `(num_envs,)` uint8."""
        self._write("truncations", self.view().truncations, out)

    def close(self) -> None:
        """Releases all resources; may be called twice."""
        self._is_closed = True

    def _write(self, name: str, values: NDArray[Any], out: NDArray[Any]) -> None:
        is_array = isinstance(out, np.ndarray)
        if not is_array or out.shape != values.shape or out.dtype != values.dtype:
            got = f"{out.shape} {out.dtype}" if is_array else f"a {type(out).__name__}"
            raise SchemaError(
                f"{type(self).__name__}.write_{name}: out must be an array {values.shape} "
                f"{values.dtype}, got {got}"
            )
        if not out.flags.writeable:
            raise SchemaError(f"{type(self).__name__}.write_{name}: out is read-only")
        np.copyto(out, values)

    def _new_seed(self) -> int:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])

    def _require_open(self, method: str) -> None:
        if self._is_closed:
            raise ClosedError(f"{type(self).__name__}.{method}: the environments are closed")

    def _require_begun(self, method: str) -> None:
        self._require_open(method)
        if not self._is_reset:
            raise ProtocolError(f"{type(self).__name__}.{method}: call reset first")

    def _not_reset(self, method: str, ended: NDArray[np.int64]) -> ProtocolError:
        named = ", ".join(map(str, ended[:_MOST_NAMED].tolist()))
        more = f" and {len(ended) - _MOST_NAMED} more" if len(ended) > _MOST_NAMED else ""
        return ProtocolError(
            f"{type(self).__name__}.{method}: the episodes of environments {named}{more} have "
            "ended: reset them first, with reset_envs(result.to_reset_mask())"
        )


def checked_actions(
    where: str, given: object, num_envs: int, space: BatchActionSpace
) -> NDArray[Any]:
    """Actions for a step of a batch, checked except for masks: `(num_envs,)` integers or floats.

    Args:
        where: name of the batch and its action in messages: `CartPole: Push`.

    Raises:
        SchemaError: wrong shape or dtype, or an action outside the space; names the first such
            environment.
    """
    actions = as_any_array(given)
    is_continuous = isinstance(space, ContinuousActionSpace)
    kind, wanted = ("f", "floats") if is_continuous else ("iu", "integers")
    if actions.shape != (num_envs,) or actions.dtype.kind not in kind:
        raise SchemaError(
            f"{where} actions must be ({num_envs},) {wanted}, one per environment: got "
            f"{actions.shape} {actions.dtype}"
        )
    wrong = np.flatnonzero(~are_in_range(space, actions))
    if len(wrong):
        more = f", and {len(wrong) - 1} more out of range" if len(wrong) > 1 else ""
        raise SchemaError(
            f"{where} actions must be {_range(space)}: got {actions[wrong[0]]} for environment "
            f"{wrong[0]}{more}"
        )
    return actions


def are_in_range(space: BatchActionSpace, actions: NDArray[Any]) -> NDArray[np.bool_]:
    """True for actions in the space, by value; False for NaN."""
    if isinstance(space, ContinuousActionSpace):
        return np.asarray((actions >= space.low[0]) & (actions <= space.high[0]))
    return np.asarray((actions >= 0) & (actions < len(space)))


def _range(space: BatchActionSpace) -> str:
    if isinstance(space, ContinuousActionSpace):
        return f"from {space.low[0]:g} to {space.high[0]:g}"
    if len(space) > _MOST_NAMED:
        return f"from 0 to {len(space) - 1}"
    return "one of " + ", ".join(f"{i} = {name}" for i, name in enumerate(space.index_to_label))


def as_any_array(given: object) -> NDArray[Any]:
    """An array; for ragged lists, an array whose shape no check accepts."""
    try:
        return np.asarray(given)
    except ValueError:  # lists of different lengths
        return np.array(None)
