"""GameEnv: one game as an environment of Gymnasium."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import error
from numpy.typing import NDArray

from entity_env.authoring.game import Game
from entity_env.core.environment import Environment
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.vec_obs import VecObs
from entity_env.interop.gymnasium.make import with_settings
from entity_env.interop.gymnasium.padded_actions import ActionLayout, IllegalActions
from entity_env.interop.gymnasium.padded_entities import EntityLayout
from entity_env.interop.gymnasium.vector_base import Infos, gymnasium_seed
from entity_env.interop.gymnasium.vector_env import (
    RENDER_FPS,
    past_idle,
    require_one_agent,
    require_settings,
    start_of,
)
from entity_env.vec.vec_env import VecEnv


class GameEnv(gymnasium.Env[Any, Any]):
    """Shows one game as a `gymnasium.Env`.

    Observations, actions and masks are as `entity_env.interop.gymnasium` says; what is returned is
    the caller's own. A seed is the same episodes as in an `EntityVectorEnv`. One thread must reset,
    step and close it.

    Args:
        source: a game for one agent, an `Environment`, its class, or a function that returns one.
        max_entities: for types of entities whose number varies, the largest that it can be.
        max_actors: per action the largest number of actors; as many as at first when left out.
        illegal_actions: what becomes of choices that are not allowed.
        render_mode: "rgb_array", or None.
        settings: keyword arguments of the game's `play`, or of the class or function.

    Raises:
        SchemaError: the number of a type varies and `max_entities` does not name it, or nobody is
            asked for an action at first and `max_actors` does not name it.
        UsageError: a game for several agents, or a setting that makes no sense.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - declared so by Gymnasium
        "render_modes": ["rgb_array"],
        "render_fps": RENDER_FPS,
    }

    def __init__(
        self,
        source: Game | Environment | Callable[..., Environment],
        *,
        max_entities: Mapping[EntityName, int] | None = None,
        max_actors: Mapping[ActionName, int] | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
        **settings: object,
    ) -> None:
        require_settings(illegal_actions, render_mode)
        self.render_mode = render_mode
        made = (lambda: source) if isinstance(source, Environment) else source
        self._vec = vec = VecEnv(with_settings(made, settings), 1, autoreset="disabled")
        try:
            require_one_agent(vec.num_agents)
            first = past_idle(vec, vec.reset(seed=0), np.ones(1, dtype=np.bool_))
            self._entities = EntityLayout(vec.obs_space(), first, max_entities or {})
            self._actions = ActionLayout(
                vec.action_space(), self._entities, first, max_actors or {}, illegal_actions
            )
        except BaseException:
            vec.close()
            raise
        self._obs = first
        self._masks = self._actions.masks(first)
        self._was_reset = False
        self.observation_space = self._entities.space()
        self.action_space = self._actions.space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], Infos]:
        """Begins a new episode.

        Args:
            seed: begins anew from this seed; None goes on with the next episode, or draws a seed if
                there was none.
            options: ignored.
        """
        super().reset(seed=None if seed is None else gymnasium_seed(seed))
        if seed is None and self._was_reset:
            obs = self._vec.reset()
        else:
            drawn = self.np_random_seed if seed is None else seed
            obs = self._vec.reset(0, starts=[start_of(int(drawn))])
        self._was_reset = True
        return self._shown(past_idle(self._vec, obs, np.ones(1, dtype=np.bool_)))

    def step(
        self,
        action: Any,  # noqa: ANN401 - as Gymnasium
    ) -> tuple[dict[str, NDArray[Any]], float, bool, bool, Infos]:
        """Performs an action.

        Raises:
            ProtocolError: the episode has ended.
            ResetNeeded: before `reset`.
            SchemaError: an action that does not fit.
        """
        if not self._was_reset:
            raise error.ResetNeeded("Cannot call env.step() before calling env.reset()")
        obs = self._vec.act(self._actions.answer(self._obs, self._masks, _batch_of(action)))
        shown, info = self._shown(obs)
        reward, terminated, truncated = obs.reward[0], obs.terminated[0], obs.truncated[0]
        return shown, float(reward), bool(terminated), bool(truncated), info

    def render(self) -> NDArray[np.uint8] | None:
        """A picture, `(height, width, 3)` uint8; None without a render mode.

        Raises:
            NotImplementedError: an `Environment` that cannot be drawn.
        """
        return None if self.render_mode is None else self._vec.render()

    def close(self) -> None:
        """Ends the game; may be called twice."""
        self._vec.close()

    def _shown(self, obs: VecObs) -> tuple[dict[str, NDArray[Any]], Infos]:
        self._obs = obs
        self._masks = self._actions.masks(obs)
        shown = {key: array[0] for key, array in self._entities.observe(obs).items()}
        return shown, _first_of(self._actions.info(self._masks))


def _first_of(info: Infos) -> Infos:
    return {
        key: _first_of(value) if isinstance(value, dict) else value[0]
        for key, value in info.items()
    }


def _batch_of(action: object) -> object:
    """One action as a batch of one."""
    if isinstance(action, Mapping):
        return {name: _batch_of(value) for name, value in action.items()}
    return [action]
