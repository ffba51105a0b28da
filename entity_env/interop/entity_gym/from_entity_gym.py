"""from_entity_gym: adapts `entity_gym.env.Environment` to `Environment`, with a bulk path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, repeat
from operator import eq, is_
from typing import Any, Final, overload

import entity_gym.env as theirs
import numpy as np
from numpy.typing import NDArray

from entity_env.batching.adapter import AdaptedEnvironment, Adapter
from entity_env.core.action_request import Asked, require_one_an_actor, selected, shares
from entity_env.core.environment import Environment
from entity_env.core.observation import (
    Action,
    ActionMask,
    CategoricalAction,
    CategoricalActionMask,
    ContinuousAction,
    EntityID,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
    ObsSpace,
)
from entity_env.errors import ProtocolError, SchemaError
from entity_env.interop.entity_gym.spaces import our_action_space, our_obs_space
from entity_env.interop.results import checked_flag

_RESULT: Final = "an Observation of entity-gym"


def our_observation(obs: Any) -> Observation:  # noqa: ANN401 - untyped
    """Converts an `entity_gym.env.Observation` to an `Observation`."""
    # Takes half the time of a constructor call with nine keywords.
    observation = Observation.__new__(Observation)
    observation.terminated = checked_flag(obs.done, _RESULT, "done")
    observation.truncated = False
    observation.reward = obs.reward
    observation.global_features = obs.global_features
    observation.features = obs.features
    observation.ids = ids = obs.ids
    observation.actions = {name: _our_mask(name, mask, ids) for name, mask in obs.actions.items()}
    observation.visible = obs.visible
    observation.metrics = obs.metrics
    return observation


_UNRESTRICTED: Final = GlobalCategoricalActionMask()


def _our_mask(name: ActionName, mask: Any, ids: Mapping[EntityName, Any]) -> ActionMask:  # noqa: ANN401 - untyped
    if isinstance(mask, theirs.GlobalCategoricalActionMask):
        return _UNRESTRICTED if mask.mask is None else GlobalCategoricalActionMask(mask.mask)
    if not isinstance(mask, theirs.CategoricalActionMask | theirs.SelectEntityActionMask):
        raise SchemaError(f"action {name!r}: entity-gym has no mask {mask!r}")
    actors, types = _selector(mask.actor_ids, mask.actor_types, ids)
    if isinstance(mask, theirs.CategoricalActionMask):
        return CategoricalActionMask(actors, types, mask.mask)
    actees, actee_types = _selector(mask.actee_ids, mask.actee_types, ids)
    return SelectEntityActionMask(actors, types, actee_types, actees, mask.mask)


def _selector(chosen: Any, types: Any, ids: Mapping[EntityName, Any]) -> tuple[Any, Any]:  # noqa: ANN401 - untyped
    """Ids and types of a mask's actors or actees.

    A list that equals the ids of exactly one type is replaced by that type: `(None, (type,))`.
    """
    if type(chosen) is list:
        same = [name for name, known in ids.items() if _are_all(chosen, known)]
        if len(same) == 1:  # if several match, `index_of_ids` reports duplicates
            return None, (same[0],)
    return chosen, types


def _are_all(chosen: list[EntityID], known: Any) -> bool:  # noqa: ANN401 - untyped
    return chosen is known or (
        type(known) is list and len(chosen) == len(known) and bool(chosen) and chosen == known
    )


def _type_named(
    chosen: Sequence[Any], ids: Sequence[Mapping[EntityName, Sequence[EntityID]]]
) -> EntityName | None:
    """Type that `_selector` finds for every observation; None if there is no such type."""
    if set(map(type, chosen)) != {list}:
        return None
    _, named = _selector(chosen[0], None, ids[0])
    if named is None:
        return None
    only: EntityName = named[0]
    for name in set(chain.from_iterable(ids)):
        known = [each.get(name) for each in ids]
        is_only = name == only
        if not _are_alike(chosen, known) if is_only else any(map(eq, chosen, known)):
            each = zip(chosen, known, strict=True)
            if any(_are_all(some, of_type) is not is_only for some, of_type in each):
                return None
    return only


def _are_alike(chosen: Sequence[Any], known: Sequence[Any]) -> bool:
    """Fast `_are_all` for every pair; False may also mean unknown."""
    if all(map(is_, chosen, known)):
        return True
    return chosen == known and set(map(type, known)) == {list} and all(chosen)


def _their_actions(
    name: ActionName,
    space: ActionSpace,
    asked: Sequence[Asked],
    values: Sequence[Any] | NDArray[Any],
) -> Iterator[Any]:
    """Like `actions_of`, but never shares an action object: entity-gym's actions are mutable."""
    require_one_an_actor(name, asked, values)
    actors = [each for _, each, _ in asked]
    if isinstance(space, GlobalCategoricalActionSpace):
        chosen, labels = list(map(int, values)), space.index_to_label
        return map(theirs.GlobalCategoricalAction, chosen, map(labels.__getitem__, chosen))
    if isinstance(space, CategoricalActionSpace):
        indices = shares(actors, np.asarray(values, dtype=np.int64))
        return map(theirs.CategoricalAction, actors, indices, repeat(list(space.index_to_label)))
    return map(theirs.SelectEntityAction, actors, selected(asked, values))


def _flags(obs: Any) -> tuple[bool, bool]:  # noqa: ANN401 - untyped
    return checked_flag(obs.done, _RESULT, "done"), False


THEIRS: Final = Adapter(
    observation=our_observation,
    flags=_flags,
    masks={
        theirs.CategoricalActionMask: CategoricalActionMask,
        theirs.GlobalCategoricalActionMask: GlobalCategoricalActionMask,
        theirs.SelectEntityActionMask: SelectEntityActionMask,
    },
    actions=_their_actions,
    type_named=_type_named,
)


@overload
def from_entity_gym(  # type: ignore[overload-overlap]  # assumes that an environment cannot be called
    source: Callable[..., Any],
) -> Callable[..., Environment]: ...


@overload
def from_entity_gym(source: object) -> Environment: ...


def from_entity_gym(source: object) -> Environment | Callable[..., Environment]:
    """Wraps an environment of entity-gym as an `Environment`.

    entity-gym's `reset` takes no seed, so episodes cannot be repeated.

    Args:
        source: an environment, owned by the returned `Environment`; or a class or function that
            makes environments: then the result is a function with the same arguments, for `VecEnv`
            and the trainer.

    Raises:
        SchemaError: `source` is not an environment of entity-gym, or does not make one; for a
            function, raised when the result is called.
    """
    if isinstance(source, theirs.Environment):
        return EntityGymWrapper(source)
    is_other = isinstance(source, type) and not issubclass(source, theirs.Environment)
    if is_other or not callable(source):
        raise _no_environment(source)
    return partial(_made, source)


class EntityGymWrapper(AdaptedEnvironment):
    """Wraps an `entity_gym.env.Environment`; converts its masks, and changes nothing else."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401 - untyped
        self._env = env
        self._obs_space = our_obs_space(env.obs_space())
        self._action_space = our_action_space(env.action_space())
        self._labels = {
            name: list(getattr(space, "index_to_label", ()))
            for name, space in self._action_space.items()
        }
        self._is_playing = False
        self._is_closed = False

    @property
    def adapter(self) -> Adapter:
        return THEIRS

    @property
    def game(self) -> Any:  # noqa: ANN401 - untyped
        return self._env

    def obs_space(self) -> ObsSpace:
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._action_space

    def reset(self) -> Observation:  # type: ignore[override]  # as entity-gym's: without a seed
        return self._show(self._env.reset())

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        if not self._is_playing:  # entity-gym's environments do not check this
            raise ProtocolError("no episode is being played: call reset first")
        chosen = {name: self._their_action(name, action) for name, action in actions.items()}
        return self._show(self._env.act(chosen))

    def render(self) -> NDArray[np.uint8]:
        return np.asarray(self._env.render(mode="rgb_array"), dtype=np.uint8)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._env.close()

    def _show(self, shown: Any) -> Observation:  # noqa: ANN401 - untyped
        observation = our_observation(shown)
        self._is_playing = not observation.done
        return observation

    def _their_action(self, name: ActionName, action: Action) -> Any:  # noqa: ANN401 - untyped
        if isinstance(action, CategoricalAction):
            return theirs.CategoricalAction(
                action.actors, action.indices, self._labels[name], action.probs
            )
        if isinstance(action, GlobalCategoricalAction):
            return theirs.GlobalCategoricalAction(action.index, action.label, action.probs)
        if isinstance(action, ContinuousAction):
            raise SchemaError(f"action {name!r}: entity-gym has no continuous actions")
        return theirs.SelectEntityAction(action.actors, action.actees, action.probs)


def _made(make: Callable[..., object], *arguments: object, **settings: object) -> EntityGymWrapper:
    env = make(*arguments, **settings)
    if not isinstance(env, theirs.Environment):
        raise _no_environment(env)
    return EntityGymWrapper(env)


def _no_environment(source: object) -> SchemaError:
    return SchemaError(
        "from_entity_gym needs an entity_gym.env.Environment, its class, or a function that "
        f"returns one: got {source!r}"
    )
