"""Moves entities between the packed matrix and the padded slots of their observations.

A packed entity has exactly one slot, so both moves and both gradients are plain gathers and
copies; autograd's own gradient of `index_select` adds row by row, which took three times as long.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable


class _ToSlots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, packed: Tensor, slots: Tensor, source: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return packed.index_select(0, source)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors  # type: ignore[attr-defined]  # set by save_for_backward
        return gradient.index_select(0, slots), None, None


class _FromSlots(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, padded: Tensor, slots: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        ctx.num_slots = len(padded)  # type: ignore[attr-defined]  # a context takes attributes
        return padded.index_select(0, slots)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (slots,) = ctx.saved_tensors  # type: ignore[attr-defined]  # set by save_for_backward
        padded = gradient.new_zeros(ctx.num_slots, gradient.shape[1])  # type: ignore[attr-defined]
        return padded.index_copy_(0, slots, gradient), None


def to_slots(packed: Tensor, slots: Tensor, source: Tensor) -> Tensor:
    """`(num_entities, width)` to `(num_slots, width)`; empty slots hold some entity's values.

    Nothing may depend on an empty slot: it passes no gradient on.
    """
    moved: Tensor = _ToSlots.apply(packed, slots, source)  # type: ignore[no-untyped-call]
    return moved


def from_slots(padded: Tensor, slots: Tensor) -> Tensor:
    """`(num_slots, width)` back to `(num_entities, width)`."""
    moved: Tensor = _FromSlots.apply(padded, slots)  # type: ignore[no-untyped-call]
    return moved
