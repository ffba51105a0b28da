"""Conversion from Gymnasium's spaces: observations to features, and actions in both directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
)
from entity_env.errors import UsageError


def feature_names(space: spaces.Space[Any], prefix: str = "") -> list[str]:
    """A name for each column of `flatten_observations`, such as `position.0` or `mode=2`."""
    match space:
        case spaces.Dict():
            return [
                name for key, part in space.spaces.items() for name in _below(part, prefix, key)
            ]
        case spaces.Tuple():
            return [name for i, part in enumerate(space.spaces) for name in _below(part, prefix, i)]
        case spaces.Discrete():
            return [f"{_joined(prefix, ())}={space.start + i}" for i in range(int(space.n))]
        case spaces.MultiDiscrete():
            return [
                f"{_joined(prefix, index)}={space.start[index] + i}"
                for index in np.ndindex(space.nvec.shape)
                for i in range(int(space.nvec[index]))
            ]
        case spaces.Box() | spaces.MultiBinary():
            return [_joined(prefix, index) for index in np.ndindex(space.shape)]
    raise UsageError(
        f"the observation {prefix or 'of this environment'} is a {space}, which has no fixed size: "
        "wrap the environment so that it is a Box"
    )


def flatten_observations(
    space: spaces.Space[Any],
    batch: Any,  # noqa: ANN401 - of that space
    num_rows: int,
) -> NDArray[np.float32]:
    """Batched observations of a single space as `(num_rows, num_features)` float32."""
    match space:
        case spaces.Dict():
            return _side_by_side(
                [flatten_observations(p, batch[k], num_rows) for k, p in space.spaces.items()]
            )
        case spaces.Tuple():
            pairs = zip(space.spaces, batch, strict=True)
            return _side_by_side(
                [flatten_observations(part, values, num_rows) for part, values in pairs]
            )
        case spaces.Discrete():
            return _one_hot(np.asarray(batch) - space.start, int(space.n))
        case spaces.MultiDiscrete():
            chosen = (np.asarray(batch) - space.start).reshape(num_rows, -1)
            return _side_by_side(
                [_one_hot(chosen[:, i], int(n)) for i, n in enumerate(space.nvec.ravel())]
            )
    return np.asarray(batch, dtype=np.float32).reshape(num_rows, -1)


class ActionConverter:
    """Converts actions to those of a Gymnasium space.

    A `Discrete` is one choice, called `name`; a `MultiDiscrete` or `MultiBinary` one choice per
    element, `name.0` and so on; a bounded `Box` of floats a continuous action. Other spaces raise
    `UsageError`.
    """

    def __init__(self, space: spaces.Space[Any], name: ActionName) -> None:
        self._space = space
        self._name = name
        self.spaces: dict[ActionName, ActionSpace] = _action_spaces(space, name)
        """The action space."""

    def batch(
        self, values: Mapping[ActionName, NDArray[Any]], ready: NDArray[np.bool_]
    ) -> NDArray[Any]:
        """Actions for all environments, as in the batched space.

        `values` has one value or row of numbers per environment that is `ready`, `(num_envs,)`; the
        others get any valid action.
        """
        space, num_envs = self._space, len(ready)
        if isinstance(space, spaces.Box):
            numbers = np.tile(space.low, (num_envs, *([1] * space.low.ndim)))
            given = values[self._name].reshape(-1, *space.shape)
            # A float32 at a bound may lie beyond it by half a unit in the last place.
            numbers[ready] = np.clip(given, space.low, space.high)
            return numbers
        chosen = np.zeros((num_envs, len(self.spaces)), dtype=space.dtype)
        for i, name in enumerate(self.spaces):
            chosen[ready, i] = values[name]
        start = getattr(space, "start", 0)
        if isinstance(space, spaces.Discrete):
            return np.asarray(chosen[:, 0] + start, dtype=space.dtype)
        return np.asarray(chosen.reshape(num_envs, *(space.shape or ())) + start, dtype=space.dtype)


def _action_spaces(space: spaces.Space[Any], name: ActionName) -> dict[ActionName, ActionSpace]:
    match space:
        case spaces.Discrete():
            return {name: _choice(int(space.start), int(space.n))}
        case spaces.MultiDiscrete():
            pairs = zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True)
            return {f"{name}.{i}": _choice(start, n) for i, (start, n) in enumerate(pairs)}
        case spaces.MultiBinary():
            return {f"{name}.{i}": _choice(0, 2) for i in range(int(np.prod(space.shape)))}
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
                raise UsageError(
                    f"actions are a {space}, which has no bounds: wrap the environment in "
                    "gymnasium's RescaleAction, or in a wrapper of yours that sets bounds"
                )
            labels = [_joined("", index) for index in np.ndindex(space.shape)]
            return {name: ContinuousActionSpace(*_bounds(space), labels)}
    raise UsageError(
        f"actions are a {space}: expected a Discrete, MultiDiscrete, MultiBinary or a Box of floats"
    )


def _choice(start: int, count: int) -> GlobalCategoricalActionSpace:
    return GlobalCategoricalActionSpace([str(start + i) for i in range(count)])


def _bounds(space: spaces.Box) -> tuple[Sequence[float], Sequence[float]]:
    return space.low.ravel().tolist(), space.high.ravel().tolist()


def _below(space: spaces.Space[Any], prefix: str, key: object) -> list[str]:
    return feature_names(space, f"{prefix}.{key}" if prefix else str(key))


def _joined(prefix: str, index: tuple[int, ...]) -> str:
    return ".".join([*filter(None, [prefix]), *map(str, index)]) or "value"


def _one_hot(chosen: NDArray[Any], count: int) -> NDArray[np.float32]:
    return np.asarray(np.arange(count) == chosen.reshape(-1, 1), dtype=np.float32)


def _side_by_side(parts: list[NDArray[np.float32]]) -> NDArray[np.float32]:
    return np.concatenate(parts, axis=1)
