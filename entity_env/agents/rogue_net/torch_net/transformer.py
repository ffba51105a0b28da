"""A transformer over the entities of each observation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from entity_env.agents.rogue_net.batch_layout import Layout
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.relpos import RelposBuckets
from entity_env.agents.rogue_net.torch_net.attention import (
    LARGEST_HEAD,
    Packed,
    attend,
    is_compiled,
)
from entity_env.agents.rogue_net.torch_net.block import LARGEST_MODEL, BlockWeights, CompiledBlock
from entity_env.agents.rogue_net.torch_net.pooling import Ends
from entity_env.agents.rogue_net.torch_net.relpos import RelposEncoding, RelposTables
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.core.spaces import EntityName


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


HIDDEN = -1e9
"""Added to the logit of what an entity must not attend to."""


@dataclass(frozen=True, slots=True)
class Slots:
    """A `Layout` as tensors, for attention by batched products.

    Args:
        slots: `(num_entities,)` int64 slot of each packed entity.
        source: `(num_padded * max_length,)` int64 packed entity of each slot.
        num_padded, max_length: shape of the slots.
        bias: `(num_padded * n_head, max_length, max_length)` float32, key before query: 0 or
            `HIDDEN`; None = nothing is hidden.
    """

    slots: Tensor
    source: Tensor
    num_padded: int
    max_length: int
    bias: Tensor | None
    relpos: RelposTables | None = None
    """What attention looks up of relative positions."""


Place: TypeAlias = Slots | Packed
"""Where attention finds the entities of each observation."""


def place_of(
    layout: Layout,
    config: RogueNetConfig,
    device: torch.device,
    relpos: RelposTables | None = None,
) -> Place:
    """What attention needs of a layout, once for all blocks."""
    if relpos is None and config.d_head <= LARGEST_HEAD and is_compiled(len(layout.order), device):
        return Packed.of(layout, config.n_head)
    return _slots_of(layout, config.n_head, device, relpos)


def _slots_of(
    layout: Layout, n_head: int, device: torch.device, relpos: RelposTables | None
) -> Slots:
    bias: Tensor | None = None
    if layout.hidden is not None:
        shape = (layout.num_padded, n_head, layout.max_length, layout.max_length)
        hidden = as_tensor(layout.hidden, device).unsqueeze(1)
        zeros = torch.zeros((), device=device)
        bias = zeros.masked_fill(hidden, HIDDEN).expand(shape).flatten(0, 1).contiguous()
    return Slots(
        slots=as_tensor(layout.slots, device),
        source=as_tensor(layout.source, device),
        num_padded=layout.num_padded,
        max_length=layout.max_length,
        bias=bias,
        relpos=relpos,
    )


class Attention(nn.Module):
    """Lets every entity attend to the entities of its observation."""

    def __init__(self, config: RogueNetConfig) -> None:
        super().__init__()
        self.key = nn.Linear(config.d_model, config.d_model)
        self.query = nn.Linear(config.d_model, config.d_model)
        self.value = nn.Linear(config.d_model, config.d_model)
        self.proj = nn.Linear(config.d_model, config.d_model)
        self.n_head = config.n_head

    def forward(self, x: Tensor, place: Place) -> Tensor:
        """`(num_entities, d_model)` to the same, packed."""
        parts = (self.query, self.key, self.value)
        weight = torch.cat([part.weight for part in parts])
        bias = torch.cat([part.bias for part in parts])
        qkv = functional.linear(x, weight, bias)
        y = attend(qkv, place) if isinstance(place, Packed) else self._in_slots(x, qkv, place)
        return _linear(self.proj, y)

    def _in_slots(self, x: Tensor, qkv: Tensor, slots: Slots) -> Tensor:
        """Attention as batched products over padded observations."""
        qkv = to_slots(qkv, slots.slots, slots.source)
        shape = (slots.num_padded, slots.max_length, 3, self.n_head, -1)
        # (3, num_padded * n_head, max_length, d_head): what the batched products need
        q, k, v = qkv.view(shape).permute(2, 0, 3, 1, 4).flatten(1, 2).contiguous().unbind()
        if slots.relpos is None:
            y = self._mix(q, k, v, slots.bias)
        else:
            padded = to_slots(x, slots.slots, slots.source)
            y = slots.relpos.mix(q, k, v, slots.bias, padded, self.n_head)
        y = y.view(slots.num_padded, self.n_head, slots.max_length, -1).transpose(1, 2)
        y = y.reshape(slots.num_padded * slots.max_length, -1)
        return from_slots(y, slots.slots)

    def _mix(self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
        # Keys before queries, and the softmax over keys along dimension 1: over a short last
        # dimension torch's CPU softmax is not vectorized and took as long as both products.
        scale = 1.0 / math.sqrt(q.shape[-1])
        if bias is None:
            logits = torch.bmm(k, q.transpose(1, 2)) * scale
        else:
            logits = torch.baddbmm(bias, k, q.transpose(1, 2), alpha=scale)
        return torch.bmm(torch.softmax(logits, dim=1).transpose(1, 2), v)


class Block(nn.Module):
    """Adds attention, then a perceptron, each on normalized input."""

    def __init__(self, config: RogueNetConfig) -> None:
        super().__init__()
        self.ln1 = nn.LayerNorm(config.d_model)
        self.ln2 = nn.LayerNorm(config.d_model)
        self.attn = Attention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.d_model, 4 * config.d_model),
            nn.GELU(),
            nn.Linear(4 * config.d_model, config.d_model),
        )
        self._compiled = CompiledBlock()

    def forward(self, x: Tensor, place: Place) -> Tensor:
        """`(num_entities, d_model)` to the same, packed."""
        if self.is_whole(place):
            return self._compiled(x, place, self._in_order())
        x, hidden, last = self.begin(x, place)
        return x + _linear(last, hidden)

    def is_whole(self, place: Place) -> TypeGuard[Packed]:
        """Whether compiled code does all of it at once, which is sooner than to leave a part."""
        return isinstance(place, Packed) and len(self.ln1.weight) <= LARGEST_MODEL

    def begin(self, x: Tensor, place: Place) -> tuple[Tensor, Tensor, nn.Linear]:
        """All but the last layer: `x`, what that layer is given, and the layer."""
        # The layers as functions: to call a module takes as long as to multiply a small matrix.
        x = x + self.attn.forward(_norm(self.ln1, x), place)
        first, last = self.mlp[0], cast(nn.Linear, self.mlp[2])
        return x, functional.gelu(_linear(first, _norm(self.ln2, x))), last

    def weights(self) -> BlockWeights:
        """Its parameters as arrays, in their own memory where they are contiguous."""
        return self._compiled.weights(self._in_order())

    def _in_order(self) -> list[Tensor]:
        """Parameters as in `BlockWeights`."""
        attn = self.attn
        ends = self.ln2, self.mlp[0], self.mlp[2]
        layers = (self.ln1, attn.query, attn.key, attn.value, attn.proj, *ends)
        return [
            cast(Tensor, layer._parameters[name]) for layer in layers for name in ("weight", "bias")
        ]


def _linear(layer: nn.Module, x: Tensor) -> Tensor:
    parameters = layer._parameters
    return functional.linear(x, parameters["weight"], parameters["bias"])  # type: ignore[arg-type]


def _norm(layer: nn.LayerNorm, x: Tensor) -> Tensor:
    parameters = layer._parameters
    return torch.layer_norm(
        x, layer.normalized_shape, parameters["weight"], parameters["bias"], layer.eps
    )


class Transformer(nn.Module):
    """Runs the blocks one after another; no normalization at the end.

    Args:
        config: number and size of the blocks.
        names: the types of entities, for relative positions that tell them apart.
    """

    relpos_encoding: RelposEncoding | None

    def __init__(self, config: RogueNetConfig, names: Sequence[EntityName] = ()) -> None:
        super().__init__()
        relpos = config.relpos_encoding
        self.relpos_encoding = None if relpos is None else RelposEncoding(config, relpos, names)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.n_layer))
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def look_up(self, pairs: RelposBuckets) -> RelposTables | None:
        """Keys and values of relative positions, once for all blocks."""
        return None if self.relpos_encoding is None else self.relpos_encoding(pairs)

    def forward(self, x: Tensor, place: Place) -> Tensor:
        """`(num_entities, d_model)` to the same, packed."""
        for block in self.blocks:
            x = cast(Block, block).forward(x, place)
        return x

    def ends(self, x: Tensor, place: Place) -> Ends:
        """The same, but of the last block only what somebody looks at."""
        blocks = [cast(Block, block) for block in self.blocks]
        if not blocks:
            return Ends(x)
        for block in blocks[:-1]:
            x = block.forward(x, place)
        if blocks[-1].is_whole(place):
            return Ends(blocks[-1].forward(x, place))
        return Ends(*blocks[-1].begin(x, place))
