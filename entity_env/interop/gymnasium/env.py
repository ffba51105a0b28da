"""GameEnv: one game as a `gymnasium.Env`; make_vector_env: any source as a vector environment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Final, TypeAlias

import gymnasium
import numpy as np
from gymnasium import error, spaces
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from entity_env.agents.channels.train_agent_env import TrainAgentEnv
from entity_env.authoring.game import Game
from entity_env.core.environment import Environment
from entity_env.core.episode import MAX_IDLE_EPISODES
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import GLOBAL_ENTITY, ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import checked_count, parameters_of
from entity_env.core.vec_obs import VecObs
from entity_env.errors import ProtocolError, UsageError
from entity_env.interop.gymnasium.padded import IllegalActions
from entity_env.interop.gymnasium.room import Room, measured, padded
from entity_env.interop.gymnasium.vector_env import (
    MODES,
    RENDER_FPS,
    RUN_SEED,
    BatchVectorEnv,
    EntityVectorEnv,
    Infos,
    Uncopyable,
    VectorEnvBase,
    gymnasium_seed,
    require_one_agent,
    require_settings,
    start_of,
)
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.options import require_source
from entity_env.vec.vec_env import VecEnv
from entity_env.views.drawing import Drawing
from entity_env.views.load_look import find_look
from entity_env.views.pictures import draw_array
from entity_env.views.seen import SeenObservation

Playable: TypeAlias = Game | Callable[..., Environment]
"""A game, an `Environment` class, or a function that returns a new `Environment`."""


def make_vector_env(
    source: type[BatchEnv] | Playable,
    num_envs: int = 1,
    *,
    autoreset_mode: AutoresetMode | str = AutoresetMode.NEXT_STEP,
    max_episode_steps: int | None = None,
    num_workers: int = 0,
    max_entities: Room | None = None,
    max_actors: Room | None = None,
    illegal_actions: IllegalActions = "raise",
    render_mode: str | None = None,
    **settings: object,
) -> VectorEnvBase:
    """Makes a vector environment; a `vector_entry_point` for `gymnasium.register`.

    Args:
        source: a `BatchEnv` class, a game for one agent, an `Environment` class, or a function that
            returns an `Environment`.
        autoreset_mode: an `AutoresetMode` or its value.
        max_episode_steps: steps after which an episode is truncated; None = the source's own limit.
        num_workers: as for `VecEnv`; not for batch environments.
        max_entities, max_actors, illegal_actions, render_mode: as for `GameEnv`; not for batch
            environments.
        settings: keyword arguments of the class or function, or of the game's `play`.

    Raises:
        SchemaError, WorkerError: as for `VecEnv` and `EntityVectorEnv`.
        UsageError: as for those, a setting that the game does not have, or an option that a batch
            environment does not support.
        ValueError: an unknown `autoreset_mode`.
    """
    mode = AutoresetMode(autoreset_mode)
    if isinstance(source, type) and issubclass(source, BatchEnv):
        given = {
            "num_workers": num_workers,
            "max_entities": max_entities,
            "max_actors": max_actors,
            "illegal_actions": illegal_actions != "raise",
            "render_mode": render_mode,
        }
        _require_unused(source, given)
        settings |= _limit(source, max_episode_steps)
        make_batch: Callable[..., BatchEnv] = source
        return BatchVectorEnv(make_batch(num_envs, **settings), autoreset_mode=mode)
    stepped = with_settings(source, settings)  # type: ignore[arg-type]  # not a class of batches
    max_entities, max_actors = _measured(stepped, max_entities, max_actors)
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


def _measured(
    source: Playable, max_entities: Room | None, max_actors: Room | None
) -> tuple[Room | None, Room | None]:
    """Both settings with numbers in place of "auto"."""
    if max_entities is None and isinstance(source, Game):
        max_entities = source.max_entities
    if "auto" not in (max_entities, max_actors):
        return max_entities, max_actors
    with VecEnv(source, 1, autoreset="disabled") as vec:
        require_one_agent(vec.num_agents)
        return measured(vec, max_entities, max_actors)


def with_settings(source: Playable, settings: Mapping[str, object]) -> Playable:
    """Source for `VecEnv` with the given settings."""
    require_source(source)
    if not settings:
        return source
    if isinstance(source, Game):
        return source.with_settings(**settings)
    return partial(source, **settings)


def _limited(source: Playable, max_episode_steps: int | None) -> Playable:
    if max_episode_steps is None:
        return source
    if isinstance(source, Game):
        require_one_agent(source.num_agents)
        source = partial(TrainAgentEnv, source)
    return partial(TimeLimited, source, max_episode_steps)


def _require_unused(source: type[BatchEnv], given: Mapping[str, object]) -> None:
    for name, value in given.items():
        if value:
            raise UsageError(f"{source.__name__} is a batch environment, and has no {name}")


def _limit(source: type[BatchEnv], max_episode_steps: int | None) -> dict[str, object]:
    if max_episode_steps is None:
        return {}
    if "max_episode_steps" not in parameters_of(source):
        raise UsageError(
            f"{source.__name__} takes no max_episode_steps: leave it out, or add the parameter"
        )
    return {"max_episode_steps": max_episode_steps}


class TimeLimited(Environment):
    """An environment made by `make`, with episodes truncated after `max_steps`."""

    def __init__(self, make: Callable[[], Environment], max_steps: int) -> None:
        checked_count("max_episode_steps", max_steps)
        self._env = make()
        self._takes_seed = "seed" in parameters_of(self._env.reset)
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


class OneGame:
    """One copy of a game with padded entities. The caller must close `vec`.

    Args:
        max_entities, max_actors, illegal_actions: as for `GameEnv`.

    Attributes:
        episode_seed: `Episode.seed` of the current episode.
    """

    def __init__(
        self,
        source: Playable,
        max_entities: Room | None,
        max_actors: Room | None,
        illegal_actions: IllegalActions,
    ) -> None:
        self.name: Final = str(getattr(source, "name", source))
        self.vec: Final = VecEnv(source, 1, autoreset="disabled")
        try:
            self.entities, self.actions, self.obs = padded(
                self.vec,
                lambda: self._past_idle(self.vec.reset(seed=0)),
                max_entities,
                max_actors,
                illegal_actions,
            )
            self.space: Final = self.entities.space()
        except BaseException:
            self.vec.close()
            raise
        self.masks = self.actions.masks(self.obs)
        self.episode_seed = 0
        self.was_reset = False

    def begin(self, seed: int | None) -> None:
        """Starts the first episode of a seed; None continues with the next episode."""
        starts: dict[str, Any] = {}
        if seed is not None:
            starts = {"seed": RUN_SEED, "starts": [start_of(seed)]}
        self.was_reset = True
        self._read(self._past_idle(self.vec.reset(**starts)))
        seeds = self.vec.episode_seeds()
        self.episode_seed = 0 if seeds is None else seeds[0]

    def act(self, given: object) -> None:
        """Performs actions, as for `PaddedActions`; an invalid action changes nothing."""
        self._read(self.vec.act(self.actions.answer(self.obs, self.masks, given)))

    def _read(self, obs: VecObs) -> None:
        self.obs = obs
        self.masks = self.actions.masks(obs)

    def _past_idle(self, obs: VecObs) -> VecObs:
        """Skips episodes that end before the first action."""
        for _ in range(MAX_IDLE_EPISODES):
            if not self.vec.is_over.all():
                return obs
            obs = self.vec.reset()
        raise ProtocolError(
            f"{self.name}: {MAX_IDLE_EPISODES} episodes in a row were over before the first action"
        )


class GameEnv(Uncopyable, gymnasium.Env[Any, Any]):
    """Wraps one game as a `gymnasium.Env`.

    Observations, actions and masks are described in `entity_env.interop.gymnasium`; the caller owns
    them. A seed gives the same episodes as in an `EntityVectorEnv`. `info["episode_seed"]` is an
    int. Call `reset`, `step` and `close` from one thread.

    The constructor plays up to 64 random steps to check that the numbers of entities and actors
    without a maximum do not vary, and up to 1024 more for "auto".

    Args:
        source: a game for one agent, an `Environment` (which `close` closes), its class, or a
            function that returns one.
        max_entities: maximum number of entities, for each type whose number varies; default: the
            `Game`'s. "auto" means twice the largest number in random play, and at least 8. A
            trained agent may meet more entities than a random one, and exceeding the maximum raises
            an error: pass the numbers if you know them.
        max_actors: maximum number of actors of each action, or "auto"; default: the number in the
            first observation.
        illegal_actions: "raise" a `SchemaError`, or take the "next" legal choice.
        render_mode: "rgb_array", or None. Games are drawn by their look, which needs the extra
            `pictures`; an `Environment` draws itself.
        settings: keyword arguments of the game's `play`, or of the class or function.

    Raises:
        SchemaError: a type whose number of entities varies is not in `max_entities`; an action that
            is not in `max_actors` has no actors in the first observation, or more actors later; or
            a maximum is too small.
        UsageError: a game for several agents, or an invalid setting.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012 - Gymnasium declares it this way
        "render_modes": ["rgb_array"],
        "render_fps": RENDER_FPS,
    }

    has_blank_masks: ClassVar[bool] = True
    """Masks of zeros mean that no action is needed, for the importers of this package."""

    def __init__(
        self,
        source: Game | Environment | Callable[..., Environment],
        *,
        max_entities: Room | None = None,
        max_actors: Room | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
        **settings: object,
    ) -> None:
        require_settings(illegal_actions, render_mode)
        self.render_mode = render_mode
        made = (lambda: source) if isinstance(source, Environment) else source
        playable = with_settings(made, settings)
        self._drawing: Drawing | None = None
        if isinstance(playable, Game):
            require_one_agent(playable.num_agents)
            if render_mode is not None:
                self._drawing = Drawing(find_look(playable), playable.obs_space())
        self._game = OneGame(playable, max_entities, max_actors, illegal_actions)
        self._frame: NDArray[np.uint8] | None = None
        self.observation_space = self._game.space
        self.action_space = self._game.actions.space()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, NDArray[Any]], Infos]:
        """Starts a new episode.

        Args:
            seed: starts a sequence of episodes, see `entity_env.interop.gymnasium`; None continues
                with the next episode, or, in the first reset, draws a seed.
            options: ignored.
        """
        super().reset(seed=None if seed is None else gymnasium_seed(seed))
        if seed is None and not self._game.was_reset:
            seed = self.np_random_seed
        self._game.begin(None if seed is None else int(seed))
        return self._shown()

    def step(
        self,
        action: Any,  # noqa: ANN401 - as Gymnasium
    ) -> tuple[dict[str, NDArray[Any]], float, bool, bool, Infos]:
        """Performs an action.

        Raises:
            ProtocolError: the episode has ended.
            ResetNeeded: before `reset`.
            SchemaError: the action is illegal, or does not match the action space.
        """
        if not self._game.was_reset:
            raise error.ResetNeeded("Cannot call env.step() before calling env.reset()")
        self._game.act(_batch_of(action))
        obs = self._game.obs
        shown, info = self._shown()
        reward, terminated, truncated = obs.reward[0], obs.terminated[0], obs.truncated[0]
        return shown, float(reward), bool(terminated), bool(truncated), info

    def action_masks(self) -> NDArray[np.bool_]:
        """Flat action mask of the current observation, for the MaskablePPO of sb3-contrib.

        Returns:
            A new bool array, True = allowed: `(num_choices,)`, or `(num_actors * num_choices,)` for
            a `MultiDiscrete`, one actor after another. All False for absent actors and at the end
            of an episode.

        Raises:
            UsageError: several actions, or a continuous action.
        """
        if not isinstance(self.action_space, spaces.Discrete | spaces.MultiDiscrete):
            raise UsageError(
                f"action_masks is for a Discrete or MultiDiscrete: the actions are a "
                f"{self.action_space}; see info['action_mask']"
            )
        (mask,) = self._game.masks.values()
        flat: NDArray[np.bool_] = mask[0].flatten()
        return flat

    def render(self) -> NDArray[np.uint8] | None:
        """Image of the game, `(height, width, 3)` uint8; None without a render mode.

        Images of games are 480 x 480. A final observation without entities repeats the previous
        image. The caller must not modify images.

        Raises:
            MissingExtraError: a game, and Pillow is not installed.
            NotImplementedError: an `Environment` without `render`.
            ResetNeeded: before `reset`.
        """
        if self.render_mode is None:
            return None
        if not self._game.was_reset:
            raise error.ResetNeeded("Cannot call env.render() before calling env.reset()")
        if self._drawing is None:
            return self._game.vec.render()
        observation = _first_observation(self._game.obs)
        if self._frame is None or not observation.is_blank:
            seen = SeenObservation(observation, self._drawing.obs_space)
            self._frame = draw_array(self._drawing, seen)
        return self._frame

    def close(self) -> None:
        """Ends the game; may be called twice."""
        self._game.vec.close()

    def _shown(self) -> tuple[dict[str, NDArray[Any]], Infos]:
        game = self._game
        shown = {key: array[0] for key, array in game.entities.observe(game.obs).items()}
        last_masks = game.actions.masks_with_final(game.obs, game.masks)
        info = _first_of(game.actions.info(last_masks))
        return shown, {**info, "episode_seed": game.episode_seed}


def _first_observation(obs: VecObs) -> Observation:
    rows = {name: array[0] for name, array in obs.features.items() if len(array[0])}
    return Observation(
        reward=float(obs.reward[0]),
        global_features=rows.pop(GLOBAL_ENTITY, np.zeros((1, 0)))[0],
        features=rows,
        visible={name: array[0] for name, array in obs.visible.items()},
    )


def _first_of(info: Infos) -> Infos:
    return {
        key: _first_of(value) if isinstance(value, dict) else value[0]
        for key, value in info.items()
    }


def _batch_of(action: object) -> object:
    if isinstance(action, Mapping):
        return {name: _batch_of(value) for name, value in action.items()}
    return [action]
