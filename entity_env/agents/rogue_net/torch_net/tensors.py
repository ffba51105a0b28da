"""Arrays and tensors, layers as functions, modules by name, use of numba kernels."""

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
"""Up to this many entities, torch is used instead of kernels."""
FEW_PRODUCTS = 1 << 18
"""Maximum number of multiplications of a product in numpy, which starts threads for large ones."""


_TORCH_ONLY: Final = ContextVar("torch_only", default=False)


@contextmanager
def torch_only() -> Iterator[None]:
    """Context in which this thread computes everything in torch, even with numba."""
    token = _TORCH_ONLY.set(True)
    try:
        yield
    finally:
        _TORCH_ONLY.reset(token)


def has_kernels() -> bool:
    """True if numba is installed, and not disabled by `torch_only`."""
    return has_numba() and not _TORCH_ONLY.get()


def use_kernels(num_entities: int, device: torch.device) -> bool:
    """True if numba kernels compute a batch: with numba, on a CPU, for more than `FEW` entities.

    For a single observation, which has few entities, playing a game must not wait for numba to
    load.
    """
    return num_entities > FEW and device.type == "cpu" and has_kernels()


def as_tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """A tensor on `device`; copies only for another device, or a read-only array."""
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array).to(device)


def as_tensors(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, Tensor]:
    """Tensors on the CPU by name; see `as_tensor`."""
    cpu = torch.device("cpu")
    return {name: as_tensor(array, cpu) for name, array in arrays.items()}


def as_array(tensor: Tensor) -> NDArray[np.float32]:
    """A float32 CPU tensor as an array, without a copy if it is contiguous."""
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
    """The output of an `nn.Dropout`; outside training, the input itself."""
    return functional.dropout(x, drop.p) if drop.training and drop.p else x


class NamedModules(nn.Module):
    """Modules by name, like `nn.ModuleDict`, but allows names such as "keys" or "a.b"."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._by_name = dict(modules)
        self._modules.update(modules)

    def items(self) -> ItemsView[str, nn.Module]:
        return self._by_name.items()

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

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
        """Reports unknown keys; torch would use only the part of a name before its first dot."""
        if not strict:
            return
        known = tuple(f"{prefix}{name}." for name in self._by_name)
        unexpected_keys.extend(
            key for key in state_dict if key.startswith(prefix) and not key.startswith(known)
        )
