"""make_vector_env: a Gymnasium vector environment from any source; TimeLimited environments."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeAlias

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from entity_env.agents.channels.train_agent_env import TrainAgentEnv
from entity_env.authoring.game import Game
from entity_env.core.environment import Environment
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName, ActionSpace, EntityName, ObsSpace
from entity_env.core.validation import checked_count
from entity_env.errors import UsageError
from entity_env.interop.gymnasium.batch_vector_env import BatchVectorEnv
from entity_env.interop.gymnasium.padded import IllegalActions
from entity_env.interop.gymnasium.vector_base import VectorEnvBase, checked_mode
from entity_env.interop.gymnasium.vector_env import MODES, EntityVectorEnv, require_one_agent
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.options import require_source
from entity_env.vec.vec_env import VecEnv

Playable: TypeAlias = Game | Callable[..., Environment]
"""A game, a class of environments, or a function that returns a new one."""


def make_vector_env(
    source: type[BatchEnv] | Playable,
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    max_episode_steps: int | None = None,
    num_workers: int = 0,
    max_entities: Mapping[EntityName, int] | None = None,
    max_actors: Mapping[ActionName, int] | None = None,
    illegal_actions: IllegalActions = "raise",
    render_mode: str | None = None,
    **settings: object,
) -> VectorEnvBase:
    """A new vector environment; a `vector_entry_point` for `gymnasium.register`.

    Args:
        source: a class of batch environments, a game for one agent, a class of environments, or a
            function that returns one.
        num_envs: number of environments.
        autoreset_mode: an `AutoresetMode` or its value.
        max_episode_steps: steps after which an episode is truncated; None = as the source does.
        num_workers: as for `VecEnv`; not for batch environments.
        max_entities, max_actors, illegal_actions, render_mode: as for `GameEnv`; not for batch
            environments.
        settings: keyword arguments of the class or function, or of the game's `play`.

    Raises:
        SchemaError, WorkerError: as for `VecEnv` and `EntityVectorEnv`.
        UsageError: as for those, and a setting that the source does not have.
        ValueError: no such mode.
    """
    mode = checked_mode(autoreset_mode)
    if isinstance(source, type) and issubclass(source, BatchEnv):
        given = {
            "num_workers": num_workers,
            "max_entities": max_entities,
            "max_actors": max_actors,
            "render_mode": render_mode,
        }
        _require_unused(source, given)
        if max_episode_steps is not None:
            settings["max_episode_steps"] = _checked_limit(source, max_episode_steps)
        make_batch: Callable[..., BatchEnv] = source
        return BatchVectorEnv(make_batch(num_envs, **settings), autoreset_mode=mode)
    stepped = with_settings(source, settings)  # type: ignore[arg-type]  # no class of batches
    if max_episode_steps is not None:
        stepped = _limited(stepped, max_episode_steps)
    autoreset = next(name for name, value in MODES.items() if value == mode)
    vec = VecEnv(stepped, num_envs, num_workers, autoreset=autoreset)
    try:
        return EntityVectorEnv(
            vec,
            max_entities=max_entities,
            max_actors=max_actors,
            illegal_actions=illegal_actions,
            render_mode=render_mode,
        )
    except BaseException:
        vec.close()
        raise


def with_settings(source: Playable, settings: Mapping[str, object]) -> Playable:
    """A source for `VecEnv` with other settings."""
    require_source(source)
    if not settings:
        return source
    if isinstance(source, Game):
        return source.with_settings(**settings)
    return partial(source, **settings)


def _limited(source: Playable, max_episode_steps: int) -> Playable:
    if isinstance(source, Game):
        require_one_agent(source.num_agents)
        source = partial(TrainAgentEnv, source)
    return partial(TimeLimited, source, max_episode_steps)


def _require_unused(source: type[BatchEnv], given: Mapping[str, object]) -> None:
    used = [name for name, value in given.items() if value]
    if used:
        raise UsageError(f"{source.__name__} is a batch environment, and has no {used[0]}")


def _checked_limit(source: type[BatchEnv], max_episode_steps: int) -> int:
    if "max_episode_steps" not in inspect.signature(source).parameters:
        raise UsageError(
            f"{source.__name__} takes no max_episode_steps: register it without, or give it one"
        )
    return max_episode_steps


class TimeLimited(Environment):
    """Wraps the environment that `make` returns, and truncates episodes after `max_steps`."""

    def __init__(self, make: Callable[[], Environment], max_steps: int) -> None:
        checked_count("max_episode_steps", max_steps)
        self._env = make()
        self._takes_seed = "seed" in inspect.signature(self._env.reset).parameters
        self._max_steps = max_steps
        self._num_steps = 0

    def obs_space(self) -> ObsSpace:
        return self._env.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return self._env.action_space()

    def reset(self, *, seed: int | None = None) -> Observation:
        self._num_steps = 0
        return self._env.reset(seed=seed) if self._takes_seed else self._env.reset()

    def act(self, actions: Mapping[ActionName, Action]) -> Observation:
        observation = self._env.act(actions)
        self._num_steps += 1
        if self._num_steps < self._max_steps:
            return observation
        last = copy.copy(observation)
        last.truncated = True
        return last

    def render(self) -> NDArray[np.uint8]:
        return self._env.render()

    def close(self) -> None:
        self._env.close()
