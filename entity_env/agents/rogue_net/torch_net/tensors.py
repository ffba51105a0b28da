"""Arrays as tensors, and tensors as arrays."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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
