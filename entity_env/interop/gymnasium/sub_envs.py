"""The environments inside a vector environment: checked results, and masks by a method."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any, TypeAlias

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from entity_env.interop.gymnasium.actions import ActionConverter
from entity_env.interop.gymnasium.masks import (
    MASK,
    METHOD,
    MaskReader,
    mask_method,
    outer_masks,
)
from entity_env.interop.gymnasium.spaces import fitted, leaves, value_of
from entity_env.interop.results import (
    ResultOf,
    call_reset,
    called,
    checked_reset,
    checked_step,
    number_or_nan,
)

AnyEnv: TypeAlias = gymnasium.Env[Any, Any]
Infos: TypeAlias = dict[str, Any]


class _CheckedCalls:
    """`reset` and `step` of an environment, which check what it returns.

    Infos have one flat mask, from the info and from `action_masks()`, unless the episode has
    terminated. Their numbers are floats: Gymnasium would convert those of all environments to the
    type of the first.

    Args:
        name: of the environment, for errors.
    """

    def __init__(self, env: AnyEnv, name: str) -> None:
        self._env = env
        self._step = env.step
        self._reset = env.reset
        self._in_step, self._in_reset = f"{name}: env.step", f"{name}: env.reset"
        self._masks = MaskReader(ActionConverter(env.action_space, "Action"), env)
        self._method = mask_method(env, name)
        self._space = env.observation_space  # the environment may replace it later
        self._leaves = list(leaves(self._space))

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        call = self._in_reset
        result = call_reset(self._reset, self._env, call, seed=seed, options=options)
        obs, info = checked_reset(result, call)
        return self._fitted(obs, call), self._read(info, call)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Infos]:  # noqa: ANN401
        call = self._in_step
        result = called(call, self._step, action)
        obs, reward, terminated, truncated, info = checked_step(result, call)
        obs = self._fitted(obs, call)
        read = self._read(info, call, terminated=terminated, truncated=truncated)
        if terminated or truncated:  # a reset in the same step may change the same arrays
            obs = deepcopy(obs)
        return obs, reward, terminated, truncated, read

    def _read(
        self,
        info: Mapping[str, Any],
        call: str,
        *,
        terminated: bool = False,
        truncated: bool = False,
    ) -> Infos:
        if not info and self._method is None:
            return {}
        read = {
            name: number if math.isfinite(number := number_or_nan(value)) else value
            for name, value in info.items()
            if name != MASK
        }
        with ResultOf(call):
            masks = {} if terminated else outer_masks(info, self._method)
            flags = self._masks.read_all(masks, may_block=truncated)
        if flags is not None:
            read[MASK] = flags
        return read

    def _fitted(self, obs: Any, call: str) -> Any:  # noqa: ANN401 - of the space
        """The observation with the shapes of its space."""
        with ResultOf(call):
            if not all(leaf.has_form(leaf.of(obs)) for leaf in self._leaves):
                return value_of(self._space, lambda leaf: fitted(leaf, leaf.of(obs)))
        return obs


def check_sub_envs(env: VectorEnv[Any, Any, Any], first_env: int) -> Callable[[], object] | None:
    """Makes the environments of a `SyncVectorEnv` check what they return.

    Args:
        first_env: index of the first environment, for errors.

    Returns:
        A function that returns one mask per environment, if other environments have a method
        `action_masks`.
    """
    inner: Any = env.unwrapped
    if isinstance(inner, SyncVectorEnv):
        for i, each in enumerate(inner.envs, first_env):
            if isinstance(getattr(each.step, "__self__", None), _CheckedCalls):
                continue  # by an earlier owner
            name = type(each.unwrapped).__name__ if each.spec is None else each.spec.id
            calls = _CheckedCalls(each, f"{name} (env {i})")
            # Not a wrapper: `env.envs` still holds the environments that the caller knows.
            for method in ("reset", "step"):
                setattr(each, method, getattr(calls, method))
        return None
    if not isinstance(inner, AsyncVectorEnv):
        return mask_method(inner, str(env))
    one = inner.env_fns[0]()
    try:
        return None if mask_method(one, str(env)) is None else lambda: list(inner.call(METHOD))
    finally:
        one.close()
