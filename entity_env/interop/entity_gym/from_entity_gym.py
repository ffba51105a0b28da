"""from_entity_gym: an `entity_gym.env.Environment` as an `Environment`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, overload

import entity_gym.env as theirs
import numpy as np
from numpy.typing import NDArray

from entity_env.batching.adapter import AdaptedEnvironment, Adapter
from entity_env.core.environment import Environment
from entity_env.core.observation import (
    Action,
    CategoricalAction,
    ContinuousAction,
    GlobalCategoricalAction,
    Observation,
)
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.errors import ProtocolError, SchemaError
from entity_env.interop.entity_gym.adapter import THEIRS, our_observation
from entity_env.interop.entity_gym.spaces import our_action_space, our_obs_space


@overload
def from_entity_gym(  # type: ignore[overload-overlap]  # an environment is not called
    source: Callable[..., Any],
) -> Callable[..., Environment]: ...


@overload
def from_entity_gym(source: object) -> Environment: ...


def from_entity_gym(source: object) -> Environment | Callable[..., Environment]:
    """Wraps an environment of entity-gym as an `Environment`.

    Its `reset` takes no seed, so its episodes cannot be repeated.

    Args:
        source: an environment, which the returned `Environment` owns; or a class or function that
            makes one, for which a function with the same arguments is returned, for `VecEnv` and
            the trainer.

    Raises:
        SchemaError: not an environment of entity-gym; for a function, when it is called.
    """
    if isinstance(source, theirs.Environment):
        return EntityGymWrapper(source)
    is_other = isinstance(source, type) and not issubclass(source, theirs.Environment)
    if is_other or not callable(source):
        raise _no_environment(source)
    return partial(_made, source)


class EntityGymWrapper(AdaptedEnvironment):
    """Wraps an `entity_gym.env.Environment`, with the same rows, ids, masks and metrics."""

    def __init__(self, env: Any) -> None:  # noqa: ANN401 - entity-gym ships no types
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
    def game(self) -> Any:  # noqa: ANN401 - entity-gym ships no types
        return self._env

    def obs_space(self) -> ObsSpace:
        return self._obs_space

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._action_space

    def reset(self) -> Observation:  # type: ignore[override]  # as entity-gym's: without a seed
        return self._show(self._env.reset())

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        if not self._is_playing:  # environments of entity-gym do not check this
            raise ProtocolError("no episode is being played: call reset first")
        chosen = {name: self._their_action(name, action) for name, action in actions.items()}
        return self._show(self._env.act(chosen))

    def render(self) -> NDArray[np.uint8]:
        return np.asarray(self._env.render(mode="rgb_array"), dtype=np.uint8)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._env.close()

    def _show(self, shown: Any) -> Observation:  # noqa: ANN401 - entity-gym ships no types
        observation = our_observation(shown)
        self._is_playing = not observation.done
        return observation

    def _their_action(self, name: ActionName, action: Action) -> Any:  # noqa: ANN401 - entity-gym ships no types
        if isinstance(action, CategoricalAction):
            return theirs.CategoricalAction(
                action.actors, action.indices, self._labels[name], action.probs
            )
        if isinstance(action, GlobalCategoricalAction):
            return theirs.GlobalCategoricalAction(action.index, action.label, action.probs)
        if isinstance(action, ContinuousAction):
            raise SchemaError(f"action {name!r}: entity-gym has no continuous actions")
        return theirs.SelectEntityAction(action.actors, action.actees, action.probs)


def _made(
    make: Callable[..., object], *arguments: object, **settings: object
) -> EntityGymWrapper:
    env = make(*arguments, **settings)
    if not isinstance(env, theirs.Environment):
        raise _no_environment(env)
    return EntityGymWrapper(env)


def _no_environment(source: object) -> SchemaError:
    return SchemaError(
        "from_entity_gym needs an entity_gym.env.Environment, its class, or a function that "
        f"returns one: got {source!r}"
    )
