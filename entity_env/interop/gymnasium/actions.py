"""Action spaces of Gymnasium as actions: every leaf of a space is one action, or several."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

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
from entity_env.interop.gymnasium.spaces import AnySpace, Leaf, by_name, joined, leaves, value_of

_MAX_VALUES: Final = 1024
"""Most integers of an element of a `Box`, each of which is a choice."""


class ActionConverter:
    """Converts actions to values of a Gymnasium space; `UsageError` for unsupported spaces.

    A `Dict` or `Tuple` has the actions of its leaves, with dotted names.
    """

    def __init__(self, space: AnySpace, name: ActionName) -> None:
        self.space = space
        self.name = name
        self._of_leaf = {
            leaf.keys: _action_spaces(leaf.space, joined(name, leaf.keys)) for leaf in leaves(space)
        }
        self.spaces = by_name(pair for of in self._of_leaf.values() for pair in of.items())
        self.has_numbers = any(isinstance(s, ContinuousActionSpace) for s in self.spaces.values())
        """True if any action is continuous: its actor must be an entity."""
        if not self.spaces:
            raise UsageError(f"actions are a {space}, which leaves nothing to choose")

    def names_of(self, leaf: Leaf) -> list[ActionName]:
        """The actions that a leaf of the space consists of, in order."""
        return list(self._of_leaf[leaf.keys])

    def batch(self, values: Mapping[ActionName, NDArray[Any]], ready: NDArray[np.bool_]) -> Any:  # noqa: ANN401 - of the batched space
        """Batched actions; arbitrary for environments that are not `ready`."""
        return value_of(self.space, lambda leaf: self._actions(leaf, values, ready))

    def one(self, values: Mapping[ActionName, Any]) -> Any:  # noqa: ANN401 - of the space
        arrays = {name: np.asarray([value]) for name, value in values.items()}
        ready = np.ones(1, np.bool_)

        def of_leaf(leaf: Leaf) -> Any:  # noqa: ANN401 - of the leaf's space
            actions = self._actions(leaf, arrays, ready)
            # A number of a `Box` stays an array.
            return actions[0, ...] if isinstance(leaf.space, spaces.Box) else actions[0]

        return value_of(self.space, of_leaf)

    def _actions(
        self, leaf: Leaf, values: Mapping[ActionName, NDArray[Any]], ready: NDArray[np.bool_]
    ) -> NDArray[Any]:
        return _leaf_actions(leaf.space, [values[name] for name in self._of_leaf[leaf.keys]], ready)


def _leaf_actions(
    space: AnySpace, given: Sequence[NDArray[Any]], ready: NDArray[np.bool_]
) -> NDArray[Any]:
    num_envs = len(ready)
    if isinstance(space, spaces.Box) and _is_continuous(space):
        numbers = np.tile(space.low.ravel(), (num_envs, 1))
        if given:
            free = np.flatnonzero(space.low < space.high)
            low, high = space.low.ravel()[free], space.high.ravel()[free]
            # A float32 at a bound may exceed it by half a unit in the last place.
            numbers[np.ix_(ready, free)] = np.clip(given[0].reshape(-1, len(free)), low, high)
        return numbers.reshape(num_envs, *space.shape)
    chosen = np.zeros((num_envs, len(given)), dtype=space.dtype)
    for i, values in enumerate(given):
        chosen[ready, i] = values
    start = space.low if isinstance(space, spaces.Box) else getattr(space, "start", 0)
    return np.asarray(chosen.reshape(num_envs, *(space.shape or ())) + start, dtype=space.dtype)


def _is_continuous(space: spaces.Box) -> bool:
    return bool(np.issubdtype(space.dtype, np.floating))


def _action_spaces(space: AnySpace, name: ActionName) -> dict[ActionName, ActionSpace]:
    match space:
        case spaces.Discrete():
            return {name: _choice(int(space.start), int(space.n))}
        case spaces.MultiDiscrete():
            pairs = zip(space.start.ravel().tolist(), space.nvec.ravel().tolist(), strict=True)
            return {f"{name}.{i}": _choice(start, n) for i, (start, n) in enumerate(pairs)}
        case spaces.MultiBinary():
            return {f"{name}.{i}": _choice(0, 2) for i in range(int(np.prod(space.shape)))}
        case spaces.Box() if _is_continuous(space):
            return _numbers_of(space, name)
        case spaces.Box():
            return _integers_of(space, name)
    raise UsageError(
        f"the action {name!r} is a {space}: expected a Discrete, MultiDiscrete, MultiBinary or "
        "Box, or a Dict or Tuple of them: wrap the environment so that it is one"
    )


def _numbers_of(space: spaces.Box, name: ActionName) -> dict[ActionName, ActionSpace]:
    """A continuous action of the numbers that are not constant; none if all are."""
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        box = f"gymnasium.spaces.Box(-1, 1, {space.shape})"
        how = f"gymnasium.wrappers.TransformAction(env, lambda action: action, {box})"
        raise UsageError(
            f"the action {name!r} is a {space}, which has no bounds: choose bounds in a wrapper, "
            f"such as {how}; if it is a part of the action space, give the wrapper a whole space"
        )
    free = space.low < space.high
    if not free.any():
        return {}
    labels = [joined("", index) for index in np.ndindex(space.shape) if free[index]]
    bounds = space.low[free].tolist(), space.high[free].tolist()
    return {name: ContinuousActionSpace(*bounds, labels)}


def _integers_of(space: spaces.Box, name: ActionName) -> dict[ActionName, ActionSpace]:
    """A choice for every integer of a `Box`, as of a `MultiDiscrete`."""
    lows, highs = (list(map(int, bound.flat)) for bound in (space.low, space.high))
    counts = [high - low + 1 for low, high in zip(lows, highs, strict=True)]
    if max(counts, default=0) > _MAX_VALUES:
        raise UsageError(
            f"the action {name!r} is a {space}, where one integer has {max(counts):,} values: wrap "
            f"the environment in one with at most {_MAX_VALUES:,} choices, or with a Box of floats"
        )
    choices = [_choice(low, count) for low, count in zip(lows, counts, strict=True)]
    if not space.shape:
        return {name: choices[0]}
    return {f"{name}.{i}": each for i, each in enumerate(choices)}


def _choice(start: int, count: int) -> GlobalCategoricalActionSpace:
    return GlobalCategoricalActionSpace([str(start + i) for i in range(count)])
