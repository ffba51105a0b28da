"""Games as entity-gym environments: `vec_env` (many copies), `environment` (a class), `factory`."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import accumulate, count
from typing import Any, TypeAlias

import entity_gym.env as theirs
import numpy as np
from entity_gym.env.vec_env import Metric as TheirMetric
from numpy.typing import NDArray
from ragged_buffer import RaggedBufferBool, RaggedBufferF32, RaggedBufferI64

from entity_env.agents.rogue_net.enn_trainer.checkpoint import refused_names
from entity_env.authoring.game import Game
from entity_env.core.observation import EntityID
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionName,
    ActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.core.vec_actions import independent
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
from entity_env.vec.options import Source

AnySource: TypeAlias = Source | type[BatchEnv] | partial[BatchEnv]
"""A source of `VecEnv`, or a class of batch environments."""


def vec_env(
    source: AnySource,
    num_envs: int,
    num_workers: int = 0,
    *,
    seed: int = 0,
    discretize: Mapping[ActionName, int] | None = None,
    hides: Sequence[EntityName] = (),
) -> EntityGymVecEnv:
    """Wraps many copies of a game or environment as an `entity_gym.env.VecEnv`.

    Args:
        source: as for `VecEnv`, or a class of batch environments or a `functools.partial` of it.
        num_envs: rows per batch, one per agent: a multiple of the number of agents.
        num_workers, seed: as for `VecEnv`.
        discretize: per continuous action, how many evenly spaced values from `low` to `high` each
            of its numbers has; every combination becomes a label.
        hides: types of entities that the game may hide; entity-gym must know before the first batch
            which types have visibility flags.

    Raises:
        SchemaError: a continuous action that is not in `discretize`, or an invalid source.
        UsageError: an invalid number or name.
        WorkerError: a worker could not be started.
    """
    return EntityGymVecEnv(source, num_envs, num_workers, seed, discretize, hides)


class _Spaces:
    """A `VecEnv` with entity-gym's spaces; continuous actions are discretized."""

    def __init__(
        self,
        vec: VecEnv,
        discretize: Mapping[ActionName, int] | None,
        hides: Sequence[EntityName] = (),
    ) -> None:
        self._vec = vec
        try:
            self._actions = vec.action_space()
            self._grids = action_grids(self._actions, discretize)
            entities = vec.obs_space().entities
            for name in hides:
                if name not in entities:
                    raise UsageError(
                        f"hides names {name!r}; the entities are {', '.join(entities)}"
                    )
        except BaseException:
            vec.close()
            raise
        self._shown: VecObs | None = None

    def obs_space(self) -> Any:  # noqa: ANN401 - untyped
        """An `entity_gym.env.ObsSpace`."""
        return their_obs_space(self._vec.obs_space())

    def action_space(self) -> dict[ActionName, Any]:
        """Action spaces of entity-gym; discretized actions are categorical."""
        return their_action_space(self._actions, self._grids)

    def close(self) -> None:
        self._vec.close()

    def _masks_of(self, actions: Iterable[ActionName]) -> dict[ActionName, VecActionMask]:
        if self._shown is None:
            raise ProtocolError("nothing is being played: call reset first")
        for name in actions:
            if name not in self._actions:
                raise SchemaError(f"no action {name!r}; there are {', '.join(self._actions)}")
        return self._shown.action_masks


class EntityGymVecEnv(_Spaces, theirs.VecEnv):  # type: ignore[misc]  # untyped
    """Wraps a `VecEnv` as an `entity_gym.env.VecEnv`; every call returns new buffers.

    Autoreset is "same_step". entity-gym requires a mask of a global action in every row: an agent
    that is not asked gets an unrestricted mask, and its choice is ignored. With `needs_entity`, a
    batch whose last row has no entity raises `SchemaError`, unless some action is global.
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
        super().__init__(_made(source, num_envs // agents, num_workers, seed), discretize, hides)
        self._hides = tuple(hides)
        self._needs_entity = needs_entity and not any(
            isinstance(space, GlobalCategoricalActionSpace) for space in self._actions.values()
        )

    def reset(self, obs_config: Any) -> Any:  # noqa: ANN401 - untyped
        """Starts new episodes; `obs_config` is ignored, as in entity-gym's own `VecEnv`s."""
        return self._show(self._vec.reset())

    def act(self, actions: Mapping[ActionName, Any], obs_filter: Any) -> Any:  # noqa: ANN401 - untyped
        masks = self._masks_of(actions)
        chosen = {name: self._chosen(name, buffer, masks[name]) for name, buffer in actions.items()}
        return self._show(self._vec.act(chosen))

    def render(self, **kwargs: object) -> NDArray[np.uint8]:
        """Images, `(num_envs, height, width, 3)` uint8."""
        return np.stack([self._vec.render(i) for i in range(self._vec.num_envs)])

    def __len__(self) -> int:
        return self._vec.num_rows

    def _chosen(
        self,
        name: ActionName,
        buffer: Any,  # noqa: ANN401 - untyped
        mask: VecActionMask,
    ) -> RaggedArray[Any]:
        """The actions in `buffer`, without choices that were not requested; in mask order."""
        values = buffer.as_array().reshape(-1)
        lengths = np.asarray(buffer.size1(), dtype=np.int64).reshape(-1)
        if isinstance(self._actions[name], GlobalCategoricalActionSpace):
            requested = mask.actors.lengths
            if len(lengths) == len(requested) and (lengths == 1).all():
                return RaggedArray(values[requested == 1], requested)
        if name in self._grids:
            return RaggedArray(on_grid(name, values, self._grids[name]), lengths)
        return RaggedArray(values, lengths)

    def _show(self, obs: VecObs) -> Any:  # noqa: ANN401 - untyped
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

    def _their_mask(self, name: ActionName, mask: VecActionMask, counts: NDArray[np.int64]) -> Any:  # noqa: ANN401 - untyped
        space, mask = self._actions[name], independent(name, mask, "entity-gym")
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
    """Values for labels of a discretized action, `(num_actors, num_labels)`."""
    last = len(grid.values) - 1
    if len(indices) and (indices.min() < 0 or indices.max() > last):
        raise SchemaError(
            f"action {name!r}: expected 0 to {last}, got {indices.min()} to {indices.max()}"
        )
    return grid.values[indices]


def _global_rows(rows: RaggedArray[np.float32]) -> RaggedArray[np.float32]:
    """One row per agent; zeros for agents without global features."""
    if rows.lengths.all():
        return rows
    values = np.zeros((len(rows), rows.values.shape[1]), dtype=np.float32)
    values[rows.lengths == 1] = rows.values
    return RaggedArray(values, np.ones(len(rows), dtype=np.int64))


def _global_mask(
    mask: VecCategoricalActionMask, space: GlobalCategoricalActionSpace, counts: NDArray[np.int64]
) -> Any:  # noqa: ANN401 - untyped
    """One actor per row, after the last entity, even for agents without a request."""
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


def _f32(rows: RaggedArray[np.float32]) -> Any:  # noqa: ANN401 - untyped
    values = np.ascontiguousarray(rows.values, dtype=np.float32)
    return RaggedBufferF32.from_flattened(values, np.ascontiguousarray(rows.lengths))


def _i64(rows: RaggedArray[np.int64]) -> Any:  # noqa: ANN401 - untyped
    values = np.ascontiguousarray(rows.values, dtype=np.int64).reshape(-1, 1)
    return RaggedBufferI64.from_flattened(values, np.ascontiguousarray(rows.lengths))


def _bool(values: NDArray[np.bool_], lengths: NDArray[np.int64]) -> Any:  # noqa: ANN401 - untyped
    flags = np.ascontiguousarray(values, dtype=np.bool_)
    return RaggedBufferBool.from_flattened(flags, np.ascontiguousarray(lengths))


Factory: TypeAlias = "Callable[[Any, int, int, int], EntityGymVecEnv]"
"""Takes the trainer's `EnvConfig`, the numbers of environments and processes, and the index of the
first environment."""


def factory(
    source: AnySource,
    *,
    seed: int = 0,
    discretize: Mapping[ActionName, int] | None = None,
    hides: Sequence[EntityName] = (),
) -> Factory:
    """Returns a function that makes environments for `enn_trainer.train`; arguments as for
    `vec_env`.

    The trainer's configuration provides the numbers of environments and of processes (1 = this
    process; more = workers) and `env.kwargs`: settings of the game, or keyword arguments of the
    class. The first call is for training. Later calls are for evaluations, which always play the
    same episodes, none of them from training. Make one factory per training run. If agents often
    have no action, use large minibatches: enn-trainer's loss is NaN for a minibatch without
    actions.

    The function raises the errors of `vec_env`, UsageError if `env.kwargs` is not a JSON object or
    has unknown settings, and SchemaError for a name that rogue-net does not support.
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


def environment(source: Source, *, discretize: Mapping[ActionName, int] | None = None) -> type[Any]:
    """Returns a new subclass of `entity_gym.env.Environment` that plays a game.

    Its constructor takes the `seed` of the run; None = random. An entity's id is its index in the
    observation. The last observation of an episode has `done` set, even if it was truncated.

    Args:
        source: a game for one agent, a class of environments, or a function that returns one.
        discretize: as for `vec_env`.

    Raises:
        SchemaError: an invalid source. The constructor also raises it for a continuous action that
            is not in `discretize`.
        UsageError: a game for several agents; use `vec_env`.
    """
    if isinstance(source, Game) and source.num_agents > 1:
        raise UsageError(
            f"an environment of entity-gym has one agent, {source.name} has {source.num_agents}: "
            "use vec_env"
        )
    if not callable(source) and not isinstance(source, Game):
        raise SchemaError(
            "environment needs a Game, an Environment class, or a function that returns an "
            f"Environment: got {source!r}"
        )

    class OurGame(EntityGymEnvironment):
        def __init__(self, seed: int | None = None) -> None:
            super().__init__(source, seed, discretize)

    OurGame.__doc__ = f"{_name_of(source)}, as an environment of entity-gym."
    return OurGame


class EntityGymEnvironment(_Spaces, theirs.Environment):  # type: ignore[misc]  # no types
    """One copy of a game as an `entity_gym.env.Environment`; arguments as for `environment`."""

    def __init__(
        self, source: Source, seed: int | None, discretize: Mapping[ActionName, int] | None
    ) -> None:
        seed = int(np.random.default_rng().integers(2**32)) if seed is None else seed
        super().__init__(VecEnv(source, 1, seed=seed, autoreset="disabled"), discretize)

    def reset(self) -> Any:  # noqa: ANN401 - untyped
        self._shown = self._vec.reset()
        return self._their_observation(self._shown)

    def act(self, actions: Mapping[ActionName, Any]) -> Any:  # noqa: ANN401 - untyped
        masks = self._masks_of(actions)
        chosen = {name: self._chosen(name, action, masks[name]) for name, action in actions.items()}
        self._shown = self._vec.act(chosen)
        return self._their_observation(self._shown)

    def render(self, **kwargs: object) -> NDArray[np.uint8]:
        """Image, `(height, width, 3)` uint8."""
        return self._vec.render()

    def _their_observation(self, obs: VecObs) -> Any:  # noqa: ANN401 - untyped
        features = {
            name: np.array(rows.values, dtype=np.float32)
            for name, rows in obs.features.items()
            if name != GLOBAL_ENTITY
        }
        stops = list(accumulate(map(len, features.values())))
        ids = {
            name: list(range(stop - len(rows), stop))
            for (name, rows), stop in zip(features.items(), stops, strict=True)
        }
        common = obs.features.get(GLOBAL_ENTITY)
        num_globals = len(self._vec.obs_space().global_features)
        shown = np.zeros(num_globals, dtype=np.float32)
        if common is not None and common.values.size:
            shown[:] = common.values[0]
        return theirs.Observation(
            features=features,
            ids=ids,
            global_features=shown,
            actions={name: self._their_mask(name, each) for name, each in obs.action_masks.items()},
            reward=float(obs.reward[0]),
            done=bool(obs.done[0]),
            visible={
                name: np.array(flags.values, dtype=np.bool_) for name, flags in obs.visible.items()
            },
            metrics={name: metric.mean for name, metric in obs.metrics.items()},
        )

    def _their_mask(self, name: ActionName, mask: VecActionMask) -> Any:  # noqa: ANN401 - untyped
        actors = mask.actors.values.tolist()
        space, mask = self._actions[name], independent(name, mask, "entity-gym")
        if isinstance(mask, VecSelectEntityActionMask):
            allowed = None
            if mask.mask is not None:
                allowed = np.array(mask.mask.values, dtype=np.bool_).reshape(len(actors), -1)
            return theirs.SelectEntityActionMask(
                actor_ids=actors, actee_ids=mask.actees.values.tolist(), mask=allowed
            )
        rows: NDArray[np.bool_] | None = None
        if isinstance(mask, VecCategoricalActionMask) and mask.mask is not None and actors:
            rows = np.array(mask.mask.values, dtype=np.bool_).reshape(len(actors), -1)
        if isinstance(space, GlobalCategoricalActionSpace):
            return theirs.GlobalCategoricalActionMask(rows)
        return theirs.CategoricalActionMask(actor_ids=actors, mask=rows)

    def _chosen(
        self,
        name: ActionName,
        action: Any,  # noqa: ANN401 - untyped
        mask: VecActionMask,
    ) -> RaggedArray[Any]:
        """One value per actor, in mask order."""
        space = self._actions[name]
        actors = mask.actors.values.tolist()
        if isinstance(space, GlobalCategoricalActionSpace):
            values = np.full(len(actors), action.index, dtype=np.int64)
            return RaggedArray(values, [len(actors)])
        if isinstance(space, SelectEntityActionSpace) and isinstance(
            mask, VecSelectEntityActionMask
        ):
            place = {each: i for i, each in enumerate(mask.actees.values.tolist())}
            picks = [place.get(actee, -1) for actee in action.actees]
        else:
            picks = np.asarray(action.indices, dtype=np.int64).reshape(-1).tolist()
        indices = _in_order(name, action.actors, picks, actors)
        if name in self._grids:
            return RaggedArray(on_grid(name, indices, self._grids[name]), [len(actors)])
        return RaggedArray(indices, [len(actors)])


def _in_order(
    name: ActionName, given: Sequence[EntityID], picks: Sequence[int], actors: Sequence[int]
) -> NDArray[np.int64]:
    if len(given) != len(picks) or set(given) != set(actors):
        raise SchemaError(
            f"action {name!r} needs one choice of each actor {list(actors)}: got "
            f"{len(picks)} of {list(given)}"
        )
    choice = dict(zip(given, picks, strict=True))
    return np.array([choice[actor] for actor in actors], dtype=np.int64)


def _name_of(source: object) -> str:
    return str(getattr(source, "name", None) or getattr(source, "__name__", "A game"))
