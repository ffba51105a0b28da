"""vec_env: many copies of a game, as a vector environment of entity-gym."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import entity_gym.env as theirs
import numpy as np
from entity_gym.env.vec_env import Metric as TheirMetric
from numpy.typing import NDArray
from ragged_buffer import RaggedBufferBool, RaggedBufferF32, RaggedBufferI64

from entity_env.authoring.game import Game
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecObs,
    VecSelectEntityActionMask,
)
from entity_env.errors import ProtocolError, SchemaError, UsageError
from entity_env.interop.entity_gym.spaces import (
    Grid,
    grids_of,
    their_action_space,
    their_obs_space,
)
from entity_env.vec import BatchEnv, BatchVecEnv, VecEnv
from entity_env.vec.backend import Source

AnySource: TypeAlias = Source | type[BatchEnv] | partial[BatchEnv]
"""What many copies are made of."""


def vec_env(
    source: AnySource,
    num_envs: int,
    num_workers: int = 0,
    *,
    seed: int = 0,
    discretize: Mapping[ActionName, int] | None = None,
    hides: Sequence[EntityName] = (),
) -> EntityGymVecEnv:
    """Many copies of a game or environment as an `entity_gym.env.VecEnv`.

    Args:
        source: what to run, as `VecEnv` takes it, or a class of batch environments, or a
            `functools.partial` of one.
        num_envs: length of every batch: of a game for several agents, who have a row each, a
            multiple of their number.
        num_workers: processes that share the work; 0 = in this process.
        seed: of the run.
        discretize: per continuous action how many values each of its numbers can take, evenly from
            `low` to `high`; every combination becomes a label.
        hides: types of entities that the game hides some of. Whether a type has flags of
            visibility must not change from one batch to the next, so it has to be known beforehand.

    Raises:
        SchemaError: a continuous action that `discretize` does not name, or a source that cannot be
            run.
        UsageError: a number or name that makes no sense.
        WorkerError: a worker could not be started.
    """
    return EntityGymVecEnv(source, num_envs, num_workers, seed, discretize, hides)


class EntityGymVecEnv(theirs.VecEnv):  # type: ignore[misc]  # entity-gym ships no types
    """Shows our batches in entity-gym's buffers, fresh ones on every call.

    Ended episodes are followed by the first observation of the next one at once. An agent that a
    global action does not ask, since others are to move, is shown as if it were: entity-gym has no
    other way. What is chosen for it is dropped.

    Args:
        source, num_envs, num_workers, seed, discretize, hides: as for `vec_env`.
        needs_entity: refuses a last observation without an entity, if no action is global.
    """

    def __init__(
        self,
        source: AnySource,
        num_envs: int,
        num_workers: int,
        seed: int,
        discretize: Mapping[ActionName, int] | None,
        hides: Sequence[EntityName],
        *,
        needs_entity: bool = False,
    ) -> None:
        agents = source.num_agents if isinstance(source, Game) else 1
        if num_envs < 1 or num_envs % agents:
            raise UsageError(f"num_envs must be a multiple of {agents}, got {num_envs}")
        self._vec = _made(source, num_envs // agents, num_workers, seed)
        try:
            self._actions = self._vec.action_space()
            self._grids = grids_of(self._actions, discretize)
            _require_types(hides, list(self._vec.obs_space().entities))
        except BaseException:
            self._vec.close()
            raise
        self._hides = tuple(hides)
        self._needs_entity = needs_entity and not any(
            isinstance(space, GlobalCategoricalActionSpace) for space in self._actions.values()
        )
        self._shown: VecObs | None = None

    def obs_space(self) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """An `entity_gym.env.ObsSpace`."""
        return their_obs_space(self._vec.obs_space())

    def action_space(self) -> dict[ActionName, Any]:
        """Per action a space of entity-gym; what was discretized is categorical."""
        return their_action_space(self._actions, self._grids)

    def reset(self, obs_config: Any) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """The first observations, of new episodes.

        Args:
            obs_config: is not looked at: everything is shown, as entity-gym's own do.
        """
        return self._show(self._vec.reset())

    def act(self, actions: Mapping[ActionName, Any], obs_filter: Any) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """The observations that follow; rewards and flags belong to the actions given.

        Args:
            actions: per action a `RaggedBufferI64`, one number an actor of the last observations.
            obs_filter: is not looked at.

        Raises:
            ProtocolError: before `reset`.
            SchemaError: actions that do not fit, or a mask or flag that entity-gym cannot express.
            WorkerError: a game raised.
        """
        obs = self._shown
        if obs is None:
            raise ProtocolError("nothing is being played: call reset first")
        chosen = {
            name: self._chosen(name, buffer, obs.action_masks.get(name))
            for name, buffer in actions.items()
        }
        return self._show(self._vec.act(chosen))

    def render(self, **kwargs: object) -> NDArray[np.uint8]:
        """Every environment drawn, `(num_envs, height, width, 3)` uint8."""
        return np.stack([self._vec.render(i) for i in range(self._vec.num_envs)])

    def close(self) -> None:
        """Ends every game; may be called twice."""
        self._vec.close()

    def __len__(self) -> int:
        return self._vec.num_rows

    def _chosen(
        self,
        name: ActionName,
        buffer: Any,  # noqa: ANN401 - entity-gym ships no types
        mask: VecActionMask | None,
    ) -> RaggedArray[Any]:
        """The actions of those who are asked, in the order in which they were shown."""
        if mask is None:
            raise SchemaError(f"no action {name!r}; there are {', '.join(self._actions)}")
        values = buffer.as_array().reshape(-1)
        lengths = np.asarray(buffer.size1(), dtype=np.int64).reshape(-1)
        if isinstance(self._actions[name], GlobalCategoricalActionSpace):
            asked = mask.actors.lengths
            if len(lengths) == len(asked) and (lengths == 1).all():
                return RaggedArray(values[asked == 1], asked)
        if name in self._grids:
            return RaggedArray(on_grid(name, values, self._grids[name]), lengths)
        return RaggedArray(values, lengths)

    def _show(self, obs: VecObs) -> Any:  # noqa: ANN401 - entity-gym ships no types
        counts = sum(
            (rows.lengths for name, rows in obs.features.items() if name != GLOBAL_ENTITY),
            np.zeros(len(obs), dtype=np.int64),
        )
        if self._needs_entity and not counts[-1]:
            raise SchemaError(
                f"the last of {len(obs)} observations shows no entity: enn-trainer leaves its "
                "value out and takes others in its place; show something in every observation"
            )
        shown = theirs.VecObs(
            features={
                name: _f32(_global_rows(rows) if name == GLOBAL_ENTITY else rows)
                for name, rows in obs.features.items()
            },
            visible=self._their_visible(obs),
            action_masks={
                name: self._their_mask(name, mask, counts)
                for name, mask in obs.action_masks.items()
            },
            reward=np.array(obs.reward, dtype=np.float32),
            done=np.array(obs.done, dtype=np.bool_),
            metrics={
                name: TheirMetric(each.count, each.sum, each.min, each.max)
                for name, each in obs.metrics.items()
            },
        )
        self._shown = obs
        return shown

    def _their_visible(self, obs: VecObs) -> dict[EntityName, Any]:
        for name, flags in obs.visible.items():
            if name not in self._hides and not flags.values.all():
                raise SchemaError(
                    f"entities {name!r} are hidden, which entity-gym must know from the first "
                    f"batch on: pass hides=[{name!r}]"
                )
        shown = {}
        for name in self._hides:
            rows = obs.features[name]
            values = np.ones(len(rows.values), dtype=np.bool_)
            if name in obs.visible:
                values = obs.visible[name].values
            shown[name] = _bool(values.reshape(-1, 1), rows.lengths)
        return shown

    def _their_mask(self, name: ActionName, mask: VecActionMask, counts: NDArray[np.int64]) -> Any:  # noqa: ANN401 - entity-gym ships no types
        space = self._actions[name]
        if isinstance(mask, VecSelectEntityActionMask):
            if mask.mask is not None and not mask.mask.values.all():
                raise SchemaError(
                    f"action {name!r} forbids somebody to be selected, and entity-gym has no masks "
                    "of selections: leave them out of the actees"
                )
            return theirs.VecSelectEntityActionMask(_i64(mask.actors), _i64(mask.actees))
        if isinstance(mask, VecContinuousActionMask):
            return theirs.VecCategoricalActionMask(_i64(mask.actors), None)
        if isinstance(space, GlobalCategoricalActionSpace):
            return _global_mask(mask, space, counts)
        allowed = None
        if mask.mask is not None:
            allowed = _bool(mask.mask.values.reshape(-1, _num_choices(space)), mask.actors.lengths)
        return theirs.VecCategoricalActionMask(_i64(mask.actors), allowed)


def _made(source: AnySource, num_envs: int, num_workers: int, seed: int) -> VecEnv:
    made: object = source
    while isinstance(made, partial):
        made = made.func
    if isinstance(made, type) and issubclass(made, BatchEnv):
        batches: Any = source  # mypy cannot follow the partial
        return BatchVecEnv(batches, num_envs, num_workers, seed=seed)
    games: Any = source
    return VecEnv(games, num_envs, num_workers, seed=seed)


def on_grid(name: ActionName, indices: NDArray[np.int64], grid: Grid) -> NDArray[np.float32]:
    """The numbers that labels of a discretized action stand for, `(num_actors, num_labels)`.

    Raises:
        SchemaError: an index that no label has.
    """
    last = len(grid.values) - 1
    if len(indices) and (indices.min() < 0 or indices.max() > last):
        raise SchemaError(
            f"action {name!r}: expected 0 to {last}, got {indices.min()} to {indices.max()}"
        )
    return grid.values[indices]


def _global_rows(rows: RaggedArray[np.float32]) -> RaggedArray[np.float32]:
    """One row for every agent: zeros for one that is shown nothing."""
    if rows.lengths.all():
        return rows
    values = np.zeros((len(rows), rows.values.shape[1]), dtype=np.float32)
    values[rows.lengths == 1] = rows.values
    return RaggedArray(values, np.ones(len(rows), dtype=np.int64))


def _global_mask(
    mask: VecCategoricalActionMask, space: GlobalCategoricalActionSpace, counts: NDArray[np.int64]
) -> Any:  # noqa: ANN401 - entity-gym ships no types
    """One actor a row, whose index follows the last entity's, also where nobody is asked."""
    ones = np.ones(len(counts), dtype=np.int64)
    allowed = None
    if mask.mask is not None:
        rows = np.ones((len(counts), len(space)), dtype=np.bool_)
        rows[mask.actors.lengths == 1] = mask.mask.values.reshape(-1, len(space))
        allowed = _bool(rows, ones)
    actors = RaggedBufferI64.from_flattened(counts.reshape(-1, 1), ones)
    return theirs.VecCategoricalActionMask(actors, allowed)


def _num_choices(space: ActionSpace) -> int:
    return 0 if not hasattr(space, "__len__") else len(space)


def _require_types(hides: Sequence[EntityName], known: Sequence[EntityName]) -> None:
    unknown = [name for name in hides if name not in known]
    if unknown:
        raise UsageError(f"hides names {unknown[0]!r}; the entities are {', '.join(known)}")


def _f32(rows: RaggedArray[np.float32]) -> Any:  # noqa: ANN401 - ragged_buffer ships no types
    values = np.ascontiguousarray(rows.values, dtype=np.float32)
    return RaggedBufferF32.from_flattened(values, np.ascontiguousarray(rows.lengths))


def _i64(rows: RaggedArray[np.int64]) -> Any:  # noqa: ANN401 - ragged_buffer ships no types
    values = np.ascontiguousarray(rows.values, dtype=np.int64).reshape(-1, 1)
    return RaggedBufferI64.from_flattened(values, np.ascontiguousarray(rows.lengths))


def _bool(values: NDArray[np.bool_], lengths: NDArray[np.int64]) -> Any:  # noqa: ANN401 - ragged_buffer ships no types
    flags = np.ascontiguousarray(values, dtype=np.bool_)
    return RaggedBufferBool.from_flattened(flags, np.ascontiguousarray(lengths))
