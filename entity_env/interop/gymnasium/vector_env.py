"""EntityVectorEnv: many games with entities as a vector environment of Gymnasium."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final, Protocol

import numpy as np
from gymnasium.vector import AutoresetMode
from numpy.typing import ArrayLike, NDArray

from entity_env.core.spaces import ActionName, EntityName
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.errors import ProtocolError, UsageError
from entity_env.interop.gymnasium.padded_actions import ActionLayout, IllegalActions
from entity_env.interop.gymnasium.padded_entities import EntityLayout
from entity_env.interop.gymnasium.vector_base import Flags, Infos, Stepped, VectorFace, with_finals

MODES: Final[Mapping[Autoreset, AutoresetMode]] = {
    "same_step": AutoresetMode.SAME_STEP,
    "next_step": AutoresetMode.NEXT_STEP,
    "disabled": AutoresetMode.DISABLED,
}
RENDER_FPS: Final = 10

_MAX_IDLE_EPISODES: Final = 1000
_EPISODES_A_SEED: Final = 2**31
_NUM_SEEDS: Final = 2**32


class Vec(VecEnvironment, Protocol):
    """Many environments with one agent each; see `VecEnv`."""

    @property
    def num_envs(self) -> int:
        """How many environments."""

    @property
    def autoreset(self) -> Autoreset:
        """What happens to ended episodes."""


class ResettableVec(Vec, Protocol):
    """One whose autoreset is "disabled"."""

    def reset_envs(
        self,
        mask: NDArray[np.bool_],
        seed: int | None = None,
        *,
        starts: ArrayLike | None = None,
    ) -> VecObs:
        """Begins a new episode in the chosen environments."""


class EntityVectorEnv(VectorFace):
    """Shows many games as a `gymnasium.vector.VectorEnv`.

    Observations, actions and masks are as `entity_env.interop.gymnasium` says; what is returned is
    the caller's own. The mode is that of `vec`: "next_step", "same_step" or "disabled", and partial
    resets need the last. Making this resets `vec` once, to see how many entities there are.

    A seed is the same episodes in whichever environment, and as in a `GameEnv`: seed s begins with
    episode `s * 2**31` of the run of seed 0. Where `vec.reset` takes no `starts`, an integer seeds
    the run as it does there, and a list is refused.

    Args:
        vec: what to show; this object closes it.
        max_entities: for types of entities whose number varies, the largest that it can be.
        max_actors: per action the largest number of actors; as many as at first when left out.
        illegal_actions: what becomes of choices that are not allowed.
        render_mode: "rgb_array", or None.

    Raises:
        SchemaError: the number of a type varies and `max_entities` does not name it, or nobody is
            asked for an action at first and `max_actors` does not name it.
        UsageError: several agents an environment, or a setting that makes no sense.
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
            everyone = np.ones(vec.num_envs, dtype=np.bool_)
            first = past_idle(_resettable(vec), first, everyone)
        self._entities = EntityLayout(vec.obs_space(), first, max_entities or {})
        self._actions = ActionLayout(
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
        """A picture of every environment, `(height, width, 3)` uint8; None without a render mode.

        Raises:
            NotImplementedError: environments that cannot be drawn.
        """
        if self.render_mode is None:
            return None
        return tuple(picture_of(self._vec, env_id) for env_id in range(self.num_envs))

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
        obs = self._vec.act(self._answer(actions))
        shown = self._shown(obs)
        infos = self._infos(np.ones(self.num_envs, dtype=np.bool_))
        flags = obs.terminated.copy(), obs.truncated.copy()
        if obs.final is not None:
            self._add_finals(infos, obs.final, *flags)
        return shown, obs.reward.astype(np.float64), *flags, infos

    def _answer(self, actions: object) -> VecActions:
        return self._actions.answer(self._obs, self._masks, actions)

    def _shown(self, obs: VecObs) -> dict[str, NDArray[Any]]:
        self._obs = obs
        self._masks = self._actions.masks(obs)
        return self._entities.observe(obs)

    def _infos(self, told: Flags) -> Infos:
        """The infos of all environments, as those of the ones that are told."""
        return vector_info(self._actions.info(self._masks), told)

    def _add_finals(self, infos: Infos, final: VecObs, terminated: Flags, truncated: Flags) -> None:
        """Adds last observations; the flags become those of the episodes that they are of."""
        last = self._entities.observe(final)
        final_obs = np.full(self.num_envs, None, dtype=object)
        ended = np.zeros(self.num_envs, dtype=np.bool_)
        for row, env_id in enumerate(final.env_id.tolist()):
            if ended[env_id]:
                continue  # an episode that was over at once: nobody played it
            ended[env_id] = True
            final_obs[env_id] = {key: array[row] for key, array in last.items()}
            terminated[env_id] = final.terminated[row]
            truncated[env_id] = final.truncated[row]
        nothing = self._actions.info({name: mask & False for name, mask in self._masks.items()})
        with_finals(infos, final_obs, vector_info(nothing, ended), ended)


def past_idle(vec: ResettableVec, obs: VecObs, mask: Flags) -> VecObs:
    """Goes on to episodes that ask something: Gymnasium cannot tell of one that is over at once.

    Raises:
        ProtocolError: there is none.
    """
    for _ in range(_MAX_IDLE_EPISODES):
        idle = obs.done & mask
        if not idle.any():
            return obs
        obs = vec.reset_envs(idle)
    raise ProtocolError(f"{_MAX_IDLE_EPISODES} episodes in a row were over before the first action")


def vector_info(info: Infos, told: Flags) -> Infos:
    """Infos of all environments as Gymnasium writes them: beside each key, who has it."""
    infos: Infos = {}
    for key, value in info.items():
        if isinstance(value, dict):
            infos[key] = vector_info(value, told)
        else:
            value[~told] = 0
            infos[key] = value
        infos[f"_{key}"] = told.copy()
    return infos


def start_of(seed: int) -> int:
    """The episode of the run of seed 0 with which a seed begins."""
    if seed >= _NUM_SEEDS:
        seed = int(np.random.SeedSequence(seed).generate_state(1)[0])
    return seed * _EPISODES_A_SEED


def require_one_agent(num_agents: int) -> None:
    """Checks how many agents an environment has.

    Raises:
        UsageError: more than one.
    """
    if num_agents != 1:
        raise UsageError(
            f"a Gymnasium environment has one agent, this game is for {num_agents}: step it as a "
            "VecEnv"
        )


def require_settings(illegal_actions: str, render_mode: str | None) -> None:
    """Checks what both kinds of environment can be told.

    Raises:
        UsageError: a setting that makes no sense.
    """
    if illegal_actions not in ("raise", "next"):
        raise UsageError(f'illegal_actions must be "raise" or "next": got {illegal_actions!r}')
    if render_mode not in (None, "rgb_array"):
        raise UsageError(f'render_mode must be "rgb_array" or None: got {render_mode!r}')


def picture_of(vec: Vec, env_id: int) -> NDArray[np.uint8]:
    """What one environment looks like.

    Raises:
        NotImplementedError: it cannot be drawn.
    """
    render = getattr(vec, "render", None)
    if render is None:
        raise NotImplementedError(f"{type(vec).__name__} has no render()")
    drawn: NDArray[np.uint8] = render(env_id)
    return drawn


def _resettable(vec: Any) -> ResettableVec:  # noqa: ANN401 - its mode says that it is one
    resettable: ResettableVec = vec
    return resettable
