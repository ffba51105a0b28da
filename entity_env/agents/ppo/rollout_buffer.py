"""Observations and samples of a rollout in flat arrays, from which any minibatch is gathered."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.action_index import Samples
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.validation import has_numba
from entity_env.core.vec_obs import (
    EntityBatch,
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)

Scalar = TypeVar("Scalar", bound=np.generic)
RaggedSamples: TypeAlias = RaggedArray[np.int64 | np.float32]


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Decisions of a rollout, as copies; arrays of figures are `(num_decisions,)` float32.

    Args:
        obs: observations, a row for each decision.
        samples: per action one value an actor, as `RogueNet.evaluate` takes them.
        logprobs, values: of the policy of the rollout.
        advantages, returns: targets of policy and value.
    """

    obs: EntityBatch
    samples: Mapping[ActionName, NDArray[np.int64 | np.float32]]
    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rollout:
    """All decisions of a rollout; arrays of figures as in `Minibatch`.

    Observations and samples are views, valid until the next `Collector.collect`.

    Args:
        b_inds: `(num_learnable,)` int64, decisions with a known outcome.
    """

    obs: EntityBatch
    samples: Mapping[ActionName, RaggedSamples]
    b_inds: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.logprobs)

    def minibatch(self, mb_inds: NDArray[np.int64]) -> Minibatch:
        """The decisions of that index, in that order."""
        return Minibatch(
            self.obs.map_arrays(lambda each: _take(each, mb_inds)),
            {name: _take(each, mb_inds).values for name, each in self.samples.items()},
            self.logprobs[mb_inds],
            self.values[mb_inds],
            self.advantages[mb_inds],
            self.returns[mb_inds],
        )


class DynamicArray(Generic[Scalar]):
    """An array that rows are appended to; the first rows fix shape and dtype."""

    def __init__(self) -> None:
        self._rows: NDArray[Scalar] | None = None
        self._count = 0

    def extend(self, rows: NDArray[Scalar]) -> None:
        """Copies rows to the end."""
        count = self._count + len(rows)
        if self._rows is None:
            self._rows = np.empty((max(count, 16), *rows.shape[1:]), dtype=rows.dtype)
        elif count > len(self._rows):
            larger = np.empty((2 * count, *self._rows.shape[1:]), dtype=self._rows.dtype)
            larger[: self._count] = self._rows[: self._count]
            self._rows = larger
        self._rows[self._count : count] = rows
        self._count = count

    def clear(self) -> None:
        """Removes all rows; their memory is reused."""
        self._count = 0

    @property
    def rows(self) -> NDArray[Scalar]:
        """A view of all rows, valid until the next `extend` or `clear`."""
        if self._rows is None:
            raise ValueError("no rows were added yet, so their shape is not known")
        return self._rows[: self._count]


class DynamicRaggedArray(Generic[Scalar]):
    """A `RaggedArray` that sequences are appended to."""

    def __init__(self) -> None:
        self._values = DynamicArray[Scalar]()
        self._lengths = DynamicArray[np.int64]()

    def extend(self, sequences: RaggedArray[Scalar], rows: NDArray[np.int64] | None = None) -> None:
        """Copies the sequences of that index, or all, to the end."""
        chosen = sequences if rows is None else sequences[rows]
        self._values.extend(chosen.values)
        self._lengths.extend(chosen.lengths)

    def clear(self) -> None:
        """Removes all sequences; their memory is reused."""
        self._values.clear()
        self._lengths.clear()

    @property
    def ragged(self) -> RaggedArray[Scalar]:
        """A view of all sequences, valid until the next `extend` or `clear`."""
        return RaggedArray(self._values.rows, self._lengths.rows)


class StoredEntities:
    """Entities of observations: features and visibility."""

    def __init__(self) -> None:
        self._features: dict[EntityName, DynamicRaggedArray[np.float32]]
        self._features = defaultdict(DynamicRaggedArray)
        self._visible: dict[EntityName, DynamicRaggedArray[np.bool_]]
        self._visible = defaultdict(DynamicRaggedArray)
        self._hiding: set[EntityName] = set()

    def clear(self) -> None:
        """Removes all rows."""
        for name, features in self._features.items():
            features.clear()
            self._visible[name].clear()
        self._hiding.clear()

    def add(self, obs: EntityBatch, rows: NDArray[np.int64] | None) -> None:
        """Copies the rows of that index, or all."""
        for name, features in obs.features.items():
            self._features[name].extend(features, rows)
            visible = obs.visible.get(name)
            if visible is None:
                everything = np.ones(len(features.values), dtype=np.bool_)
                visible = RaggedArray(everything, features.lengths)
            else:
                self._hiding.add(name)
            self._visible[name].extend(visible, rows)

    def batch(self, action_masks: Mapping[ActionName, VecActionMask]) -> EntityBatch:
        """All rows, as views that are valid until the next `add` or `clear`."""
        return EntityBatch(
            features={name: each.ragged for name, each in self._features.items()},
            visible={name: self._visible[name].ragged for name in sorted(self._hiding)},
            action_masks=action_masks,
        )


class _ActionBuffer:
    """Actors, actees, masks and samples of one action."""

    def __init__(self) -> None:
        self._actors = DynamicRaggedArray[np.int64]()
        self._actees = DynamicRaggedArray[np.int64]()
        self._allowed = DynamicRaggedArray[np.bool_]()
        self._samples = DynamicRaggedArray[np.int64 | np.float32]()
        self._kind: type[VecActionMask] = VecCategoricalActionMask
        self._is_masked = False

    def clear(self) -> None:
        for each in (self._actors, self._actees, self._allowed, self._samples):
            each.clear()
        self._is_masked = False

    def add(
        self,
        mask: VecActionMask,
        samples: Samples,
        num_choices: int,
        rows: NDArray[np.int64] | None,
    ) -> None:
        self._kind = type(mask)
        self._actors.extend(mask.actors, rows)
        self._samples.extend(RaggedArray(samples, mask.actors.lengths), rows)
        if isinstance(mask, VecContinuousActionMask):
            return
        lengths = mask.actors.lengths
        shape: tuple[int, ...] = (len(mask.actors.values), num_choices)
        if isinstance(mask, VecSelectEntityActionMask):
            self._actees.extend(mask.actees, rows)
            lengths = lengths * mask.actees.lengths
            shape = (int(lengths.sum()),)
        self._is_masked |= mask.mask is not None
        allowed = mask.mask
        if allowed is None:
            allowed = RaggedArray(np.ones(shape, dtype=np.bool_), lengths)
        self._allowed.extend(allowed, rows)

    @property
    def samples(self) -> RaggedSamples:
        return self._samples.ragged

    @property
    def mask(self) -> VecActionMask:
        actors = self._actors.ragged
        if self._kind is VecContinuousActionMask:
            return VecContinuousActionMask(actors)
        allowed = self._allowed.ragged if self._is_masked else None
        if self._kind is VecSelectEntityActionMask:
            return VecSelectEntityActionMask(actors, self._actees.ragged, allowed)
        return VecCategoricalActionMask(actors, allowed)


class RolloutBuffer:
    """Observations and samples of a rollout, decision after decision.

    Args:
        num_choices: number of labels of each action; 0 for select and continuous actions.
    """

    def __init__(self, num_choices: Mapping[ActionName, int]) -> None:
        self._num_choices = dict(num_choices)
        self._entities = StoredEntities()
        self._actions = {name: _ActionBuffer() for name in num_choices}

    def clear(self) -> None:
        """Removes all decisions; their memory is reused."""
        self._entities.clear()
        for each in self._actions.values():
            each.clear()

    def add(
        self,
        obs: EntityBatch,
        samples: Mapping[ActionName, Samples],
        rows: NDArray[np.int64] | None,
    ) -> None:
        """Copies the decisions of some rows, or of all; `samples` as in `PolicyOutput`."""
        self._entities.add(obs, rows)
        for name, buffer in self._actions.items():
            buffer.add(obs.action_masks[name], samples[name], self._num_choices[name], rows)

    @property
    def obs(self) -> EntityBatch:
        """All observations, as views that are valid until the next `add` or `clear`."""
        return self._entities.batch({name: each.mask for name, each in self._actions.items()})

    @property
    def samples(self) -> dict[ActionName, RaggedSamples]:
        """All samples, as views like `obs`."""
        return {name: each.samples for name, each in self._actions.items()}


def _take(sequences: RaggedArray[Scalar], index: NDArray[np.int64]) -> RaggedArray[Scalar]:
    """Copies of the sequences of that index, in that order; the index is not checked."""
    if not has_numba():
        return sequences[index]
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.kernels.layout import take_sequences

    lengths, values = sequences.lengths[index], sequences.values
    width = math.prod(values.shape[1:])
    taken = np.empty((int(lengths.sum()), *values.shape[1:]), dtype=values.dtype)
    source, out = values.reshape(len(values), width), taken.reshape(len(taken), width)
    take_sequences(source, sequences.offsets, index, out)
    return RaggedArray.unchecked(taken, lengths)
