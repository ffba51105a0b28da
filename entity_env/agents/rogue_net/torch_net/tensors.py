"""Arrays and tensors, layers as functions, modules by name, and where numba kernels apply."""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from entity_env.core.validation import has_numba

FEW = 32
"""Up to this many entities are left to torch."""
FEW_PRODUCTS = 1 << 18
"""Of two matrices: more are left to torch, because OpenBLAS starts threads for them."""


_TORCH_ONLY: Final = ContextVar("torch_only", default=False)


@contextmanager
def torch_only() -> Iterator[None]:
    """Leaves all that this thread computes in the block to torch, also where numba is installed."""
    token = _TORCH_ONLY.set(True)
    try:
        yield
    finally:
        _TORCH_ONLY.reset(token)


def has_kernels() -> bool:
    """Whether numba kernels may be used: it is installed, and this is not left to torch."""
    return has_numba() and not _TORCH_ONLY.get()


def use_kernels(num_entities: int, device: torch.device) -> bool:
    """Whether numba kernels take a batch: on a CPU, where numba is installed.

    Not the few entities of a single observation: to play a game must not wait for numba to load.
    """
    return num_entities > FEW and device.type == "cpu" and has_kernels()


def as_tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """A tensor on `device`, without a copy where possible: torch has no read-only tensors."""
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array).to(device)


def as_tensors(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, Tensor]:
    """Tensors on the CPU by name, as `as_tensor`."""
    cpu = torch.device("cpu")
    return {name: as_tensor(array, cpu) for name, array in arrays.items()}


def as_array(tensor: Tensor) -> NDArray[np.float32]:
    """A float32 tensor on the CPU as an array, without a copy where it is contiguous."""
    numbers: NDArray[np.float32] = tensor.detach().contiguous().numpy()
    return numbers


# Layers as functions: calling a module takes as long as multiplying a small matrix.
def linear(layer: nn.Module, x: Tensor) -> Tensor:
    """The output of an `nn.Linear`."""
    parameters = layer._parameters
    return functional.linear(x, parameters["weight"], parameters["bias"])  # type: ignore[arg-type]


def layer_norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    """The output of an `nn.LayerNorm`."""
    parameters = layer._parameters
    shape, eps = layer.normalized_shape, layer.eps
    return torch.layer_norm(x, shape, parameters["weight"], parameters["bias"], eps)


def dropped(drop: nn.Dropout, x: Tensor) -> Tensor:
    """The output of an `nn.Dropout`, which is the input itself but in training."""
    return functional.dropout(x, drop.p) if drop.training and drop.p else x


class NamedModules(nn.Module):
    """Holds modules by name, like `nn.ModuleDict`, but takes names such as "keys" or "a.b"."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._by_name = dict(modules)
        self._modules.update(modules)

    def items(self) -> ItemsView[str, nn.Module]:
        """Every name and its module, in order."""
        return self._by_name.items()

    def __getitem__(self, name: str) -> nn.Module:
        return self._by_name[name]

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, object],
        prefix: str,
        local_metadata: Mapping[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Reports unknown keys; torch would take the part of a name before its first dot."""
        if not strict:
            return
        known = tuple(f"{prefix}{name}." for name in self._by_name)
        unexpected_keys.extend(
            key for key in state_dict if key.startswith(prefix) and not key.startswith(known)
        )
