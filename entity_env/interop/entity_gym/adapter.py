"""What environments of entity-gym show and are told, one by one and for many of them at once."""

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


def our_observation(shown: Any) -> Observation:  # noqa: ANN401 - entity-gym ships no types
    """An observation of theirs as one of ours."""
    observation = Observation.__new__(Observation)  # half the time of a call with ten keywords
    observation.terminated = bool(shown.done)
    observation.truncated = False
    observation.reward = shown.reward
    observation.global_features = shown.global_features
    observation.features = shown.features
    observation.ids = ids = shown.ids
    observation.actions = {name: _our_mask(name, mask, ids) for name, mask in shown.actions.items()}
    observation.visible = shown.visible
    observation.metrics = shown.metrics
    return observation


_ANYTHING: Final = GlobalCategoricalActionMask()


def _our_mask(name: ActionName, mask: Any, ids: Mapping[EntityName, Any]) -> ActionMask:  # noqa: ANN401 - entity-gym ships no types
    allowed = mask.mask
    if isinstance(mask, theirs.GlobalCategoricalActionMask):
        return _ANYTHING if allowed is None else GlobalCategoricalActionMask(allowed)
    actors, types = _whom(mask.actor_ids, mask.actor_types, ids)
    if isinstance(mask, theirs.CategoricalActionMask):
        return CategoricalActionMask(actors, types, allowed)
    if isinstance(mask, theirs.SelectEntityActionMask):
        actees, actee_types = _whom(mask.actee_ids, mask.actee_types, ids)
        return SelectEntityActionMask(actors, types, actee_types, actees, allowed)
    raise SchemaError(f"action {name!r}: entity-gym has no mask {mask!r}")


def _whom(asked: Any, types: Any, ids: Mapping[EntityName, Any]) -> tuple[Any, Any]:  # noqa: ANN401 - entity-gym ships no types
    """Ids and types that a mask names; the ids of all entities of one type are named by it."""
    if type(asked) is list:
        same = [name for name, known in ids.items() if _are(asked, known)]
        if len(same) == 1:  # ids that two types share mean neither: whoever looks them up says so
            return None, (same[0],)
    return asked, types


def _are(asked: list[EntityID], known: Any) -> bool:  # noqa: ANN401 - entity-gym ships no types
    """The ids that are asked for are those of all entities of a type."""
    return asked is known or (
        type(known) is list and len(asked) == len(known) and bool(asked) and asked == known
    )


def _type_named(
    asked: Sequence[Any], ids: Sequence[Mapping[EntityName, Sequence[EntityID]]]
) -> EntityName | None:
    """As `_whom` of all of them, if it is the same type everywhere."""
    if set(map(type, asked)) != {list}:
        return None
    _, named = _whom(asked[0], None, ids[0])
    if named is None:
        return None
    only: EntityName = named[0]
    for name in set(chain.from_iterable(ids)):
        known = [each.get(name) for each in ids]
        is_only = name == only
        if not _are_alike(asked, known) if is_only else any(map(eq, asked, known)):
            each = zip(asked, known, strict=True)
            if any(_are(one, all_of_them) is not is_only for one, all_of_them in each):
                return None
    return only


def _are_alike(asked: Sequence[Any], known: Sequence[Any]) -> bool:
    """Everywhere these are the ids of all entities; false also of what must be looked at closer."""
    if all(map(is_, asked, known)):
        return True
    return asked == known and set(map(type, known)) == {list} and all(asked)


def _their_actions(
    name: ActionName,
    space: ActionSpace,
    asked: Sequence[Asked],
    values: Sequence[Any] | NDArray[Any],
) -> Iterator[Any]:
    """As `actions_of`; none is the same object as another, since theirs can be changed."""
    require_one_an_actor(name, asked, values)
    actors = [each for _, each, _ in asked]
    if isinstance(space, GlobalCategoricalActionSpace):
        chosen, labels = list(map(int, values)), space.index_to_label
        return map(theirs.GlobalCategoricalAction, chosen, map(labels.__getitem__, chosen))
    if isinstance(space, CategoricalActionSpace):
        indices = shares(actors, np.asarray(values, dtype=np.int64))
        return map(theirs.CategoricalAction, actors, indices, repeat(list(space.index_to_label)))
    return map(theirs.SelectEntityAction, actors, selected(asked, values))


def _flags(shown: Any) -> tuple[bool, bool]:  # noqa: ANN401 - entity-gym ships no types
    return bool(shown.done), False


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
"""Of every `entity_gym.env.Environment`."""
