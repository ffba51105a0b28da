"""Arrays as tensors."""

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
