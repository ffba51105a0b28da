"""Entities as they leave the network, worked out for those alone that somebody looks at.

The last layer is linear. Heads look at actors and the value at a mean, so that where few entities
act most of its products need not be made: the mean of products is the product of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.torch_net.attention import is_compiled
from entity_env.agents.rogue_net.torch_net.tensors import as_array, as_tensor

Int: TypeAlias = NDArray[np.int64]
Passed: TypeAlias = tuple[Tensor, Tensor]
"""What somebody saw, and the entities for whoever looks next."""


class Pairs(NamedTuple):
    """Whom each actor is compared with.

    Args:
        rows: `(num_actors,)` observation of each actor.
        packed: `(num_actees,)` packed index of every actee.
        offsets: `(num_rows + 1,)` where those of each observation begin.
        max_actees: most actees of an observation.
    """

    rows: Int
    packed: Int
    offsets: Int
    max_actees: int


def gather(x: Tensor, packed: Int) -> Passed:
    """`(len(packed), d_model)`: entities."""
    if not torch.is_grad_enabled():
        return _picked(x, packed), x
    passed: Passed = _Pick.apply(x, packed)  # type: ignore[no-untyped-call]
    return passed


def mean_pool(x: Tensor, layout: Layout) -> Passed:
    """`(num_rows, d_model)`: mean over all entities of each observation; 0 where none is."""
    if not torch.is_grad_enabled():
        return _averaged(x, layout), x
    passed: Passed = _Mean.apply(x, layout)  # type: ignore[no-untyped-call]
    return passed


def dot(x: Tensor, wanted: Tensor, bias: Tensor, pairs: Pairs) -> Passed:
    """`(num_actors, max_actees)`: products of what actors want with what entities are.

    Args:
        x: `(num_entities, d_model)`.
        wanted: `(num_actors, d_model)`.
        bias: of the keys. It adds the same for all actees of an actor, and no probability depends
            on that: it is left out, and its gradient is 0.
        pairs: who is compared.
    """
    if not torch.is_grad_enabled():
        return _compared(x, wanted, pairs), x
    passed: Passed = _Compare.apply(x, wanted, bias, pairs)  # type: ignore[no-untyped-call]
    return passed


class _Pick(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, packed: Int) -> Passed:
        ctx.set_materialize_grads(False)
        ctx.kept = packed, x.shape[0]  # type: ignore[attr-defined]  # takes attributes
        return _picked(x, packed), x

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, by_picked: Tensor | None, by_x: Tensor | None
    ) -> tuple[Tensor | None, None]:
        from entity_env.agents.rogue_net.kernels.pooling import add_rows

        if by_picked is None:
            return by_x, None
        packed, size = ctx.kept  # type: ignore[attr-defined]  # set in forward
        by_x = _room(by_x, by_picked, size)
        add_rows(as_array(by_picked), packed, by_x.numpy())
        return by_x, None


class _Mean(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, layout: Layout) -> Passed:
        ctx.set_materialize_grads(False)
        ctx.layout = layout  # type: ignore[attr-defined]  # takes attributes
        return _averaged(x, layout), x

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, by_mean: Tensor | None, by_x: Tensor | None
    ) -> tuple[Tensor | None, None]:
        from entity_env.agents.rogue_net.kernels.pooling import mean_rows_backward

        if by_mean is None:
            return by_x, None
        layout: Layout = ctx.layout  # type: ignore[attr-defined]  # set in forward
        is_new = by_x is None
        shape = len(layout.rows), by_mean.shape[1]
        by_x = by_mean.new_empty(shape) if by_x is None else by_x.contiguous()
        place = layout.order, layout.offsets
        mean_rows_backward(as_array(by_mean), *place, by_x.numpy(), is_new)
        return by_x, None


class _Compare(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, x: Tensor, wanted: Tensor, bias: Tensor, pairs: Pairs) -> Passed:
        ctx.set_materialize_grads(False)
        ctx.kept = x, wanted, bias, pairs  # type: ignore[attr-defined]  # takes attributes
        return _compared(x, wanted, pairs), x

    @staticmethod
    @once_differentiable
    def backward(
        ctx: FunctionCtx, by_logits: Tensor | None, by_x: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        from entity_env.agents.rogue_net.kernels.pooling import compare_backward

        if by_logits is None:
            return by_x, None, None, None
        x, wanted, bias, pairs = ctx.kept  # type: ignore[attr-defined]  # set in forward
        by_x = _room(by_x, x, x.shape[0])
        by_wanted = wanted.new_zeros(wanted.shape)
        compare_backward(
            as_array(by_logits),
            (as_array(x), as_array(wanted)),
            pairs.rows,
            (pairs.packed, pairs.offsets),
            (by_x.numpy(), by_wanted.numpy()),
        )
        return by_x, by_wanted, torch.zeros_like(bias), None


def _picked(x: Tensor, packed: Int) -> Tensor:
    return x.index_select(0, as_tensor(packed, x.device))


def _averaged(x: Tensor, layout: Layout) -> Tensor:
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.kernels.pooling import mean_rows

    averaged = x.new_empty(len(layout.lengths), x.shape[1])
    mean_rows(as_array(x), layout.order, layout.offsets, averaged.numpy())
    return averaged


def _compared(x: Tensor, wanted: Tensor, pairs: Pairs) -> Tensor:
    from entity_env.agents.rogue_net.kernels.pooling import compare as write

    logits = x.new_empty(wanted.shape[0], pairs.max_actees)
    place = pairs.rows, (pairs.packed, pairs.offsets)
    write(as_array(x), as_array(wanted), *place, logits.numpy())
    return logits


def _room(before: Tensor | None, like: Tensor, size: int) -> Tensor:
    """The gradient that came before, or zeros."""
    if before is None:
        return like.new_zeros(size, like.shape[1])
    return before.contiguous()


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
            picked, self.x = gather(self.x, packed)
            return picked
        index = as_tensor(packed, self.x.device)
        picked = self.x.index_select(0, index)
        if self.hidden is None or self.last is None:
            return picked
        return picked + self.last.forward(self.hidden.index_select(0, index))

    def mean(self, layout: Layout) -> Tensor:
        """`(num_rows, d_model)`: mean over all entities of each observation; 0 where none is."""
        if self.is_compiled:
            mean, self.x = mean_pool(self.x, layout)
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
        logits, self.x = dot(self.x, wanted, bias, pairs)
        return logits


def _sum_rows(x: Tensor, layout: Layout) -> Tensor:
    """`(num_rows, width)`: sum over the entities of each observation."""
    rows = as_tensor(layout.rows, x.device)
    return x.new_zeros(len(layout.lengths), x.shape[1]).index_add(0, rows, x)
