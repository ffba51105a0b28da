"""Masks and actions of a whole batch: what is legal, before anything is performed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.action_request import require_in_bounds
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    GlobalCategoricalActionSpace,
)
from entity_env.core.vec_obs import (
    VecActionMask,
    VecActions,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)
from entity_env.errors import SchemaError

_INT64: Final = np.dtype(np.int64)


def narrowed(mask: VecActionMask, earlier: NDArray[Any]) -> VecActionMask:
    """The mask after the choices of the action on which it depends, without `per_actor`.

    Args:
        earlier: `(num_actors,)` int64 choices of that action, by the same actors.
    """
    if isinstance(mask, VecContinuousActionMask) or mask.per_actor is None:
        return mask
    if mask.mask is None:
        return replace(mask, per_actor=None)
    rows = mask.actors.row_index
    if len(earlier) != len(rows):
        raise SchemaError(
            f"an action that depends on another needs the same actors: got {len(rows)}, but "
            f"{len(earlier)} of the other"
        )
    counts = mask.per_actor.values[rows]
    place = np.cumsum(counts) - counts + earlier
    values, lengths = mask.mask.values, mask.actors.lengths
    if isinstance(mask, VecSelectEntityActionMask):
        widths = mask.actees.lengths[rows]
        lengths = lengths * mask.actees.lengths
        sizes = counts * widths
        starts = np.cumsum(sizes) - sizes + earlier * widths
        ends = np.cumsum(widths)
        place = np.repeat(starts - ends + widths, widths) + np.arange(int(widths.sum()))
    return replace(mask, mask=RaggedArray.unchecked(values[place], lengths), per_actor=None)


def choices_without_next(mask: VecActionMask, before: VecActionMask) -> Iterator[tuple[int, int]]:
    """Legal choices of an action after which the mask of the next one allows nothing.

    Args:
        mask: of the next action, with `per_actor`.
        before: of the action on which it depends.

    Yields:
        The actor, an index into `actors.values`, and its choice.
    """
    if isinstance(mask, VecContinuousActionMask) or mask.mask is None or mask.per_actor is None:
        return
    counts = mask.per_actor.values[mask.actors.row_index]
    values = mask.mask.values
    is_open: NDArray[Any]
    if isinstance(mask, VecSelectEntityActionMask):
        widths = np.repeat(mask.actees.lengths[mask.actors.row_index], counts)
        starts = np.cumsum(widths) - widths
        is_open = np.asarray(np.logical_or.reduceat(values, starts)) if len(widths) else values
    else:
        is_open = np.asarray(values.any(axis=1))
    ends = np.cumsum(counts)
    for place in np.flatnonzero(np.logical_not(is_open)).tolist():
        actor = int(np.searchsorted(ends, place, side="right"))
        choice = place - int(ends[actor] - counts[actor])
        if _may_choose(before, actor, choice):
            yield actor, choice


def _may_choose(mask: VecActionMask, actor: int, choice: int) -> bool:
    """Whether an actor may make a choice, after some choice of an action before."""
    if isinstance(mask, VecContinuousActionMask) or mask.mask is None:
        return True
    rows = mask.actors.row_index
    counts = np.ones_like(rows) if mask.per_actor is None else mask.per_actor.values[rows]
    first, count = int(counts[:actor].sum()), int(counts[actor])
    if isinstance(mask, VecSelectEntityActionMask):
        widths = mask.actees.lengths[rows]
        first, width = int((counts * widths)[:actor].sum()), int(widths[actor])
        own = mask.mask.values[first : first + count * width].reshape(count, width)
        return bool(own[:, choice].any())
    return bool(mask.mask.values[first : first + count, choice].any())


def checked_vec_actions(
    actions: VecActions,
    masks: Mapping[ActionName, VecActionMask],
    action_space: Mapping[ActionName, ActionSpace],
    where: Callable[[int], str],
) -> dict[ActionName, NDArray[Any]]:
    """The values of every action, one per actor, in mask order.

    Raises:
        SchemaError: an action is unknown or missing, has the wrong number of values or dtype, is
            out of range, or is forbidden by the masks. If one row is at fault, the message names
            it with `where`.
    """
    if not isinstance(actions, Mapping):
        raise SchemaError(
            f"actions must be a mapping from the name of each action to its values, one per actor: "
            f"got a {type(actions).__name__}"
        )
    unknown = [name for name in actions if name not in action_space]
    if unknown:
        raise SchemaError(
            f"action {unknown[0]!r} is not in the action space, which has "
            f"{', '.join(action_space) or 'none'}"
        )
    checked: dict[ActionName, NDArray[Any]] = {}
    for name, space in action_space.items():
        mask = masks[name]
        if space.given:
            mask = narrowed(mask, checked[space.given[-1]])
        checked[name] = _checked(name, actions.get(name), mask, space, where)
    return checked


def _checked(
    name: ActionName,
    given: RaggedArray[Any] | NDArray[Any] | None,
    mask: VecActionMask,
    space: ActionSpace,
    where: Callable[[int], str],
) -> NDArray[Any]:
    num_actors = len(mask.actors.values)
    if given is None:
        if num_actors:
            first = int(np.flatnonzero(mask.actors.lengths)[0])
            raise SchemaError(
                f"action {name!r} is missing: {num_actors} actors wait for it, the first in "
                f"{where(first)}"
            )
        return np.zeros(0, dtype=np.int64)
    values = _flat(name, given, mask, where)
    if isinstance(space, ContinuousActionSpace):
        _require_in_bounds(name, space, values, mask, where)
        return values
    _require_choices(name, values, num_actors)
    if isinstance(mask, VecCategoricalActionMask) and mask.mask is None and num_actors:
        num_choices = len(space)  # type: ignore[arg-type]  # categorical
        if _are_below(num_choices, values):
            return values
    if isinstance(mask, VecSelectEntityActionMask):
        limits = mask.actees.lengths[mask.actors.row_index]
    else:
        limits = np.full(num_actors, len(space))  # type: ignore[arg-type]  # not a select action
    legal = (values >= 0) & (values < limits)
    _require_all(name, space, legal, values, mask, where, "expected 0 to {last}", limits)
    allowed = _allowed(values, mask)
    if allowed is not None:
        _require_all(name, space, allowed, values, mask, where, "which its mask forbids", limits)
    return values


def _are_below(limit: int, values: NDArray[Any]) -> bool:
    if values.dtype == _INT64:  # one comparison: read as unsigned, a negative number is large
        return bool(np.maximum.reduce(values.view(np.uint64)) < limit)
    return bool(np.minimum.reduce(values) >= 0 and np.maximum.reduce(values) < limit)


def _flat(
    name: ActionName,
    given: RaggedArray[Any] | NDArray[Any],
    mask: VecActionMask,
    where: Callable[[int], str],
) -> NDArray[Any]:
    if isinstance(given, RaggedArray):
        wanted = mask.actors.lengths
        if len(given.lengths) != len(wanted):
            raise SchemaError(
                f"action {name!r} needs {len(wanted)} rows, one per agent: got {len(given.lengths)}"
            )
        wrong = np.flatnonzero(given.lengths != wanted)
        if len(wrong):
            row = int(wrong[0])
            raise SchemaError(
                f"action {name!r}: {where(row)} has {wanted[row]} actors, "
                f"got {given.lengths[row]} values"
            )
        values = given.values
    else:
        values = _as_array(name, given)
    num_actors = len(mask.actors.values)
    if values.ndim == 0 or len(values) != num_actors:
        came = "a single number" if values.ndim == 0 else str(len(values))
        raise SchemaError(f"action {name!r} needs {num_actors} values, one per actor: got {came}")
    return values


def _as_array(name: ActionName, given: object) -> NDArray[Any]:
    try:
        return np.asarray(given)
    except (TypeError, ValueError, RuntimeError) as error:  # ragged lists, tensors on a device
        raise SchemaError(f"action {name!r} needs an array of values: {error}") from error


def _require_choices(name: ActionName, values: NDArray[Any], num_actors: int) -> None:
    if values.dtype.kind not in "iu" and len(values):
        raise SchemaError(f"action {name!r} needs integers, got {values.dtype}")
    if values.shape != (num_actors,) and values.size:
        raise SchemaError(
            f"action {name!r} needs the shape ({num_actors},), one value per actor: "
            f"got {values.shape}"
        )


def _require_in_bounds(
    name: ActionName,
    space: ContinuousActionSpace,
    values: NDArray[Any],
    mask: VecActionMask,
    where: Callable[[int], str],
) -> None:
    try:
        require_in_bounds(name, space, values)
    except SchemaError:
        if values.shape == (len(values), len(space)) and values.dtype.kind in "fiub":
            for row, (first, last) in enumerate(pairwise(mask.actors.offsets.tolist())):
                _require_in_bounds_at(where(row), name, space, values[first:last])
        raise


def _require_in_bounds_at(
    place: str, name: ActionName, space: ContinuousActionSpace, values: NDArray[Any]
) -> None:
    try:
        require_in_bounds(name, space, values)
    except SchemaError as error:
        raise SchemaError(f"{place}: {error}") from None


def _allowed(values: NDArray[np.int64], mask: VecActionMask) -> NDArray[np.bool_] | None:
    """`(num_actors,) bool`, True = the mask allows the choice; None without a mask."""
    if isinstance(mask, VecCategoricalActionMask) and mask.mask is not None:
        allowed: NDArray[np.bool_] = mask.mask.values[np.arange(len(values)), values]
        return allowed
    if isinstance(mask, VecSelectEntityActionMask) and mask.mask is not None:
        widths = mask.actees.lengths[mask.actors.row_index]
        return np.asarray(mask.mask.values[np.cumsum(widths) - widths + values])
    return None


def _require_all(
    name: ActionName,
    space: ActionSpace,
    legal: NDArray[np.bool_],
    values: NDArray[np.int64],
    mask: VecActionMask,
    where: Callable[[int], str],
    why: str,
    limits: NDArray[np.int64],
) -> None:
    if legal.all():
        return
    i = int(np.flatnonzero(~legal)[0])
    row = int(mask.actors.row_index[i])
    is_global = isinstance(space, GlobalCategoricalActionSpace)
    actor = "" if is_global else f"actor {i - int(mask.actors.offsets[row])} of "
    raise SchemaError(
        f"action {name!r}: {actor}{where(row)} chose {values[i]}, " + why.format(last=limits[i] - 1)
    )
