"""A block of a transformer over packed entities, compiled where numba is installed.

An operation of torch takes longer to be called than to normalize a thousand entities, and its
result has left the cache when the next one wants it. Here a block is a few compiled passes over its
entities, and the gradient is written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable

from entity_env.agents.rogue_net.torch_net.attention import Packed, mix, unmix
from entity_env.agents.rogue_net.torch_net.tensors import as_array

_SLICE: Final = 96
"""Entities that are taken through all steps at once: what is made of them stays in the cache."""
LARGEST_MODEL: Final = 128
"""Wider blocks are left to torch: their products want the care that a library takes."""

Floats: TypeAlias = NDArray[np.float32]


class BlockWeights(NamedTuple):
    """Parameters of a block, named as in `Block`, or their gradients."""

    ln1_weight: Floats
    ln1_bias: Floats
    query_weight: Floats
    query_bias: Floats
    key_weight: Floats
    key_bias: Floats
    value_weight: Floats
    value_bias: Floats
    proj_weight: Floats
    proj_bias: Floats
    ln2_weight: Floats
    ln2_bias: Floats
    mlp_weight: Floats
    mlp_bias: Floats
    last_weight: Floats
    last_bias: Floats


class _Kept(NamedTuple):
    """What the gradient needs of a forward pass, a row for each entity (but for `shares`)."""

    x: Floats
    qkv: Floats
    shares: Floats
    mixed: Floats
    y: Floats


class CompiledBlock:
    """All of a block, for entities on the CPU."""

    def __init__(self) -> None:
        self._known: tuple[list[int], BlockWeights] | None = None
        """Where the parameters were last time, and their numbers."""

    def __reduce__(self) -> tuple[type[CompiledBlock], tuple[()]]:
        return CompiledBlock, ()  # a copy has parameters of its own

    def __call__(self, x: Tensor, packed: Packed, parameters: Sequence[Tensor]) -> Tensor:
        """Takes entities through the block.

        Args:
            x: `(num_entities, d_model)` float32.
            packed: which entities belong together.
            parameters: of the block, in the order of `BlockWeights`.

        Returns:
            `(num_entities, d_model)`.
        """
        weights = self.weights(parameters)
        if not torch.is_grad_enabled():
            return torch.from_numpy(forward(as_array(x), packed, weights)[0])
        out: Tensor = _Block.apply(x, packed, weights, *parameters)  # type: ignore[no-untyped-call]
        return out

    def weights(self, parameters: Sequence[Tensor]) -> BlockWeights:
        """Their numbers, in their own memory, which an optimizer changes in place."""
        places = [parameter.data_ptr() for parameter in parameters]
        if self._known is not None and self._known[0] == places:
            return self._known[1]
        weights = BlockWeights(*map(as_array, parameters))
        if all(parameter.is_contiguous() for parameter in parameters):  # else they are copies
            self._known = places, weights
        return weights


class _Block(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: FunctionCtx, x: Tensor, packed: Packed, weights: BlockWeights, *parameters: Tensor
    ) -> Tensor:
        out, kept = forward(as_array(x), packed, weights)
        ctx.kept = kept, packed, weights  # type: ignore[attr-defined]  # takes attributes
        return torch.from_numpy(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, by_out: Tensor) -> tuple[Tensor | None, ...]:
        by_x, by = _backward(as_array(by_out), *ctx.kept)  # type: ignore[attr-defined]  # set in forward
        return torch.from_numpy(by_x), None, None, *map(torch.from_numpy, by)


def forward(x: Floats, packed: Packed, w: BlockWeights) -> tuple[Floats, _Kept]:
    """What a block gives, and what its gradient needs."""
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.kernels.block_passes import to_out, to_qkv

    qkv = np.empty((len(x), 3 * x.shape[1]), dtype=np.float32)
    norm, weights = (w.ln1_weight, w.ln1_bias), (w.query_weight, w.key_weight, w.value_weight)
    to_qkv(x, norm, weights, (w.query_bias, w.key_bias, w.value_bias), qkv, _SLICE)
    values, shares = mix(torch.from_numpy(qkv), packed)
    mixed, y, out = values.numpy(), np.empty_like(x), np.empty_like(x)
    norm, weights = (w.ln2_weight, w.ln2_bias), (w.proj_weight, w.mlp_weight, w.last_weight)
    to_out(x, mixed, norm, weights, (w.proj_bias, w.mlp_bias, w.last_bias), y, out, _SLICE)
    return out, _Kept(x, qkv, shares, mixed, y)


def _backward(
    by_out: Floats, kept: _Kept, packed: Packed, w: BlockWeights
) -> tuple[Floats, BlockWeights]:
    """The gradients of what a block was given, by that of what it gave."""
    from entity_env.agents.rogue_net.kernels.block_passes import back_to_mixed, back_to_x

    by = BlockWeights(*map(np.zeros_like, w))
    by_mixed, by_x = np.empty_like(by_out), np.empty_like(by_out)
    back_to_mixed(
        by_out,
        (kept.mixed, kept.y),
        (w.ln2_weight, w.ln2_bias),
        (w.proj_weight, w.mlp_weight, w.last_weight),
        w.mlp_bias,
        (by.ln2_weight, by.ln2_bias),
        (by.proj_weight, by.mlp_weight, by.last_weight),
        (by.proj_bias, by.mlp_bias, by.last_bias),
        by_mixed,
        by_x,
        _SLICE,
    )
    by_qkv = unmix(torch.from_numpy(kept.qkv), torch.from_numpy(by_mixed), kept.shares, packed)
    width = by_x.shape[1]
    by_weight = np.zeros((3 * width, width), dtype=np.float32)
    by_bias = np.zeros(3 * width, dtype=np.float32)
    back_to_x(
        by_qkv.numpy(),
        kept.x,
        (w.ln1_weight, w.ln1_bias),
        (w.query_weight, w.key_weight, w.value_weight),
        (by.ln1_weight, by.ln1_bias),
        by_weight,
        by_bias,
        by_x,
        _SLICE,
    )
    query_weight, key_weight, value_weight = np.split(by_weight, 3)
    query_bias, key_bias, value_bias = np.split(by_bias, 3)
    return by_x, by._replace(
        query_weight=query_weight,
        query_bias=query_bias,
        key_weight=key_weight,
        key_bias=key_bias,
        value_weight=value_weight,
        value_bias=value_bias,
    )
