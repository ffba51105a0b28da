"""Validation of arguments: accepted values, and error messages."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from numpy.testing import assert_array_equal

from entity_env import MissingExtraError, SchemaError, UsageError
from entity_env.core import validation
from entity_env.core.masks import mask_rows, nested_mask
from entity_env.core.validation import (
    OneOf,
    Range,
    check_settings,
    checked_count,
    checked_index,
    checked_mask,
    checked_seed,
    num_positional,
    parameters_of,
    require_choice,
    uses_numba,
)
from entity_env.errors import shown
from tests.helpers.strategies import untyped

NO_INTEGERS = [True, 1.0, "1", None, np.float64(1), np.bool_(True), [1]]


@pytest.mark.parametrize("value", NO_INTEGERS, ids=repr)
def test_only_integers_pass(value: object) -> None:
    with pytest.raises(UsageError, match=r"^n must be an integer, 1 or more: got "):
        checked_count("n", value)
    with pytest.raises(UsageError, match=r"^n must be an integer from 0 to 4: got "):
        checked_index("n", value, 5)
    with pytest.raises(UsageError, match=r"^a seed must be an integer, 0 or more: got "):
        checked_seed(value)


@given(st.integers(-3, 8), st.integers(-1, 2), st.none() | st.integers(3, 6))
def test_counts_have_limits(value: int, least: int, most: int | None) -> None:
    if least <= value and (most is None or value <= most):
        checked = checked_count("n", np.int64(value), least, most)
        assert (checked, type(checked)) == (value, int)
    else:
        allowed = f", {least} or more" if most is None else f" from {least} to {most}"
        with pytest.raises(UsageError, match=f"^n must be an integer{allowed}: got {value}$"):
            checked_count("n", value, least, most)


@given(st.integers(-3, 8), st.integers(1, 6))
def test_indices_are_below_a_size(value: int, size: int) -> None:
    if 0 <= value < size:
        assert checked_index("n", np.uint8(value), size) == value
    else:
        with pytest.raises(UsageError, match=f"^n must be an integer from 0 to {size - 1}: got"):
            checked_index("n", value, size)


def test_seeds_have_any_size_or_so_many_bits() -> None:
    assert checked_seed(2**100) == 2**100
    assert type(checked_seed(np.uint64(2**64 - 1), bits=64)) is int
    for seed in (-1, 2**64):
        with pytest.raises(UsageError, match=r"a seed must be an integer from 0 to 2\*\*64 - 1"):
            checked_seed(seed, bits=64)


VALUES = st.sampled_from([True, False, 0, 1, 1.0, 2, 0.5, "1", None, [True], np.bool_(True)])
MASKS = st.lists(st.lists(st.sampled_from([0, True]), max_size=3), max_size=3) | st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=3) | st.tuples(inner, inner), max_leaves=6
)


@given(
    MASKS | st.lists(st.lists(VALUES, max_size=3).map(lambda row: np.array(row, dtype=object))),
    st.tuples(st.integers(0, 3), st.integers(0, 3)),
    st.booleans(),
    st.booleans(),
)
@example([[[True], [False]], [[1], [0.0]]], (2, 1), False, False)
@example([[[True, False]], [[2, 1]]], (2, 2), False, False)
@example([[[True, False]], [[1, 1], [1, 1]]], (2, 2), False, False)
@example([[[]], [[]]], (2, 0), False, False)
@example([[[], []]], (1, 1), True, True)
def test_rows_of_masks_are_those_of_arrays(
    mask: object, shape: tuple[int, int], may_block: bool, is_global: bool
) -> None:
    """Also without numpy, and with the same errors."""
    found: list[object] = []
    is_plain = not has_arrays(mask)
    ways: list[tuple[Any, Any]] = [
        (nested_mask, sys.modules),
        (mask_rows, sys.modules),
        *([(mask_rows, {})] if is_plain else []),
    ]
    for read, modules in ways:
        try:
            with patch.object(sys, "modules", modules):
                rows = read(mask, shape, "move", may_block=may_block, is_global=is_global)
            found.append(rows.tolist() if isinstance(rows, np.ndarray) else rows)
        except SchemaError as error:
            found.append(str(error))
    assert found == found[:1] * len(found)


def has_arrays(mask: object) -> bool:
    if isinstance(mask, list | tuple):
        return any(map(has_arrays, mask))
    return isinstance(mask, np.ndarray | np.generic)


def test_masks_are_bools_one_per_environment() -> None:
    assert_array_equal(checked_mask([True, False], 2), [True, False])
    for mask in ([1, 0], [True], [[True, False]], None, np.ones(3, np.bool_)):
        with pytest.raises(
            SchemaError,
            match=r"mask needs the shape \(2,\) and bools, one per environment, such as vec",
        ):
            checked_mask(mask, 2)
    with pytest.raises(SchemaError, match="mask needs one bool per environment"):
        checked_mask(untyped([[True], [True, False]]), 2)


def test_choices() -> None:
    require_choice("mode", "b", ("a", "b"))
    with pytest.raises(UsageError, match=r"^mode must be one of a, b, got 'c'$"):
        require_choice("mode", "c", ("a", "b"))


@pytest.mark.parametrize(
    ("backend", "is_installed", "expected"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("numba", True, True),
        ("numpy", True, False),
        ("numpy", False, False),
    ],
)
def test_backends(
    backend: str, is_installed: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(validation, "has_numba", lambda: is_installed)
    assert uses_numba("Env", backend, ("auto", "numba", "numpy")) is expected


def test_a_compiled_backend_without_numba_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validation, "has_numba", lambda: False)
    with pytest.raises(MissingExtraError, match=r"Env\(backend=.numba.\).*entity-env\[fast\]"):
        uses_numba("Env", "numba", ("auto", "numba"))
    with pytest.raises(UsageError, match=r"^Env: backend must be one of auto, numba, got 'gpu'$"):
        uses_numba("Env", "gpu", ("auto", "numba"))


@dataclass(frozen=True)
class _Settings:
    count: Annotated[int, Range(1, 5)] = 1
    share: Annotated[float | None, Range(0, 1, is_below=True)] = None
    limit: Annotated[float, Range(0, is_above=True, is_endless=True)] = math.inf
    mode: Annotated[str | int, OneOf(("slow", "fast")), Range(2)] = "slow"
    names: Sequence[str] = ()
    sizes: Sequence[Sequence[Annotated[int, Range(1)]]] | None = None
    is_on: bool = False

    def __post_init__(self) -> None:
        check_settings(self)


@pytest.mark.parametrize(
    ("name", "allowed", "refused", "words"),
    [
        ("count", [1, 5], [0, 6, 1.0, True, "1", None], "an integer from 1 to 5"),
        (
            "share",
            [0, 0.5, None],
            [1, -0.1, math.nan, True, "0"],
            "a number from 0 to below 1, or none",
        ),
        ("limit", [1e-9, math.inf], [0, -1, math.nan, 10**400, None], "a number above 0"),
        (
            "mode",
            ["fast", 2],
            ["quick", 1, 2.0, None],
            "one of slow, fast, or an integer, 2 or more",
        ),
        ("names", [(), ("a", "b")], ["ab", (1,), None], "a list of names"),
        (
            "sizes",
            [((1, 2), (3,)), None],
            [((0,),), (1,), 3],
            "a list of lists of integers, 1 or more",
        ),
        ("is_on", [True, False], [0, "yes", None], "true or false"),
    ],
)
def test_settings_check_themselves(
    name: str, allowed: list[object], refused: list[object], words: str
) -> None:
    for value in allowed:
        given: dict[str, Any] = {name: value}
        assert getattr(_Settings(**given), name) == value
    for value in refused:
        given = {name: value}
        with pytest.raises(UsageError) as error:
            _Settings(**given)
        assert str(error.value).startswith(f"{name} must be {words}")
        assert str(error.value).endswith(f", got {shown(value)}")


def test_lists_of_settings_are_kept_as_tuples() -> None:
    found = _Settings(names=["a"], sizes=[[1], [2, 3]])
    assert (found.names, found.sizes) == (("a",), ((1,), (2, 3)))
    assert hash(found) == hash(_Settings(names=("a",), sizes=((1,), (2, 3))))


def _plain(obs: object, configuration: object = None, *, seed: int = 0) -> None: ...


@functools.wraps(_plain)
def _forwards(*args: Any, **kwargs: Any) -> None:  # noqa: ANN401
    _plain(*args, **kwargs)


@functools.wraps(_plain)
def _narrows(obs: object) -> None:
    _plain(obs, seed=3)


@functools.wraps(_narrows)
def _forwards_the_narrow(*args: Any, level: int = 1, **kwargs: Any) -> None:  # noqa: ANN401
    _narrows(*args, **kwargs)


def _takes_anything(*args: Any, **kwargs: Any) -> None: ...  # noqa: ANN401


@pytest.mark.parametrize(
    ("function", "names", "count"),
    [
        (_plain, {"obs", "configuration", "seed"}, 2),
        (_forwards, {"obs", "configuration", "seed"}, 2),
        (_narrows, {"obs"}, 1),
        (_forwards_the_narrow, {"obs", "level"}, 1),
        (_takes_anything, set(), 2),
        (functools.partial(_plain, 1), {"configuration", "seed"}, 1),
    ],
)
def test_wrappers_take_their_own_arguments(
    function: Callable[..., object], names: set[str], count: int
) -> None:
    assert {*parameters_of(function)} - {"args", "kwargs"} == names
    assert num_positional(function, 2) == count
