"""BatchEnv: N copies of a game as arrays, with episodes that the caller can reset."""

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
"""Masks that a `PackedResult` uses in turn: of this step, of the last one, which the caller may
still hold, and a free one."""

BatchActions: TypeAlias = NDArray[np.integer[Any]] | NDArray[np.floating[Any]]
"""One action per environment: `(num_envs,)` integers, the index of a label, for a categorical
action; `(num_envs,)` floats for a continuous one with one label."""

BatchActionSpace: TypeAlias = (
    CategoricalActionSpace | GlobalCategoricalActionSpace | ContinuousActionSpace
)
"""Action spaces that a batch environment can have."""

BatchSeed: TypeAlias = int | NDArray[np.integer[Any]]
"""Seed of a batch, from 0 to 2**64 - 1; or `(num_envs,)` of them, one per environment."""


@dataclass(slots=True, eq=False, repr=False)
class StepResult:
    """Observations, rewards and flags of every environment, after a step or at present.

    All arrays are views of the environments' own, and stay valid until the next call that changes
    them: a step, `reset` or `reset_envs`. The same object may be returned every time. Writing to
    them changes no episode, but every later reader sees it.

    Args:
        observations: `(num_envs, obs_size)` float32, one row per environment.
        rewards: `(num_envs,)` float32, of the last step; 0 before the first.
        terminals: `(num_envs,)` uint8, 1 = the episode has terminated.
        truncations: `(num_envs,)` uint8, 1 = the episode was truncated; both may be 1.
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
        """`(obs_size,)` float32: the observation of one environment, a view.

        Raises:
            UsageError: an index out of range; so in the other methods.
        """
        row: NDArray[np.float32] = self.observations[self._checked(env_id)]
        return row

    def is_terminal(self, env_id: int) -> bool:
        """Whether the episode of one environment has terminated."""
        return bool(self.terminals[self._checked(env_id)])

    def is_truncated(self, env_id: int) -> bool:
        """Whether the episode of one environment was truncated."""
        return bool(self.truncations[self._checked(env_id)])

    def is_done(self, env_id: int) -> bool:
        """Whether the episode of one environment has terminated or was truncated."""
        return self.is_terminal(env_id) or self.is_truncated(env_id)

    def to_reset_mask(self) -> ResetMask:
        """A mask of the environments whose episode has ended and that were not reset since.

        A copy: it does not change with the environments.
        """
        return ResetMask.from_done_flags(self.terminals, self.truncations)

    def _checked(self, env_id: int) -> int:
        if not 0 <= env_id < self.num_envs:
            raise UsageError(f"env_id must be from 0 to {self.num_envs - 1}: got {env_id!r}")
        return env_id

    def __repr__(self) -> str:
        ended = int(np.count_nonzero(self.terminals | self.truncations))
        return f"StepResult(num_envs={self.num_envs}, obs_size={self.obs_size}, ended={ended})"


def _no_mask() -> ResetMask:
    """Takes the place of a mask that is never returned."""
    return ResetMask(1)


@dataclass(slots=True, eq=False, repr=False)
class PackedResult(StepResult):
    """A `StepResult` of environments that pack the bits of a mask while they step.

    To make a mask and to copy its bits takes a tenth of a step of 4,096 CartPoles. So there are
    `NUM_SLOTS` masks, whose bits a step writes itself, and one is returned again when it has no
    other owner. A caller who keeps masks gets copies.

    Args:
        observations, rewards, terminals, truncations: as for `StepResult`.
        ended: `((num_envs + 63) // 64,)` uint64, the bits that a mask of `terminals` and
            `truncations` has; the environments keep them up to date, and `num_ended` with them.
        slots: `NUM_SLOTS` arrays like `ended`, to one of which a step may copy it; or none.
        slot: one int64 of the environment: the slot that its steps write, from 1; 0 = none. A reset
            by the bits in this slot goes on to the next one.
    """

    ended: NDArray[np.uint64]
    slots: Sequence[NDArray[np.uint64]]
    slot: memoryview
    num_ended: int = field(default=0, init=False)
    """How many environments have ended and were not reset since."""
    is_fresh: bool = field(default=False, init=False)
    """Whether a step was the last to change `ended`, and no mask of it has been returned."""
    given: ResetMask = field(default_factory=_no_mask, init=False)
    """The mask of a slot that was returned last. Its owner may have changed it."""
    _filled: ResetMask = field(default_factory=_no_mask, init=False)
    _free: ResetMask = field(default_factory=_no_mask, init=False)
    _num_owners: int = field(default=0, init=False)
    """References to `_free` when the caller has none; 0 before the first mask."""

    def to_reset_mask(self) -> ResetMask:
        """A mask of the environments whose episode has ended and that were not reset since."""
        count, mask = self.num_ended, self._filled
        # The slot of `_free` is the next to be written. Without an end there is no reset to go on.
        if not (count and self.is_fresh) or getrefcount(self._free) != self._num_owners:
            return self._copied_mask()
        self.is_fresh = False
        self._filled, self._free, self.given = self._free, self.given, mask
        mask._count = count
        return mask

    def go_on(self) -> None:
        """Makes the environment write the right slot, after a reset by other bits than a slot's."""
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
        # Inlined ResetMask.of_words: the call matters for a single environment.
        mask = _new(ResetMask)
        mask.num_envs = self.num_envs
        mask._count = count = self.num_ended
        mask._words = self.ended.copy() if count else None
        return mask


class BatchEnv(ABC):
    """Many copies of a game as arrays, stepped together.

    There are two ways to step. `step` resets ended environments at once, which is short, but the
    flags and the last observation of an episode are gone when it returns. `step_no_reset` never
    resets: step, read the result, then reset the environments in a mask::

        env.reset(seed=42)
        while learning:
            result = env.step_no_reset_with_result(actions)
            remember(result.observations, result.rewards, result.terminals)
            mask = result.to_reset_mask()
            if mask.any():
                env.reset_envs(mask)

    Seeds: every environment has a seed of its own, which follows from that of the batch and from
    its index; see `env_seeds`. A batch of one with the seed of an environment plays the same. The
    first episode starts from it, every later one from the next draws of a sequence that begins
    there. An environment depends on its seed and its actions, and not on the other environments.
    Batches with different seeds share no episodes.

    Subclasses implement the abstract methods; `step` and `step_no_reset` have defaults by them.
    `entity_env.check.check_batch_env` checks them; docs/how-to/batch_env.md has an example.

    Args:
        num_envs: how many copies, at least 1.
        obs_size: size of an observation.

    Raises:
        UsageError: a number of copies that is not valid.

    Attributes:
        num_entities: entities in every observation, a constant; 1 by default.
        is_always_finite: True = observations and rewards are always finite, so that `BatchVecEnv`
            does not check them, which saves a few microseconds per step.
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
        """Space of the observations: one entity type, and global features if there are any.

        An observation has the features of each of the `num_entities` in turn, then the global ones.
        """

    @abstractmethod
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """Space of the only action, one per environment."""

    @property
    def legal_masks(self) -> NDArray[np.bool_] | None:
        """Choices of each environment: `(num_envs, num_choices)` bool, True = allowed.

        None = all choices are always allowed; an array only for an action with labels, and then in
        every state. A view, which is valid as long as the arrays of `StepResult`; an environment
        that is not over allows at least one choice. A step raises a `SchemaError` for others.
        """
        return None

    def env_seeds(
        self, seed: BatchSeed, env_ids: NDArray[np.int64] | None = None
    ) -> NDArray[np.uint64]:
        """The seeds from which environments begin sequences of episodes.

        Args:
            seed: of the batch, from which each environment's follows; or the seeds of all.
            env_ids: the chosen environments; None = all.

        Returns:
            `(len(env_ids),)` uint64. For a seed of the batch: that seed for environment 0, and for
            the others large numbers that neighbouring seeds do not have.

        Raises:
            UsageError: a seed that is no integer, negative, or of more than 64 bits; an array of
                another shape.
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
        """Begins a new episode in every environment, whatever its state; clears rewards and flags.

        Args:
            seed: every environment begins a new sequence, from its seed of `env_seeds(seed)`; None
                goes on with the next episodes, or draws a seed if there was none.

        Raises:
            ClosedError: after `close`; so in all methods that follow.
            UsageError: as `env_seeds`.
        """

    def step(self, actions: BatchActions) -> None:
        """Steps every environment, and resets those whose episode ends.

        Rewards are those of the step. A reset environment shows the first observation of its next
        episode, and its flags are cleared, as by every reset.

        Args:
            actions: one per environment; see `BatchActions`.

        Raises:
            ProtocolError: before `reset`, or when an environment that has ended was not reset.
            SchemaError: actions of another number, shape or dtype, or out of range. Nothing has
                changed then.
        """
        mask = self.step_no_reset_with_result(actions).to_reset_mask()
        if mask.any():
            self.reset_envs(mask)

    @abstractmethod
    def view(self) -> StepResult:
        """The present observations, rewards and flags, without a copy; see `StepResult`.

        Raises:
            ProtocolError: before `reset`.
        """

    def step_no_reset(self, actions: BatchActions) -> None:
        """Steps every environment and resets none, so that flags and last observations stay.

        Those that have ended must be reset before the next step.

        Args:
            actions: one per environment; see `BatchActions`.

        Raises:
            ProtocolError: before `reset`, or when environments that have ended were not reset; it
                names them.
            SchemaError: actions of another number, shape or dtype, or out of range. Nothing has
                changed then.
        """
        self.step_no_reset_with_result(actions)

    @abstractmethod
    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        """`step_no_reset`, and returns the result; see `StepResult`."""

    @abstractmethod
    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        """Begins a new episode in the chosen environments, and clears their flags.

        Rewards stay, and so do all arrays of the others.

        Args:
            mask: the environments to reset, ended or not.
            seed: the chosen ones begin new sequences, as by `reset(seed)`; None goes on to their
                next episodes. A loop may count a seed up: no start repeats.

        Raises:
            ProtocolError: before `reset`.
            SchemaError: no `ResetMask`, or one for another number of environments.
            UsageError: as `env_seeds`.
        """

    def write_observations(self, out: NDArray[np.float32]) -> None:
        """Copies the present observations to `out`, `(num_envs, obs_size)` float32.

        Raises:
            ProtocolError: before `reset`; so in the three methods that follow.
            SchemaError: an array of another shape or dtype, or a read-only one; so, too.
        """
        self._write("observations", self.view().observations, out)

    def write_rewards(self, out: NDArray[np.float32]) -> None:
        """Copies the rewards of the last step to `out`, `(num_envs,)` float32."""
        self._write("rewards", self.view().rewards, out)

    def write_terminals(self, out: NDArray[np.uint8]) -> None:
        """Copies the flags to `out`, `(num_envs,)` uint8: 1 = terminated."""
        self._write("terminals", self.view().terminals, out)

    def write_truncations(self, out: NDArray[np.uint8]) -> None:
        """Copies the flags to `out`, `(num_envs,)` uint8: 1 = truncated."""
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
    """Actions for a step of a batch: `(num_envs,)` integers or floats, all within their space.

    Masks are not checked.

    Args:
        where: names the batch and its action in messages: `CartPole: Push`.

    Raises:
        SchemaError: another shape or dtype, or an action outside of the space; names the first
            environment with one.
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
    """Which actions the space has, by value; NaN is none of them."""
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
    """The argument as an array; ragged lists give one of a shape that no check accepts."""
    try:
        return np.asarray(given)
    except ValueError:  # lists of different lengths
        return np.array(None)
