"""Checks name the expected and actual values, and accept valid input."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from entity_env.core.validation import checked_index
from entity_env.errors import SchemaError, UsageError
from entity_env.games.pixel.worlds.checks import require_count, require_tensor

CPU = torch.device("cpu")
NO_NUMBERS: list[Any] = [True, False, 1.0, "1", None, torch.ones(())]


def check(tensor: object, dtypes: Any = torch.int32) -> None:  # noqa: ANN401 - one or several
    require_tensor("slots", tensor, (2, 3), dtypes, CPU)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (np.zeros((2, 3), np.int32), r"slots: expected a torch\.Tensor, got ndarray"),
        (None, r"slots: expected a torch\.Tensor, got NoneType"),
        (torch.zeros(2, 3), r"slots: expected dtype torch\.int32, got torch\.float32"),
        (torch.zeros(3, 2, dtype=torch.int32), r"expected shape \(2, 3\), got \(3, 2\)"),
        (torch.zeros(6, dtype=torch.int32), r"expected shape \(2, 3\), got \(6,\)"),
        (torch.zeros(2, 3, dtype=torch.int32, device="meta"), "expected the device cpu, got meta"),
    ],
)
def test_tensors(tensor: object, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        check(tensor)


def test_one_of_several_dtypes() -> None:
    wanted = (torch.int32, torch.int64)
    for dtype in wanted:
        check(torch.zeros(2, 3, dtype=dtype), wanted)
    with pytest.raises(SchemaError, match=r"torch\.int32 or torch\.int64, got torch\.bool"):
        check(torch.zeros(2, 3, dtype=torch.bool), wanted)


def test_views_fit_too() -> None:
    check(torch.zeros(3, 2, dtype=torch.int32).T)
    check(torch.zeros((), dtype=torch.int32).expand(2, 3))


@given(st.integers(-(2**40), 2**40))
def test_counts(value: int) -> None:
    if 1 <= value < 2**31:
        assert require_count("frames", value) == value
    else:
        with pytest.raises(
            UsageError, match=f"frames must be an integer from 1 to {2**31 - 1}: got {value}"
        ):
            require_count("frames", value)


@given(st.integers(1, 10), st.integers(-3, 12))
def test_indices(count: int, value: int) -> None:
    if 0 <= value < count:
        assert checked_index("slot", value, count) == value
    else:
        with pytest.raises(
            UsageError, match=f"slot must be an integer from 0 to {count - 1}: got {value}$"
        ):
            checked_index("slot", value, count)


@pytest.mark.parametrize("value", NO_NUMBERS, ids=repr)
def test_what_is_no_whole_number_is_neither(value: object) -> None:
    with pytest.raises(UsageError, match="num_envs must be an integer from 1"):
        require_count("num_envs", value)
    with pytest.raises(UsageError, match="env must be an integer from 0 to 4"):
        checked_index("env", value, 5)
