"""Looks at entities as they leave the network, compiled, each with its gradient.

Whoever looks is given all entities and hands them on for the next look. So their gradient comes
back as one matrix that each look adds to: left to torch, every look makes a matrix of its own,
mostly zeros, and all are added up.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from entity_env.agents.rogue_net.batch_layout import Layout
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


def pick(x: Tensor, packed: Int) -> Passed:
    """`(len(packed), d_model)`: entities."""
    if not torch.is_grad_enabled():
        return _picked(x, packed), x
    passed: Passed = _Pick.apply(x, packed)  # type: ignore[no-untyped-call]
    return passed


def mean(x: Tensor, layout: Layout) -> Passed:
    """`(num_rows, d_model)`: mean over all entities of each observation; 0 where none is."""
    if not torch.is_grad_enabled():
        return _averaged(x, layout), x
    passed: Passed = _Mean.apply(x, layout)  # type: ignore[no-untyped-call]
    return passed


def compare(x: Tensor, wanted: Tensor, bias: Tensor, pairs: Pairs) -> Passed:
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
