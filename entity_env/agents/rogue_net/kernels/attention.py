"""Attention within each observation, forward and backward; entities stay packed.

Batched matrix products spend most of their time outside the product if the matrices have only five
rows. Therefore all of attention, including softmax, is one loop over observations. A vector
register holds the logits of 8 queries and one key, so softmax sums whole registers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.attention_matmul import (
    mix_rows,
    multiply_rows,
    prefetch_rows,
    prefetch_rows_to_write,
)
from entity_env.agents.rogue_net.kernels.attention_short import (
    FEW,
    limit_few,
    mix_few,
    softmax_few,
    softmax_few_backward,
)
from entity_env.agents.rogue_net.kernels.simd import (
    LANES,
    ONE,
    Untyped,
    advance,
    inlined,
    load,
    pointer,
    store,
    vectorized,
    zeros,
)
from entity_env.agents.rogue_net.kernels.softmax import mask_hidden, softmax, softmax_backward
from entity_env.core.ragged import Floats, Ints

# Distances between weights, for `mix_rows`.
_ONE, _ROW, _NONE = 1, LANES, 0


class _Observation(NamedTuple):
    """The `length` entities of an observation, and the start of each in flat matrices.

    The next `num_later` entities belong to later observations, and are prefetched. `places` are
    starts in the matrix of queries, keys and values; `outs` are starts in matrices of `width`
    columns, `d_head` for each head.
    """

    entities: Untyped
    length: int
    num_later: int
    places: Untyped
    outs: Untyped
    width: int
    d_head: int


@inlined
def _fours(length: int) -> int:
    return (length + 3) // 4 * 4


@inlined
def _find(
    order: Ints, start: int, length: int, places: Ints, outs: Ints, width: int, d_head: int
) -> _Observation:
    """Writes the start of each entity; pads the lists with that of the last entity."""
    for i in range(length):
        out = order[start + i] * width
        places[i], outs[i] = 3 * out, out
    num_places = FEW if length <= FEW else (length + 7) // 8 * 8
    for i in range(length, num_places):
        places[i], outs[i] = places[length - 1], outs[length - 1]
    num_later, own = min(length, len(order) - start - length), pointer(order, start)
    return _Observation(own, length, num_later, pointer(places, 0), pointer(outs, 0), width, d_head)


@inlined
def _attend(
    here: _Observation,
    numbers: Untyped,
    scale: np.float32,
    room: Untyped,
    visible: Untyped,
    limits: Untyped,
    shares: Untyped,
    out: Untyped,
) -> None:
    """One head of `_forward`; prefetches the next observation."""
    width, size, length, places = here.width, here.d_head, here.length, here.places
    keys, values = advance(numbers, width), advance(numbers, 2 * width)
    num_rows, later = _fours(length), advance(here.entities, length)
    prefetch_rows(numbers, later, here.num_later, 3 * width, size)
    multiply_rows(numbers, places, keys, places, room, size, scale, shares, length, num_rows)
    prefetch_rows(keys, later, here.num_later, 3 * width, size)
    for i in range(0, length, 8):
        block = advance(shares, i * num_rows)
        if len(visible) > 0:
            mask_hidden(block, here.entities, i, length, visible, limits)
        softmax(block, length, num_rows)
    prefetch_rows(values, later, here.num_later, 3 * width, size)
    for i in range(0, length, 8):
        block, to = advance(shares, i * num_rows), advance(here.outs, i)
        rows = min(8, length - i)
        mix_rows(block, _ONE, _ROW, _NONE, values, places, length, out, to, rows, size)


@inlined
def _unmix(
    here: _Observation,
    numbers: Untyped,
    scale: np.float32,
    room: Untyped,
    slopes: Untyped,
    shares: Untyped,
    given: Untyped,
    moved: Untyped,
) -> None:
    """One head of `_backward`; prefetches the next observation."""
    width, size, length = here.width, here.d_head, here.length
    places, outs = here.places, here.outs
    keys, values = advance(numbers, width), advance(numbers, 2 * width)
    by_key, by_value = advance(moved, width), advance(moved, 2 * width)
    num_rows, later, num_later = _fours(length), advance(here.entities, length), here.num_later
    prefetch_rows(given, later, num_later, width, size)
    prefetch_rows(numbers, later, num_later, 3 * width, size)
    multiply_rows(given, outs, values, places, room, size, ONE, slopes, length, num_rows)
    prefetch_rows_to_write(moved, later, num_later, 3 * width, size)
    for i in range(0, length, 8):
        at = i * num_rows
        softmax_backward(advance(slopes, at), advance(shares, at), scale, length, num_rows)
    prefetch_rows(keys, later, num_later, 3 * width, size)
    for i in range(0, length, 8):
        block, to = advance(slopes, i * num_rows), advance(places, i)
        rows = min(8, length - i)
        mix_rows(block, _ONE, _ROW, _NONE, keys, places, length, moved, to, rows, size)
    prefetch_rows(values, later, num_later, 3 * width, size)
    prefetch_rows_to_write(by_key, later, num_later, 3 * width, size)
    skip = 8 * num_rows - 8
    mix_rows(slopes, _ROW, _ONE, skip, numbers, places, length, by_key, places, length, size)
    prefetch_rows_to_write(by_value, later, num_later, 3 * width, size)
    mix_rows(shares, _ROW, _ONE, skip, given, outs, length, by_value, places, length, size)


@inlined
def _attend_few(
    here: _Observation,
    numbers: Untyped,
    scale: np.float32,
    limits: Untyped,
    real: Untyped,
    shares: Untyped,
    out: Untyped,
) -> None:
    """One head of `_forward`, for up to four entities."""
    keys, values = advance(numbers, here.width), advance(numbers, 2 * here.width)
    softmax_few(numbers, keys, here.places, here.length, here.d_head, scale, limits, real, shares)
    mix_few(shares, FEW, 1, values, here.places, out, here.outs, here.d_head)


@inlined
def _unmix_few(
    here: _Observation,
    numbers: Untyped,
    scale: np.float32,
    slopes: Untyped,
    shares: Untyped,
    given: Untyped,
    moved: Untyped,
) -> None:
    """One head of `_backward`, for up to four entities."""
    width, size, places, outs = here.width, here.d_head, here.places, here.outs
    keys, values = advance(numbers, width), advance(numbers, 2 * width)
    softmax_few_backward(given, outs, values, places, here.length, size, scale, shares, slopes)
    mix_few(slopes, FEW, 1, keys, places, moved, places, size)
    mix_few(slopes, 1, FEW, numbers, places, advance(moved, width), places, size)
    mix_few(shares, 1, FEW, given, outs, advance(moved, 2 * width), places, size)


@vectorized
def _forward(
    qkv: Floats,
    order: Ints,
    offsets: Ints,
    visible: NDArray[np.bool_],
    n_head: int,
    scale: np.float32,
    mixed: Floats,
    shares: Floats,
    max_length: int,
) -> None:
    width = len(mixed) // max(1, len(order))
    d_head = width // n_head
    places, outs = np.empty((2, max_length + 7), dtype=np.int64)
    limits, real = np.empty((2, FEW * FEW), dtype=np.float32)
    room = np.empty(16 * d_head, dtype=np.float32)
    limited, at = 0, 0
    for r in range(len(offsets) - 1):
        start, length = offsets[r], offsets[r + 1] - offsets[r]
        if length == 1:
            out, value = order[start] * width, (3 * order[start] + 2) * width
            for c in range(0, width, LANES):
                store(pointer(mixed, out), c, load(pointer(qkv, value), c))
        if length <= 1:
            continue
        here = _find(order, start, length, places, outs, width, d_head)
        if length <= FEW and (length != limited or len(visible) > 0):
            limit_few(here.entities, length, visible, limits, real)
            limited = length
        for head in range(0, width, d_head):
            first, block, out = pointer(qkv, head), pointer(shares, at), pointer(mixed, head)
            if length <= FEW:
                bounds, is_real = pointer(limits, 0), pointer(real, 0)
                _attend_few(here, first, scale, bounds, is_real, block, out)
            else:
                _attend(here, first, scale, pointer(room, 0), visible, limits, block, out)
            at += (length + 7) // 8 * 8 * _fours(length)


@vectorized
def _backward(
    qkv: Floats,
    order: Ints,
    offsets: Ints,
    n_head: int,
    scale: np.float32,
    shares: Floats,
    gradient: Floats,
    moved: Floats,
    max_length: int,
) -> None:
    width = len(gradient) // max(1, len(order))
    d_head = width // n_head
    places, outs = np.empty((2, max_length + 7), dtype=np.int64)
    room = np.empty(16 * d_head, dtype=np.float32)
    slopes = np.empty((max_length + 7) * (max_length + 7), dtype=np.float32)
    at = 0
    for r in range(len(offsets) - 1):
        start, length = offsets[r], offsets[r + 1] - offsets[r]
        if length == 1:
            given, out = order[start] * width, 3 * order[start] * width
            for c in range(0, width, LANES):
                store(pointer(moved, out), c, zeros())
                store(pointer(moved, out), width + c, zeros())
                store(pointer(moved, out), 2 * width + c, load(pointer(gradient, given), c))
        if length <= 1:
            continue
        here = _find(order, start, length, places, outs, width, d_head)
        for head in range(0, width, d_head):
            first, block, own = pointer(qkv, head), pointer(shares, at), pointer(slopes, 0)
            given, out = pointer(gradient, head), pointer(moved, head)
            if length <= FEW:
                _unmix_few(here, first, scale, own, block, given, out)
            else:
                _unmix(here, first, scale, pointer(room, 0), own, block, given, out)
            at += (length + 7) // 8 * 8 * _fours(length)


def kernels() -> tuple[Callable[..., None], Callable[..., None]]:
    """Forward and backward of attention.

    Arrays are flat float32 and int64. `d_head` is a multiple of 8; dot products of queries and keys
    are multiplied by `scale`. The shares (attention weights) of one head and observation are in
    blocks of 8 queries, with one vector per key, rounded up to a multiple of 4 keys. With two to
    four entities they are a 4 x 4 matrix, query before key; shares of a single entity are not
    written.

    forward(qkv, order, offsets, visible, n_head, scale, mixed, shares, max_length)
        Reads `(num_entities, 3 * n_head * d_head)` queries, keys and values, and the fields of
        `PackedLayout`; writes `(num_entities, n_head * d_head)` mixed values and the shares.
    backward(qkv, order, offsets, n_head, scale, shares, gradient, moved, max_length)
        Reads the gradient of the mixed values; writes the gradient of `qkv` to `moved`.
    """
    return _forward, _backward
