"""ReplayBuffer: the most recent transitions of vectorized environments, for off-policy learning."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.ragged import RaggedArray, chosen_rows
from entity_env.core.spaces import ActionName
from entity_env.core.validation import checked_count
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
    VecSelectEntityActionMask,
    num_mask_rows,
    require_same_spaces,
)
from entity_env.errors import SchemaError, UsageError

ActionArrays: TypeAlias = dict[ActionName, RaggedArray[Any]]
_Columns: TypeAlias = dict[str, NDArray[Any]]


class Transitions(NamedTuple):
    """Transitions, one per row, as arrays owned by the caller.

    Args:
        obs: observations on which the agents acted.
        actions: per action one value per actor, in the order of `obs.action_masks[name].actors`.
        next_obs: the agents' next observations, or the last of their episodes. Its `reward`,
            `terminated` and `truncated` belong to the transitions.
    """

    obs: VecObs
    actions: ActionArrays
    next_obs: VecObs


class ReplayBuffer:
    """The last `capacity` transitions, uniformly sampled: experience replay (Lin 1992).

    Works with every autoreset mode: no transition crosses from an ended episode to the next. For an
    agent that waits for its turn, the transition ends when it acts again or the episode ends, and
    its reward is the sum in between. (A reset before the end of an episode may leave one wrong
    transition per waiting agent.)

        obs = vec.reset().copy()
        for _ in range(num_steps):
            actions = ...
            next_obs = vec.act(actions)
            buffer.add(obs, actions, next_obs)
            obs = next_obs.copy()
            batch = buffer.sample(128, rng)

    Memory: a transition has two observations. Each takes 22 bytes, plus 16 per entity type and
    action (48 for a select action), plus its rows: 4 bytes per feature, 8 per actor or actee, and 1
    per entity or choice once any is hidden or masked. Chosen actions take 8 bytes per actor
    (continuous actions 4 per number). Rows are in flat arrays that double when the last `capacity`
    transitions need more, and never shrink. The arrays therefore take at most twice the memory in
    use, or three times while an array grows. See `num_bytes`.

    Args:
        capacity: maximum number of transitions; the oldest are overwritten.

    Raises:
        UsageError: the capacity is not a positive integer.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = checked_count("capacity", capacity)
        self._obs, self._next_obs = _ObsRing(self.capacity), _ObsRing(self.capacity)
        self._oldest = 0
        self._added: tuple[int, Transitions | None] = 0, None  # number added, and incomplete ones
        self._spaces: VecObs | None = None

    def __len__(self) -> int:
        return self._added[0] - self._oldest

    @property
    def num_bytes(self) -> int:
        """Size of the arrays of transitions, in bytes."""
        return self._obs.num_bytes + self._next_obs.num_bytes

    def add(self, obs: VecObs, actions: VecActions, next_obs: VecObs) -> None:
        """Copies one transition per row that acted.

        The transition of an agent that waits for its turn is kept aside until it is complete, and
        dropped if a reset abandons its episode. If interrupted, nothing is added, but the oldest
        transitions may be lost.

        Args:
            obs: the batch acted on, which must still hold its data: pass a copy, or call this
                before the environments step again.
            actions: the actions sent for `obs`.
            next_obs: the resulting batch, with the same rows in the same order.

        Raises:
            UsageError: `next_obs` has other rows than `obs`, or lacks the row of an agent that
                acted in an earlier call and still waits.
            SchemaError: the spaces differ from earlier calls, or `actions` lacks a valid value for
                each actor.
            ProtocolError: `next_obs.final` does not match the rows that are done; nothing was
                added.
        """
        if not (
            np.array_equal(obs.env_id, next_obs.env_id)
            and np.array_equal(obs.agent_id, next_obs.agent_id)
        ):
            raise UsageError(
                f"next_obs must have the rows of obs, in their order: got {len(next_obs)} rows of "
                f"environments {next_obs.env_id[:8].tolist()}..., expected {len(obs)} of "
                f"{obs.env_id[:8].tolist()}..."
            )
        spaces = obs.select([]) if self._spaces is None else self._spaces
        for batch, what in ((obs, "obs"), (next_obs, "next_obs")):
            require_same_spaces(spaces, batch, what)
        chosen = {
            name: _chosen(name, actions.get(name), mask) for name, mask in obs.action_masks.items()
        }
        shown = replace(next_obs.with_final(), episodes=())
        found = Transitions(replace(obs, final=None, episodes=()), chosen, shown)
        if not obs.is_ready.all():
            found = _select(found, np.flatnonzero(obs.is_ready))
        num_added, waiting = self._added
        if waiting is not None:
            found = _joined(_continued(_not_abandoned(waiting, obs), shown), found)
        is_known = found.next_obs.done | found.next_obs.is_ready
        waiting = None
        if not is_known.all():
            waiting = _select(found, np.flatnonzero(~is_known))
            found = _select(found, np.flatnonzero(is_known))
        if len(found.obs) > self.capacity:
            found = _select(found, np.arange(-self.capacity, 0))
        tables = list(_tables(found.obs, found.actions)), list(_tables(found.next_obs, {}))
        for ring, one in zip((self._obs, self._next_obs), tables, strict=True):
            ring.require_fit(one)
        end = num_added + len(found.obs)
        self._oldest = max(self._oldest, end - self.capacity)  # before they are overwritten
        self._obs.write(num_added, self._oldest, found.obs, tables[0])
        self._next_obs.write(num_added, self._oldest, found.next_obs, tables[1])
        self._spaces = spaces
        self._added = end, waiting

    def select(self, rows: Sequence[int] | NDArray[np.integer]) -> Transitions:
        """Transitions by age: row 0 is the oldest, -1 the newest.

        Raises:
            UsageError: no such transition.
        """
        index = chosen_rows(rows, len(self), "transitions of the buffer")
        slots = (self._oldest + index) % self.capacity
        obs, actions = self._obs.read(slots)
        return Transitions(obs, actions, self._next_obs.read(slots)[0])

    def sample(self, batch_size: int, rng: np.random.Generator) -> Transitions:
        """Transitions sampled uniformly with replacement.

        Raises:
            UsageError: the buffer is empty, or the batch size is not a positive integer.
        """
        checked_count("batch_size", batch_size)
        if not len(self):
            raise UsageError("the buffer is empty: add transitions before the first sample")
        return self.select(rng.integers(len(self), size=batch_size))


class _RaggedRing:
    """Ragged rows of the last transitions in flat arrays, the columns, at positions modulo `size`.

    Positions count all rows ever written. A bool column that is added later is True in all earlier
    rows. An interrupted write is repeated, or overwritten by the next.
    """

    def __init__(self, capacity: int) -> None:
        self.starts = np.zeros(capacity, dtype=np.int64)
        self.lengths = np.zeros(capacity, dtype=np.int64)
        self._arrays: tuple[int, _Columns] = 16, {}  # size, a power of two, and columns
        self.head = 0

    @property
    def size(self) -> int:
        return self._arrays[0]

    @property
    def columns(self) -> _Columns:
        return self._arrays[1]

    def write(self, first: int, oldest: int, lengths: NDArray[np.int64], columns: _Columns) -> None:
        """Writes transitions from number `first` on; keeps those from `oldest` on."""
        capacity, count, total = len(self.starts), len(lengths), int(lengths.sum())
        tail = self.head if oldest >= first else int(self.starts[oldest % capacity])
        self._reserve(tail, self.head + total - tail)
        slots = np.arange(first, first + count) % capacity
        self.starts[slots] = self.head + np.cumsum(lengths) - lengths
        self.lengths[slots] = lengths
        places = np.arange(self.head, self.head + total) & (self.size - 1)
        for name, values in columns.items():
            if name not in self.columns:
                self.columns[name] = np.ones((self.size, *values.shape[1:]), values.dtype)
        for name, column in self.columns.items():
            column[places] = columns.get(name, True)
        self.head += total

    def _reserve(self, tail: int, num_rows: int) -> None:
        if num_rows <= self.size:
            return
        size, live = 1 << (num_rows - 1).bit_length(), np.arange(tail, self.head)
        columns = {}
        for name, column in self.columns.items():
            columns[name] = np.empty((size, *column.shape[1:]), column.dtype)
            columns[name][live & (size - 1)] = column[live & (self.size - 1)]
        self._arrays = size, columns

    def read(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.int64], _Columns]:
        lengths = self.lengths[slots]
        places = np.repeat(self.starts[slots] - np.cumsum(lengths) + lengths, lengths)
        places += np.arange(len(places))
        places &= self.size - 1
        return lengths, {name: column[places] for name, column in self.columns.items()}


class _Table(NamedTuple):
    """Rows of one kind in a batch of observations."""

    key: tuple[str, str]
    lengths: NDArray[np.int64]
    columns: _Columns


def _tables(obs: VecObs, actions: ActionArrays) -> Iterator[_Table]:
    for name, features in obs.features.items():
        columns: _Columns = {"features": features.values}
        if name in obs.visible:
            columns["visible"] = obs.visible[name].values
        yield _Table(("entities", name), features.lengths, columns)
    for name, mask in obs.action_masks.items():
        columns = {"actors": mask.actors.values}
        if name in actions and len(actions[name].values):  # without rows, the width may be unknown
            columns["chosen"] = actions[name].values
        is_plain = isinstance(mask, VecCategoricalActionMask) and mask.per_actor is None
        allowed: _Columns = {}
        if not isinstance(mask, VecContinuousActionMask) and mask.mask is not None:
            allowed["mask"] = mask.mask.values
        own = {**columns, **allowed} if is_plain else columns  # one row of the mask per actor
        yield _Table(("actors", name), mask.actors.lengths, own)
        if is_plain or isinstance(mask, VecContinuousActionMask):
            continue
        if isinstance(mask, VecSelectEntityActionMask):
            yield _Table(("actees", name), mask.actees.lengths, {"actees": mask.actees.values})
        if mask.per_actor is not None:
            counts = mask.per_actor
            yield _Table(("per_actor", name), counts.lengths, {"per_actor": counts.values})
        yield _Table(("allowed", name), num_mask_rows(mask), allowed)


class _ObsRing:
    """One observation per transition."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._rings: dict[tuple[str, str], _RaggedRing] = {}
        self._kinds: dict[ActionName, type[VecActionMask]] = {}
        self._flat: _Columns = {
            "reward": np.zeros(capacity, dtype=np.float32),
            "terminated": np.zeros(capacity, dtype=np.bool_),
            "truncated": np.zeros(capacity, dtype=np.bool_),
            "env_id": np.zeros(capacity, dtype=np.int64),
            "agent_id": np.zeros(capacity, dtype=np.int64),
        }

    @property
    def num_bytes(self) -> int:
        arrays = list(self._flat.values())
        for ring in self._rings.values():
            arrays += [ring.starts, ring.lengths, *ring.columns.values()]
        return sum(array.nbytes for array in arrays)

    def require_fit(self, tables: Sequence[_Table]) -> None:
        """Raises `SchemaError` if the width of rows has changed."""
        for key, _, columns in tables:
            for column, values in columns.items():
                known = self._rings[key].columns.get(column) if key in self._rings else None
                if known is not None and known.shape[1:] != values.shape[1:]:
                    raise SchemaError(
                        f"{key[0]} of {key[1]!r}: {column} must have rows of shape "
                        f"{known.shape[1:]} as before, got {values.shape[1:]}"
                    )

    def write(self, first: int, oldest: int, obs: VecObs, tables: Sequence[_Table]) -> None:
        for key, lengths, columns in tables:
            if key not in self._rings:
                self._rings[key] = _RaggedRing(self._capacity)
            self._rings[key].write(first, oldest, lengths, columns)
        self._kinds = {name: type(mask) for name, mask in obs.action_masks.items()}
        slots = np.arange(first, first + len(obs)) % self._capacity
        for name, array in self._flat.items():
            array[slots] = getattr(obs, name)

    def read(self, slots: NDArray[np.int64]) -> tuple[VecObs, ActionArrays]:
        flat: Any = {name: array[slots] for name, array in self._flat.items()}
        obs = VecObs({}, {}, {}, **flat)
        found: dict[tuple[str, str], dict[str, RaggedArray[Any]]] = {}
        for key, ring in self._rings.items():
            lengths, columns = ring.read(slots)
            found[key] = {
                column: RaggedArray.unchecked(values, lengths) for column, values in columns.items()
            }
            if key[0] == "entities":
                obs.features[key[1]] = found[key]["features"]
                if "visible" in columns:
                    obs.visible[key[1]] = found[key]["visible"]
        actions: ActionArrays = {}
        for name, kind in self._kinds.items():
            acting = found["actors", name]
            actors = acting["actors"]
            actions[name] = acting.get("chosen", actors)  # without actors both are empty
            if kind is VecContinuousActionMask:
                obs.action_masks[name] = VecContinuousActionMask(actors)
                continue
            counts = found.get(("per_actor", name), {}).get("per_actor")
            rest = found.get(("allowed", name), acting).get("mask"), counts
            if kind is VecCategoricalActionMask:
                obs.action_masks[name] = VecCategoricalActionMask(actors, *rest)
            else:
                actees = found["actees", name]["actees"]
                obs.action_masks[name] = VecSelectEntityActionMask(actors, actees, *rest)
        return obs, actions


def _chosen(
    name: ActionName, given: RaggedArray[Any] | NDArray[Any] | None, mask: VecActionMask
) -> RaggedArray[Any]:
    lengths = mask.actors.lengths
    values = np.zeros(0, dtype=np.int64) if given is None else given
    if isinstance(values, RaggedArray):
        values = values.values if np.array_equal(values.lengths, lengths) else values.values[:0]
    values = np.asarray(values)
    if values.ndim == 0 or len(values) != len(mask.actors.values):
        raise SchemaError(
            f"action {name!r} needs {len(mask.actors.values)} values, one per actor of obs: got "
            f"{'none' if given is None else getattr(given, 'shape', given)}"
        )
    is_continuous = isinstance(mask, VecContinuousActionMask)
    kinds, dtype = ("fiu", np.float32) if is_continuous else ("iu", np.int64)
    if len(values) and (values.dtype.kind not in kinds or values.ndim != 1 + is_continuous):
        wanted = "numbers, (num_actors, num_labels)" if is_continuous else "integers, (num_actors,)"
        raise SchemaError(f"action {name!r} needs {wanted}: got {values.dtype}, {values.shape}")
    return RaggedArray.unchecked(values.astype(dtype, copy=False), lengths)


def _select(transitions: Transitions, rows: NDArray[np.int64]) -> Transitions:
    obs, actions, next_obs = transitions
    chosen = {name: values[rows] for name, values in actions.items()}
    return Transitions(obs.select(rows), chosen, next_obs.select(rows))


def _joined(first: Transitions, second: Transitions) -> Transitions:
    actions = {}
    for name, values in second.actions.items():
        parts = [part for part in (first.actions[name], values) if len(part.values)]
        lengths = np.concatenate([first.actions[name].lengths, values.lengths])
        joined = RaggedArray.concat(parts).values if parts else values.values
        actions[name] = RaggedArray.unchecked(joined, lengths)
    obs, next_obs = VecObs.concat([first.obs, second.obs]), [first.next_obs, second.next_obs]
    return Transitions(obs, actions, VecObs.concat(next_obs))


def _not_abandoned(waiting: Transitions, obs: VecObs) -> Transitions:
    """Without those of agents whose next episodes begin in `obs`: a reset came in between."""
    if obs.begins is None:
        return waiting
    rows = obs.find_rows(waiting.next_obs)
    return _select(waiting, np.flatnonzero((rows < 0) | ~obs.begins[rows]))


def _continued(waiting: Transitions, shown: VecObs) -> Transitions:
    """Transitions of waiting agents, with their latest observations."""
    rows = shown.find_rows(waiting.next_obs)
    if (rows < 0).any():
        raise UsageError(
            f"an agent of env {waiting.obs.env_id[rows < 0][0]} that acted before still waits, but "
            "next_obs has no row of it: add the same rows in every call"
        )
    now = shown.select(rows)
    return waiting._replace(next_obs=replace(now, reward=waiting.next_obs.reward + now.reward))
