"""Activations, layers and matrix products in numpy."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from entity_env.agents.rogue_net.batch_layout import RelationLayout
from entity_env.core.ragged import Floats

Activation: TypeAlias = Callable[[Floats], Floats]

CLIP: Final = np.float32(5.0)
"""Limit of normalized features, in standard deviations."""
EPSILON: Final = np.float32(1e-5)
"""Added to the variance by every layer norm, as in torch."""
HIDDEN: Final = np.float32(-1e30)
"""Logit of an entity hidden from attention."""


class _GeluTable(NamedTuple):
    """Piecewise linear approximation of GELU, `x` times the cumulative normal distribution.

    Piece `i` is `offset[i] + slope[i] * u` for `u = x * _SCALE + _SHIFT` from `i` to `i + 1`; the
    first and the last piece are unbounded, 0 and `x`. The error is at most 2.4e-7 in exact
    arithmetic: a few float32 roundings of numbers around 1.
    """

    offset: Floats
    slope: Floats


_SCALE: Final = np.float32(512.0)
_LIMIT: Final = 6.0
"""Beyond this, the GELU differs from 0 or `x` by less than 1e-8."""
_SHIFT: Final = _SCALE * np.float32(_LIMIT) + np.float32(1)


@cache
def _gelu_table() -> _GeluTable:
    ends = np.arange(-_LIMIT, _LIMIT + 0.5 / _SCALE, 1.0 / _SCALE)
    root = math.sqrt(0.5)
    value = np.array([0.5 * x * (1.0 + math.erf(x * root)) for x in ends.tolist()])
    middle = 0.5 * (ends[1:] + ends[:-1])
    exact = np.array([0.5 * x * (1.0 + math.erf(x * root)) for x in middle.tolist()])
    slope = np.diff(value) * _SCALE
    chord = 0.5 * (value[1:] + value[:-1])
    # Halfway between chord and tangent, the error is half as large.
    offset = 0.5 * (chord + exact) - slope * middle
    offset = np.concatenate(([0.0], offset, [0.0]))
    slope = np.concatenate(([0.0], slope, [1.0]))
    in_u = slope / _SCALE
    return _GeluTable((offset - in_u * _SHIFT).astype(np.float32), in_u.astype(np.float32))


def gelu(x: Floats) -> Floats:
    """GELU in place, accurate to a few float32 roundings."""
    offset, slope = _gelu_table()
    x *= _SCALE
    x += _SHIFT
    piece = np.minimum(x, np.float32(len(slope))).astype(np.intp)
    x *= slope.take(piece, None, None, "clip")
    x += offset.take(piece, None, None, "clip")
    return x


def sigmoid(x: Floats) -> Floats:
    """`1 / (1 + exp(-x))` in place, without overflow."""
    x *= np.float32(0.5)
    np.tanh(x, out=x)
    x *= np.float32(0.5)
    x += np.float32(0.5)
    return x


ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "gelu": gelu,
    "relu": lambda x: np.maximum(x, np.float32(0), out=x),
    "sigmoid": sigmoid,
    "tanh": lambda x: np.tanh(x, out=x),
}
"""Activations by name; all work in place."""


def layer_norm(x: Floats, weight: Floats, bias: Floats) -> Floats:
    """Normalizes each row to mean 0 and deviation 1, then scales and shifts it."""
    normed: Floats = x - _mean(x)
    variance = _mean(np.square(normed))
    # NaN, not 0, if the sum of squares overflows.
    normed /= np.sqrt(variance + EPSILON) + (variance - variance)
    normed *= weight
    normed += bias
    return normed


def _mean(x: Floats) -> Floats:
    # `reduce` itself: the method `mean` takes twice as long for few numbers.
    total: Floats = np.add.reduce(x, axis=-1, keepdims=True)
    total /= np.float32(x.shape[-1])
    return total


_FEW: Final = 32
"""Up to this many numbers, Python finds maximum and sum faster than numpy."""


def softmax(logits: Floats) -> Floats:
    """Probabilities along the last axis."""
    raised: Floats
    if logits.ndim == 2 and len(logits) == 1 and logits.size <= _FEW:
        raised = np.exp(logits - max(logits[0].tolist()))
        raised /= sum(raised[0].tolist())
        return raised
    # `reduce` itself, as in `_mean`.
    raised = np.exp(logits - np.maximum.reduce(logits, axis=-1, keepdims=True))
    raised /= np.add.reduce(raised, axis=-1, keepdims=True)
    return raised


def relate(
    query: Floats,
    key: Floats,
    value: Floats,
    keys: Floats,
    values: Floats,
    *,
    relations: RelationLayout,
    n_head: int,
) -> Floats:
    """Attention of each entity to the messages from its relations; 0 without messages.

    Arguments as for `relate` of the network in torch.
    """
    width = query.shape[1]
    receivers, senders, kept = relations.messages
    keys, values = (each.reshape(-1, width) for each in (keys, values))
    if kept is not None:
        keys, values = keys[kept], values[kept]
    mixed = np.zeros_like(query)
    if not len(receivers):
        return mixed
    order = np.argsort(receivers, kind="stable")  # messages to an entity at consecutive places
    receivers, senders, heads = receivers[order], senders[order], (len(order), n_head, -1)
    keys, values = keys[order] + key[senders], values[order] + value[senders]
    logits = (query[receivers] * keys).reshape(heads).sum(axis=2)
    logits *= np.float32(1 / math.sqrt(width // n_head))
    (starts,) = np.nonzero(np.diff(receivers, prepend=-1))
    counts = np.diff(starts, append=len(receivers))
    logits -= np.maximum.reduceat(logits, starts).repeat(counts, axis=0)
    weights = np.exp(logits, logits)
    weights /= np.add.reduceat(weights, starts).repeat(counts, axis=0)
    weighted = values.reshape(heads) * weights[:, :, None]
    mixed[receivers[starts]] = np.add.reduceat(weighted.reshape(-1, width), starts)
    return mixed


def input_statistics(tensors: Mapping[str, NDArray[Any]]) -> tuple[Floats, Floats]:
    """Mean and standard deviation (1 for a constant feature), `(num_features,)` each.

    0 and 1 until two rows were counted.
    """
    count, mean = tensors["count"], tensors["mean"]
    if not count > 1:
        return np.zeros_like(mean), np.ones_like(mean)
    with np.errstate(all="ignore"):  # a damaged sum of squares, see below
        deviation = np.sqrt(tensors["squares_sum"] / (count - np.float32(1)))
    return mean, np.where(deviation > 0, deviation, np.float32(1))


class InputScale:
    """Normalizes features by statistics, and clips them.

    Args:
        tensors: `count`, `mean` and `squares_sum`.
        start: first column that is read.
    """

    def __init__(self, tensors: Mapping[str, NDArray[Any]], start: int = 0) -> None:
        self._tensors = tensors
        self._start = start
        self._known: list[bytes] = []
        """Content of the tensors at the last `read`."""
        self.read()

    def read(self) -> None:
        """Recomputes mean and deviation if their tensors have changed."""
        content = [each.tobytes() for each in self._tensors.values()]
        if content != self._known:
            self._known, self._scale = content, input_statistics(self._tensors)

    def __call__(self, x: Floats) -> Floats:
        """Normalizes `(…, num_features)`; returns a new array."""
        mean, deviation = self._scale
        normed: Floats = (x[:, self._start :] if self._start else x) - mean
        normed /= deviation
        # In place: calling `np.clip` takes longer than comparing.
        np.minimum(normed, CLIP, out=normed)
        return np.maximum(normed, -CLIP, out=normed)


_LARGEST_PRODUCT: Final = 2**19 - 1
"""Maximum number of multiplications that OpenBLAS does in one thread, for two or more rows."""
LARGEST_OF_A_ROW: Final = 2**13
"""The same for a matrix with one row, which is a vector for BLAS."""
_LARGEST_LAYER: Final = 2**14
"""Most weights of a layer that is computed in one thread, in parts: two thirds as fast as two idle
cores, and up to 400 times as fast on busy ones."""


def product(x: Floats, y: Floats, out: Floats | None = None) -> Floats:
    """`x @ y`, of two or more dimensions each, in this thread.

    More BLAS threads save nothing on the small matrices of a decision. If the processors are busy,
    waiting for these threads takes a hundred times as long as the product.
    """
    if _is_small(x, y):
        if out is None:
            # `dot` takes half the time of `matmul` for few numbers.
            few: Floats = x.dot(y) if x.ndim == y.ndim == 2 else np.matmul(x, y)
            return few
        return np.matmul(x, y, out=out)
    rows, inner, columns = x.shape[-2], *y.shape[-2:]
    size = inner * columns
    if out is None:
        shape = *np.broadcast_shapes(x.shape[:-2], y.shape[:-2]), rows, columns
        out = np.empty(shape, x.dtype)
    if rows == 1:
        out[...] = product(np.repeat(x, 2, axis=-2), y)[..., :1, :]
    elif 3 * size > _LARGEST_PRODUCT and columns > 1:
        half = columns // 2
        product(x, y[..., :half], out[..., :half])
        product(x, y[..., half:], out[..., half:])
    else:
        num_parts = -(-rows // max(3, _LARGEST_PRODUCT // size))  # of two rows or more
        for i in range(num_parts):
            part = slice(rows * i // num_parts, rows * (i + 1) // num_parts)
            np.matmul(x[..., part, :], y, out=out[..., part, :])
    return out


def _is_small(x: Floats, y: Floats) -> bool:
    """True if BLAS computes `x @ y` in one thread."""
    rows = x.shape[-2]
    is_small: bool = rows * x.shape[-1] * y.shape[-1] <= (
        _LARGEST_PRODUCT if rows > 1 else LARGEST_OF_A_ROW
    )
    return is_small


def linear(x: Floats, weight: Floats, bias: Floats, activation: str = "") -> Floats:
    """`x @ weight.T + bias`, with the activation, if any."""
    # Larger layers are worth the threads.
    in_parts = len(x) == 1 or weight.size <= _LARGEST_LAYER
    y: Floats = product(x, weight.T) if in_parts else x.dot(weight.T)
    y += bias
    return ACTIVATIONS[activation](y) if activation else y


def _convolve(x: Floats, weight: Floats, bias: Floats, stride: int, activation: str) -> Floats:
    """Maps pictures `(n, height, width, channels)` to pictures of other sizes."""
    num_outputs, kernel = len(weight), weight.shape[-1]
    # (n, height, width, channels, kernel, kernel), a view; the product copies it once.
    windows = sliding_window_view(x, (kernel, kernel), axis=(1, 2))[:, ::stride, ::stride]
    columns = windows.reshape(-1, weight[0].size)
    y: Floats = columns @ weight.reshape(num_outputs, -1).T + bias
    return ACTIVATIONS[activation](y).reshape(*windows.shape[:3], num_outputs)


def _add(x: Floats, y: Floats) -> Floats:
    x += y
    return x


def _flatten(x: Floats) -> Floats:
    return x.transpose(0, 3, 1, 2).reshape(len(x), math.prod(x.shape[1:]))


def _join(*parts: Floats) -> Floats:
    return np.concatenate(parts, axis=1)


def _repeat(x: Floats, embedding: Floats) -> Floats:
    return np.repeat(embedding, len(x), axis=0)


def _scale(x: Floats, mean: Floats, std: Floats) -> Floats:
    scaled: Floats = x * std + mean
    return scaled


OPERATIONS: Final[Mapping[str, Callable[..., Floats]]] = {
    "add": _add,
    "convolve": _convolve,
    "flatten": _flatten,
    "join": _join,
    "layer_norm": layer_norm,
    "linear": linear,
    "repeat": _repeat,
    "scale": _scale,
}
"""Operations that need only inputs, tensors and constants, by kind."""
