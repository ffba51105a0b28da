"""The transformer over the entities of each observation, and readers of its output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.relpos import RelposBuckets
from entity_env.agents.rogue_net.torch_net.attention import AttentionLayout
from entity_env.agents.rogue_net.torch_net.block import TransformerBlock
from entity_env.agents.rogue_net.torch_net.relpos import RelposEncoding, RelposTables
from entity_env.agents.rogue_net.torch_net.tensors import (
    as_array,
    as_tensor,
    dropped,
    use_kernels,
)
from entity_env.core.spaces import EntityName


class Transformer(nn.Module):
    """Runs the blocks in sequence; no normalization at the end.

    Args:
        config: number and size of the blocks.
        names: entity types, for relative positions that depend on them.
    """

    relpos_encoding: RelposEncoding | None

    def __init__(self, config: RogueNetConfig, names: Sequence[EntityName] = ()) -> None:
        super().__init__()
        relpos = config.relpos_encoding
        self.relpos_encoding = None if relpos is None else RelposEncoding(config, relpos, names)
        self.drop = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(TransformerBlock(config) for _ in range(config.n_layer))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def look_up(self, pairs: RelposBuckets) -> RelposTables | None:
        """Keys and values of relative positions, once for all blocks."""
        return None if self.relpos_encoding is None else self.relpos_encoding(pairs)

    def forward(self, x: Tensor, layout: AttentionLayout) -> Tensor:
        """Maps packed `(num_entities, d_model)` to the same shape."""
        x = dropped(self.drop, x)
        for block in self.blocks:
            x = cast(TransformerBlock, block).forward(x, layout)
        return x

    def encode(self, x: Tensor, layout: AttentionLayout) -> EncodedEntities:
        """Like `forward` without dropout; if no kernel computes the last block, its last layer is
        left to the readers.
        """
        blocks = [cast(TransformerBlock, block) for block in self.blocks]
        for block in blocks[:-1]:
            x = block.forward(x, layout)
        if not blocks or blocks[-1].has_kernel(layout):
            return EncodedEntities(blocks[-1].forward(x, layout) if blocks else x)
        return EncodedEntities(*blocks[-1].begin(x, layout))


@dataclass(slots=True)
class EncodedEntities:
    """Packed output of the transformer: `x + last(hidden)`, or only `x`.

    Heads read only actors and actees, and the value head reads a mean. The last layer is linear, so
    if few entities are read, most of its products are unnecessary.

    Args:
        x: `(num_entities, d_model)`.
        hidden: `(num_entities, 4 * d_model)`; None = `x` is complete.
        last: the remaining layer.
    """

    x: Tensor
    hidden: Tensor | None = None
    last: nn.Linear | None = None

    def gather(self, packed: NDArray[np.int64]) -> Tensor:
        """`(len(packed), d_model)`: the entities with these indices."""
        index = as_tensor(packed, self.x.device)
        if self.hidden is None or self.last is None:
            if not self._has_kernels():
                return self.x.index_select(0, index)
            gathered: Tensor
            gathered, self.x = _Gather.apply(self.x, index)  # type: ignore[no-untyped-call]
            return gathered
        gathered = self.x.index_select(0, index)
        return gathered + self.last.forward(self.hidden.index_select(0, index))

    def mean_pool(self, layout: Layout) -> Tensor:
        """`(num_rows, d_model)`: mean over the entities of each observation; 0 if it has none."""
        if self.hidden is None and self._has_kernels():
            pooled: Tensor
            pooled, self.x = _MeanPool.apply(self.x, layout)  # type: ignore[no-untyped-call]
            return pooled
        count = as_tensor(np.maximum(layout.lengths, 1).astype(np.float32), self.x.device)
        count = count.unsqueeze(1)
        mean = _sum_rows(self.x, layout) / count
        if self.hidden is None or self.last is None:
            return mean
        product = functional.linear(_sum_rows(self.hidden, layout) / count, self.last.weight)
        share = as_tensor((layout.lengths > 0).astype(np.float32), self.x.device)
        return torch.addcmul(mean + product, share.unsqueeze(1), self.last.bias)

    def _has_kernels(self) -> bool:
        return self.x.requires_grad and use_kernels(len(self.x), self.x.device)


def _sum_rows(x: Tensor, layout: Layout) -> Tensor:
    """`(num_rows, width)`: sum over the entities of each observation."""
    rows = as_tensor(layout.rows, x.device)
    return x.new_zeros(len(layout.lengths), x.shape[1]).index_add(0, rows, x)


# Each reader passes the entities on to the next reader. In the backward pass, it adds its gradient
# in place to that of the next reader, so nothing else may use `x` in between. Torch would allocate
# and add a matrix per reader, which took a tenth of a CherryPick minibatch.
class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        ctx.saved = x.shape, index  # type: ignore[attr-defined]  # a context takes attributes
        ctx.set_materialize_grads(False)
        return x.index_select(0, index), x

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, by_gathered: Tensor | None, by_x: Tensor | None
    ) -> tuple[Tensor | None, None]:
        from entity_env.agents.rogue_net.kernels.reading import add_rows

        shape, index = ctx.saved  # type: ignore[attr-defined]  # set in forward
        if by_gathered is None:
            return by_x, None
        by_x = torch.zeros(shape) if by_x is None else by_x.contiguous()
        add_rows(as_array(by_gathered), index.numpy(), as_array(by_x))
        return by_x, None


class _MeanPool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        from entity_env.agents.rogue_net.kernels.reading import mean_rows

        ctx.saved = x.shape, layout  # type: ignore[attr-defined]  # a context takes attributes
        ctx.set_materialize_grads(False)
        pooled = torch.zeros(len(layout.lengths), x.shape[1])
        mean_rows(as_array(x), layout.order, layout.offsets, pooled.numpy())
        return pooled, x

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, by_pooled: Tensor | None, by_x: Tensor | None
    ) -> tuple[Tensor | None, None]:
        from entity_env.agents.rogue_net.kernels.reading import mean_rows_backward

        shape, layout = ctx.saved  # type: ignore[attr-defined]  # set in forward
        if by_pooled is None:
            return by_x, None
        is_new = by_x is None
        by_x = torch.empty(shape) if by_x is None else by_x.contiguous()
        given, place = as_array(by_pooled), (layout.order, layout.offsets)
        mean_rows_backward(given, *place, is_new, as_array(by_x))
        return by_x, None
