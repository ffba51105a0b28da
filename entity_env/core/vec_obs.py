"""`VecObs`, a batch of observations, and `VecEnvironment`, the interface of vector environments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.masks import reference_error, wrong_reference
from entity_env.core.ragged import RaggedArray, RaggedTensor, chosen_rows
from entity_env.core.spaces import ActionName, ActionSpace, Entity, EntityName, ObsSpace
from entity_env.errors import ProtocolError, SchemaError, UsageError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class VecCategoricalActionMask:
    """Actors of each observation and their allowed labels, for categorical and global actions.

    Args:
        actors: per observation, the index of each acting entity among the observation's entities,
            which are in observation space order. A global action has at most one actor: the
            `GLOBAL_ENTITY` row, whose index follows the last entity's.
        mask: per observation `(num_actors, num_choices)` bool, True = allowed; None = all allowed.
            With `per_actor`, `(num_actors * per_actor, num_choices)`, see `narrowed`.
        per_actor: one int64 per observation: number of choices of the action on which this one
            depends, and so of mask rows for each actor. None = the mask does not depend on others.
    """

    actors: RaggedArray[np.int64]
    mask: RaggedArray[np.bool_] | None = None
    per_actor: RaggedArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class VecSelectEntityActionMask:
    """Actors and actees of a select action in each observation.

    Args:
        actors: per observation, the index of each selecting entity.
        actees: per observation, the index of each selectable entity. An action is a position in
            this list, not an entity index.
        mask: per observation `num_actors * num_actees` bool in row-major order, True = allowed;
            None = all allowed. With `per_actor`, `num_actors * per_actor * num_actees`.
        per_actor: as in `VecCategoricalActionMask`.
    """

    actors: RaggedArray[np.int64]
    actees: RaggedArray[np.int64]
    mask: RaggedArray[np.bool_] | None = None
    per_actor: RaggedArray[np.int64] | None = None


@dataclass(frozen=True, slots=True)
class VecContinuousActionMask:
    """Actors of a continuous action in each observation."""

    actors: RaggedArray[np.int64]


VecActionMask: TypeAlias = (
    VecCategoricalActionMask | VecSelectEntityActionMask | VecContinuousActionMask
)

VecActions: TypeAlias = Mapping[
    ActionName,
    RaggedArray[np.int64] | RaggedArray[np.float32] | NDArray[np.int64] | NDArray[np.float32],
]
"""One value per actor and action, in the order of `VecObs.action_masks[name].actors.values`:
`(num_actors,)` integers for categorical (label index) and select actions (position in the actee
list), `(num_actors, num_labels)` floats for continuous actions. An action without actors may be
omitted."""


@dataclass(slots=True)
class Metric:
    """Running count, sum, minimum and maximum of a named number."""

    count: int = 0
    sum: float = 0.0
    min: float = float("inf")
    max: float = float("-inf")

    def push(self, value: float) -> None:
        """Adds a value."""
        self.count += 1
        self.sum += value
        self.min = min(self.min, value)
        self.max = max(self.max, value)

    @property
    def mean(self) -> float:
        """Mean so far, 0 without values."""
        return self.sum / self.count if self.count else 0.0


def merge_metrics(into: dict[str, Metric], more: Mapping[str, Metric]) -> None:
    """Adds `more` to `into`."""
    for name, metric in more.items():
        sums = into.setdefault(name, Metric())
        sums.count += metric.count
        sums.sum += metric.sum
        sums.min = min(sums.min, metric.min)
        sums.max = max(sums.max, metric.max)


class MaskTensors(NamedTuple):
    """An action mask as tensors; `actees` and `mask` are None if the action mask has none.

    For dependent masks, `per_actor` is in the action mask of the batch.
    """

    actors: RaggedTensor
    actees: RaggedTensor | None
    mask: RaggedTensor | None


class ObsTensors(NamedTuple):
    """An `EntityBatch` as tensors that own their memory."""

    features: dict[EntityName, RaggedTensor]
    visible: dict[EntityName, RaggedTensor]
    action_masks: dict[ActionName, MaskTensors]


@dataclass(slots=True)
class EntityBatch:
    """The part of a `VecObs` that a network reads."""

    features: Mapping[EntityName, RaggedArray[np.float32]]
    visible: Mapping[EntityName, RaggedArray[np.bool_]]
    action_masks: Mapping[ActionName, VecActionMask]

    def map_arrays(self, change: Callable[[RaggedArray[Any]], RaggedArray[Any]]) -> EntityBatch:
        """A new batch with `change` applied to every ragged array."""
        return EntityBatch(
            {name: change(each) for name, each in self.features.items()},
            {name: change(each) for name, each in self.visible.items()},
            {name: _mapped(mask, change) for name, mask in self.action_masks.items()},
        )

    def pad(
        self, max_rows: int | Mapping[EntityName, int] | None = None
    ) -> dict[EntityName, tuple[NDArray[np.float32], NDArray[np.bool_]]]:
        """Dense features and a mask per entity type: see `RaggedArray.pad`.

        Entities hidden from the policy are included: for a type with hidden entities,
        `visible[name].pad(max_rows)[0]` marks the visible ones.

        Args:
            max_rows: entities per row in the result, for all types or by name. For None, or a type
                that is not named: the largest number of entities of the type in any row.

        Returns:
            `(num_rows, max_rows, num_features) float32`, 0 where there is no entity; and
            `(num_rows, max_rows) bool`, True = an entity exists.

        Raises:
            UsageError: a row has more than `max_rows` entities, or a name is unknown.
        """
        limits = (
            max_rows if isinstance(max_rows, Mapping) else dict.fromkeys(self.features, max_rows)
        )
        unknown = [name for name in limits if name not in self.features]
        if unknown:
            raise UsageError(
                f"max_rows names {unknown[0]!r}, expected {', '.join(self.features) or 'no name'}"
            )
        padded = {}
        for name, features in self.features.items():
            try:
                padded[name] = features.pad(limits.get(name))
            except UsageError as error:
                raise UsageError(f"entities of type {name!r}: {error}") from error
        return padded

    def to_torch(self, device: str | torch.device | None = None) -> ObsTensors:
        """Features, visibility and action masks as tensors, for custom networks.

        Raises:
            MissingExtraError: torch is not installed.
        """
        masks = {}
        for name, mask in self.action_masks.items():
            parts = {part: each.to_torch(device) for part, each in _parts(mask)}
            masks[name] = MaskTensors(parts["actors"], parts.get("actees"), parts.get("mask"))
        return ObsTensors(
            {name: each.to_torch(device) for name, each in self.features.items()},
            {name: each.to_torch(device) for name, each in self.visible.items()},
            masks,
        )


def concat_entities(batches: Sequence[EntityBatch]) -> EntityBatch:
    """Copies the rows of several batches, one batch after another.

    If only some batches have visibility flags of an entity type, or a mask of an action, the rows
    of the others get True.

    Raises:
        SchemaError: there are no batches, or their entities or actions differ.
    """
    if not batches:
        raise SchemaError("expected at least one batch, got none")
    first = batches[0]
    for number, other in enumerate(batches):
        require_same_spaces(first, other, f"batch {number}")
    return EntityBatch(
        {name: RaggedArray.concat([b.features[name] for b in batches]) for name in first.features},
        {
            name: RaggedArray.concat(
                [b.visible.get(name) or _all_true(b.features[name].lengths) for b in batches]
            )
            for name in first.features
            if any(name in batch.visible for batch in batches)
        },
        {
            name: _concat_masks([batch.action_masks[name] for batch in batches])
            for name in first.action_masks
        },
    )


def require_same_spaces(first: EntityBatch, other: EntityBatch, what: str) -> None:
    """Raises `SchemaError` if batches differ in entity types, numbers of features or actions."""
    for got, expected in zip(_space_names(other), _space_names(first), strict=True):
        if got != expected:
            raise SchemaError(
                f"{what} has different spaces: expected {', '.join(expected) or 'none'}, got "
                f"{', '.join(got) or 'none'}"
            )


def _space_names(batch: EntityBatch) -> tuple[set[str], ...]:
    entities = {
        f"entity {name} with {each.values.shape[1]} features"
        for name, each in batch.features.items()
    }
    return entities, {
        f"action {name} with a {type(mask).__name__}"
        + (" and per_actor" if getattr(mask, "per_actor", None) is not None else "")
        for name, mask in batch.action_masks.items()
    }


def _parts(mask: VecActionMask) -> list[tuple[str, RaggedArray[Any]]]:
    parts = [(each.name, getattr(mask, each.name)) for each in fields(mask)]
    return [(name, part) for name, part in parts if part is not None]


def _mapped(
    mask: VecActionMask, change: Callable[[RaggedArray[Any]], RaggedArray[Any]]
) -> VecActionMask:
    changed: Any = {name: change(part) for name, part in _parts(mask)}
    return replace(mask, **changed)


def _all_true(lengths: NDArray[np.int64], width: tuple[int, ...] = ()) -> RaggedArray[np.bool_]:
    return RaggedArray.unchecked(np.ones((int(lengths.sum()), *width), dtype=np.bool_), lengths)


def _concat_masks(masks: Sequence[VecActionMask]) -> VecActionMask:
    actors = RaggedArray.concat([mask.actors for mask in masks])
    allowed = [getattr(mask, "mask", None) for mask in masks]
    width = next((each.values.shape[1:] for each in allowed if each is not None), None)
    filled = None
    if width is not None:
        filled = RaggedArray.concat(
            [
                _all_true(num_mask_rows(mask), width) if each is None else each
                for mask, each in zip(masks, allowed, strict=True)
            ]
        )
    if isinstance(masks[0], VecContinuousActionMask):
        return VecContinuousActionMask(actors)
    counts = [each for mask in masks if (each := getattr(mask, "per_actor", None)) is not None]
    per_actor = RaggedArray.concat(counts) if counts else None
    if isinstance(masks[0], VecCategoricalActionMask):
        return VecCategoricalActionMask(actors, filled, per_actor)
    actees = [mask.actees for mask in masks if isinstance(mask, VecSelectEntityActionMask)]
    return VecSelectEntityActionMask(actors, RaggedArray.concat(actees), filled, per_actor)


def num_mask_rows(mask: VecActionMask) -> NDArray[np.int64]:
    """`(num_rows,)`: mask rows of each observation."""
    count = mask.actors.lengths
    if not isinstance(mask, VecContinuousActionMask) and mask.per_actor is not None:
        count = count * mask.per_actor.values
    if isinstance(mask, VecSelectEntityActionMask):
        return count * mask.actees.lengths
    return count


@dataclass(slots=True)
class VecObs(EntityBatch):
    """A batch of observations, one row per agent of each environment.

    Row `r` belongs to agent `agent_id[r]` of environment `env_id[r]`. In a `Game`, a row has no
    entities and no actors unless its agent has to act, or the row shows the last observation of
    the agent's episode.

    Arrays are views, valid until the next `act`, `recv`, `reset` or `reset_envs`; use `copy()` to
    keep them. The results of `copy`, `select`, `concat`, `pad` and `to_torch` own their memory.

    Args:
        features: per entity type `(num_entities, num_features)` float32 and one length per row, in
            the order of the observation space. If there are global features or a global action,
            `GLOBAL_ENTITY` is last and has one entity in every row that is not empty.
        visible: per entity type `(num_entities,)` bool, only for types with hidden entities: False
            = hidden from the policy, not from the value function.
        reward: `(num_rows,)` float32, earned since the row's previous observation.
        terminated: `(num_rows,)` bool, the episode ended by its rules.
        truncated: `(num_rows,)` bool, the episode was stopped early.
        env_id: `(num_rows,)` int64.
        agent_id: `(num_rows,)` int64, all 0 in single-agent games.
        final: the last observations of the episodes that ended in this step, one row each, with
            their `env_id` and `agent_id`; None if no episode ended, or after a reset. Rows of
            truncated episodes keep their actors and masks, to compute the values of legal actions;
            rows of terminated and failed episodes have no actors. A failed episode has its row of
            the batch before, which is empty if the agent was not asked. With autoreset "next_step"
            or "disabled", the episode's row in this batch shows the same entities, without actors,
            unless it failed.
        metrics: the games' named numbers over this batch.
        episodes: summaries of the episodes that ended in this step.
        begins: `(num_rows,)` bool, only after a reset: rows that begin an episode without being
            done. Includes rows that were done in the batch before a partial reset. None = none, or
            unknown, as in batches of environments that cannot tell.
        source: identity of the `VecEnv`, by which agents with memory tell the episodes of several
            `VecEnv`s apart; None = unknown.
    """

    features: dict[EntityName, RaggedArray[np.float32]]
    visible: dict[EntityName, RaggedArray[np.bool_]]
    action_masks: dict[ActionName, VecActionMask]
    reward: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    env_id: NDArray[np.int64]
    agent_id: NDArray[np.int64]
    final: VecObs | None = None
    metrics: dict[str, Metric] = field(default_factory=dict)
    episodes: Sequence[Episode] = ()
    begins: NDArray[np.bool_] | None = None
    source: int | None = field(default=None, compare=False)

    @property
    def done(self) -> NDArray[np.bool_]:
        """`(num_rows,)` bool: the episode was terminated or truncated."""
        return self.terminated | self.truncated

    @property
    def is_ready(self) -> NDArray[np.bool_]:
        """`(num_rows,)` bool: the row has at least one actor.

        False for a row that waits, but requests only actions for which it shows no actor: its
        answer is empty.
        """
        ready = np.zeros(len(self.reward), dtype=np.bool_)
        for mask in self.action_masks.values():
            ready |= mask.actors.lengths > 0
        return ready

    def copy(self) -> VecObs:
        """A copy, including `final`, that owns its memory."""
        return self._rebuilt(
            RaggedArray.copy,
            np.ndarray.copy,
            final=None if self.final is None else self.final.copy(),
            metrics={name: replace(metric) for name, metric in self.metrics.items()},
            episodes=list(self.episodes),
        )

    def select(self, rows: Sequence[int] | NDArray[np.integer] | NDArray[np.bool_]) -> VecObs:
        """Copies some rows, in the given order.

        `final` and `episodes` include only those of the selected rows; `metrics` is empty because
        it describes a whole batch.

        Args:
            rows: row indices, repeated or in any order, -1 for the last row; or `(num_rows,)` bool.

        Raises:
            UsageError: a row does not exist, or the mask has the wrong length.
        """
        index = chosen_rows(rows, len(self), "rows")
        final = None
        if self.final is not None:
            of_row = np.full(len(self), -1, dtype=np.int64)
            of_row[self.final_rows()] = np.arange(len(self.final))
            final = self.final.select(of_row[index][of_row[index] >= 0])
        chosen = set(zip(self.env_id[index].tolist(), self.agent_id[index].tolist(), strict=True))
        return self._rebuilt(
            itemgetter(index),
            itemgetter(index),
            final=final,
            episodes=[one for one in self.episodes if (one.env_id, one.agent_id) in chosen],
        )

    @staticmethod
    def concat(batches: Sequence[VecObs]) -> VecObs:
        """Copies the rows of several batches with equal spaces, one batch after another.

        Missing flags and masks are filled in as by `concat_entities`. The result has `final` if any
        batch has it; metrics are merged.

        Raises:
            SchemaError: there are no batches, or their entities or actions differ.
        """
        batch = concat_entities(batches)
        finals = [each.final for each in batches if each.final is not None]
        metrics: dict[str, Metric] = {}
        for each in batches:
            merge_metrics(metrics, each.metrics)
        return VecObs(
            dict(batch.features),
            dict(batch.visible),
            dict(batch.action_masks),
            np.concatenate([each.reward for each in batches]),
            np.concatenate([each.terminated for each in batches]),
            np.concatenate([each.truncated for each in batches]),
            np.concatenate([each.env_id for each in batches]),
            np.concatenate([each.agent_id for each in batches]),
            VecObs.concat(finals) if finals else None,
            metrics,
            [episode for each in batches for episode in each.episodes],
            _joined_flags(batches),
        )

    def with_final(self) -> VecObs:
        """The outcome of the step: this batch, or a new one if `final` is not None.

        The row of an ended episode shows its last observation from `final`, with actors and masks
        if the episode was truncated. With autoreset "same_step", this replaces the first
        observation of the next episode. The result has no `final`.
        """
        if self.final is None:
            return self
        index = np.arange(len(self))
        index[self.final_rows()] = len(self) + np.arange(len(self.final))
        batch = concat_entities([self, self.final]).map_arrays(itemgetter(index))
        return replace(
            self,
            features=dict(batch.features),
            visible=dict(batch.visible),
            action_masks=dict(batch.action_masks),
            final=None,
        )

    def final_rows(self) -> NDArray[np.int64]:
        """`(len(final),)`: for each observation in `final`, the row of its episode.

        Raises:
            ProtocolError: `final` is None, or does not match the rows that are done.
        """
        done, final = np.flatnonzero(self.done), self.final
        if final is None:
            raise ProtocolError("the batch has no final observations: `final` is None")
        if len(final) == len(done):
            # Stable sort: after `concat`, rows of one agent at several steps stay in order.
            mine = done[np.lexsort((self.agent_id[done], self.env_id[done]))]
            theirs = np.lexsort((final.agent_id, final.env_id))
            keys = (self.env_id[mine], self.agent_id[mine])
            if np.array_equal(keys, (final.env_id[theirs], final.agent_id[theirs])):
                rows = np.empty(len(done), dtype=np.int64)
                rows[theirs] = mine
                return rows
        raise ProtocolError(
            f"expected `final` to have one observation of each of the {len(done)} rows that are "
            f"done: got {len(final)}, of the environments {final.env_id[:8].tolist()}"
        )

    def find_rows(self, part: VecObs) -> NDArray[np.int64]:
        """`(len(part),)`: row in this batch for the environment and agent of each row of `part`.

        -1 where this batch has no such row.
        """
        num_agents = int(max(part.agent_id.max(initial=0), self.agent_id.max(initial=0))) + 1
        key = self.env_id * num_agents + self.agent_id
        wanted = part.env_id * num_agents + part.agent_id
        if not len(key):
            return np.full(len(part), -1, dtype=np.int64)
        order = np.argsort(key)
        place = np.searchsorted(key, wanted, sorter=order)
        rows = order[np.minimum(place, len(order) - 1)]
        return np.where(key[rows] == wanted, rows, -1)

    def _rebuilt(
        self,
        ragged: Callable[[RaggedArray[Any]], RaggedArray[Any]],
        flat: Callable[[NDArray[Any]], NDArray[Any]],
        **rest: Any,  # noqa: ANN401 - of several types
    ) -> VecObs:
        batch = self.map_arrays(ragged)
        return VecObs(
            dict(batch.features),
            dict(batch.visible),
            dict(batch.action_masks),
            flat(self.reward),
            flat(self.terminated),
            flat(self.truncated),
            flat(self.env_id),
            flat(self.agent_id),
            begins=None if self.begins is None else flat(self.begins),
            source=self.source,
            **rest,
        )

    def __len__(self) -> int:
        return len(self.reward)


def _joined_flags(batches: Sequence[VecObs]) -> NDArray[np.bool_] | None:
    """`begins` of several batches; False where it is unknown, unless it is in all."""
    if all(each.begins is None for each in batches):
        return None
    none = (np.zeros(len(each), np.bool_) for each in batches)
    pairs = zip(batches, none, strict=True)
    return np.concatenate([no if each.begins is None else each.begins for each, no in pairs])


def wrong_relation(
    relations: Mapping[EntityName, Entity], features: Mapping[EntityName, RaggedArray[np.float32]]
) -> tuple[int, SchemaError] | None:
    """The first observation in which a relation refers to nothing, and the error.

    Args:
        relations: as in `ObsSpace.relations`.
        features: of all entity types, a row per entity of each observation.
    """
    for name, relation in relations.items():
        types, rows = relation.references or (), features[name]
        counts = [features[other].lengths for other in types]
        wrong = wrong_reference(rows.values, [np.repeat(each, rows.lengths) for each in counts])
        if wrong is not None:
            index, column = wrong
            row = int(rows.row_index[index])
            place, shown_here = index - int(rows.offsets[row]), [int(each[row]) for each in counts]
            error = reference_error(
                name, relation.features, types, shown_here, rows[row], place, column
            )
            return row, error
    return None


def find_not_finite(
    features: Mapping[EntityName, RaggedArray[np.float32]],
) -> tuple[EntityName, int, int, float] | None:
    """Entity type, row, feature index and value of the first non-finite number, or None."""
    for name, entities in features.items():
        if not np.isfinite(entities.values).all():
            index, feature = np.argwhere(~np.isfinite(entities.values))[0].tolist()
            value = float(entities.values[index, feature])
            return name, int(entities.row_index[index]), feature, value
    return None


class VecEnvironment(Protocol):
    """Steps many environments at once; for example `entity_env.vec.VecEnv`.

    An implementation that can reset some environments while others continue has
    `can_reset_envs = True` and a method `reset_envs(mask, seed=None)`, like `VecEnv.reset_envs`;
    training uses it for `PPOConfig.staggered_steps`.
    """

    def obs_space(self) -> ObsSpace:
        """Observation space."""

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """Action space."""

    @property
    def num_rows(self) -> int:
        """Length of a batch of all environments: their number times the agents of each."""

    def reset(self, seed: int | None = None) -> VecObs:
        """Resets all environments."""

    def act(self, actions: VecActions) -> VecObs:
        """Performs one action per actor of the last batch and returns the next batch."""

    def send(self, actions: VecActions) -> None:
        """First half of `act`: sends the actions; the last batch stays valid."""

    def recv(self) -> VecObs:
        """Second half of `act`: waits for the next batch."""

    def close(self) -> None:
        """Closes all environments; may be called twice."""
