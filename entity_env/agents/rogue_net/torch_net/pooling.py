"""Entities as they leave the network, worked out for those alone that somebody looks at.

The last layer is linear. Heads look at actors and the value at a mean, so that where few entities
act most of its products need not be made: the mean of products is the product of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor


@dataclass(frozen=True, slots=True)
class Ends:
    """Packed entities: `x + last(hidden)`, or `x` alone.

    Args:
        x: `(num_entities, d_model)`.
        hidden: `(num_entities, 4 * d_model)`; None = nothing is left to do.
        last: the layer that is left.
    """

    x: Tensor
    hidden: Tensor | None = None
    last: nn.Linear | None = None

    def pick(self, packed: NDArray[np.int64]) -> Tensor:
        """`(len(packed), d_model)`: some entities."""
        index = as_tensor(packed, self.x.device)
        picked = self.x.index_select(0, index)
        if self.hidden is None or self.last is None:
            return picked
        return picked + self.last.forward(self.hidden.index_select(0, index))

    def mean(self, layout: Layout) -> Tensor:
        """`(num_rows, d_model)`: mean over all entities of each observation; 0 where none is."""
        count = as_tensor(np.maximum(layout.lengths, 1).astype(np.float32), self.x.device)
        count = count.unsqueeze(1)
        mean = _sum_rows(self.x, layout) / count
        if self.hidden is None or self.last is None:
            return mean
        product = functional.linear(_sum_rows(self.hidden, layout) / count, self.last.weight)
        share = as_tensor((layout.lengths > 0).astype(np.float32), self.x.device)
        return torch.addcmul(mean + product, share.unsqueeze(1), self.last.bias)


def _sum_rows(x: Tensor, layout: Layout) -> Tensor:
    """`(num_rows, width)`: sum over the entities of each observation."""
    rows = as_tensor(layout.rows, x.device)
    return x.new_zeros(len(layout.lengths), x.shape[1]).index_add(0, rows, x)
