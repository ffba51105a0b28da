"""Arrays as tensors, and tensors as arrays."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


def as_tensor(array: NDArray[np.generic], device: torch.device) -> Tensor:
    """A tensor on `device`, without a copy where that is possible.

    torch has no tensors that cannot be written, so what is read-only is copied.
    """
    if not array.flags.writeable:
        array = array.copy()
    return torch.from_numpy(array).to(device)


def as_array(tensor: Tensor) -> NDArray[np.float32]:
    """The numbers of a float32 tensor on the CPU, in its own memory where they lie side by side."""
    numbers: NDArray[np.float32] = tensor.detach().contiguous().numpy()
    return numbers


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
        """Tells what belongs to no module; torch takes the part of a name before its first dot."""
        if not strict:
            return
        known = tuple(f"{prefix}{name}." for name in self._by_name)
        unexpected_keys.extend(
            key for key in state_dict if key.startswith(prefix) and not key.startswith(known)
        )
