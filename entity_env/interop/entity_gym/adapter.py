"""Adapter for entity-gym: converts its observations, masks and actions, singly and in bulk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from operator import eq, is_
from typing import Any, Final

import entity_gym.env as theirs
import numpy as np
from numpy.typing import NDArray

from entity_env.batching.adapter import Adapter
from entity_env.core.action_request import Asked, require_one_an_actor, selected, shares
from entity_env.core.observation import (
    ActionMask,
    CategoricalActionMask,
    EntityID,
    GlobalCategoricalActionMask,
    Observation,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    EntityName,
    GlobalCategoricalActionSpace,
)
from entity_env.errors import SchemaError


def our_observation(obs: Any) -> Observation:  # noqa: ANN401 - entity-gym ships no types
    """An `entity_gym.env.Observation` as an `Observation`."""
    observation = Observation.__new__(Observation)  # half the time of a call with ten keywords
    observation.terminated = bool(obs.done)
    observation.truncated = False
    observation.reward = obs.reward
    observation.global_features = obs.global_features
    observation.features = obs.features
    observation.ids = ids = obs.ids
    observation.actions = {name: _our_mask(name, mask, ids) for name, mask in obs.actions.items()}
    observation.visible = obs.visible
    observation.metrics = obs.metrics
    return observation


_UNRESTRICTED: Final = GlobalCategoricalActionMask()


def _our_mask(name: ActionName, mask: Any, ids: Mapping[EntityName, Any]) -> ActionMask:  # noqa: ANN401 - entity-gym ships no types
    allowed = mask.mask
    if isinstance(mask, theirs.GlobalCategoricalActionMask):
        return _UNRESTRICTED if allowed is None else GlobalCategoricalActionMask(allowed)
    actors, types = _selector(mask.actor_ids, mask.actor_types, ids)
    if isinstance(mask, theirs.CategoricalActionMask):
        return CategoricalActionMask(actors, types, allowed)
    if isinstance(mask, theirs.SelectEntityActionMask):
        actees, actee_types = _selector(mask.actee_ids, mask.actee_types, ids)
        return SelectEntityActionMask(actors, types, actee_types, actees, allowed)
    raise SchemaError(f"action {name!r}: entity-gym has no mask {mask!r}")


def _selector(chosen: Any, types: Any, ids: Mapping[EntityName, Any]) -> tuple[Any, Any]:  # noqa: ANN401 - entity-gym ships no types
    """Ids and types of a mask's actors or actees; a type replaces the ids of all its entities."""
    if type(chosen) is list:
        same = [name for name, known in ids.items() if _are_all(chosen, known)]
        if len(same) == 1:  # ids of two types are an error, raised when they are looked up
            return None, (same[0],)
    return chosen, types


def _are_all(chosen: list[EntityID], known: Any) -> bool:  # noqa: ANN401 - entity-gym ships no types
    """Whether the chosen ids are those of all entities of a type."""
    return chosen is known or (
        type(known) is list and len(chosen) == len(known) and bool(chosen) and chosen == known
    )


def _type_named(
    chosen: Sequence[Any], ids: Sequence[Mapping[EntityName, Sequence[EntityID]]]
) -> EntityName | None:
    """The type that `_selector` finds for every observation, if it is always the same."""
    if set(map(type, chosen)) != {list}:
        return None
    _, named = _selector(chosen[0], None, ids[0])
    if named is None:
        return None
    only: EntityName = named[0]
    for name in set(chain.from_iterable(ids)):
        known = [each.get(name) for each in ids]
        is_only = name == only
        if not _are_alike(chosen, known) if is_only else any(map(eq, chosen, known)):
            each = zip(chosen, known, strict=True)
            if any(_are_all(some, of_type) is not is_only for some, of_type in each):
                return None
    return only


def _are_alike(chosen: Sequence[Any], known: Sequence[Any]) -> bool:
    """A fast check of `_are_all` for every pair; False may also mean unknown."""
    if all(map(is_, chosen, known)):
        return True
    return chosen == known and set(map(type, known)) == {list} and all(chosen)


def _their_actions(
    name: ActionName,
    space: ActionSpace,
    asked: Sequence[Asked],
    values: Sequence[Any] | NDArray[Any],
) -> Iterator[Any]:
    """As `legal_actions`, but a new object for each, since entity-gym's are mutable."""
    require_one_an_actor(name, asked, values)
    actors = [each for _, each, _ in asked]
    if isinstance(space, GlobalCategoricalActionSpace):
        chosen, labels = list(map(int, values)), space.index_to_label
        return map(theirs.GlobalCategoricalAction, chosen, map(labels.__getitem__, chosen))
    if isinstance(space, CategoricalActionSpace):
        indices = shares(actors, np.asarray(values, dtype=np.int64))
        return map(theirs.CategoricalAction, actors, indices, repeat(list(space.index_to_label)))
    return map(theirs.SelectEntityAction, actors, selected(asked, values))


def _flags(obs: Any) -> tuple[bool, bool]:  # noqa: ANN401 - entity-gym ships no types
    return bool(obs.done), False


THEIRS: Final = Adapter(
    observation=our_observation,
    flags=_flags,
    masks={
        theirs.CategoricalActionMask: CategoricalActionMask,
        theirs.GlobalCategoricalActionMask: GlobalCategoricalActionMask,
        theirs.SelectEntityActionMask: SelectEntityActionMask,
    },
    actions=_their_actions,
    type_named=_type_named,
)
