"""CheckedWorld, and checks of tensors.

The checks never read values of tensors, because that would wait for the device.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from entity_env.core.validation import checked_count, checked_index
from entity_env.errors import ClosedError, SchemaError


def require_tensor(
    name: str,
    tensor: object,
    shape: tuple[int, ...],
    dtypes: torch.dtype | tuple[torch.dtype, ...],
    device: torch.device,
) -> None:
    """Checks type, dtype, shape and device of a tensor."""
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
    """Integer from 1 to 2**31 - 1, because counts are int32 on the device."""
    return checked_count(name, value, most=2**31 - 1)


class CheckedWorld(ABC):
    """`World` with checked arguments; subclasses implement the underscore methods.

    Subclasses also set `height`, `width` and `device`.

    Raises:
        UsageError: a number below 1.
    """

    height: int
    width: int
    device: torch.device

    def __init__(self, num_envs: int, num_slots: int) -> None:
        self.num_envs = require_count("num_envs", num_envs)
        self.num_slots = require_count("num_slots", num_slots)
        self._is_closed = False

    def step(self, actions: Tensor) -> None:
        self._require_open("step")
        self._require("actions", actions, torch.int32)
        self._step(actions)

    def render(self, pixels: Tensor) -> None:
        self._require_open("render")
        self._require("pixels", pixels, torch.uint8, self.height, self.width)
        self._render(pixels)

    def snapshot(self, env: int, slot: int) -> None:
        self._require_open("snapshot")
        checked_index("env", env, self.num_envs)
        checked_index("slot", slot, self.num_slots)
        self._snapshot(env, slot)

    def reset(self, mask: Tensor, slots: Tensor) -> None:
        self._require_open("reset")
        self._require("mask", mask, torch.bool)
        self._require("slots", slots, torch.int32)
        self._reset(mask, slots)

    def close(self) -> None:
        self._is_closed = True

    @abstractmethod
    def _step(self, actions: Tensor) -> None: ...

    @abstractmethod
    def _render(self, pixels: Tensor) -> None: ...

    @abstractmethod
    def _snapshot(self, env: int, slot: int) -> None: ...

    @abstractmethod
    def _reset(self, mask: Tensor, slots: Tensor) -> None: ...

    def _require(self, name: str, tensor: Tensor, dtype: torch.dtype, *shape: int) -> None:
        require_tensor(name, tensor, (self.num_envs, *shape), dtype, self.device)

    def _require_open(self, method: str) -> None:
        if self._is_closed:
            raise ClosedError(f"{type(self).__name__}.{method}: the world is closed")
