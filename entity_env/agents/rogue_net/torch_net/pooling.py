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
from entity_env.agents.rogue_net.torch_net import torch_looks
from entity_env.agents.rogue_net.torch_net.attention import is_compiled
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.agents.rogue_net.torch_net.torch_looks import Pairs


@dataclass(slots=True)
class Ends:
    """Packed entities: `x + last(hidden)`, or `x` alone.

    Each look may replace `x` by itself as the next look must see it, so that gradients come back
    in one matrix: nobody else may use it.

    Args:
        x: `(num_entities, d_model)`.
        hidden: `(num_entities, 4 * d_model)`; None = nothing is left to do.
        last: the layer that is left.
    """

    x: Tensor
    hidden: Tensor | None = None
    last: nn.Linear | None = None

    @property
    def is_compiled(self) -> bool:
        """Whether compiled code looks at them; it must for `compare`."""
        return self.hidden is None and is_compiled(self.x.shape[0], self.x.device)

    def pick(self, packed: NDArray[np.int64]) -> Tensor:
        """`(len(packed), d_model)`: some entities."""
        if self.is_compiled:
            picked, self.x = torch_looks.pick(self.x, packed)
            return picked
        index = as_tensor(packed, self.x.device)
        picked = self.x.index_select(0, index)
        if self.hidden is None or self.last is None:
            return picked
        return picked + self.last.forward(self.hidden.index_select(0, index))

    def mean(self, layout: Layout) -> Tensor:
        """`(num_rows, d_model)`: mean over all entities of each observation; 0 where none is."""
        if self.is_compiled:
            mean, self.x = torch_looks.mean(self.x, layout)
            return mean
        count = as_tensor(np.maximum(layout.lengths, 1).astype(np.float32), self.x.device)
        count = count.unsqueeze(1)
        mean = _sum_rows(self.x, layout) / count
        if self.hidden is None or self.last is None:
            return mean
        product = functional.linear(_sum_rows(self.hidden, layout) / count, self.last.weight)
        share = as_tensor((layout.lengths > 0).astype(np.float32), self.x.device)
        return torch.addcmul(mean + product, share.unsqueeze(1), self.last.bias)

    def compare(self, wanted: Tensor, bias: Tensor, pairs: Pairs) -> Tensor:
        """`(num_actors, max_actees)`: products of what actors want with entities.

        Only their softmax means anything: what adds the same for all actees of an actor is left
        out. Where an observation has no more actees, the product is 0.

        Args:
            wanted: `(num_actors, d_model)`.
            bias: what keys have added to them; left out.
            pairs: whom each actor is compared with.
        """
        logits, self.x = torch_looks.compare(self.x, wanted, bias, pairs)
        return logits


def _sum_rows(x: Tensor, layout: Layout) -> Tensor:
    """`(num_rows, width)`: sum over the entities of each observation."""
    rows = as_tensor(layout.rows, x.device)
    return x.new_zeros(len(layout.lengths), x.shape[1]).index_add(0, rows, x)
