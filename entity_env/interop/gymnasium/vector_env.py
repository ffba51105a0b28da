"""EntityVectorEnv: a `VecEnv` as a `gymnasium.vector.VectorEnv`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import NDArray

from entity_env.core.episode import MAX_IDLE_EPISODES
from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecEnvironment, VecObs
from entity_env.episodes.vectorized import ResettableVec
from entity_env.errors import ProtocolError, UsageError
from entity_env.interop.gymnasium.padded import IllegalActions, PaddedActions, PaddedEntities
from entity_env.interop.gymnasium.vector_base import (
    Flags,
    Infos,
    Stepped,
    VectorEnvBase,
    with_finals,
)

MODES: Final[Mapping[Autoreset, AutoresetMode]] = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}
RENDER_FPS: Final = 10

_EPISODES_A_SEED: Final = 2**31
_NUM_SEEDS: Final = 2**32


class Vec(VecEnvironment, Protocol):
    """The methods of `VecEnv` that `EntityVectorEnv` uses."""

    @property
    def num_envs(self) -> int:
        """Number of environments."""

    @property
    def autoreset(self) -> Autoreset:
        """Mode of automatic resets."""


class EntityVectorEnv(VectorEnvBase):
    """Wraps a `VecEnv` as a `gymnasium.vector.VectorEnv`.

    Observations, actions and masks are described in `entity_env.interop.gymnasium`; the caller owns
    them. The autoreset mode is that of `vec`: "next_step", "same_step" or "disabled"; partial
    resets need "disabled". The constructor resets `vec` once, to count entities.

    A seed has the same episodes in every environment and in a `GameEnv`: seed s begins with episode
    `s * 2**31` of the run with seed 0. If `vec.reset` takes no `starts`, an integer seeds the whole
    run, and a list of seeds is an error.

    Args:
        vec: the environments, one agent each; this object closes them.
        max_entities, max_actors, illegal_actions, render_mode: as for `GameEnv`.

    Raises:
        SchemaError: as for `GameEnv`.
        UsageError: several agents per environment, or an invalid setting.
    """

    def __init__(
        self,
        vec: Vec,
        *,
        max_entities: Mapping[EntityName, int] | None = None,
        max_actors: Mapping[ActionName, int] | None = None,
        illegal_actions: IllegalActions = "raise",
        render_mode: str | None = None,
    ) -> None:
        require_one_agent(vec.num_rows // vec.num_envs)
        require_settings(illegal_actions, render_mode)
        self._vec = vec
        self._takes_starts = "starts" in inspect.signature(vec.reset).parameters
        first = vec.reset(seed=0)
        if vec.autoreset == "disabled":
            first = past_idle(_resettable(vec), first, np.ones(vec.num_envs, dtype=np.bool_))
        self._entities = PaddedEntities(vec.obs_space(), first, max_entities or {})
        self._actions = PaddedActions(
            vec.action_space(), self._entities, first, max_actors or {}, illegal_actions
        )
        self._obs = first
        self._masks = self._actions.masks(first)
        super().__init__(
            vec.num_envs,
            MODES[vec.autoreset],
            self._entities.space(),
            self._actions.space(),
            {"render_modes": ["rgb_array"], "render_fps": RENDER_FPS},
        )
        self.render_mode = render_mode

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """An image per environment, `(height, width, 3)` uint8; None without a render mode.

        Raises:
            NotImplementedError: the environments have no `render`.
        """
        if self.render_mode is None:
            return None
        render = getattr(self._vec, "render", None)
        if render is None:
            raise NotImplementedError(f"{type(self._vec).__name__} has no render()")
        return tuple(render(env_id) for env_id in range(self.num_envs))

    def close_extras(self, **kwargs: object) -> None:
        self._vec.close()

    def _begin(self, mask: Flags, seeds: list[int] | None, is_partial: bool) -> tuple[Any, Infos]:
        if is_partial and self.autoreset_mode != AutoresetMode.DISABLED:
            raise ValueError(
                "`options['reset_mask']` needs AutoresetMode.DISABLED, this environment has "
                f'{self.autoreset_mode}: make the VecEnv with autoreset="disabled"'
            )
        return self._shown(self._reset(mask if is_partial else None, seeds)), self._infos(mask)

    def _reset(self, mask: Flags | None, seeds: list[int] | None) -> VecObs:
        starts: dict[str, Any] = {}
        if seeds is not None and self._takes_starts:
            starts = {"seed": 0, "starts": [start_of(seed) for seed in seeds]}
        elif seeds is not None:
            if seeds != list(range(seeds[0], seeds[0] + len(seeds))):
                raise UsageError(
                    f"{type(self._vec).__name__}.reset takes no starts, so environments cannot be "
                    "seeded one by one: pass one integer"
                )
            starts = {"seed": seeds[0]}
        if self.autoreset_mode != AutoresetMode.DISABLED:
            return self._vec.reset(**starts)
        vec = _resettable(self._vec)
        if mask is None:
            return past_idle(vec, vec.reset(**starts), np.ones(self.num_envs, dtype=np.bool_))
        return past_idle(vec, vec.reset_envs(mask, **starts), mask)

    def _step(self, actions: object) -> Stepped:
        obs = self._vec.act(self._actions.answer(self._obs, self._masks, actions))
        shown = self._shown(obs)
        infos = self._infos(np.ones(self.num_envs, dtype=np.bool_))
        flags = obs.terminated.copy(), obs.truncated.copy()
        if obs.final is not None:
            self._add_finals(infos, obs.final, *flags)
        return shown, obs.reward.astype(np.float64), *flags, infos

    def _shown(self, obs: VecObs) -> dict[str, NDArray[Any]]:
        self._obs = obs
        self._masks = self._actions.masks(obs)
        return self._entities.observe(obs)

    def _infos(self, mask: Flags) -> Infos:
        return vector_info(self._actions.info(self._masks), mask)

    def _add_finals(self, infos: Infos, final: VecObs, terminated: Flags, truncated: Flags) -> None:
        """Adds last observations; the flags become those of their episodes."""
        last = self._entities.observe(final)
        final_obs = np.full(self.num_envs, None, dtype=object)
        ended = np.zeros(self.num_envs, dtype=np.bool_)
        for row, env_id in enumerate(final.env_id.tolist()):
            if ended[env_id]:
                continue  # the next episode ended before its first action
            ended[env_id] = True
            final_obs[env_id] = {key: array[row] for key, array in last.items()}
            terminated[env_id] = final.terminated[row]
            truncated[env_id] = final.truncated[row]
        nothing = self._actions.info({name: mask & False for name, mask in self._masks.items()})
        with_finals(infos, final_obs, vector_info(nothing, ended), ended)


def past_idle(vec: ResettableVec, obs: VecObs, mask: Flags) -> VecObs:
    """Skips episodes that end before the first action, which Gymnasium cannot express."""
    for _ in range(MAX_IDLE_EPISODES):
        idle = obs.done & mask
        if not idle.any():
            return obs
        obs = vec.reset_envs(idle)
    raise ProtocolError(f"{MAX_IDLE_EPISODES} episodes in a row were over before the first action")


def vector_info(info: Infos, mask: Flags) -> Infos:
    """Infos in Gymnasium's format: values of the environments in the mask, and the mask itself."""
    infos: Infos = {}
    for key, value in info.items():
        if isinstance(value, dict):
            infos[key] = vector_info(value, mask)
        else:
            value[~mask] = 0
            infos[key] = value
        infos[f"_{key}"] = mask.copy()
    return infos


def start_of(seed: int) -> int:
    """The index of a seed's first episode, in the run with seed 0."""
    if seed >= _NUM_SEEDS:
        seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
    return seed * _EPISODES_A_SEED


def require_one_agent(num_agents: int) -> None:
    """Raises `UsageError` for an environment with several agents."""
    if num_agents != 1:
        raise UsageError(
            f"a Gymnasium environment has one agent, this game is for {num_agents}: step it as a "
            "VecEnv"
        )


def require_settings(illegal_actions: str, render_mode: str | None) -> None:
    """Raises `UsageError` for an invalid setting."""
    if illegal_actions not in ("raise", "next"):
        raise UsageError(f'illegal_actions must be "raise" or "next": got {illegal_actions!r}')
    if render_mode not in (None, "rgb_array"):
        raise UsageError(f'render_mode must be "rgb_array" or None: got {render_mode!r}')


def _resettable(vec: Any) -> ResettableVec:  # noqa: ANN401 - checked by its autoreset mode
    resettable: ResettableVec = vec
    return resettable
