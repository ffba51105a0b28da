"""Gymnasium spaces: parts of an observation as entities."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from entity_env.authoring.entity_type import as_float32
from entity_env.core.ragged import RaggedArray
from entity_env.core.spaces import Entity, EntityName, ObsSpace
from entity_env.errors import SchemaError, UsageError, shown

Part = TypeVar("Part")
AnySpace: TypeAlias = spaces.Space[Any]
EntityParts: TypeAlias = Mapping[EntityName, str | tuple[str, str]]
"""Per entity type, the part of the observation with its rows, or that part and its mask."""
FeatureNames: TypeAlias = Mapping[EntityName, Sequence[str]]

_MATRIX_DIMS: Final = 2
_PICTURE_DIMS: Final = 3
_HALF: Final = 2
"""Bytes of float16, which integers may exceed."""
_NUMERIC: Final = frozenset("biuf")
"""Kinds of numpy types that are numbers."""
_INT64_BITS: Final = 64
_HOW: Final = 'entities={"units": "PART"}, or {"units": ("PART", "MASK")} with a mask'


@dataclass(frozen=True)
class Leaf:
    """A space without parts, possibly within a `Dict` or `Tuple`."""

    space: AnySpace
    keys: tuple[Any, ...] = ()

    @property
    def path(self) -> str:
        return ".".join(map(str, self.keys))

    def of(self, values: Any) -> Any:  # noqa: ANN401 - of the space that the leaf belongs to
        """The leaf's part of a value of the whole space."""
        for depth, key in enumerate(self.keys):
            try:
                values = values[key]
            except (KeyError, IndexError, TypeError) as error:
                path = ".".join(map(str, self.keys[: depth + 1]))
                raise SchemaError(f"{_named(path)} is missing: got {shown(values)}") from error
        return values

    def has_form(self, value: Any) -> bool:  # noqa: ANN401 - of any type
        """Whether a value has the shape of its space, and a dtype that fits it."""
        shape, dtype = self.space.shape, self.space.dtype
        if shape is None or dtype is None:
            return True
        if type(value) is int:
            return shape == () and dtype == np.int64 and value.bit_length() < _INT64_BITS
        given = getattr(value, "dtype", None)
        if given is None:  # numpy's float64 equals None
            return False
        return (given == dtype or _holds(dtype, given)) and value.shape == shape


def leaves(space: AnySpace, keys: tuple[Any, ...] = ()) -> Iterator[Leaf]:
    """Leaves of a space, in order."""
    if not isinstance(space, spaces.Dict | spaces.Tuple):
        yield Leaf(space, keys)
        return
    parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
    for key, part in parts:
        yield from leaves(part, (*keys, key))


def value_of(space: AnySpace, of_leaf: Callable[[Leaf], Any], keys: tuple[Any, ...] = ()) -> Any:  # noqa: ANN401 - of the space
    """A nested value of a space, from the values of its leaves."""
    match space:
        case spaces.Dict():
            return {k: value_of(part, of_leaf, (*keys, k)) for k, part in space.spaces.items()}
        case spaces.Tuple():
            parts = enumerate(space.spaces)
            return tuple(value_of(part, of_leaf, (*keys, i)) for i, part in parts)
    return of_leaf(Leaf(space, keys))


def batched(space: AnySpace, values: Sequence[Any]) -> Any:  # noqa: ANN401 - of the batched space
    """Stacks values into a value of the batched space, with lists in place of arrays."""
    return value_of(space, lambda leaf: [leaf.of(value) for value in values])


def by_name(pairs: Iterable[tuple[str, Part]]) -> dict[str, Part]:
    """Parts by name; UsageError if two have the same name, because their keys contain dots."""
    found: dict[str, Part] = {}
    for name, part in pairs:
        if name in found:
            raise UsageError(
                f"two parts of the space are called {name!r}: rename a key of a Dict in a wrapper"
            )
        found[name] = part
    return found


# ------------------------------------------------------------------ features


def feature_names(space: AnySpace, prefix: str = "") -> list[str]:
    """Names of the columns of an entity's rows, such as `position.0` or `mode=2`."""
    return [
        name for leaf in leaves(space) for name in _names_of(leaf.space, _dotted(prefix, leaf.path))
    ]


def picture_axes(space: AnySpace) -> tuple[int, ...]:
    """Axes in feature order; for a picture: height, width, channels.

    A picture is a three-dimensional `Box`. Channels are its last dimension, or the first if that is
    smaller than both others, as in stacked frames.
    """
    shape = space.shape or ()
    is_channels_first = len(shape) == _PICTURE_DIMS and shape[0] < min(shape[1:])
    return (1, 2, 0) if is_channels_first else tuple(range(len(shape)))


def _picture_of(found: Sequence[Leaf]) -> tuple[int, int, int] | None:
    """Height, width and channels, if the features are a single picture."""
    if len(found) != 1 or not isinstance(found[0].space, spaces.Box):
        return None
    space = found[0].space
    shape = tuple(int(space.shape[axis]) for axis in picture_axes(space))
    return (shape[0], shape[1], shape[2]) if len(shape) == _PICTURE_DIMS else None


def _names_of(space: AnySpace, path: str, keys: Sequence[str] = ()) -> list[str]:
    """Feature names of a leaf; the error message lists `keys`, the parts that can be converted."""
    match space:
        case spaces.Discrete():
            return [f"{joined(path, ())}={int(space.start) + i}" for i in range(int(space.n))]
        case spaces.MultiDiscrete():
            return [
                f"{joined(path, index)}={int(space.start[index]) + i}"
                for index in np.ndindex(space.nvec.shape)
                for i in range(int(space.nvec[index]))
            ]
        case spaces.Box() | spaces.MultiBinary():
            names = [joined(path, index) for index in np.ndindex(space.shape)]
            order = np.arange(len(names)).reshape(space.shape).transpose(picture_axes(space))
            return [names[i] for i in order.ravel().tolist()]
        case spaces.Sequence():
            raise UsageError(
                f"{_named(path)} is a {space}, which has no fixed size: make its elements "
                f'entities, entities={{"units": {path!r}}}'
            )
    left_out = f", or leave it out: gymnasium.wrappers.FilterObservation(env, {list(keys)})"
    raise UsageError(
        f"{_named(path)} is a {space}, which has no fixed size: wrap the environment so that "
        f"it is a Box{left_out if keys else ''}"
    )


def _usable_keys(space: AnySpace) -> list[str]:
    if not isinstance(space, spaces.Dict):
        return []
    usable = spaces.Box, spaces.Discrete, spaces.MultiBinary, spaces.MultiDiscrete, spaces.Sequence
    return [
        key
        for key, part in space.spaces.items()
        if all(isinstance(leaf.space, usable) for leaf in leaves(part))
    ]


def _columns(
    found: Sequence[Leaf], batch: object, num_rows: int, prefix: str = ""
) -> NDArray[np.float32]:
    parts = [
        _rows_of(leaf.space, leaf.of(batch), num_rows, _dotted(prefix, leaf.path)) for leaf in found
    ]
    if len(parts) == 1:
        return parts[0]
    return np.concatenate([np.zeros((num_rows, 0), np.float32), *parts], axis=1)


def _rows_of(space: AnySpace, values: object, num_rows: int, path: str) -> NDArray[np.float32]:
    shape = (num_rows, *(space.shape or ()))
    # Not -1: numpy cannot infer the number of columns if there are no rows.
    numbers = _numbers(values, shape, path, space).reshape(num_rows, math.prod(shape[1:]))
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
        # Sums of small or unsigned integers would overflow.
        starts, counts = (np.ravel(each).astype(np.int64) for each in (space.start, counts))
        return _one_hots(numbers.astype(np.int64), starts, counts, path)
    axes = (0, *(axis + 1 for axis in picture_axes(space)))
    return as_float32(numbers.reshape(shape).transpose(axes).reshape(numbers.shape))


def _numbers(values: object, shape: tuple[int, ...], path: str, space: AnySpace) -> NDArray[Any]:
    """Converts values to a numeric array of a shape, and of a dtype that fits the space.

    Raises:
        SchemaError: they are something else, or the dtype cannot hold them.
    """
    try:
        array = np.asarray(values)
    except ValueError as error:  # values of different lengths
        raise SchemaError(f"{_named(path)} needs the shape {shape}: {error}") from error
    if array.dtype.kind not in _NUMERIC:
        example = next((x for x in array.ravel().tolist() if not isinstance(x, int | float)), None)
        raise SchemaError(
            f"{_named(path)} must hold numbers, as in its space, but holds {array.dtype}, "
            f"such as {example!r:.60}: convert it in a wrapper of the environment"
        )
    if not _is_shape(array.shape, shape):
        raise SchemaError(f"{_named(path)} needs the shape {shape[1:]}: got {array.shape[1:]}")
    dtype = space.dtype
    if dtype is None or dtype == array.dtype or _holds(dtype, array.dtype):
        return array
    return _cast(array, dtype, path)


def _holds(dtype: np.dtype[Any], given: Any) -> bool:  # noqa: ANN401 - a dtype, of any library
    """Whether a float has no limit that numbers of another dtype may exceed."""
    if dtype.kind != "f" or getattr(given, "kind", None) not in _NUMERIC:
        return False
    return given.itemsize <= dtype.itemsize if given.kind == "f" else dtype.itemsize > _HALF


def _cast(array: NDArray[Any], dtype: np.dtype[Any], path: str) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        cast = array.astype(dtype)
    if dtype.kind == "f":
        is_wrong = ~np.isfinite(cast)
        if is_wrong.any():
            is_wrong &= np.isfinite(array)
    else:
        is_wrong = cast != array
        if dtype.kind != "b" and array.dtype.kind == "f":
            # The first number beyond the maximum may be cast to it, and compares as equal.
            is_wrong |= array >= 2.0 ** int(np.iinfo(dtype).max).bit_length()
    if is_wrong.any():
        raise SchemaError(
            f"{_named(path)} holds {array[is_wrong][0]}, which is not in its space: {dtype} cannot "
            "hold it; give the space another dtype, or convert the number in a wrapper"
        )
    return cast


def fitted(leaf: Leaf, value: Any) -> Any:  # noqa: ANN401 - of the leaf's space
    """A value with the shape of its space, and a dtype that fits it.

    Unchanged if it has them, or the space has none. SchemaError if it does not fit.
    """
    space = leaf.space
    if leaf.has_form(value) or space.shape is None or space.dtype is None:
        return value
    return _numbers([value], (1, *space.shape), leaf.path, space).reshape(space.shape)


def _is_shape(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    """Whether a shape is the wanted one, apart from missing or additional sizes of 1."""
    if shape == wanted or (0 in shape and 0 in wanted):  # a list without rows has one dimension
        return True
    return [n for n in shape if n != 1] == [n for n in wanted if n != 1]


def _dotted(*paths: str) -> str:
    return ".".join(filter(None, paths))


def _named(path: str) -> str:
    return f"the observation {path!r}" if path else "the observation"


def joined(prefix: str, index: tuple[Any, ...]) -> str:
    """Name of an element of a space: `position.0`, or `value` without a prefix and an index."""
    return _dotted(prefix, *map(str, index)) or "value"


def _one_hots(
    numbers: NDArray[np.int64], starts: NDArray[np.int64], counts: NDArray[np.int64], path: str
) -> NDArray[np.float32]:
    """One-hots of `(num_rows, num_choices)` integers; SchemaError for one outside of its space."""
    chosen = numbers - starts
    outside = np.argwhere((chosen < 0) | (chosen >= counts))
    if len(outside):
        row, column = outside[0].tolist()
        first, last = starts[column], starts[column] + counts[column] - 1
        which = f".{column}" if len(counts) > 1 else ""
        of_row = f" in row {row}" if len(numbers) > 1 else ""
        raise SchemaError(
            f"{_named(_dotted(path, which[1:]))} is {numbers[row, column]}{of_row}, but in its "
            f"space it is an integer from {first} to {last}"
        )
    columns = np.zeros((len(numbers), int(counts.sum())), dtype=np.float32)
    places = chosen + (np.cumsum(counts) - counts)
    np.put_along_axis(columns, places, 1, axis=1)
    return columns


def _odd_values(leaf: Leaf, value: object) -> Iterator[str]:
    """Sentences about a value of a space that agents do not see as it is, or that is outside."""
    space, path = leaf.space, leaf.path
    if isinstance(space, spaces.Sequence):
        if not space.stack:
            for element in value:  # type: ignore[attr-defined]  # it was converted before
                for part in leaves(space.feature_space):
                    inner = Leaf(part.space, (*leaf.keys, *part.keys))
                    yield from _odd_values(inner, part.of(element))
        return
    array, dtype = np.asarray(value), space.dtype
    if array.shape != space.shape:
        yield f"{_named(path)} has the shape {array.shape}, its space {space.shape}"
    if array.dtype.kind == "f" and dtype is not None and dtype.kind in "biu":
        yield f"{_named(path)} holds {array.dtype}, its space {dtype}"
    if isinstance(space, spaces.Box | spaces.MultiBinary):
        bounds = (space.low, space.high) if isinstance(space, spaces.Box) else (0, 1)
        low, high = (np.ravel(np.broadcast_to(bound, space.shape)) for bound in bounds)
        numbers = array.ravel()
        outside = np.flatnonzero((numbers < low) | (numbers > high))
        if len(outside):
            yield f"{_named(path)} holds {numbers[outside[0]]}, which is outside of its {space}"
        kind: np.dtype[Any] = np.dtype(np.float32 if dtype != np.float16 else np.float16)
        most = 2 ** (np.finfo(kind).nmant + 1)
        with np.errstate(over="ignore"):
            seen = numbers.astype(kind)
        is_lost = (np.abs(seen) >= most) & (seen.astype(numbers.dtype) != numbers)
        if is_lost.any():
            lost = int(np.flatnonzero(is_lost)[0])
            yield (
                f"{_named(path)} holds {numbers[lost]!s}, which agents see as {seen[lost]:.9g}: "
                f"{kind} cannot hold every number beyond {most:,}; show a smaller one, such as a "
                "difference, by a wrapper"
            )


# ------------------------------------------------------------------ entities


@dataclass(frozen=True)
class _Table:
    """Rows of one entity type: a `Box`, optionally with a mask, or a `Sequence`."""

    leaf: Leaf
    mask: Leaf | None
    names: list[str]

    def rows(self, batch: object, num_rows: int) -> RaggedArray[np.float32]:
        values = self.leaf.of(batch)
        if isinstance(self.leaf.space, spaces.Sequence):
            return self._elements(self.leaf.space, values)
        shape = self.leaf.space.shape or ()
        table = as_float32(_numbers(values, (num_rows, *shape), self.leaf.path, self.leaf.space))
        table = table.reshape(num_rows, shape[0], len(self.names))
        if self.mask is None:
            lengths = np.full(num_rows, shape[0], dtype=np.int64)
            return RaggedArray.unchecked(table.reshape(-1, len(self.names)), lengths)
        path = self.mask.path
        flags = _numbers(self.mask.of(batch), (num_rows, shape[0]), path, self.mask.space)
        present = flags.reshape(num_rows, shape[0]).astype(np.bool_)
        if (present != flags.reshape(present.shape)).any():
            wrong = flags[(flags != 0) & (flags != 1)][0]
            raise SchemaError(f"{_named(path)} is a mask of 0 and 1: got {wrong}")
        return RaggedArray.unchecked(table[present], present.sum(axis=1, dtype=np.int64))

    def _elements(self, space: spaces.Sequence, values: Sequence[Any]) -> RaggedArray[np.float32]:
        element, path = space.feature_space, self.leaf.path
        if space.stack:
            (first, *_) = leaves(element)
            lengths = np.array([len(first.of(value)) if len(value) else 0 for value in values])
            parts = [
                _columns(list(leaves(element)), value, count, path)
                for value, count in zip(values, lengths.tolist(), strict=True)
                if count
            ]
            rows = np.concatenate([np.zeros((0, len(self.names)), np.float32), *parts])
            return RaggedArray.unchecked(rows, lengths.astype(np.int64))
        joined = [one for value in values for one in value]
        lengths = np.array([len(value) for value in values], dtype=np.int64)
        rows = _columns(list(leaves(element)), batched(element, joined), len(joined), path)
        return RaggedArray.unchecked(rows, lengths)


class ObsConverter:
    """Converts observations of a Gymnasium space to rows of entities.

    Args:
        entity: name of the entity made of all parts that `parts` does not name.
        parts, features: `entities` and `features` of `GymnasiumVecEnv`.
        has_actor: keep that entity even if it has no features.

    Raises:
        UsageError: a part that does not exist or cannot be converted.
    """

    def __init__(
        self,
        space: AnySpace,
        entity: EntityName,
        parts: EntityParts | None = None,
        features: FeatureNames | None = None,
        *,
        has_actor: bool = False,
    ) -> None:
        self.space = space
        found = by_name((leaf.path, leaf) for leaf in leaves(space))
        for setting, value in (("entities", parts), ("features", features)):
            if not _is_by_name(value):
                raise UsageError(
                    f"{setting} must be a dict with names of entities as keys: got {value!r:.80}"
                )
        self._tables = {name: _table(name, part, found) for name, part in (parts or {}).items()}
        named = [leaf for each in self._tables.values() for leaf in (each.leaf, each.mask)]
        self._rest = [leaf for leaf in found.values() if leaf not in named]
        keys = _usable_keys(space)
        names = [name for leaf in self._rest for name in _names_of(leaf.space, leaf.path, keys)]
        self.single = entity if names or has_actor or not self._tables else None
        """The entity of all other parts, if any."""
        if self.single in self._tables:
            raise UsageError(
                f"entities names {entity!r}, which is the entity of all other parts of the "
                "observation: choose another name"
            )
        choices = spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary
        is_binary = all(isinstance(leaf.space, choices) for leaf in self._rest)
        own = Entity(names, True, _picture_of(self._rest), is_binary)
        wanted = {} if self.single is None else {entity: own}
        wanted |= {name: Entity(each.names) for name, each in self._tables.items()}
        for name, given in (features or {}).items():
            wanted[name] = _renamed(name, given, wanted)
        self.obs_space = ObsSpace(entities=wanted)
        """The single entity is first."""

    def odd_values(self, obs: object) -> Iterator[str]:
        """Sentences about values of an observation, for `check`: outside of the space, or rounded.

        The observation must be one that `rows` converts.
        """
        named = [leaf for each in self._tables.values() for leaf in (each.leaf, each.mask) if leaf]
        for leaf in (*self._rest, *named):
            yield from _odd_values(leaf, leaf.of(obs))

    def rows(self, batch: object, num_rows: int) -> dict[EntityName, RaggedArray[np.float32]]:
        """Converts batched observations to entities, in space order.

        Raises:
            SchemaError: observations that do not fit the space.
        """
        rows: dict[EntityName, RaggedArray[np.float32]] = {}
        if self.single is not None:
            columns = _columns(self._rest, batch, num_rows)
            rows[self.single] = RaggedArray.unchecked(columns, np.ones(num_rows, dtype=np.int64))
        for name, table in self._tables.items():
            rows[name] = table.rows(batch, num_rows)
        return rows


def parts_in(entities: object) -> list[object]:
    """The parts of an observation that `entities` names, if it is valid."""
    pairs = entities.values() if isinstance(entities, Mapping) else ()
    return [part for pair in pairs for part in (pair if isinstance(pair, tuple) else (pair,))]


def _is_by_name(given: object) -> bool:
    return given is None or (isinstance(given, Mapping) and all(type(key) is str for key in given))


def _table(name: EntityName, part: object, found: Mapping[str, Leaf]) -> _Table:
    pair = (part, None) if isinstance(part, str) else part
    if not (isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str)):
        raise UsageError(f"the entity {name!r} needs the name of a part, {_HOW}: got {part!r}")
    leaf = _found(name, pair[0], found)
    mask = None if pair[1] is None else _found(name, pair[1], found)
    space = leaf.space
    if isinstance(space, spaces.Sequence):
        if mask is not None:
            raise UsageError(
                f"the entity {name!r}: {leaf.path!r} is a {space}, which holds no absent rows: "
                f'write entities={{"{name}": {leaf.path!r}}}, without a mask'
            )
        return _Table(leaf, None, feature_names(space.feature_space, leaf.path))
    if not isinstance(space, spaces.Box | spaces.MultiBinary) or len(space.shape) < _MATRIX_DIMS:
        raise UsageError(
            f"the entity {name!r}: {leaf.path!r} is a {space}, expected a Box with a row of "
            "features per entity, of shape (num_entities, num_features), or a Sequence"
        )
    count = space.shape[0]
    is_flags = mask is not None and isinstance(mask.space, spaces.Box | spaces.MultiBinary)
    if mask is not None and not (is_flags and mask.space.shape == (count,)):
        raise UsageError(
            f"the entity {name!r}: its mask {mask.path!r} is a {mask.space}, expected a "
            f"MultiBinary or Box of shape ({count},), a flag for each row of {leaf.path!r}"
        )
    names = [joined(leaf.path, index) for index in np.ndindex(space.shape[1:])]
    return _Table(leaf, mask, names)


def _found(name: EntityName, path: object, found: Mapping[str, Leaf]) -> Leaf:
    if path not in tuple(found):  # `path` may have any type
        parts = ", ".join(map(repr, found))
        raise UsageError(
            f"the entity {name!r}: the observation has no part {path!r}, it has {parts}: {_HOW}"
        )
    return found[str(path)]


def _renamed(name: EntityName, given: object, entities: Mapping[EntityName, Entity]) -> Entity:
    if name not in entities:
        raise UsageError(f"features names {name!r}; the entities are {', '.join(entities)}")
    old = entities[name]
    names = given if isinstance(given, Sequence) and not isinstance(given, str) else ()
    if len(names) != len(old.features) or not all(isinstance(each, str) for each in names):
        raise UsageError(
            f"features of {name!r}: {len(old.features)} names are needed, one each for "
            f"{', '.join(old.features)}: got {given!r}"
        )
    return replace(old, features=list(names))
