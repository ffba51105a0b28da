"""Settings: conversion of text to values, by annotation."""

from __future__ import annotations

import inspect
from typing import Annotated, Any, Literal, NewType, Optional, TypeVar, Union

import pytest

from entity_env import UsageError
from entity_env.authoring.settings import check_setting, parse_setting
from tests.helpers.strategies import Move

EMPTY = inspect.Parameter.empty


@pytest.mark.parametrize(
    ("text", "annotation", "value"),
    [
        ("6", int, 6),
        ("-1", int, -1),
        ("0.5", float, 0.5),
        ("6", float, 6.0),
        ("true", bool, True),
        ("No", bool, False),
        ("1", bool, True),
        ("0", bool, False),
        ("6", str, "6"),
        ("UP", Move, Move.UP),
        ("fast", Literal["slow", "fast"], "fast"),
        ("2", Literal[1, 2], 2),
        ("none", int | None, None),
        ("None", Optional[int], None),  # noqa: UP045 - users write this
        ("6", int | None, 6),
        ("0.5", Union[int, float], 0.5),  # noqa: UP007 - users write this
        ("6", int | str, 6),
        ("6", Annotated[int, "cells"], 6),
        ("none", Annotated[int | None, "cells"] | None, None),
        ("six", int | str, "six"),
        ("six", Any, "six"),
        ("six", EMPTY, "six"),
    ],
)
def test_text_means(text: str, annotation: object, value: object) -> None:
    parsed = parse_setting(text, annotation, "snake: setting 'x'")
    assert parsed == value
    assert type(parsed) is type(value)
    assert check_setting(value, annotation, "x") is value


@pytest.mark.parametrize(
    ("text", "annotation", "message"),
    [
        ("six", int, "snake: setting 'x' must be an integer, got 'six'"),
        ("0.5", int, "must be an integer"),
        ("much", float, "must be a number, got"),
        ("maybe", bool, "must be true or false"),
        ("up", Move, "must be one of UP, DOWN, LEFT, RIGHT, got 'up'"),
        ("medium", Literal["slow", "fast"], "must be one of slow, fast, got 'medium'"),
        ("odd", Literal["slow"] | None, "must be one of slow or none, got 'odd'"),
        ("odd", Optional[Literal["slow"]], "must be one of slow or none, got 'odd'"),  # noqa: UP045
        ("six", int | None, "must be an integer or none"),
        ("(1, 2)", tuple[int, int], r"must be tuple\[int, int\]"),
    ],
)
def test_text_that_means_nothing_is_refused(text: str, annotation: object, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_setting(text, annotation, "snake: setting 'x'")


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (6, float),
        (None, int | None),
        (1, Literal[1, 2]),
        (True, Literal[True, "all"]),
        ("all", Literal[True, "all"]),
        ((1, 2), tuple[int, int]),
        ([1], list[int]),
        (object(), Any),
        (object(), EMPTY),
        (3, NewType("Id", int)),
        (3, TypeVar("T")),
    ],
)
def test_values_that_fit_pass(value: object, annotation: object) -> None:
    assert check_setting(value, annotation, "x") is value


@pytest.mark.parametrize(
    ("value", "annotation"),
    [
        (True, int),
        (True, float),
        (0.5, int),
        (1, bool),
        (None, int),
        (3, Literal[1, 2]),
        (True, Literal[1, 2]),
        (0, Literal[True, False]),
        (0, Move),
        ([1], tuple[int, int]),
        (0.5, int | None),
        (0.5, NewType("Id", int)),
    ],
)
def test_values_that_do_not_fit_are_refused(value: object, annotation: object) -> None:
    with pytest.raises(UsageError, match=r"x must be .*, got "):
        check_setting(value, annotation, "x")
