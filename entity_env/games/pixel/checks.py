"""Checks of tensors without reading their values, which would synchronize with the device."""

from __future__ import annotations

import torch
from torch import Tensor

from entity_env.errors import SchemaError, UsageError


def require_tensor(
    name: str,
    tensor: object,
    shape: tuple[int, ...],
    dtypes: torch.dtype | tuple[torch.dtype, ...],
    device: torch.device,
) -> None:
    """Check type, dtype, shape and device of a tensor.

    Raises:
        SchemaError: one of them differs.
    """
    if not isinstance(tensor, Tensor):
        raise SchemaError(f"{name}: expected a torch.Tensor, got {type(tensor).__name__}")
    wanted = dtypes if isinstance(dtypes, tuple) else (dtypes,)
    if tensor.dtype not in wanted:
        expected = " or ".join(str(dtype) for dtype in wanted)
        raise SchemaError(f"{name}: expected dtype {expected}, got {tensor.dtype}")
    if tensor.shape != shape:
        raise SchemaError(f"{name}: expected shape {shape}, got {tuple(tensor.shape)}")
    if tensor.device != device:
        raise SchemaError(f"{name}: expected the device {device}, got {tensor.device}")


def require_count(name: str, value: object) -> int:
    """Return a whole number from 1 to 2**31 - 1.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
        raise UsageError(f"{name}: expected a whole number from 1 to 2**31 - 1, got {value!r}")
    return value


def require_index(name: str, value: object, count: int) -> int:
    """Return a whole number from 0 to count - 1.

    Raises:
        UsageError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
        raise UsageError(f"{name}: expected a whole number from 0 to {count - 1}, got {value!r}")
    return value
