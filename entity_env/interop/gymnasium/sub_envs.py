"""The environments inside a vector environment: checked results, and masks by a method."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from operator import is_
from typing import Any, TypeAlias

import gymnasium
from gymnasium.vector import AsyncVectorEnv, SyncVectorEnv, VectorEnv

from entity_env.errors import SchemaError
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
    INFO,
    call_reset,
    checked_reset,
    checked_step,
    metrics_of,
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
        self._name = name
        self._step = env.step
        self._reset = env.reset
        self._masks = MaskReader(ActionConverter(env.action_space, "Action"), env)
        self._method = mask_method(env)
        self._leaves = list(leaves(env.observation_space))

    def reset(self, *, seed: int | None = None, options: Infos | None = None) -> tuple[Any, Infos]:
        call = f"{self._name}: env.reset"
        result = call_reset(self._reset, self._env, call, seed=seed, options=options)
        obs, info = checked_reset(result, call)
        return self._read(obs, info, call)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, Infos]:  # noqa: ANN401
        call = f"{self._name}: env.step"
        obs, reward, terminated, truncated, info = checked_step(self._step(action), call)
        obs, read = self._read(obs, info, call, terminated=terminated, truncated=truncated)
        if terminated or truncated:  # a reset in the same step may change the same arrays
            obs = deepcopy(obs)
        return obs, reward, terminated, truncated, read

    def _read(
        self,
        obs: Any,  # noqa: ANN401 - of the space
        info: Mapping[str, Any],
        call: str,
        *,
        terminated: bool = False,
        truncated: bool = False,
    ) -> tuple[Any, Infos]:
        numbers = metrics_of(info)
        read = {name: numbers.get(f"{INFO}{name}", value) for name, value in info.items()}
        read.pop(MASK, None)
        try:
            masks = {} if terminated else outer_masks(info, self._method)
            flags = self._masks.read_all(masks, may_block=truncated)
            fitting = self._fitted(obs)
        except SchemaError as error:
            raise SchemaError(f"{call}: {error}") from None
        return fitting, read if flags is None else {**read, MASK: flags}

    def _fitted(self, obs: Any) -> Any:  # noqa: ANN401 - of the space
        """The observation with the shapes of its space."""
        given = [leaf.of(obs) for leaf in self._leaves]
        parts = [fitted(leaf, part) for leaf, part in zip(self._leaves, given, strict=True)]
        if all(map(is_, given, parts)):
            return obs
        by_keys = {leaf.keys: part for leaf, part in zip(self._leaves, parts, strict=True)}
        return value_of(self._env.observation_space, lambda leaf: by_keys[leaf.keys])


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
        return mask_method(inner)
    one = inner.env_fns[0]()
    try:
        return None if mask_method(one) is None else lambda: list(inner.call(METHOD))
    finally:
        one.close()
