"""Checks of arguments and settings; the number of cores, and whether numba can be used."""

from __future__ import annotations

import inspect
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib.util import find_spec
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeGuard,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from entity_env.errors import MissingExtraError, SchemaError, UsageError, shown
from entity_env.lazy_imports import np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def parameters_of(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """The parameters of a call, by name.

    Those of a wrapper (`functools.wraps`); if it passes on all keywords, also of what it wraps.
    """
    own = dict(inspect.signature(function, follow_wrapped=False).parameters)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is None or not any(each.kind is each.VAR_KEYWORD for each in own.values()):
        return own
    return {**parameters_of(wrapped), **own}


def num_positional(function: Callable[..., object], most: int) -> int:
    """How many of `most` arguments a call may pass by position; wrappers as above."""
    own = inspect.signature(function, follow_wrapped=False).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in own):
        wrapped = getattr(function, "__wrapped__", None)
        return most if wrapped is None else num_positional(wrapped, most)
    by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(most, sum(each.kind in by_position for each in own))


MISFIT: Final = -1
"""Returned by a kernel that cannot use its arguments and has changed nothing."""


_NO_REAL: Final = ("c", "S", "U", "m", "M", "O")
"""Kinds of numpy types that are not real numbers, although `float` reads some of their texts."""


def is_number(value: object) -> bool:
    """Whether a value is a real number that fits a float; a 0-dimensional array may be one.

    False if its class cannot convert it, for whatever reason.
    """
    kind = type(value)
    if kind is float or kind is int or kind is bool:  # others are rare and take longer to check
        return kind is not int or abs(value) <= sys.float_info.max  # type: ignore[arg-type]  # int
    if isinstance(value, str | bytes | bytearray | complex):
        return False
    try:
        dtype = getattr(value, "dtype", None)
        if getattr(value, "ndim", 0) or getattr(dtype, "kind", "") in _NO_REAL:
            return False
        float(value)  # type: ignore[arg-type]  # the check itself
    except Exception:  # code of users
        return False
    return True


def plain_number(value: float) -> float:
    """A number as an `int` or `float`, as for JSON; whatever is not a number stays as it is."""
    kind: type = type(value)
    if kind is float or kind is int or not is_number(value):
        return value
    return int(value) if is_integer(value) else float(value)


def plain_numbers(values: Mapping[str, float]) -> dict[str, float]:
    """A copy with `plain_number` of every value."""
    return {name: plain_number(value) for name, value in values.items()}


def must_be_number(what: str, value: object) -> str:
    """Error text for a value that is not a number."""
    return f"the {what} must be a number, got {got_number(value)} ({type(value).__name__})"


def got_number(value: object) -> str:
    """A value that should have been a number, and the error that its conversion raised, if any."""
    try:
        float(value)  # type: ignore[arg-type]  # to get its error
    except (TypeError, ValueError, OverflowError):  # says what it is not
        pass
    except Exception as error:  # code of users
        return f"{shown(value)}, whose conversion raised {shown(error)}"
    return shown(value)


def metric_problem(name: object, value: object) -> str:
    """Why a metric is invalid; empty if valid."""
    if not isinstance(name, str):
        return f"the name of a metric must be a text, got {name!r} ({type(name).__name__})"
    try:
        is_sendable = "\0" not in name and name.encode() is not None
    except UnicodeEncodeError:
        is_sendable = False
    if not is_sendable:
        return f"the name of the metric {name!r} must be a text that UTF-8 can hold, without \\0"
    return "" if is_number(value) else must_be_number(f"metric {name!r}", value)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether a value is an `int` or a numpy integer, but not a bool."""
    if isinstance(value, int):
        return not isinstance(value, bool)
    return "numpy" in sys.modules and isinstance(value, np.integer)


def is_index(value: object, size: int) -> TypeGuard[int]:
    """Whether a value is an integer from 0 to `size - 1`."""
    return is_integer(value) and 0 <= value < size


def checked_count(name: str, value: object, least: int = 1, most: int | None = None) -> int:
    """Returns `value` if it is an integer from `least` to `most`, else raises `UsageError`."""
    if not is_integer(value) or value < least or (most is not None and value > most):
        allowed = f", {least} or more" if most is None else f" from {least} to {most}"
        raise UsageError(f"{name} must be an integer{allowed}: got {value!r}")
    return int(value)


def checked_index(name: str, value: object, size: int) -> int:
    """Returns `value` if it is an integer from 0 to `size - 1`, else raises `UsageError`."""
    if not is_integer(value) or not 0 <= value < size:
        raise UsageError(f"{name} must be an integer from 0 to {size - 1}: got {value!r}")
    return int(value)


def checked_seed(seed: object, *, bits: int | None = None) -> int:
    """Returns a seed that is 0 or more and, if `bits` is given, below `2**bits`; else raises
    `UsageError`."""
    if not is_integer(seed) or seed < 0 or (bits is not None and int(seed) >> bits):
        allowed = ", 0 or more" if bits is None else f" from 0 to 2**{bits} - 1"
        raise UsageError(f"a seed must be an integer{allowed}: got {seed!r}")
    return int(seed)


def checked_mask(mask: object, num_envs: int) -> NDArray[np.bool_]:
    """Returns a reset mask as `(num_envs,) bool`, True = reset, else raises `SchemaError`."""
    try:
        array = np.asarray(mask)
    except ValueError as error:  # rows of different lengths
        raise SchemaError(f"mask needs one bool per environment: {error}") from error
    if array.shape != (num_envs,) or array.dtype != np.bool_:
        raise SchemaError(
            f"mask needs the shape ({num_envs},) and bools, one per environment, such as "
            f"vec.is_over: got {array.shape} {array.dtype}"
        )
    return array


def require_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Raises `UsageError` if a setting is not one of the given texts."""
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


# ------------------------------------------------------------------ settings


class Range(NamedTuple):
    """Allowed numbers of a setting, in `Annotated[float, Range(0, 1)]`.

    Args:
        least, most: the bounds, included by default; infinite = no bound.
        is_above, is_below: exclude the lower or upper bound.
        is_endless: allow positive infinity.
    """

    least: float = -math.inf
    most: float = math.inf
    is_above: bool = False
    is_below: bool = False
    is_endless: bool = False

    def has(self, number: float) -> bool:
        """Whether a number is in the range; False for an integer larger than any float."""
        is_size = abs(number) <= sys.float_info.max or (self.is_endless and number == math.inf)
        is_least = number > self.least if self.is_above else number >= self.least
        return (
            is_size and is_least and (number < self.most if self.is_below else number <= self.most)
        )

    def words(self, noun: str) -> str:
        """The range in words, such as "a number from 0 to 1"."""
        least, most = _in_words(self.least), _in_words(self.most)
        if math.isinf(self.least):
            return noun if noun.endswith("s") else f"{noun.split()[0]} finite {noun.split()[1]}"
        if math.isinf(self.most):
            return f"{noun} above {least}" if self.is_above else f"{noun}, {least} or more"
        if self.is_above:
            return f"{noun} above {least}, {'below' if self.is_below else 'at most'} {most}"
        return f"{noun} from {least} to {'below ' * self.is_below}{most}"


class OneOf(tuple[str, ...]):
    """Allowed texts of a setting, in `Annotated[str, OneOf(("a", "b"))]`."""

    __slots__ = ()


_LONGEST_INTEGER: Final = 10**7
_ALL: Final = Range()


def _in_words(bound: float) -> str:
    return f"{bound:.4g}" if abs(bound) > _LONGEST_INTEGER or bound % 1 else f"{bound:.0f}"


class Setting(NamedTuple):
    """Allowed values of a settings field, according to its type.

    Args:
        kinds: the classes that the type consists of: one, or the members of a union.
        range: allowed numbers.
        choices: allowed texts; empty = any text.
        item: allowed items of a sequence.
    """

    kinds: tuple[type, ...]
    range: Range = _ALL
    choices: OneOf = OneOf()
    item: Setting | None = None

    @classmethod
    def of(cls, hint: object) -> Setting:
        if get_origin(hint) is Annotated:
            hint, *marks = get_args(hint)
            found = cls.of(hint)
            ranges = [each for each in marks if isinstance(each, Range)]
            choices = [each for each in marks if isinstance(each, OneOf)]
            return found._replace(
                range=[found.range, *ranges][-1], choices=[found.choices, *choices][-1]
            )
        if get_origin(hint) in (Union, UnionType):
            parts = [cls.of(each) for each in get_args(hint)]
            return cls(
                tuple(kind for each in parts for kind in each.kinds),
                next((each.range for each in parts if each.range != _ALL), _ALL),
                next((each.choices for each in parts if each.choices), OneOf()),
                next((each.item for each in parts if each.item is not None), None),
            )
        if get_origin(hint) is Literal:
            return cls((str,), choices=OneOf(get_args(hint)))
        if get_origin(hint) is Sequence:
            return cls((tuple,), item=cls.of(get_args(hint)[0]))
        return cls((hint,))  # type: ignore[arg-type]  # all other hints here are classes

    def allows(self, value: object) -> bool:
        if isinstance(value, bool) or value is None:
            return type(value) in self.kinds
        if isinstance(value, int | float):
            is_kind = float in self.kinds or (int in self.kinds and isinstance(value, int))
            return is_kind and self.range.has(value)
        if isinstance(value, str):
            return str in self.kinds and (not self.choices or value in self.choices)
        if isinstance(value, tuple) and self.item is not None:
            return all(map(self.item.allows, value))
        return isinstance(value, self.kinds) and all(map(self.range.has, _numbers(value)))

    def read(self, value: object) -> object:
        """A value as stored: sequences as tuples, JSON converted by the field's class."""
        if isinstance(value, list | tuple) and self.item is not None:
            return tuple(map(self.item.read, value))
        classes = [kind for kind in self.kinds if kind not in _PLAIN]
        if len(classes) == 1 and isinstance(value, Mapping | list | tuple):
            from_json = getattr(classes[0], "from_json", None)
            if from_json is not None:
                return from_json(value)
            if isinstance(value, Mapping):
                try:
                    return classes[0](**value)
                except TypeError as error:  # a missing or unknown setting
                    raise UsageError(str(error)) from error
        return value

    @property
    def words(self) -> str:
        if self.item is not None:
            inner, layers = self.item, ""
            while inner.item is not None:
                inner, layers = inner.item, "lists of "
            items = "names" if str in inner.kinds else inner.range.words("integers")
            words = [f"a list of {layers}{items}"]
        else:
            words = ["true or false"] * (bool in self.kinds)
            if str in self.kinds:
                words.append(f"one of {', '.join(self.choices)}" if self.choices else "a name")
            if int in self.kinds or float in self.kinds:
                noun = "a number" if float in self.kinds else "an integer"
                words.append(self.range.words(noun))
            words += [
                f"a {kind.__name__}"
                for kind in self.kinds
                if kind not in _PLAIN and not hasattr(kind, "numbers")
            ]
        return ", or ".join([*words, *["none"] * (NoneType in self.kinds)])


_PLAIN: Final = (bool, int, float, str, tuple, NoneType)


def _numbers(value: object) -> Sequence[float]:
    """The numbers of a schedule; empty for other values."""
    return getattr(value, "numbers", ())


@cache
def settings_of(cls: type) -> Mapping[str, Setting]:
    """Allowed values of each field of a dataclass."""
    hints = get_type_hints(cls, include_extras=True)
    return {each.name: Setting.of(hints[each.name]) for each in fields(cls)}


def check_settings(settings: Any) -> None:  # noqa: ANN401 - any dataclass
    """Checks a frozen dataclass against its types, and converts lists and JSON.

    Raises:
        UsageError: a value that its field's type does not allow.
    """
    cls: type = type(settings)
    for name, setting in settings_of(cls).items():
        given = getattr(settings, name)
        try:
            value = setting.read(given)
        except UsageError as error:
            raise UsageError(f"{name}: {error}") from error
        if value is not given:
            object.__setattr__(settings, name, value)
        if not setting.allows(value):
            got = value if _numbers(value) else shown(value)
            raise UsageError(f"{name} must be {setting.words}, got {got}")


# ------------------------------------------------------------------ this machine


def num_cores() -> int:
    """Number of cores that this process may use, at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


@cache
def has_numba() -> bool:
    """Whether numba is installed and may compile; does not import it."""
    may_compile = os.environ.get("NUMBA_DISABLE_JIT", "0") in ("", "0")
    return may_compile and find_spec("numba") is not None


def uses_numba(owner: str, backend: str, choices: Sequence[str]) -> bool:
    """Whether `owner` uses numba: always for "numba"; for "auto", if `has_numba()`.

    Raises `UsageError` for an unknown backend, `MissingExtraError` for "numba" if not
    `has_numba()`.
    """
    require_choice(f"{owner}: backend", backend, choices)
    if backend == "numba" and not has_numba():
        raise MissingExtraError("numba", "fast", f'{owner}(backend="numba")')
    return backend in ("auto", "numba") and has_numba()
