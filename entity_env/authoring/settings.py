"""Settings: the keyword arguments of a game, parsed from text and checked against annotations."""

from __future__ import annotations

import inspect
import types
import typing
from enum import Enum
from typing import Any, Final

from entity_env.core.validation import Range
from entity_env.errors import UsageError

_NOUNS: Final[dict[object, str]] = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "text",
}
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def parse_setting(text: str, annotation: object, where: str) -> object:
    """Parses the text of a setting according to its annotation; `UsageError` if impossible.

    Supports int, float, bool, str, Enums (by member name), `Literal`, None, unions of these, and
    `Annotated` of any of these, where a `Range` limits numbers. Without an annotation the value is
    the text.
    """
    for kind in _kinds(annotation):
        try:
            value = _parse(text, kind)
        except (ValueError, KeyError):
            continue
        return _in_range(value, annotation, where)
    raise UsageError(f"{where} must be {_show(annotation)}, got {text!r}")


def check_setting(value: object, annotation: object, where: str) -> object:
    """Returns `value` if the annotation allows it, else raises `UsageError`.

    A scalar of numpy becomes the number of Python that it stands for: games get only these.
    """
    if hasattr(value, "dtype") and getattr(value, "ndim", 1) == 0:
        value = value.item()  # type: ignore[attr-defined]  # of numpy, or of torch
    for kind in _kinds(annotation):
        if typing.get_origin(kind) is typing.Literal:
            # True == 1, but a listed 1 does not allow True.
            fits = any(
                value == listed and isinstance(value, bool) == isinstance(listed, bool)
                for listed in typing.get_args(kind)
            )
        elif kind is float:
            fits = isinstance(value, float | int) and not isinstance(value, bool)
        elif kind is int:
            fits = isinstance(value, int) and not isinstance(value, bool)
        else:
            base = typing.get_origin(kind) or kind
            # Nothing is known of a type variable.
            fits = kind is Any or not isinstance(base, type) or isinstance(value, base)
        if fits:
            return _in_range(value, annotation, where)
    raise UsageError(f"{where} must be {_show(annotation)}, got {value!r}")


def _in_range(value: object, annotation: object, where: str) -> object:
    """The value, if it is in the `Range` of an `Annotated`; else raises `UsageError`."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return value
    for each in getattr(annotation, "__metadata__", ()):
        if isinstance(each, Range) and not each.has(value):
            noun = "an integer" if int in _kinds(annotation) else "a number"
            raise UsageError(f"{where} must be {each.words(noun)}, got {value}")
    return value


def is_plain_setting(value: object, annotation: object) -> bool:
    """Whether a value, parsed if it is text, is a number, flag, None or listed choice."""
    if isinstance(value, str):
        try:
            value = parse_setting(value, annotation, "")
        except UsageError:
            return False
    kinds = _kinds(annotation)
    listed = [
        x
        for kind in kinds
        if typing.get_origin(kind) is typing.Literal
        for x in typing.get_args(kind)
    ]
    return isinstance(value, bool | int | float | Enum | None) or value in listed


def is_settable(annotation: object) -> bool:
    """Whether `parse_setting` can give every value of an annotation."""
    return all(
        kind in (int, float, bool, str, types.NoneType, Any)
        or typing.get_origin(kind) is typing.Literal
        or (isinstance(kind, type) and issubclass(kind, Enum))
        for kind in _kinds(annotation)
    )


def _kinds(annotation: object) -> tuple[Any, ...]:
    if annotation is inspect.Parameter.empty:
        return (Any,)
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return _kinds(args[0])
    if isinstance(annotation, typing.NewType):
        return _kinds(annotation.__supertype__)
    if origin in (typing.Union, types.UnionType):
        return tuple(kind for each in args for kind in _kinds(each))
    return (annotation,)


def _parse(text: str, kind: object) -> object:
    if typing.get_origin(kind) is typing.Literal:
        return {str(value): value for value in typing.get_args(kind)}[text]
    if kind is types.NoneType:
        return {"none": None, "None": None}[text]
    if kind is bool:
        return _TRUTH[text.lower()]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind[text]
    if kind is Any:
        return text
    if kind in (int, float, str):
        return kind(text)
    raise ValueError(text)


def _show(annotation: object) -> str:
    """The allowed values, such as `an integer or none`, `one of slow, fast`."""
    kinds = [kind for kind in _kinds(annotation) if kind is not types.NoneType]
    shown = " or ".join(map(_show_kind, kinds))
    return shown if len(kinds) == len(_kinds(annotation)) else f"{shown} or none"


def _show_kind(kind: object) -> str:
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(member.name for member in kind)
    if typing.get_origin(kind) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(kind)))
    if kind in _NOUNS:
        return _NOUNS[kind]
    is_plain = isinstance(kind, type) and typing.get_origin(kind) is None
    return getattr(kind, "__name__", str(kind)) if is_plain else str(kind)
