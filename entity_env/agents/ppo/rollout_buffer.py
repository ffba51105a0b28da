"""The observations and actions of a rollout, flat, so that any minibatch is a few gathers."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import ObsBatch
from entity_env.agents.rogue_net.torch_net.net import Samples
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.validation import has_numba
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
    VecSelectEntityActionMask,
)

Scalar = TypeVar("Scalar", bound=np.generic)


class GrowingArray(Generic[Scalar]):
    """Collects rows; shape and dtype of a row are those of the first that comes."""

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
        """Forgets the rows, not the memory."""
        self._count = 0

    @property
    def rows(self) -> NDArray[Scalar]:
        """A view of all rows, valid until the next `extend` or `clear`."""
        if self._rows is None:
            raise ValueError("no rows came yet, so their shape is not known")
        return self._rows[: self._count]


class GrowingRagged(Generic[Scalar]):
    """Collects sequences of rows."""

    def __init__(self) -> None:
        self._values = GrowingArray[Scalar]()
        self._lengths = GrowingArray[np.int64]()

    def extend(self, sequences: RaggedArray[Scalar]) -> None:
        """Copies sequences to the end."""
        self._values.extend(sequences.values)
        self._lengths.extend(sequences.lengths)

    def clear(self) -> None:
        """Forgets the sequences, not the memory."""
        self._values.clear()
        self._lengths.clear()

    @property
    def ragged(self) -> RaggedArray[Scalar]:
        """A view of all sequences, valid until the next `extend` or `clear`."""
        return RaggedArray(self._values.rows, self._lengths.rows)


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """Decisions by index: what `RogueNet.evaluate` takes."""

    obs: ObsBatch
    samples: dict[ActionName, NDArray[np.int64 | np.float32]]


class EntityStorage:
    """Keeps the entities of rows: features, and what was hidden."""

    def __init__(self) -> None:
        self._features: dict[EntityName, GrowingRagged[np.float32]] = defaultdict(GrowingRagged)
        self._visible: dict[EntityName, GrowingRagged[np.bool_]] = defaultdict(GrowingRagged)
        self._hiding: set[EntityName] = set()

    def clear(self) -> None:
        """Forgets all rows."""
        for name, features in self._features.items():
            features.clear()
            self._visible[name].clear()
        self._hiding.clear()

    def add(self, obs: VecObs, rows: NDArray[np.int64] | None) -> None:
        """Copies the rows of that index, or all."""
        for name, features in obs.features.items():
            self._features[name].extend(_select(features, rows))
            visible = obs.visible.get(name)
            if visible is None:
                everything = np.ones(len(features.values), dtype=np.bool_)
                visible = RaggedArray(everything, features.lengths)
            else:
                self._hiding.add(name)
            self._visible[name].extend(_select(visible, rows))

    def freeze(self) -> ObsBatch:
        """All rows so far, as views that are valid until the next `add` or `clear`."""
        return ObsBatch(
            features={name: each.ragged for name, each in self._features.items()},
            visible={name: self._visible[name].ragged for name in sorted(self._hiding)},
            action_masks={},
        )


class _ActionStorage:
    """Keeps who acted how, for one action."""

    def __init__(self) -> None:
        self._actors = GrowingRagged[np.int64]()
        self._actees = GrowingRagged[np.int64]()
        self._allowed = GrowingRagged[np.bool_]()
        self._samples = GrowingRagged[np.int64 | np.float32]()
        self._kind: type[VecActionMask] = VecCategoricalActionMask
        self._is_masked = False

    def clear(self) -> None:
        self._actors.clear()
        self._actees.clear()
        self._allowed.clear()
        self._samples.clear()
        self._is_masked = False

    def add(
        self,
        mask: VecActionMask,
        samples: Samples,
        num_choices: int,
        rows: NDArray[np.int64] | None,
    ) -> None:
        self._kind = type(mask)
        self._actors.extend(_select(mask.actors, rows))
        drawn: RaggedArray[np.int64 | np.float32] = RaggedArray(samples, mask.actors.lengths)
        self._samples.extend(_select(drawn, rows))
        if not isinstance(mask, VecContinuousActionMask):
            self._add_allowed(mask, num_choices, rows)

    def _add_allowed(
        self,
        mask: VecCategoricalActionMask | VecSelectEntityActionMask,
        num_choices: int,
        rows: NDArray[np.int64] | None,
    ) -> None:
        allowed = mask.mask
        if isinstance(mask, VecSelectEntityActionMask):
            self._actees.extend(_select(mask.actees, rows))
            lengths = mask.actors.lengths * mask.actees.lengths
            shape: tuple[int, ...] = (int(lengths.sum()),)
        else:
            lengths = mask.actors.lengths
            shape = (len(mask.actors.values), num_choices)
        self._is_masked |= allowed is not None
        if allowed is None:
            allowed = RaggedArray(np.ones(shape, dtype=np.bool_), lengths)
        self._allowed.extend(_select(allowed, rows))

    def freeze(self) -> tuple[VecActionMask, RaggedArray[np.int64 | np.float32]]:
        return self._freeze_mask(), self._samples.ragged

    def _freeze_mask(self) -> VecActionMask:
        actors = self._actors.ragged
        if self._kind is VecContinuousActionMask:
            return VecContinuousActionMask(actors)
        allowed = self._allowed.ragged if self._is_masked else None
        if self._kind is VecSelectEntityActionMask:
            return VecSelectEntityActionMask(actors, self._actees.ragged, allowed)
        return VecCategoricalActionMask(actors, allowed)


class DecisionStorage:
    """Keeps decisions of a rollout, one after another, and gives any of them back.

    Args:
        num_choices: number of labels to choose from for each action; 0 for select and continuous
            actions.
    """

    def __init__(self, num_choices: Mapping[ActionName, int]) -> None:
        self._num_choices = dict(num_choices)
        self._entities = EntityStorage()
        self._actions = {name: _ActionStorage() for name in num_choices}

    def clear(self) -> None:
        """Forgets all decisions; their memory is used again."""
        self._entities.clear()
        for each in self._actions.values():
            each.clear()

    def add(
        self,
        obs: VecObs,
        samples: Mapping[ActionName, Samples],
        rows: NDArray[np.int64] | None,
    ) -> None:
        """Copies the decisions of some rows, or of all; `samples` as in `Decisions`."""
        self._entities.add(obs, rows)
        for name, storage in self._actions.items():
            storage.add(obs.action_masks[name], samples[name], self._num_choices[name], rows)

    def freeze(self) -> FrozenDecisions:
        """All decisions so far, as views that are valid until the next `add` or `clear`."""
        frozen = {name: storage.freeze() for name, storage in self._actions.items()}
        entities = self._entities.freeze()
        masks = {name: mask for name, (mask, _) in frozen.items()}
        samples = {name: drawn for name, (_, drawn) in frozen.items()}
        return FrozenDecisions(ObsBatch(entities.features, entities.visible, masks), samples)


@dataclass(frozen=True, slots=True)
class FrozenDecisions:
    """All decisions of a rollout."""

    obs: ObsBatch
    samples: Mapping[ActionName, RaggedArray[np.int64 | np.float32]]

    def gather(self, mb_inds: NDArray[np.int64]) -> StoredBatch:
        """The decisions of that index, in that order, as copies."""
        obs = ObsBatch(
            features={name: _take(each, mb_inds) for name, each in self.obs.features.items()},
            visible={name: _take(each, mb_inds) for name, each in self.obs.visible.items()},
            action_masks={
                name: _gather_mask(mask, mb_inds) for name, mask in self.obs.action_masks.items()
            },
        )
        return StoredBatch(
            obs, {name: _take(a, mb_inds).values for name, a in self.samples.items()}
        )


def _gather_mask(mask: VecActionMask, mb_inds: NDArray[np.int64]) -> VecActionMask:
    actors = _take(mask.actors, mb_inds)
    if isinstance(mask, VecContinuousActionMask):
        return VecContinuousActionMask(actors)
    allowed = None if mask.mask is None else _take(mask.mask, mb_inds)
    if isinstance(mask, VecSelectEntityActionMask):
        return VecSelectEntityActionMask(actors, _take(mask.actees, mb_inds), allowed)
    return VecCategoricalActionMask(actors, allowed)


def _take(sequences: RaggedArray[Scalar], index: NDArray[np.int64]) -> RaggedArray[Scalar]:
    """Copies of the sequences of that index, in that order; there must be all of them."""
    if not has_numba():
        return sequences[index]
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.ppo.kernels import take_sequences

    lengths, values = sequences.lengths[index], sequences.values
    width = math.prod(values.shape[1:])
    taken = np.empty((int(lengths.sum()), *values.shape[1:]), dtype=values.dtype)
    flat, out = values.reshape(len(values), width), taken.reshape(len(taken), width)
    take_sequences(flat, sequences.offsets, index, out)
    return RaggedArray.unchecked(taken, lengths)


def _select(sequences: RaggedArray[Scalar], rows: NDArray[np.int64] | None) -> RaggedArray[Scalar]:
    return sequences if rows is None else sequences[rows]
