"""vec_env: many copies of a game as an `entity_gym.env.VecEnv`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, TypeAlias

import entity_gym.env as theirs
import numpy as np
from entity_gym.env.vec_env import Metric as TheirMetric
from numpy.typing import NDArray
from ragged_buffer import RaggedBufferBool, RaggedBufferF32, RaggedBufferI64

from entity_env.agents.rogue_net.enn_trainer.checkpoint import refused_names
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
    ActionGrid,
    action_grids,
    their_action_space,
    their_obs_space,
)
from entity_env.vec import BatchEnv, BatchVecEnv, VecEnv
from entity_env.vec.backend import Source

AnySource: TypeAlias = Source | type[BatchEnv] | partial[BatchEnv]
"""A source of `VecEnv`, or batch environments."""


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
        source: as for `VecEnv`, or a class of batch environments, or a `functools.partial` of one.
        num_envs: number of rows of every batch; in a game for several agents, which have a row
            each, a multiple of their number.
        num_workers, seed: as for `VecEnv`.
        discretize: per continuous action, the number of evenly spaced values from `low` to `high`
            of each of its numbers; every combination becomes a label.
        hides: entity types of which the game hides entities; entity-gym must know which types have
            visibility flags before the first batch.

    Raises:
        SchemaError: a continuous action that is not in `discretize`, or an invalid source.
        UsageError: an invalid number or name.
        WorkerError: a worker could not be started.
    """
    return EntityGymVecEnv(source, num_envs, num_workers, seed, discretize, hides)


class EntityGymVecEnv(theirs.VecEnv):  # type: ignore[misc]  # entity-gym ships no types
    """Wraps a `VecEnv` with entity-gym's buffers, new ones on every call.

    Resets are in the same step. An agent without a request for a global action, since another one
    acts, gets an unrestricted one, as entity-gym requires; its choice is ignored.

    Args:
        source, num_envs, num_workers, seed, discretize, hides: as for `vec_env`.
        needs_entity: the last row needs an entity, unless some action is global.
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
            self._grids = action_grids(self._actions, discretize)
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
        """Action spaces of entity-gym; discretized ones are categorical."""
        return their_action_space(self._actions, self._grids)

    def reset(self, obs_config: Any) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """Begins new episodes; `obs_config` is ignored, as in entity-gym's own `VecEnv`s."""
        return self._show(self._vec.reset())

    def act(self, actions: Mapping[ActionName, Any], obs_filter: Any) -> Any:  # noqa: ANN401 - entity-gym ships no types
        """Performs the actions and returns the next observations."""
        obs = self._shown
        if obs is None:
            raise ProtocolError("nothing is being played: call reset first")
        chosen = {
            name: self._chosen(name, buffer, obs.action_masks.get(name))
            for name, buffer in actions.items()
        }
        return self._show(self._vec.act(chosen))

    def render(self, **kwargs: object) -> NDArray[np.uint8]:
        """Images of all environments, `(num_envs, height, width, 3)` uint8."""
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
        """The actions of agents with a request, in the order of the mask."""
        if mask is None:
            raise SchemaError(f"no action {name!r}; there are {', '.join(self._actions)}")
        values = buffer.as_array().reshape(-1)
        lengths = np.asarray(buffer.size1(), dtype=np.int64).reshape(-1)
        if isinstance(self._actions[name], GlobalCategoricalActionSpace):
            requested = mask.actors.lengths
            if len(lengths) == len(requested) and (lengths == 1).all():
                return RaggedArray(values[requested == 1], requested)
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
                f"the last of {len(obs)} observations has no entity: enn-trainer would leave out "
                "its value and shift the others; have an entity in every observation"
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
                    f"entities {name!r} are hidden, which entity-gym must know before the first "
                    f"batch: pass hides=[{name!r}]"
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
                    f"action {name!r} masks entities, and entity-gym has no masks of selections: "
                    "leave them out of the actees"
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


def on_grid(name: ActionName, indices: NDArray[np.int64], grid: ActionGrid) -> NDArray[np.float32]:
    """The numbers for labels of a discretized action, `(num_actors, num_labels)`."""
    last = len(grid.values) - 1
    if len(indices) and (indices.min() < 0 or indices.max() > last):
        raise SchemaError(
            f"action {name!r}: expected 0 to {last}, got {indices.min()} to {indices.max()}"
        )
    return grid.values[indices]


def _global_rows(rows: RaggedArray[np.float32]) -> RaggedArray[np.float32]:
    """One row per agent, zeros for an agent without global features."""
    if rows.lengths.all():
        return rows
    values = np.zeros((len(rows), rows.values.shape[1]), dtype=np.float32)
    values[rows.lengths == 1] = rows.values
    return RaggedArray(values, np.ones(len(rows), dtype=np.int64))


def _global_mask(
    mask: VecCategoricalActionMask, space: GlobalCategoricalActionSpace, counts: NDArray[np.int64]
) -> Any:  # noqa: ANN401 - entity-gym ships no types
    """One actor per row, with the index after the last entity's, also without a request."""
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


Factory: TypeAlias = "Callable[[Any, int, int, int], EntityGymVecEnv]"
"""Arguments: the trainer's `EnvConfig`, number of environments and processes, first index."""


def factory(
    source: AnySource,
    *,
    seed: int = 0,
    discretize: Mapping[ActionName, int] | None = None,
    hides: Sequence[EntityName] = (),
) -> Factory:
    """A function that makes environments for `enn_trainer.train`; arguments as for `vec_env`.

    From the trainer's configuration it takes the number of environments and of processes, which
    includes this one, and `env.kwargs`: settings of the game, or keyword arguments of the class.
    The first call is for training, later ones are for evaluations: these always play the same
    episodes, different from those of training. Make one factory per training run. If agents often
    have no action, use large minibatches: enn-trainer's loss is NaN for one without actions.

    The function raises the errors of `vec_env`; also UsageError if `env.kwargs` is not a JSON
    object or has unknown settings, and SchemaError for a name that rogue-net does not support.
    """
    calls = count()

    def make(config: Any, num_envs: int, processes: int, first_env: int) -> EntityGymVecEnv:  # noqa: ANN401 - the trainer's own
        envs = EntityGymVecEnv(
            _with_settings(source, getattr(config, "kwargs", "{}")),
            num_envs,
            processes if processes > 1 else 0,
            _seed_of(seed, first_env, is_training=next(calls) == 0),
            discretize,
            hides,
            needs_entity=True,
        )
        try:
            _require_names([*envs.obs_space().entities, *envs.action_space()])
        except SchemaError:
            envs.close()
            raise
        return envs

    return make


def _seed_of(seed: int, first_env: int, *, is_training: bool) -> int:
    sequence = np.random.SeedSequence((seed, first_env, int(is_training)))
    return int(sequence.generate_state(1, np.uint32)[0])


def _require_names(names: Sequence[str]) -> None:
    for name in refused_names(names):
        raise SchemaError(
            f"the name {name!r} is not valid for a torch module, so enn-trainer cannot make a "
            "network for it: rename the entity or the action"
        )


def _with_settings(source: AnySource, text: str) -> AnySource:
    """The source with the settings of `env.kwargs`, a JSON object."""
    try:
        settings = json.loads(text)
    except ValueError:
        settings = None
    if not isinstance(settings, dict):
        raise UsageError(
            f'env.kwargs must be a JSON object, such as {{"board_size": 8}}: got {text!r}'
        )
    if isinstance(source, Game):
        return source.with_settings(**settings)
    if not settings:
        return source
    if not callable(source):
        raise UsageError(f"env.kwargs has settings, and {source!r} takes none: got {text}")
    try:
        inspect.signature(source).bind_partial(**settings)
    except TypeError as error:
        raise UsageError(f"env.kwargs does not fit {source!r}, {error}: got {text}") from error
    return partial(source, **settings)
