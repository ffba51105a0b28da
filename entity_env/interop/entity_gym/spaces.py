"""Conversion of spaces to and from entity-gym, and discretization of continuous actions."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, Final

import entity_gym.env as theirs
import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
)
from entity_env.errors import SchemaError, UsageError

MAX_CHOICES: Final = 4096
"""Maximum number of choices of a discretized action."""


class ActionGrid:
    """All combinations of `num_bins` evenly spaced values per number of an action.

    The values include both bounds.
    """

    def __init__(self, name: ActionName, space: ContinuousActionSpace, num_bins: int) -> None:
        num_choices = num_bins ** len(space) if num_bins >= 2 else 0
        if not 0 < num_choices <= MAX_CHOICES:
            raise UsageError(
                f"discretize[{name!r}] must be 2 or more, with at most {MAX_CHOICES} combinations: "
                f"got {num_bins} for each of {len(space)} numbers"
            )
        axes = [
            np.linspace(low, high, num_bins, dtype=np.float32)
            for low, high in zip(space.low, space.high, strict=True)
        ]
        rows = list(product(*axes))
        self.values: NDArray[np.float32] = np.array(rows, dtype=np.float32)
        """`(num_choices, num_labels)`, the last number varying fastest."""
        self.labels = [
            ",".join(f"{label}={value:g}" for label, value in zip(space.labels, row, strict=True))
            for row in rows
        ]
        if len(set(self.labels)) != len(self.labels):  # ":g" shows some values alike
            self.labels = [str(i) for i in range(len(rows))]


def action_grids(
    action_space: Mapping[ActionName, ActionSpace], discretize: Mapping[ActionName, int] | None
) -> dict[ActionName, ActionGrid]:
    """Grids of continuous actions; `discretize` gives the number of values per action."""
    wanted = dict(discretize or {})
    grids = {}
    for name, space in action_space.items():
        if not isinstance(space, ContinuousActionSpace):
            continue
        if name not in wanted:
            raise SchemaError(
                f"action {name!r} is continuous, which entity-gym does not support: "
                f"pass discretize={{{name!r}: 5}} to choose among 5 values of each number"
            )
        grids[name] = ActionGrid(name, space, wanted.pop(name))
    if wanted:
        raise UsageError(
            f"discretize names {', '.join(map(repr, wanted))}; the continuous actions are "
            f"{', '.join(map(repr, grids)) or 'none'}"
        )
    return grids


def their_obs_space(space: ObsSpace) -> Any:  # noqa: ANN401 - untyped
    """`ObsSpace` as an `entity_gym.env.ObsSpace`, in the same order."""
    return theirs.ObsSpace(
        global_features=list(space.global_features),
        entities={
            name: theirs.Entity(list(entity.features)) for name, entity in space.entities.items()
        },
    )


def their_action_space(
    action_space: Mapping[ActionName, ActionSpace], grids: Mapping[ActionName, ActionGrid]
) -> dict[ActionName, Any]:
    """Action spaces as entity-gym's, in the same order."""
    return {name: _theirs(name, space, grids) for name, space in action_space.items()}


def our_obs_space(space: Any) -> ObsSpace:  # noqa: ANN401 - untyped
    """An `entity_gym.env.ObsSpace` as an `ObsSpace`."""
    entities = {name: Entity(list(entity.features)) for name, entity in space.entities.items()}
    return ObsSpace(list(space.global_features), entities)


def our_action_space(action_space: Mapping[ActionName, Any]) -> dict[ActionName, ActionSpace]:
    """Action spaces of entity-gym as ours."""
    return {name: _ours(name, space) for name, space in action_space.items()}


def _theirs(name: ActionName, space: ActionSpace, grids: Mapping[ActionName, ActionGrid]) -> Any:  # noqa: ANN401 - untyped
    if isinstance(space, SelectEntityActionSpace):
        return theirs.SelectEntityActionSpace()
    if isinstance(space, ContinuousActionSpace):
        return theirs.CategoricalActionSpace(grids[name].labels)
    if isinstance(space, GlobalCategoricalActionSpace):
        return theirs.GlobalCategoricalActionSpace(list(space.index_to_label))
    return theirs.CategoricalActionSpace(list(space.index_to_label))


def _ours(name: ActionName, space: Any) -> ActionSpace:  # noqa: ANN401 - untyped
    if isinstance(space, theirs.SelectEntityActionSpace):
        return SelectEntityActionSpace()
    if isinstance(space, theirs.GlobalCategoricalActionSpace):
        return GlobalCategoricalActionSpace(list(space.index_to_label))
    if isinstance(space, theirs.CategoricalActionSpace):
        return CategoricalActionSpace(list(space.index_to_label))
    raise SchemaError(f"action {name!r}: entity-gym has no action space {space!r}")
