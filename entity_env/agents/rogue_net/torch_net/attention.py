"""Attention over packed entities, compiled where numba is installed.

Batched products of torch need every observation padded to the longest one, moved there and back;
of the time of a training step on MultiSnake they took half.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.torch_net.tensors import as_array
from entity_env.core.validation import has_numba

LARGEST_HEAD = 64
"""Larger heads are left to batched products, which are good at them."""
FEW = 32
"""So many entities are left to torch alone."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A `Layout` for attention that moves no entity.

    Args:
        order: `(num_entities,)` int64, the packed entity in each place.
        offsets: `(num_rows + 1,)` int64, where the places of each observation begin.
        visible: `(num_entities,)` bool, of each packed entity; empty = all are.
        n_head: heads.
        num_shares: numbers that are kept of how much entities attend to each other.
        max_length: entities of the largest observation.
    """

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]
    visible: NDArray[np.bool_]
    n_head: int
    num_shares: int
    max_length: int

    @classmethod
    def of(cls, layout: Layout, n_head: int) -> Packed:
        """Of all entities of a layout."""
        visible = np.empty(0, dtype=np.bool_) if layout.visible is None else layout.visible
        eights, fours = (-(-layout.lengths // size) * size for size in (8, 4))
        num_shares = n_head * int(np.dot(eights, fours))
        return cls(layout.order, layout.offsets, visible, n_head, num_shares, layout.max_length)


def is_compiled(num_entities: int, device: torch.device) -> bool:
    """Whether compiled code takes care of so many entities: on a CPU, where numba is installed.

    Not of the few of a single observation: to play a game, nobody should wait for numba to load.
    """
    return num_entities > FEW and device.type == "cpu" and has_numba()


def attend(qkv: Tensor, packed: Packed) -> Tensor:
    """Lets every entity attend to those of its observation.

    Args:
        qkv: `(num_entities, 3 * d_model)` float32, query, key and value of each packed entity.
        packed: where they belong.

    Returns:
        `(num_entities, d_model)`: values, mixed head by head.
    """
    if not torch.is_grad_enabled():
        return mix(qkv.contiguous(), packed)[0]
    mixed: Tensor = _Attend.apply(qkv, packed)  # type: ignore[no-untyped-call]
    return mixed


def mix(qkv: Tensor, packed: Packed) -> tuple[Tensor, NDArray[np.float32]]:
    """The mixed values, and what `unmix` needs of the share of every entity in every other."""
    forward, _ = _kernels()
    d_head = qkv.shape[1] // 3 // packed.n_head
    wide = _widened(qkv, d_head)
    mixed = wide.new_empty(len(wide), wide.shape[1] // 3)
    shares = np.empty(packed.num_shares, dtype=np.float32)
    forward(
        flat(wide),
        packed.order,
        packed.offsets,
        packed.visible,
        packed.n_head,
        np.float32(d_head**-0.5),
        flat(mixed),
        shares,
        packed.max_length,
    )
    return _narrowed(mixed, d_head), shares


def unmix(qkv: Tensor, gradient: Tensor, shares: NDArray[np.float32], packed: Packed) -> Tensor:
    """The gradient of `qkv`, by that of the mixed values and what `mix` told."""
    _, backward = _kernels()
    d_head = qkv.shape[1] // 3 // packed.n_head
    wide = _widened(qkv, d_head)
    moved = torch.empty_like(wide)
    backward(
        flat(wide),
        packed.order,
        packed.offsets,
        packed.n_head,
        np.float32(d_head**-0.5),
        shares,
        flat(_widened(gradient, d_head)),
        flat(moved),
        packed.max_length,
    )
    return _narrowed(moved, d_head)


def _widened(x: Tensor, d_head: int) -> Tensor:
    """Every head with zeros up to a multiple of eight numbers."""
    if d_head % 8 == 0:
        return x
    return functional.pad(x.view(len(x), -1, d_head), (0, -d_head % 8)).flatten(1)


def _narrowed(x: Tensor, d_head: int) -> Tensor:
    """Every head without those zeros."""
    if d_head % 8 == 0:
        return x
    return x.view(len(x), -1, d_head + -d_head % 8)[:, :, :d_head].flatten(1)


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, qkv: Tensor, packed: Packed) -> Tensor:
        qkv = qkv.contiguous()
        mixed, shares = mix(qkv, packed)
        ctx.save_for_backward(qkv)
        ctx.packed, ctx.shares = packed, shares  # type: ignore[attr-defined]  # takes attributes
        return mixed

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        (qkv,) = ctx.saved_tensors  # type: ignore[attr-defined]  # set by save_for_backward
        packed: Packed = ctx.packed  # type: ignore[attr-defined]  # set in forward
        shares = ctx.shares  # type: ignore[attr-defined]  # set in forward
        return unmix(qkv, gradient.contiguous(), shares, packed), None


def flat(tensor: Tensor) -> NDArray[np.float32]:
    """The numbers of a contiguous tensor, one after another, in its own memory."""
    return as_array(tensor).reshape(-1)


@cache
def _kernels() -> tuple[Callable[..., None], Callable[..., None]]:
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.kernels.attention import kernels

    return kernels()
