"""`EntityType`: a dataclass as an entity; fields become features, instances rows of float32.

Each class is compiled once: one generated loop reads a whole sequence. Reflection per entity is 10
to 40 times slower (`benchmarks/featurize.py`).
"""

from __future__ import annotations

import dataclasses
import re
import sys
import types
import typing
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, Flag
from functools import cached_property, partial
from keyword import iskeyword
from operator import is_
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn, TypeAlias

from entity_env.authoring.game_traceback import GENERATED, is_a, summary_of, text_of
from entity_env.authoring.speedups import NotANumber, once_per_class, pack_numbers, reader_of
from entity_env.core.validation import is_integer
from entity_env.errors import SchemaError, shown
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from entity_env.authoring._speedups import Reader

_ATTRIBUTE: Final = re.compile(r"\be((?:\.\w+|\[\d+\])+)")
"""Of an entity, in the source of a feature."""
HIDDEN: Final = {"entity_env": "hidden"}
"""`name: str = field(metadata=HIDDEN)` excludes a dataclass field from the features."""

Writer: TypeAlias = Callable[[Sequence[object]], None]
"""Appends the features of every entity in a sequence to a list."""
Places: TypeAlias = Mapping[int, int]
"""Positions of the entities of one class in an observation, by `id` of the object."""


_FOR_COLLECTIONS: Final = (
    "its length may vary, so show its items as entities, instances of another dataclass in "
    "obs.entities([...]); or "
)
_SLOT: Final = re.compile(r"\(?e\.(\w+)(?: is (member_\d+)\))?")
"""Source of a feature that reads an attribute, or tests whether the attribute is a member."""


@dataclass(frozen=True, init=False)
class Features:
    """Features of values whose class is not a dataclass; part of an `Annotated` type.

        Vector = Annotated[pygame.Vector2, Features("x", "y")]
        Tint = Annotated[Color, Features("hue", "value", read=lambda color: (color.h, color.v))]

        @dataclass
        class Ship:
            position: Vector  # the features position.x and position.y
            tint: Tint  # tint.hue and tint.value

    Args:
        names: feature names; attributes of the value unless `read` is given.
        read: returns one number per name for a value.

    Raises:
        SchemaError: no names, or a name that is not an identifier.
    """

    names: tuple[str, ...]
    read: Callable[[Any], Iterable[float]] | None

    def __init__(self, *names: str, read: Callable[[Any], Iterable[float]] | None = None) -> None:
        given: Sequence[object] = names or ("",)
        for name in given:
            if not isinstance(name, str) or not name.isidentifier():
                raise SchemaError(
                    f"Features needs the names of the features, identifiers: got {name!r}"
                )
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "read", read)

    def numbers(self, value: object) -> tuple[float, ...]:
        """Result of `read`.

        Raises:
            TypeError: `read` raised, or returned the wrong number of numbers.
        """
        try:
            numbers = tuple(self.read(value)) if self.read else ()
        except Exception as error:
            raise TypeError(summary_of(error)) from error
        if len(numbers) != len(self.names):
            raise TypeError(f"{len(numbers)} numbers were read for {', '.join(self.names)}")
        return numbers


class _Feature(NamedTuple):
    name: str
    source: str
    """Expression with the entity as `e`. A starred expression yields several features: this one and
    those directly after it, whose sources are empty."""


@dataclass(frozen=True)
class EntityType:
    """Conversion of a class's instances to rows of features.

    Args:
        cls: the class, compared by identity: instances of subclasses are different entities.
        name: name in spaces and errors.
        features: column names, in field order; of a relation, first those of its two references.
        references: of a relation, the classes of its two entities; see `relation_type`.
    """

    cls: type
    name: str
    features: tuple[str, ...]
    _sources: tuple[str, ...]
    _constants: dict[str, object] = dataclasses.field(compare=False, hash=False)
    references: tuple[type, type] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Without per-process caches: C readers cannot be pickled.
        return {field.name: self.__dict__[field.name] for field in dataclasses.fields(self)}

    @property
    def width(self) -> int:
        return len(self.features)

    @property
    def stride(self) -> int:
        """Numbers that a writer appends per entity: `width`, or 1 (a filler) if that is 0."""
        return max(self.width, 1)

    @cached_property
    def reader(self) -> Reader | None:
        """Reads the features in C.

        None if the C module was not built, there are no features, or a feature is neither a slot
        nor a test whether a slot holds a member.
        """
        found = [_SLOT.fullmatch(source) for source in self._sources]
        slots = [
            (slot[1], self._constants[slot[2]]) if slot[2] else (slot[1],) for slot in found if slot
        ]
        return reader_of(self.cls, tuple(slots)) if slots and len(slots) == len(found) else None

    def writer(self, numbers: list[float], *places: Places) -> Writer:
        """Makes a function that appends the features of each entity to `numbers`.

        The writer of a relation needs the places of the entities of both classes.

        It raises `SchemaError` for an instance of another class, and for unreadable fields (None
        for a nested dataclass, a tuple that is too short, a property that raises). Values that are
        not numbers are found later, by `pack_floats`.
        """
        write = self._make_writer(numbers.extend, *places)
        if self.reader is None:
            return write
        read = self.reader.read

        def write_slots(entities: Sequence[object]) -> None:
            if not read(entities, numbers):
                write(entities)

        return write_slots

    @cached_property
    def _make_writer(self) -> Callable[..., Writer]:
        """Makes writers; compiled once, since that takes 90 µs, as long as a thousand entities."""
        sources = self._sources or ("0.0",)
        code = (
            "def make_writer(extend, first=None, second=None):\n"
            "    def write(entities):\n"
            "        try:\n"
            "            for e in entities:\n"
            "                if e.__class__ is not cls: wrong_class(e)\n"
            f"                extend(({', '.join(sources)},))\n"
            "        except Exception as error:\n"
            "            unreadable(e, error)\n"
            "    return write\n"
        )
        namespace: dict[str, Any] = {
            **self._constants,
            "cls": self.cls,
            "wrong_class": self._raise_wrong_class,
            "unreadable": self._raise_unreadable,
        }
        exec(compile(code, f"{GENERATED}{self.name}>", "exec"), namespace)  # noqa: S102 - names come from dataclass fields
        make: Callable[..., Writer] = namespace["make_writer"]
        return make

    def featurize(self, entities: Sequence[object], *places: Places) -> NDArray[np.float32]:
        """`(len(entities), width)` float32, a new array; `places` as for `writer`."""
        values: list[float] = []
        self.writer(values, *places)(entities)
        flat = np.empty(len(values), dtype=np.float32)
        self._pack(values, flat)
        return flat.reshape(len(entities), self.stride)[:, : self.width]

    def numbers(self, entities: Sequence[object], *places: Places) -> list[list[float]]:
        """`featurize` as lists, rounded to single precision; needs no numpy."""
        values: list[float] = []
        self.writer(values, *places)(entities)
        packed = array("f", bytes(4 * len(values)))
        self._pack(values, packed)
        flat, width = packed.tolist(), self.width
        return [flat[i : i + width] for i in range(0, len(flat), self.stride)]

    def rows(self, rows: NDArray[Any]) -> NDArray[np.float32]:
        """Checks numpy-backed entities, `(num_entities, width)` of any bool or numeric dtype.

        Returns them as float32: the same memory if they already have this dtype, else a copy.

        Raises:
            SchemaError: the wrong shape or dtype.
        """
        if rows.ndim != 2 or rows.shape[1] != self.width:
            raise SchemaError(
                f"rows of {self.name} need the shape (num_entities, {self.width}), one column "
                f"each for {', '.join(self.features)}: got {rows.shape}"
            )
        if rows.dtype.kind not in "fiub":
            raise SchemaError(f"rows of {self.name} need a numeric dtype: got {rows.dtype}")
        return as_float32(rows)

    def _pack(self, values: list[float], out: NDArray[np.float32] | array[float]) -> None:
        try:
            pack_numbers(values, out)
        except NotANumber as wrong:
            row, column = divmod(wrong.index, self.stride)
            raise SchemaError(
                f"entity {self.name}: feature {self.features[column]!r} of row {row} {wrong}"
            ) from wrong.__cause__

    def _raise_wrong_class(self, entity: object) -> NoReturn:
        raise SchemaError(
            f"a sequence of {self.name} holds a {type(entity).__name__}: {entity!r}; "
            "pass entities of different classes in separate calls"
        )

    def _raise_unreadable(self, entity: object, error: Exception) -> NoReturn:
        for field, cls in zip(self.features, self.references or (), strict=False):
            other = getattr(entity, field, None)
            if is_a(error, KeyError) and error.args == (id(other),):
                raise self._no_reference(entity, field, other, cls) from None
        if is_a(error, SchemaError):  # of a wrong class
            raise error
        is_of_field = issubclass(type(error), (AttributeError, LookupError, TypeError))
        how = "; its fields must hold what their annotations say" * is_of_field
        raise SchemaError(
            f"entity {self.name}: the features of {shown(entity)} cannot be read "
            f"({text_of(error) if is_of_field else summary_of(error)}"
            f"{self._what_raises(entity)}){how}"
        ) from error

    def _what_raises(self, entity: object) -> str:
        """The field of an entity whose source raises an error, in words; empty if unknown."""
        for source in self._sources:
            try:
                eval(f"({source},)", {**self._constants, "e": entity})
            except NameError:  # of the places of a relation
                continue
            except Exception:
                if (found := _ATTRIBUTE.search(source)) is not None:
                    return f", in {found[1][1:]}"
        return ""

    def _no_reference(self, relation: object, field: str, other: object, cls: type) -> SchemaError:
        """Error for a relation whose field refers to something that the observation lacks."""
        expected, how = f"a {cls.__name__} of the observation", f"leave this {self.name} out"
        if other.__class__ is cls:
            how = f"add it with obs.entities(...), or {how}"
            expected = f"one of the {cls.__name__} objects that the observation shows"
        return SchemaError(
            f"relation {self.name}: field {field!r} of {shown(relation)} is {shown(other)}, "
            f"expected {expected}: {how}"
        )


def as_float32(rows: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers as float32; too large ones become infinite. The same memory if already float32."""
    with np.errstate(over="ignore"):
        return rows.astype(np.float32, copy=False)


def class_of_features(name: str, features: Sequence[str], references: Iterable[type] = ()) -> type:
    """A dataclass with fields of these names, for entities that are rows of arrays (`Rows`).

    The first fields of a relation have the classes of its references.

    Raises:
        SchemaError: a name that no field can have.
    """
    fields = {
        "__annotations__": dict.fromkeys(features, float)
        | dict(zip(features, references, strict=False)),
        "__doc__": f"{name}.",
        "__module__": __name__,
    }
    try:
        return dataclasses.dataclass(init=False, repr=False, eq=False)(type(name, (), fields))
    except ValueError as error:  # `__dict__`
        raise SchemaError(f"entity {name!r} has an unusable feature: {error}") from error


def entity_type(cls: type) -> EntityType:
    """The `EntityType` of a dataclass, cached.

    A number or bool is one feature; an Enum or a `Literal` is one-hot (`stance.is_Calm`), a `Flag`
    has one feature per bit. A nested dataclass adds a dotted prefix (`pos.x`); a tuple of fixed
    length or an array, `Annotated[np.ndarray, 3]`, adds the index (`cooldowns.0`).
    `x: float | None` is two features, `has_x` and `x`, both 0 for None. For other classes see
    `Features`.

    Raises:
        SchemaError: not a dataclass, a field that cannot become features, or two features with
            the same name.
    """
    if not is_dataclass_type(cls):
        raise SchemaError(
            f"an entity must be a dataclass, got {cls!r}: decorate its class with @dataclass, and "
            "declare the class, not an instance"
        )
    return _made_once(cls)


def is_dataclass_type(cls: object) -> bool:
    """Whether a class is a dataclass; False for an instance."""
    return isinstance(cls, type) and dataclasses.is_dataclass(cls)


@once_per_class
def _made_once(cls: type) -> EntityType:
    return compiled_type(cls, {})


def compiled_type(cls: type, references: Mapping[str, type]) -> EntityType:
    """The type of a class; `references` are the fields of a relation that hold entities."""
    constants: dict[str, object] = {}
    features = [
        _Feature(field, f"{places}[id({_path('e', field)})]")
        for field, places in zip(references, ("first", "second"), strict=False)
    ]
    features += _features_of_class(cls, "", "e", constants, (), references)
    names = tuple(feature.name for feature in features)
    if len(set(names)) < len(names):
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise SchemaError(f"entity {cls.__name__}: two features are called {twice!r}: rename one")
    sources = tuple(feature.source for feature in features if feature.source)
    classes: Any = tuple(references.values()) or None
    return EntityType(cls, cls.__name__, names, sources, constants, classes)


def _features_of_class(
    cls: type,
    prefix: str,
    source: str,
    constants: dict[str, object],
    outer: tuple[type, ...],
    omitted: Collection[str] = (),
) -> list[_Feature]:
    if cls in outer:
        raise SchemaError(
            f"entity {outer[0].__name__}: {prefix.rstrip('.')!r} contains its own type "
            f"{cls.__name__}, so its number of features has no limit"
        )
    features: list[_Feature] = []
    for field, kind in declared_fields(cls).items():
        if field not in omitted:
            path = _path(source, field)
            features += _features_of(kind, f"{prefix}{field}", path, constants, (*outer, cls))
    return features


def _path(source: str, field: str) -> str:
    is_plain = field.isidentifier() and not iskeyword(field)  # not in some generated classes
    return f"{source}.{field}" if is_plain else f"getattr({source}, {field!r})"


def _features_of(
    kind: object, name: str, source: str, constants: dict[str, object], outer: tuple[type, ...]
) -> list[_Feature]:
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if (shape := array_shape(kind)) is not None:
        names = [f"{name}.{'.'.join(map(str, index))}" for index in np.ndindex(shape)]
        return _read_at_once(names, source, partial(_numbers_of_array, shape), constants)
    if (converted := features_of_class(kind)) is not None:
        names = [f"{name}.{each}" for each in converted.names]
        if converted.read is not None:
            return _read_at_once(names, source, converted.numbers, constants)
        return [_Feature(f"{name}.{each}", f"{source}.{each}") for each in converted.names]
    if origin is typing.Annotated:
        return _features_of(args[0], name, source, constants, outer)
    if _is_number(kind):
        return [_Feature(name, source)]
    if (some := without_none(kind)) is not None:
        return _optional(_features_of(some, name, source, constants, outer), name, source)
    if origin is typing.Literal:
        return [_one_hot(value, name, source, constants) for value in args]
    if origin is tuple and args and args[-1] is not Ellipsis:
        features: list[_Feature] = []
        for i, part in enumerate(args):
            features += _features_of(part, f"{name}.{i}", f"{source}[{i}]", constants, outer)
        return features
    if isinstance(kind, type) and issubclass(kind, Flag):
        bits = {bit.name: f"({source}._value_ & {bit.value} != 0)" for bit in kind}
        return [_Feature(f"{name}.is_{bit}", is_set) for bit, is_set in bits.items()]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return [_one_hot(member, name, source, constants) for member in kind]
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        return _features_of_class(kind, f"{name}.", source, constants, outer)
    require_no_new_type(kind, f"entity {outer[0].__name__}: field {name!r}")
    raise SchemaError(
        f"entity {outer[0].__name__}: field {name!r} of type {_show(kind)} cannot become features: "
        f"{_hint_about(kind)}{_FOR_COLLECTIONS * _is_collection(origin or kind)}use numbers, "
        "bools, Enums, Flags, Literals, dataclasses, tuples and arrays of fixed size "
        "(tuple[int, int], Annotated[np.ndarray, 3]), or one of these | None; describe another "
        'class by Annotated[Vector2, Features("x", "y")]; or hide the field with '
        "field(metadata=HIDDEN). Features and HIDDEN are in entity_env"
    )


def _one_hot(member: object, name: str, source: str, constants: dict[str, object]) -> _Feature:
    """Feature of an Enum member, compared by identity, or of a `Literal` value."""
    constant = f"member_{len(constants)}"  # member names may not be identifiers
    constants[constant] = member
    label = member.name if isinstance(member, Enum) else str(member)
    same = "is" if isinstance(member, Enum | bool | None) else "=="
    return _Feature(f"{name}.is_{label}", f"({source} {same} {constant})")


def _read_at_once(
    names: Sequence[str],
    source: str,
    read: Callable[[Any], Sequence[float]],
    constants: dict[str, object],
) -> list[_Feature]:
    constant = f"read_{len(constants)}"
    constants[constant] = read
    first, *more = names
    return [_Feature(first, f"*{constant}({source})"), *(_Feature(each, "") for each in more)]


def _numbers_of_array(shape: tuple[int, ...], array: NDArray[Any]) -> list[float]:
    if array.shape != shape:
        raise TypeError(f"an array has the shape {array.shape}, but declared is {shape}")
    numbers: list[float] = array.ravel().tolist()
    return numbers


def _optional(features: Sequence[_Feature], name: str, source: str) -> list[_Feature]:
    """Features of an optional value: whether it is present, then its features or zeros."""
    guarded: list[_Feature] = []
    for i, (each, read) in enumerate(features):
        if read.startswith("*"):
            rest = [feature.source for feature in features[i + 1 :]]
            count = 1 + next((k for k, other in enumerate(rest) if other), len(rest))
            zeros = "0.0, " * count
            guarded.append(_Feature(each, f"*(({zeros}) if {source} is None else {read[1:]})"))
        else:
            guarded.append(_Feature(each, read and f"(0.0 if {source} is None else {read})"))
    prefix, dot, last = name.rpartition(".")
    return [_Feature(f"{prefix}{dot}has_{last}", f"({source} is not None)"), *guarded]


def without_none(kind: object) -> Any:  # noqa: ANN401 - any type
    """`T` for `x: T | None`; None for any other type."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return None
    parts = typing.get_args(kind)
    some = tuple(part for part in parts if part is not types.NoneType)
    return typing.Union[some] if len(some) < len(parts) else None  # noqa: UP007 - as a call


def without_aliases(kind: Any, within: tuple[object, ...] = ()) -> Any:  # noqa: ANN401 - any type
    """The type with aliases, such as `type Speed = float`, replaced by their values.

    Descends into `Annotated`, unions and tuples. `NDArray` is such an alias since numpy 2.5. An
    alias that contains itself, or has the wrong number of arguments, is kept.

    Raises:
        NameError: the value of an alias, evaluated here, names an unknown type.
    """
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    alias = kind if origin is None else origin
    if not isinstance(alias, type) and hasattr(alias, "__value__"):
        value, parameters = alias.__value__, alias.__type_params__
        if alias in within or (args and len(args) != len(parameters)):
            return kind
        used = getattr(value, "__parameters__", ())
        if args and used:  # possibly in another order
            given = dict(zip(parameters, args, strict=True))
            value = value[tuple(given[each] for each in used)]
        return without_aliases(value, (*within, alias))
    if origin is typing.Annotated:
        return typing.Annotated[(without_aliases(args[0], within), *args[1:])]
    if origin not in (tuple, typing.Union, types.UnionType):
        return kind
    parts = tuple(without_aliases(each, within) for each in args)
    if all(map(is_, parts, args)):
        return kind
    return types.GenericAlias(tuple, parts) if origin is tuple else typing.Union[parts]  # noqa: UP007 - as a call


def array_shape(kind: object) -> tuple[int, ...] | None:
    """Shape of `Annotated[np.ndarray, 3]` or `Annotated[NDArray[Any], (3, 3)]`, else None."""
    if typing.get_origin(kind) is not typing.Annotated:
        return None
    base, *metadata = typing.get_args(kind)
    if "numpy" not in sys.modules or np.ndarray not in (base, typing.get_origin(base)):
        return None
    for each in metadata:
        shape = (each,) if isinstance(each, int) else each
        if isinstance(shape, tuple) and shape and all(is_integer(n) and n > 0 for n in shape):
            return shape
    return None


def features_of_class(kind: object) -> Features | None:
    """The `Features` of an `Annotated` type, else None."""
    if typing.get_origin(kind) is not typing.Annotated:
        return None
    return next((each for each in typing.get_args(kind)[1:] if isinstance(each, Features)), None)


def _is_number(kind: object) -> bool:
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return all(_is_number(part) for part in typing.get_args(kind))
    if kind in (int, float, bool) or not isinstance(kind, type):
        return kind in (int, float, bool)
    return "numpy" in sys.modules and issubclass(kind, np.integer | np.floating | np.bool_)


def _hint_about(kind: object) -> str:
    """How to show a named tuple; empty for others."""
    if (names := getattr(kind, "_fields", ())) and isinstance(kind, type):
        listed = ", ".join(f'"{name}"' for name in names)
        return f"show the fields of the tuple: Annotated[{kind.__name__}, Features({listed})]; or "
    return ""


def require_no_new_type(kind: object, field: str) -> None:
    """Raises `SchemaError` for a field whose type is a `NewType`."""
    if isinstance(kind, typing.NewType):
        raise SchemaError(
            f"{field} has the NewType {kind.__name__}, write its own type: "
            f"{_show(kind.__supertype__)}"
        )


def _is_collection(cls: object) -> bool:
    """Whether a class is a collection, such as a list or dict, except text, bytes, arrays and
    named tuples."""
    is_one = isinstance(cls, type) and issubclass(cls, Collection) and not hasattr(cls, "_fields")
    is_array = "numpy" in sys.modules and cls is np.ndarray
    return is_one and cls not in (str, bytes) and not is_array


def declared_fields(cls: type) -> dict[str, Any]:
    """Types of the fields that become features, in order."""
    hints = resolved_hints(cls)
    fields = dataclasses.fields(cls)
    return {f.name: hints[f.name] for f in fields if f.metadata.get("entity_env") != "hidden"}


def resolved_hints(cls: type) -> dict[str, Any]:
    """Types of a class's fields, without aliases."""
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
        return {name: without_aliases(kind) for name, kind in hints.items()}
    except NameError as error:
        raise SchemaError(
            f"{cls.__name__}: the annotation {error.name!r} cannot be resolved; "
            "define the type at the top level of its module, above this class"
        ) from error


def _show(kind: object) -> str:
    return kind.__name__ if isinstance(kind, type) and not typing.get_args(kind) else str(kind)
