"""Attention among the entities of each observation, in two implementations.

Numba kernels work on packed entities. Batched torch products pad every observation to the length of
the longest, which took half of the time of a training step on MultiSnake. The products are still
used on GPUs, without numba, and for few entities, large heads, relative positions and dropout.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from entity_env.agents.rogue_net.batch_layout import Layout, RelationLayout
from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.relpos import RelposTables
from entity_env.agents.rogue_net.torch_net.tensors import (
    as_array,
    as_tensor,
    dropped,
    layer_norm,
    linear,
    use_kernels,
)
from entity_env.core.ragged import Floats

LARGEST_HEAD = 64
"""Largest head of the kernels; for larger heads, batched products are faster."""
HIDDEN = -1e30
"""Added to the logit of an entity hidden from attention."""


@dataclass(frozen=True, slots=True)
class PackedLayout:
    """A `Layout` for the attention kernel, which reads packed entities.

    Args:
        order, offsets: int64, as for `Layout`.
        visible: `(num_entities,)` bool, for each packed entity: the policy sees it; empty = it sees
            all.
        num_shares: size of the buffer of attention weights.
        max_length: number of entities in the largest observation.
    """

    order: NDArray[np.int64]
    offsets: NDArray[np.int64]
    visible: NDArray[np.bool_]
    n_head: int
    num_shares: int
    max_length: int

    @classmethod
    def of(cls, layout: Layout, n_head: int) -> PackedLayout:
        visible = np.empty(0, dtype=np.bool_) if layout.visible is None else layout.visible
        eights, fours = (-(-layout.lengths // size) * size for size in (8, 4))
        num_shares = n_head * int(np.dot(eights, fours))
        return cls(layout.order, layout.offsets, visible, n_head, num_shares, layout.max_length)


@dataclass(frozen=True, slots=True)
class PaddedLayout:
    """A `Layout` as tensors, for attention by batched products.

    Args:
        slots, source: int64, as for `Layout`.
        num_padded, max_length: shape of the slots.
        bias: `(num_padded * n_head, max_length, max_length)` float32 with keys before queries: 0
            or `HIDDEN`; None = nothing is hidden.
        relpos: keys and values of relative positions; None = none.
    """

    slots: Tensor
    source: Tensor
    num_padded: int
    max_length: int
    bias: Tensor | None
    relpos: RelposTables | None = None

    @classmethod
    def of(
        cls, layout: Layout, n_head: int, device: torch.device, relpos: RelposTables | None = None
    ) -> PaddedLayout:
        bias: Tensor | None = None
        if layout.hidden is not None:
            shape = (layout.num_padded, n_head, layout.max_length, layout.max_length)
            hidden = as_tensor(layout.hidden, device).unsqueeze(1)
            zeros = torch.zeros((), device=device)
            bias = zeros.masked_fill(hidden, HIDDEN).expand(shape).flatten(0, 1).contiguous()
        slots, source = as_tensor(layout.slots, device), as_tensor(layout.source, device)
        return cls(slots, source, layout.num_padded, layout.max_length, bias, relpos)


@dataclass(frozen=True, slots=True)
class PooledLayout:
    """A `Layout` as tensors, for pooling.

    Args:
        rows: `(num_entities,)` int64 observation of each packed entity.
        seen: `(num_seen,)` int64 packed index of every visible entity; None = all are visible.
        count: `(num_rows, 1)` float32 number of visible entities in each observation, at least 1.
    """

    rows: Tensor
    seen: Tensor | None
    count: Tensor

    @classmethod
    def of(cls, layout: Layout, device: torch.device) -> PooledLayout:
        seen = None if layout.visible is None else np.flatnonzero(layout.visible)
        rows = layout.rows if seen is None else layout.rows[seen]
        count = np.bincount(rows, minlength=len(layout.lengths)).astype(np.float32)
        return cls(
            as_tensor(layout.rows, device),
            None if seen is None else as_tensor(seen, device),
            as_tensor(np.maximum(count, 1)[:, None], device),
        )

    def pool(self, x: Tensor, of: str) -> Tensor:
        """`(num_rows, …)`: "mean", "max" or "meanmax" of each observation's visible entities.

        0 if none is visible.
        """
        rows = self.rows
        if self.seen is not None:
            x, rows = x.index_select(0, self.seen), rows.index_select(0, self.seen)
        none = x.new_zeros(len(self.count), x.shape[1])
        parts: list[Tensor] = []
        if "mean" in of:
            parts.append(none.index_add(0, rows, x) / self.count)
        if "max" in of:
            index = rows[:, None].expand_as(x)
            parts.append(none.scatter_reduce(0, index, x, "amax", include_self=False))
        return torch.cat(parts, dim=1)


AttentionLayout: TypeAlias = PaddedLayout | PackedLayout | PooledLayout


def attention_layout(
    layout: Layout,
    config: RogueNetConfig,
    device: torch.device,
    relpos: RelposTables | None = None,
    *,
    is_dropping: bool = False,
) -> AttentionLayout:
    """The layout for all blocks; with `is_dropping`, not for kernels: they lack dropout."""
    if config.pooling is not None:
        return PooledLayout.of(layout, device)
    is_plain = relpos is None and not is_dropping
    if is_plain and config.d_head <= LARGEST_HEAD and use_kernels(len(layout.order), device):
        return PackedLayout.of(layout, config.n_head)
    return PaddedLayout.of(layout, config.n_head, device, relpos)


class Attention(nn.Module):
    """Multi-head attention among the entities of each observation."""

    def __init__(self, config: RogueNetConfig) -> None:
        super().__init__()
        self.key = nn.Linear(config.d_model, config.d_model)
        self.query = nn.Linear(config.d_model, config.d_model)
        self.value = nn.Linear(config.d_model, config.d_model)
        self.proj = nn.Linear(config.d_model, config.d_model)
        self.n_head = config.n_head
        self.drop = nn.Dropout(config.dropout)

    def forward(self, x: Tensor, layout: PaddedLayout | PackedLayout) -> Tensor:
        """Maps packed `(num_entities, d_model)` to the same shape."""
        parts = (self.query, self.key, self.value)
        weight = torch.cat([part.weight for part in parts])
        bias = torch.cat([part.bias for part in parts])
        qkv = functional.linear(x, weight, bias)
        if isinstance(layout, PackedLayout):
            return linear(self.proj, attend(qkv, layout))
        return linear(self.proj, self._attend_padded(x, qkv, layout))

    def _attend_padded(self, x: Tensor, qkv: Tensor, layout: PaddedLayout) -> Tensor:
        qkv = pad(qkv, layout.slots, layout.source)
        shape = (layout.num_padded, layout.max_length, 3, self.n_head, -1)
        # (3, num_padded * n_head, max_length, d_head), as the batched products need it
        q, k, v = qkv.view(shape).permute(2, 0, 3, 1, 4).flatten(1, 2).contiguous().unbind()
        if layout.relpos is None:
            y = _padded_attention(q, k, v, layout.bias, self.drop)
        else:
            padded = pad(x, layout.slots, layout.source)
            y = layout.relpos.mix(q, k, v, layout.bias, padded, self.n_head, self.drop)
        y = y.view(layout.num_padded, self.n_head, layout.max_length, -1).transpose(1, 2)
        y = y.reshape(layout.num_padded * layout.max_length, -1)
        return y.index_select(0, layout.slots)


class Pool(nn.Module):
    """Mean, maximum or both of an observation's visible entities, for each of its entities."""

    def __init__(self, config: RogueNetConfig) -> None:
        super().__init__()
        self.prepool = nn.Linear(config.d_model, config.d_model)
        num_pooled = 2 * config.d_model if config.pooling == "meanmax" else config.d_model
        self.proj = nn.Linear(num_pooled, config.d_model)
        self.pooling = config.pooling or ""

    def forward(self, x: Tensor, layout: PooledLayout) -> Tensor:
        """Maps packed `(num_entities, d_model)` to the same shape.

        If no entity of an observation is visible, the input of `proj` is 0.
        """
        pooled = layout.pool(linear(self.prepool, x), self.pooling)
        return linear(self.proj, pooled).index_select(0, layout.rows)


class RelationAttention(nn.Module):
    """Attention of entities to those to which they have a relation, before the transformer.

    Its time and memory are proportional to the number of relations.

    Args:
        has_out: relations can be selected.
    """

    def __init__(self, config: RogueNetConfig, *, has_out: bool) -> None:
        super().__init__()
        width = config.d_model
        self.ln = nn.LayerNorm(width)
        self.query, self.key, self.value, self.proj = (nn.Linear(width, width) for _ in range(4))
        # Columns for the source, then for the target.
        self.relation_key, self.relation_value = (nn.Linear(width, 2 * width) for _ in range(2))
        self.out = nn.Linear(3 * width, width) if has_out else None
        self.n_head = config.n_head
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.zeros_(module.bias)

    def forward(self, x: Tensor, embedded: Tensor, relations: RelationLayout) -> Tensor:
        """Maps packed `(num_entities, d_model)` to the same shape.

        Args:
            embedded: `(num_relations, d_model)`.
        """
        normed = layer_norm(self.ln, x)
        query, key, value = (linear(each, normed) for each in (self.query, self.key, self.value))
        keys, values = (linear(each, embedded) for each in (self.relation_key, self.relation_value))
        mixed = relate(query, key, value, keys, values, relations=relations, n_head=self.n_head)
        return x + linear(self.proj, mixed)

    def encoded(self, x: Tensor, embedded: Tensor, relations: RelationLayout) -> Tensor | None:
        """`(num_relations, d_model)`, given the encoded entities; None if no action selects."""
        if self.out is None:
            return None
        pairs = as_tensor(relations.pairs.reshape(-1), x.device)
        ends = x.index_select(0, pairs).view(len(embedded), 2 * x.shape[1])
        return functional.gelu(linear(self.out, torch.cat((embedded, ends), dim=1)))


def relate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    relations: RelationLayout,
    n_head: int,
) -> Tensor:
    """`(num_entities, d_model)`: attention of each entity to the messages from its relations.

    0 for entities without messages.

    Args:
        query, key, value: `(num_entities, d_model)`.
        keys, values: of relations, `(num_relations, 2 * d_model)`.
    """
    num_entities, width = query.shape
    *ends, which = relations.messages
    receivers, senders = (as_tensor(each, query.device) for each in ends)
    keys, values = (each.view(2 * len(each), width) for each in (keys, values))
    if which is not None:
        kept = as_tensor(which, query.device)
        keys, values = (each.index_select(0, kept) for each in (keys, values))
    keys, values = keys + key.index_select(0, senders), values + value.index_select(0, senders)
    heads = len(keys), n_head, width // n_head
    logits = (query.index_select(0, receivers) * keys).view(heads).sum(dim=2)
    logits = logits / math.sqrt(heads[2])
    none = logits.new_zeros(num_entities, n_head)
    index = receivers[:, None].expand_as(logits)
    top = none.scatter_reduce(0, index, logits.detach(), "amax", include_self=False)
    weights = torch.exp(logits - top.index_select(0, receivers))
    total = none.index_add(0, receivers, weights).index_select(0, receivers)
    weighted = values.view(heads) * (weights / total)[:, :, None]
    return torch.zeros_like(query).index_add(0, receivers, weighted.view(-1, width))


def _padded_attention(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, drop: nn.Dropout
) -> Tensor:
    # Keys before queries, and softmax over dimension 1: over a short last dimension torch's CPU
    # softmax is not vectorized and took as long as both products.
    scale = 1.0 / math.sqrt(q.shape[-1])
    if bias is None:
        logits = torch.bmm(k, q.transpose(1, 2)) * scale
    else:
        logits = torch.baddbmm(bias, k, q.transpose(1, 2), alpha=scale)
    return torch.bmm(dropped(drop, torch.softmax(logits, dim=1)).transpose(1, 2), v)


def pad(packed: Tensor, slots: Tensor, source: Tensor) -> Tensor:
    """`(num_entities, width)` to `(num_slots, width)`.

    Empty slots hold values of an arbitrary entity and propagate no gradient, so nothing may depend
    on them.
    """
    padded: Tensor = _Pad.apply(packed, slots, source)  # type: ignore[no-untyped-call]
    return padded


class _Pad(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, packed: Tensor, slots: Tensor, source: Tensor) -> Tensor:
        ctx.save_for_backward(slots)
        return packed.index_select(0, source)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None, None]:
        (slots,) = ctx.saved_tensors  # type: ignore[attr-defined]  # set by save_for_backward
        return gradient.index_select(0, slots), None, None


def attend(qkv: Tensor, packed: PackedLayout) -> Tensor:
    """Attention by the numba kernel."""
    if not torch.is_grad_enabled():
        return torch.from_numpy(attention_forward(as_array(qkv), packed)[0])
    mixed: Tensor = _Attend.apply(qkv, packed)  # type: ignore[no-untyped-call]
    return mixed


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: FunctionCtx, qkv: Tensor, packed: PackedLayout) -> Tensor:
        array = as_array(qkv)
        mixed, shares = attention_forward(array, packed)
        ctx.saved = array, shares, packed  # type: ignore[attr-defined]  # takes attributes
        return torch.from_numpy(mixed)

    @staticmethod
    @once_differentiable
    def backward(ctx: FunctionCtx, gradient: Tensor) -> tuple[Tensor, None]:
        qkv, shares, packed = ctx.saved  # type: ignore[attr-defined]  # set in forward
        by_qkv = attention_backward(qkv, as_array(gradient), shares, packed)
        return torch.from_numpy(by_qkv), None


def attention_forward(qkv: Floats, packed: PackedLayout) -> tuple[Floats, Floats]:
    """The mixed values, and the attention weights that `attention_backward` needs.

    `qkv` is `(num_entities, 3 * d_model)`, contiguous.
    """
    forward, _ = _kernels()
    d_head = qkv.shape[1] // 3 // packed.n_head
    wide = _widened(qkv, d_head)
    mixed = np.empty((len(wide), wide.shape[1] // 3), dtype=np.float32)
    shares = np.empty(packed.num_shares, dtype=np.float32)
    forward(
        wide.reshape(-1),
        packed.order,
        packed.offsets,
        packed.visible,
        packed.n_head,
        np.float32(d_head**-0.5),
        mixed.reshape(-1),
        shares,
        packed.max_length,
    )
    return _narrowed(mixed, d_head), shares


def attention_backward(
    qkv: Floats, gradient: Floats, shares: Floats, packed: PackedLayout
) -> Floats:
    """The gradient of `qkv`, given the gradient of the mixed values; both contiguous."""
    _, backward = _kernels()
    d_head = qkv.shape[1] // 3 // packed.n_head
    wide = _widened(qkv, d_head)
    by_qkv = np.empty_like(wide)
    backward(
        wide.reshape(-1),
        packed.order,
        packed.offsets,
        packed.n_head,
        np.float32(d_head**-0.5),
        shares,
        _widened(gradient, d_head).reshape(-1),
        by_qkv.reshape(-1),
        packed.max_length,
    )
    return _narrowed(by_qkv, d_head)


def _widened(x: Floats, d_head: int) -> Floats:
    """Every head zero-padded to a multiple of 8 numbers."""
    if d_head % 8 == 0:
        return x
    num_rows, num_heads = len(x), x.shape[1] // d_head
    heads = x.reshape(num_rows, num_heads, d_head)
    wide = np.pad(heads, ((0, 0), (0, 0), (0, -d_head % 8)))
    return wide.reshape(num_rows, num_heads * wide.shape[2])


def _narrowed(x: Floats, d_head: int) -> Floats:
    """Every head without the padding of `_widened`."""
    if d_head % 8 == 0:
        return x
    wide = d_head + -d_head % 8
    heads = x.reshape(len(x), x.shape[1] // wide, wide)[:, :, :d_head]
    return np.ascontiguousarray(heads).reshape(len(x), heads.shape[1] * d_head)


@cache
def _kernels() -> tuple[Callable[..., None], Callable[..., None]]:
    # Late import: numba is slow to load, and optional.
    from entity_env.agents.rogue_net.kernels.attention import kernels

    return kernels()
