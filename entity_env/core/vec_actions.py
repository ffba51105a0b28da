"""Masks and actions of a whole batch: what is legal, before anything is performed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.core.action_request import no_choice_after, require_in_bounds
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
    counts, values = mask.per_actor.values[mask.actors.row_index], mask.mask.values
    if isinstance(mask, VecSelectEntityActionMask):
        widths = np.repeat(mask.actees.lengths[mask.actors.row_index], counts)
        place = np.repeat(np.arange(len(widths)), widths)
        is_stuck = np.bincount(place[values], minlength=len(widths)) == 0
    else:
        is_stuck = np.logical_not(values.any(axis=1))
    legal = getattr(after_any_choice(before), "mask", None)
    if legal is not None:
        is_stuck &= legal.values.reshape(-1)
    ends = np.cumsum(counts)
    for stuck in np.flatnonzero(is_stuck).tolist():
        actor = int(np.searchsorted(ends, stuck, side="right"))
        yield actor, stuck - int(ends[actor] - counts[actor])


def row_without_next(
    name: ActionName,
    space: ActionSpace,
    mask: VecActionMask,
    before: VecActionMask,
    of: ActionSpace,
) -> tuple[int, SchemaError] | None:
    """Row with a legal choice after which nothing is allowed, and its error; None if there is none.

    Args:
        name, space, mask: of an action that depends on another.
        before, of: mask and space of the other action.
    """
    for actor, choice in choices_without_next(mask, before):
        row = int(mask.actors.row_index[actor])
        is_alone = mask.actors.lengths[row] == 1
        place = None if is_alone else actor - int(mask.actors.offsets[row])
        return row, no_choice_after(name, space, place, of, choice)
    return None


def after_any_choice(mask: VecActionMask) -> VecActionMask:
    """The mask that allows what is legal after at least one choice before, without `per_actor`."""
    if isinstance(mask, VecContinuousActionMask) or mask.per_actor is None:
        return mask
    if mask.mask is None:
        return replace(mask, per_actor=None)
    found, lengths = _num_before(mask) > 0, mask.actors.lengths
    if isinstance(mask, VecSelectEntityActionMask):
        lengths = lengths * mask.actees.lengths
    return replace(mask, mask=RaggedArray.unchecked(found, lengths), per_actor=None)


def _num_before(
    mask: VecCategoricalActionMask | VecSelectEntityActionMask,
) -> NDArray[np.int64]:
    """Number of choices before after which a choice is legal, in the shape of a plain mask."""
    rows = mask.actors.row_index
    counts, values = mask.per_actor.values[rows], mask.mask.values  # type: ignore[union-attr]
    if isinstance(mask, VecCategoricalActionMask):
        sums = np.zeros((len(values) + 1, values.shape[1]), np.int64)
        np.cumsum(values, axis=0, out=sums[1:])
        ends = np.cumsum(counts)
        return np.asarray(sums[ends] - sums[ends - counts])
    widths = mask.actees.lengths[rows]
    return np.bincount(_plain_places(counts, widths)[values], minlength=int(widths.sum()))


def _plain_places(counts: NDArray[np.int64], widths: NDArray[np.int64]) -> NDArray[np.int64]:
    """For each flag of a mask with `counts` rows of `widths` per actor, its index in a plain mask.

    Arguments are `(num_actors,)`.
    """
    sizes = counts * widths
    within = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    starts = np.cumsum(widths) - widths
    return np.asarray(np.repeat(starts, sizes) + within % np.repeat(widths, sizes))


def repeated(
    action: ActionName, mask: VecActionMask, per_actor: NDArray[np.int64] | None
) -> VecActionMask:
    """The mask with a row for every choice before, whatever that choice is.

    Args:
        per_actor: `(num_rows,)` number of these choices; None = the mask depends on none.

    Raises:
        SchemaError: the mask has another `per_actor` in a row with actors.
    """
    if isinstance(mask, VecContinuousActionMask):
        return mask
    given = None if mask.per_actor is None else mask.per_actor.values
    has_actors = mask.actors.lengths > 0
    if given is not None and not (
        per_actor is not None and np.array_equal(given[has_actors], per_actor[has_actors])
    ):
        wanted = "None" if per_actor is None else f"{per_actor[:8].tolist()}..."
        raise SchemaError(
            f"action {action!r}: per_actor of its mask must be the number of choices of the action "
            f"on which it depends, {wanted}: got {given[:8].tolist()}..."
        )
    if per_actor is None:
        return mask
    counts = RaggedArray.unchecked(per_actor, np.ones_like(per_actor))
    if mask.mask is None or given is not None:
        return replace(mask, per_actor=counts)
    rows = mask.actors.row_index
    widths, lengths = np.ones_like(rows), mask.actors.lengths * per_actor
    if isinstance(mask, VecSelectEntityActionMask):
        widths, lengths = mask.actees.lengths[rows], lengths * mask.actees.lengths
    values = mask.mask.values[_plain_places(per_actor[rows], widths)]
    return replace(mask, mask=RaggedArray.unchecked(values, lengths), per_actor=counts)


def independent(action: ActionName, mask: VecActionMask, library: str) -> VecActionMask:
    """The mask without `per_actor`, for a library whose masks cannot depend on other choices.

    Raises:
        SchemaError: what is legal depends on the choice before.
    """
    plain = after_any_choice(mask)
    if isinstance(mask, VecContinuousActionMask) or mask.per_actor is None or mask.mask is None:
        return plain
    counts = mask.per_actor.values[mask.actors.row_index]
    if isinstance(mask, VecSelectEntityActionMask):
        counts = np.repeat(counts, mask.actees.lengths[mask.actors.row_index])
    num_before = _num_before(mask)
    if num_before.ndim == 2:
        counts = counts[:, None]
    if ((num_before > 0) & (num_before < counts)).any():
        raise SchemaError(
            f"what is legal for action {action!r} depends on the choice before it, and {library} "
            "has no such masks: expected a mask without given=...; allow all combinations, and "
            "let the game handle those that make no sense"
        )
    return plain


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
