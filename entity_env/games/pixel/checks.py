"""Checks that never read a tensor's values, so that nobody waits for its device."""

from __future__ import annotations

import torch
from torch import Tensor

from entity_env.core.validation import checked_count
from entity_env.errors import SchemaError


def require_tensor(
    name: str,
    tensor: object,
    shape: tuple[int, ...],
    dtypes: torch.dtype | tuple[torch.dtype, ...],
    device: torch.device,
) -> None:
    """Check type, dtype, shape and device of a tensor.

    Raises:
        SchemaError: with the name, what was expected and what came.
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
    """An integer from 1 to 2**31 - 1: counts are int32 on the device.

    Raises:
        UsageError: anything else.
    """
    return checked_count(name, value, most=2**31 - 1)
