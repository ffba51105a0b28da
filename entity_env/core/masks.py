"""Masks as games give them: their forms, flags and rows, with numpy or without."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from entity_env.core.spaces import ActionName, EntityName
from entity_env.errors import SchemaError, shown
from entity_env.lazy_imports import has_numpy, is_array, np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def as_mask(
    mask: object,
    shape: tuple[int, int],
    action: ActionName,
    *,
    may_block: bool = False,
    is_global: bool = False,
) -> NDArray[np.bool_]:
    """An action mask as bools of shape `(num_actors, num_choices)`, from any dtype of 0s and 1s.

    Raises a `SchemaError` that names the action if the shape or a value is wrong or, unless
    `may_block`, a row allows nothing. The mask of a single actor may have the shape
    `(num_choices,)`. With `is_global`, messages do not mention actors.
    """
    try:
        array = np.asarray(mask)
    except Exception:  # rows of different lengths, or of a user's class
        array = None
    if array is not None:
        if (array.size == 0 and 0 in shape) or (array.shape == shape[1:] and shape[0] == 1):
            array = array.reshape(shape)
        kind = array.dtype.kind
        is_flags = kind == "b" or (kind in "iuf" and ((array == 0) | (array == 1)).all())
        if array.shape == shape and (is_flags or not array.size):
            allowed = array.astype(np.bool_)
            if may_block or allowed.any(axis=1).all():
                return allowed
    listed = mask.tolist() if is_array(mask) else mask
    _list_rows(listed, shape, action, may_block=may_block, is_global=is_global)  # raises
    raise SchemaError(f"{_must_hold_bools(action)}an array of {np.asarray(mask).dtype}")


def _list_rows(
    mask: Any,  # noqa: ANN401 - whatever a game gave
    shape: tuple[int, int],
    action: ActionName,
    *,
    may_block: bool,
    is_global: bool = False,
) -> list[list[bool]]:
    """`as_mask` for lists, without numpy; its errors are those of every mask."""
    found = shape_of(mask)
    is_flat = found == shape[1:] and shape[0] == 1
    is_empty = found is not None and 0 in found and 0 in shape
    if not (is_flat or is_empty or found == shape):
        raise _shape_error(mask, found, shape, action, is_global=is_global)
    rows = [()] * shape[0] if is_empty else [mask] if is_flat else mask
    for each in chain.from_iterable(rows):
        if not _is_flag(each):
            value = each.item() if hasattr(each, "item") else each
            raise SchemaError(f"{_must_hold_bools(action)}{shown(value)} ({type(value).__name__})")
    allowed = [list(map(bool, row)) for row in rows]
    blocked = next((i for i, row in enumerate(allowed) if not any(row)), None)
    if blocked is not None and not may_block:
        whom, other = (
            ("", "do not ask for it")
            if is_global
            else (f"actor {blocked} ", "do not ask that actor")
        )
        raise SchemaError(
            f"the mask of action {action!r} leaves {whom}no legal choice: allow at least one, or "
            f"{other}"
        )
    return allowed


def _shape_error(
    mask: object,
    found: tuple[int, ...] | None,
    shape: tuple[int, int],
    action: ActionName,
    *,
    is_global: bool,
    is_nested: bool = False,
) -> SchemaError:
    """Error for a mask of the shape `found`, or a ragged mask.

    A global action has one row, which neither its mask nor its messages have as a dimension.
    """
    names, sizes = ["num_actors", "num_choices"], [str(size) for size in shape]
    if is_nested:
        names.insert(1, "num_earlier")
        sizes.insert(1, "num_earlier")
    if is_global:
        names, sizes = names[1:], sizes[1:]
        found = found[1:] if found and found[0] == 1 and len(found) > 1 else found
    end = "," if len(names) == 1 else ""
    return SchemaError(
        f"the mask of action {action!r} needs the shape ({', '.join(names)}{end}) = "
        f"({', '.join(sizes)}{end}): got {shown(mask) if found is None else found}"
    )


def _must_hold_bools(action: ActionName) -> str:
    return f"the mask of action {action!r} must hold bools (True = allowed), got "


def nested_mask(
    mask: object,
    shape: tuple[int, int],
    action: ActionName,
    *,
    may_block: bool = False,
    is_global: bool = False,
    depends: bool = True,
) -> NDArray[np.bool_]:
    """Like `as_mask`; a mask with three dimensions depends on another action.

    Its shape is `(num_actors, num_earlier, num_choices)`, where `num_earlier` is the number of
    choices of that action. It may allow nothing after some of them, which may be illegal. Without
    `depends` there is no such action, and a mask with three dimensions is refused.
    """
    if not is_nested(mask):
        return as_mask(mask, shape, action, may_block=may_block, is_global=is_global)
    if not depends:
        error = _shape_error(mask, shape_of(mask), shape, action, is_global=is_global)
        raise SchemaError(
            f"{error}; three dimensions are for an action that follows another with choices"
        )
    num_actors, num_choices = shape
    num_earlier = _num_earlier(mask, shape, action, is_global=is_global)
    rows = num_actors * num_earlier, num_choices
    flat = np.reshape(mask, rows) if is_array(mask) else _flat(mask)
    allowed = as_mask(flat, rows, action, may_block=True)
    return allowed.reshape(num_actors, num_earlier, num_choices)


def _flat(mask: Any) -> list[Any]:  # noqa: ANN401 - a nested mask
    """The rows of a mask with three dimensions."""
    return [row for each in mask for row in each]


def _num_earlier(
    mask: object, shape: tuple[int, int], action: ActionName, *, is_global: bool
) -> int:
    """Length of the second of the three dimensions of a mask."""
    found = shape_of(mask)
    if found is not None and len(found) == 3 and found[0] == shape[0]:
        is_empty = not (found[0] * found[1] * found[2] or shape[0] * found[1] * shape[1])
        if found[2] == shape[1] or is_empty:
            return found[1]
    raise _shape_error(mask, found, shape, action, is_global=is_global, is_nested=True)


def is_nested(mask: object) -> bool:
    """Whether a mask, of arrays, lists or lists of arrays, has three dimensions."""
    left = 3
    while left > 1 and isinstance(mask, list | tuple) and mask and not hasattr(mask, "ndim"):
        mask, left = mask[0], left - 1
    if hasattr(mask, "ndim"):
        return bool(mask.ndim == left)
    return left == 1 and isinstance(mask, list | tuple)


def without_equal_rows(mask: Any) -> Any:  # noqa: ANN401 - a valid mask
    """The mask with two dimensions if it allows the same after every choice of the action before.

    An author may write either form, and programs always send the longer one.
    """
    if not is_nested(mask):
        return mask
    rows = mask.tolist() if is_array(mask) else mask
    if all(len(each) and all(list(row) == list(each[0]) for row in each) for each in rows):
        return [each[0] for each in rows]
    return mask


def shape_of(values: Any) -> tuple[int, ...] | None:  # noqa: ANN401 - whatever a game gave
    """The shape of an array, of lists, or of lists of arrays; None if ragged."""
    try:
        if hasattr(values, "shape"):
            return tuple(values.shape)
    except Exception:  # code of users
        return None
    if not isinstance(values, list | tuple):
        return ()
    lengths = {shape_of(row) for row in values}
    inner = lengths.pop() if lengths else ()
    return None if lengths or inner is None else (len(values), *inner)


def mask_rows(
    mask: object,
    shape: tuple[int, int],
    action: ActionName,
    *,
    may_block: bool = False,
    is_global: bool = False,
) -> list[Any]:
    """Like `nested_mask`, but returns lists, and needs no numpy for a mask of lists."""
    num_actors, num_choices = shape
    rows = [mask] if num_actors == 1 and _is_row(mask, num_choices) else mask
    if (
        isinstance(rows, list | tuple)
        and len(rows) == num_actors
        and all(_is_row(row, num_choices) and (may_block or any(row)) for row in rows)
    ):
        return [list(map(bool, row)) for row in rows]
    if has_numpy() and not is_nested(mask):
        read = as_mask(mask, shape, action, may_block=may_block, is_global=is_global)
        return list(read.tolist())
    if not is_nested(mask):
        return _list_rows(mask, shape, action, may_block=may_block, is_global=is_global)
    num = _num_earlier(mask, shape, action, is_global=is_global)
    listed: Any = mask.tolist() if is_array(mask) else mask
    flat = _list_rows(_flat(listed), (num_actors * num, num_choices), action, may_block=True)
    return [flat[i * num : (i + 1) * num] for i in range(num_actors)]


def wrong_reference(
    rows: NDArray[np.float32], counts: Sequence[int | NDArray[np.int64]]
) -> tuple[int, int] | None:
    """Row and column of the first reference to nothing; None if all are positions of entities.

    Args:
        rows: `(num_relations, num_features)`, references first.
        counts: for each reference, the number of entities to which it can refer; one for all rows,
            or one per row.
    """
    for column, count in enumerate(counts):
        places = rows[:, column]
        is_right = (places >= 0) & (places < count) & (places == np.floor(places))
        if not is_right.all():
            return int(np.flatnonzero(~is_right)[0]), column
    return None


def reference_error(
    name: EntityName,
    features: Sequence[str],
    types: Sequence[EntityName],
    counts: Sequence[int],
    rows: NDArray[np.float32],
    row: int,
    column: int,
) -> SchemaError:
    """Error for the reference that `wrong_reference` found.

    Args:
        name: of the relation.
        types: types of the entities to which it refers.
        counts: their numbers in the observation of this row.
        row: number of the row in its observation.
    """
    kind, count = types[column], counts[column]
    expected = f"a whole number from 0 to {count - 1}" if count else f"no {name}"
    return SchemaError(
        f"relation {name}: {features[column]!r} of row {row} is {rows[row, column]:g}, expected "
        f"{expected}: the observation shows {count or 'no'} {kind}"
    )


def rows_of_mask(mask: Sequence[Any]) -> Sequence[Any]:
    """The rows of a valid mask; the mask of a single actor may be flat."""
    return [mask] if len(mask) and not hasattr(mask[0], "__len__") else mask


def _is_row(row: object, num_choices: int) -> bool:
    return (
        isinstance(row, list | tuple)
        and len(row) == num_choices
        and all(type(each) in (bool, int, float) and each in (0, 1) for each in row)
    )


def _is_flag(value: Any) -> bool:  # noqa: ANN401 - whatever a game gave
    is_numeric = getattr(getattr(value, "dtype", None), "kind", "") in ("b", "i", "u", "f")
    return (is_numeric or type(value) in (bool, int, float)) and bool(value in (0, 1))
