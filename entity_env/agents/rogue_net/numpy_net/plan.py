"""`Plan`: every call of numpy that embeds one observation of a given size, bound to its arrays.

With ten entities a call of numpy takes longer than its arithmetic, and what surrounds the call
(views, shapes, new arrays, names that are looked up) as long again. A plan does the latter once.

All blocks keep a state of `d_model + 2` columns an entity: its embedding minus the mean of it; a
constant whose square is what a layer norm adds to the sum of squares, and which carries the biases
of heads; and the mean. Layer norms divide the first columns by the root of the sum of squares, and
their result has a column of ones for the bias of the matrix after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.numpy_net.functions import (
    HIDDEN,
    Call,
    gelu_calls,
    product_call,
)
from entity_env.agents.rogue_net.numpy_net.relpos import RelposArrays
from entity_env.core.ragged import Floats
from entity_env.core.spaces import EntityName


def _einsum_rows(x: Floats, y: Floats, out: Floats) -> None:
    np.einsum("ij,ij->i", x, y, out=out)


row_dot: Callable[[Floats, Floats, Floats], object] = getattr(np, "vecdot", _einsum_rows)
"""Dot products of rows. Five of them are a tenth of a decision by `einsum`, which numpy 1 has."""
_MIN_SUM = 1e-25
_MAX_SUM = 1e30
"""Sums of unnormalized attention between these are exact enough; others are computed again."""
_MAX_LOGIT = 50.0
"""Sums of attention of smaller logits are between `_MIN_SUM` and `_MAX_SUM`."""
_LARGEST_DOT = 8192
"""Length of vectors for which BLAS wakes no other thread."""
_CALL = 150_000
"""Multiplications in the time by which attention among whole states is shorter otherwise."""


class Columns(NamedTuple):
    """Columns of one entity type in the matrix of all features."""

    name: EntityName
    own: slice
    shared: slice
    mark: int
    """Column that is 1 for entities of this type."""
    own_mean: Floats
    shared_mean: Floats


@dataclass(frozen=True, slots=True)
class Embedding:
    """Parameters of the embeddings of all types.

    Args:
        columns: of every type.
        limit: `(num_columns,)` of the centered features.
        linear: `(num_columns, d_model + 1)`, the linear layer and a constant 1.
        centering: `(d_model + 1, d_model + 1)`; the last column of the product is a constant.
        scale: `(num_types, d_model)` of the layer norms.
        state: `(d_model, d_model + 2)`, to a state.
        shift: `(num_types, d_model + 2)` of the layer norms, as states.
    """

    columns: list[Columns]
    limit: Floats
    linear: Floats
    centering: Floats
    scale: Floats
    state: Floats
    shift: Floats


@dataclass(frozen=True, slots=True)
class Block:
    """Parameters of one block of the transformer; the last row of those of norms is a bias.

    Args:
        attention: `(d_model + 1, width)` to query, key, value and a one, head after head; then the
            gate of relative positions, if any.
        projection: `(n_head * (d_head + 1), d_model + 2)`.
        scores: `(d_model + 1, n_head * (d_model + 1))`: with it a query is compared with normed
            states, instead of keys; None = it would be too large.
        values: `(n_head * (d_model + 1), d_model + 2)`, the projection of mixed normed states.
        largest_logit: no attention logit is larger, or smaller than its negative; infinite if that
            is not known.
        hidden: `(d_model + 1, d_hidden + 1)`, with a constant unit.
        output: `(d_hidden + 1, d_model + 2)`.
    """

    attention: Floats
    projection: Floats
    scores: Floats | None
    values: Floats
    largest_logit: float
    hidden: Floats
    output: Floats


@dataclass(frozen=True, slots=True)
class Parameters:
    """All that plans compute with."""

    n_head: int
    d_head: int
    has_relpos: bool
    embedding: Embedding
    blocks: list[Block]


class Size(NamedTuple):
    """What a plan depends on.

    Args:
        length: number of entities, at least 1.
        num_wanted: how many states are wanted; None = all.
        is_hidden: whether an entity is hidden.
    """

    length: int
    num_wanted: int | None
    is_hidden: bool


class Buffers:
    """Memory that plans share, by name: one of them runs at a time."""

    def __init__(self) -> None:
        self._flat: dict[tuple[str, type], NDArray[Any]] = {}
        self.laid_out: object = None
        """The mark of the plan that has last set what depends on types."""

    def floats(self, name: str, *shape: int) -> Floats:
        """An array with anything in it, contiguous; the same memory for the same name."""
        return self._array(name, np.float32, shape)

    def indices(self, name: str, *shape: int) -> NDArray[np.intp]:
        """The same of indices."""
        return self._array(name, np.intp, shape)

    def _array(self, name: str, dtype: type, shape: tuple[int, ...]) -> NDArray[Any]:
        size = math.prod(shape)
        flat = self._flat.get((name, dtype))
        if flat is None or len(flat) < size:
            # Earlier plans keep the smaller one: twice the size bounds all of them together.
            flat = np.empty(size if flat is None else max(size, 2 * len(flat)), dtype)
            self._flat[name, dtype] = flat
        return flat[:size].reshape(shape)


class _Positions:
    """What relative positions add to attention."""

    def __init__(self) -> None:
        self.tables: RelposArrays | None = None
        """Those of the observation that is being embedded."""

    def add_logits(self, q: Floats, rows: NDArray[np.intp] | None, logits: Floats) -> None:
        logits += self._of(rows).logits(q[None])[0]

    def add_values(
        self, raised: Floats, gate: Floats, rows: NDArray[np.intp] | None, mixed: Floats
    ) -> None:
        tables = self._of(rows)
        gated = tables.relpos.activate(gate[None]) if gate.shape[1] else None
        mixed += tables.values(raised[None], gated)[0]

    def _of(self, rows: NDArray[np.intp] | None) -> RelposArrays:
        tables = self.tables
        if tables is None:
            raise TypeError("this network needs the tables of relative positions")
        return tables if rows is None else tables.of_queries(rows)


class Plan:
    """Embeds observations of one size, see `run`. Not for several threads at once."""

    def __init__(self, parameters: Parameters, size: Size, buffers: Buffers) -> None:
        length, num_wanted, is_hidden = size
        self._parameters = parameters
        self._buffers = buffers
        self._length = length
        self._positions = _Positions()
        self._bias = buffers.floats("bias", length, length) if is_hidden else None
        self._wanted = None if num_wanted is None else np.empty(num_wanted, dtype=np.intp)
        embedding = parameters.embedding
        self._mark = object()  # not the plan: memory of a plan in a cycle would be freed late
        self._counts: tuple[int, ...] = ()
        self._own: list[tuple[EntityName, Floats, Floats]] = []
        self._shared: list[tuple[Floats, Floats]] = []
        self._wide = buffers.floats("wide", length, len(embedding.limit))
        self._flat = self._wide.reshape(-1)
        self._scale = buffers.floats("scale", length, embedding.scale.shape[1])
        self._shift = buffers.floats("shift", length, embedding.shift.shape[1])
        self._calls: list[Call] = []
        is_few = num_wanted is not None and num_wanted < length
        x = self._embed()
        for i, block in enumerate(parameters.blocks):
            rows = self._wanted if is_few and i == len(parameters.blocks) - 1 else None
            x = self._block(block, x, rows)
        self._state = x
        self._picked = None if is_few and parameters.blocks else self._wanted

    def run(
        self,
        counts: tuple[int, ...],
        arrays: Mapping[EntityName, Floats],
        shared: Floats,
        visible: NDArray[np.bool_] | None,
        wanted: NDArray[np.int64] | None,
        tables: RelposArrays | None,
    ) -> Floats | None:
        """States, a new array `(num_wanted, d_model + 2)`.

        None if a feature is not finite, or so large that its square is not.

        Args:
            counts: number of entities of each type.
            arrays: features of every type with entities.
            shared: the global features.
            visible: `(num_entities,)`; read if one is hidden.
            wanted: entities whose states are returned.
            tables: of relative positions, if the network has them.
        """
        if self._buffers.laid_out is not self._mark or counts != self._counts:
            self._lay_out(counts)
        for name, mean, out in self._own:
            np.subtract(arrays[name], mean, out)
        for mean, out in self._shared:
            np.subtract(shared, mean, out)
        flat = self._flat
        total = flat.dot(flat) if len(flat) <= _LARGEST_DOT else np.add.reduce(flat)
        if not math.isfinite(total):
            return None
        if self._wanted is not None and wanted is not None:
            self._wanted[:] = wanted
        if self._bias is not None and visible is not None:
            np.multiply(visible[:, None] & ~visible, HIDDEN, self._bias)
        self._positions.tables = tables
        for call, arguments in self._calls:
            call(*arguments)
        self._positions.tables = None
        return self._state.copy() if self._picked is None else self._state.take(self._picked, 0)

    def _lay_out(self, counts: tuple[int, ...]) -> None:
        """Sets what depends on the type of each entity."""
        embedding, wide = self._parameters.embedding, self._wide
        self._buffers.laid_out = None
        self._own, self._shared = [], []
        wide[:] = 0.0
        stop = 0
        for number, (columns, count) in enumerate(zip(embedding.columns, counts, strict=True)):
            if not count:
                continue
            start, stop = stop, stop + count
            rows = wide[start:stop]
            rows[:, columns.mark] = 1.0
            self._scale[start:stop] = embedding.scale[number]
            self._shift[start:stop] = embedding.shift[number]
            if len(columns.own_mean):
                self._own.append((columns.name, columns.own_mean, rows[:, columns.own]))
            if len(columns.shared_mean):
                self._shared.append((columns.shared_mean, rows[:, columns.shared]))
        self._counts = counts
        self._buffers.laid_out = self._mark

    def _embed(self) -> Floats:
        """Calls from features to states.

        Arrays are contiguous and as large as each other: with rows of 9 or 32 numbers, numpy takes
        longer from row to row than for a row.
        """
        embedding, length, wide = self._parameters.embedding, self._length, self._wide
        d_model, floats = len(embedding.state), self._buffers.floats
        highest, lowest = (floats(name, *wide.shape) for name in ("highest", "lowest"))
        zeros = floats("zeros", length, d_model + 1)
        highest[:], lowest[:], zeros[:] = embedding.limit, -embedding.limit, 0.0  # for all plans
        above, centered = (floats(name, length, d_model + 1) for name in ("above", "centered"))
        scaled, x = floats("scaled", length, d_model), floats("state", length, d_model + 2)
        self._add(partial(np.minimum, out=wide), wide, highest)
        self._add(partial(np.maximum, out=wide), wide, lowest)
        self._multiply(wide, embedding.linear, above)
        self._add(partial(np.maximum, out=above), above, zeros)
        self._multiply(above, embedding.centering, centered)
        self._divide_by_deviation(centered, scaled)
        self._add(np.multiply, scaled, self._scale, scaled)
        self._multiply(scaled, embedding.state, x)
        self._add(np.add, x, self._shift, x)
        return x

    def _block(self, block: Block, x: Floats, rows: NDArray[np.intp] | None) -> Floats:
        """Calls from states to those of all entities, or of the entities `rows`."""
        floats = self._buffers.floats
        normed = self._norm(x, "normed")
        if rows is not None:
            of_rows = floats("state of rows", len(rows), x.shape[1])
            self._add(x.take, rows, 0, of_rows, "clip")
            x = of_rows
        added = floats("added", *x.shape)
        scores = block.scores
        if scores is not None and self._compares_states(block, scores, len(normed), len(x)):
            mixed, projection = self._attend_to_states(block, scores, normed, rows), block.values
        else:
            mixed, projection = self._attend(block, normed, rows), block.projection
        self._multiply(mixed.reshape(len(x), -1), projection, added)
        self._add(np.add, x, added, x)
        hidden = floats("hidden", len(x), block.hidden.shape[1])
        self._multiply(self._norm(x, "normed for mlp"), block.hidden, hidden)
        piece, part = self._buffers.indices("piece", *hidden.shape), floats("part", *hidden.shape)
        self._calls += gelu_calls(hidden, piece, part)
        self._multiply(hidden, block.output, added)
        self._add(np.add, x, added, x)
        return x

    def _compares_states(self, block: Block, scores: Floats, length: int, num_rows: int) -> bool:
        """Whether `_attend_to_states` is shorter than `_attend`."""
        n_head, d_head = self._parameters.n_head, self._parameters.d_head
        pairs = 2 * num_rows * n_head * length
        among_states = pairs * len(scores) + 2 * num_rows * scores.size
        among_heads = (
            pairs * (d_head + 1) + length * block.attention.size + num_rows * block.projection.size
        )
        return among_states <= among_heads + _CALL

    def _attend_to_states(
        self, block: Block, scores: Floats, normed: Floats, rows: NDArray[np.intp] | None
    ) -> Floats:
        """Calls to `(num_rows, n_head, d_model + 1)` means of normed states, by attention."""
        floats, n_head = self._buffers.floats, self._parameters.n_head
        length, width = normed.shape
        num_rows, asking = length, normed
        if rows is not None:
            num_rows, asking = len(rows), floats("normed of rows", len(rows), width)
            self._add(normed.take, rows, 0, asking, "clip")
        queries = floats("queries", num_rows * n_head, width)
        self._multiply(asking, scores, queries.reshape(num_rows, -1))
        logits = floats("logits", num_rows * n_head, length)
        begin = len(self._calls)
        self._multiply(queries, normed.T, logits)
        if (bias := self._bias_of(rows)) is not None:
            by_row = logits.reshape(num_rows, n_head, length)
            self._add(np.add, by_row, bias[:, None], by_row)
        mixed, total = self._mix(block, begin, logits, normed)
        means = floats("means", num_rows, n_head, width)
        self._add(np.divide, mixed, total, means.reshape(-1, width))
        return means

    def _attend(self, block: Block, normed: Floats, rows: NDArray[np.intp] | None) -> Floats:
        """Calls to `(num_rows, n_head, d_head + 1)` means of values."""
        floats, n_head = self._buffers.floats, self._parameters.n_head
        d_head, length = self._parameters.d_head, len(normed)
        stop = n_head * (3 * d_head + 1)
        parts = floats("heads", length, block.attention.shape[1])
        self._multiply(normed, block.attention, parts)
        heads = parts[:, :stop].reshape(length, n_head, -1).transpose(1, 0, 2)
        q, v = heads[:, :, :d_head], heads[:, :, 2 * d_head :]
        k = heads[:, :, d_head : 2 * d_head].transpose(0, 2, 1)
        num_rows = length
        if rows is not None:
            num_rows = len(rows)
            of_rows = floats("queries", n_head, num_rows, d_head)
            self._add(q.take, rows, 1, of_rows, "clip")
            q = of_rows
        logits = floats("logits", n_head, num_rows, length)
        begin = len(self._calls)
        self._multiply(q, k, logits)
        if self._parameters.has_relpos:
            self._add(self._positions.add_logits, q, rows, logits)
        if (bias := self._bias_of(rows)) is not None:
            self._add(np.add, logits, bias, logits)
        mixed, total = self._mix(block, begin, logits, v)
        if self._parameters.has_relpos:
            self._add(
                self._positions.add_values, logits, parts[:, stop:], rows, mixed[:, :, :d_head]
            )
        means = floats("means", num_rows, n_head, d_head + 1)
        self._add(np.divide, mixed, total, means.transpose(1, 0, 2))
        return means

    def _mix(
        self, block: Block, begin: int, logits: Floats, values: Floats
    ) -> tuple[Floats, Floats]:
        """Calls to sums of values by unnormalized attention, and the sum of that, `(…, 1)`.

        `begin` is the first of the calls that compute the logits, which are overwritten.
        """
        mixed = self._buffers.floats("mixed", *logits.shape[:-1], values.shape[-1])
        again = self._calls[begin:]
        self._add(np.exp, logits, logits)
        self._multiply(logits, values, mixed)
        if not block.largest_logit < _MAX_LOGIT:
            shifted: list[Call] = [(_shift, (logits,)), *self._calls[begin + len(again) :]]
            total = mixed.reshape(-1, mixed.shape[-1])[:, -1]
            self._add(_repeat_unless_exact, total, again + shifted)
        return mixed, mixed[..., -1:]

    def _bias_of(self, rows: NDArray[np.intp] | None) -> Floats | None:
        if self._bias is None or rows is None:
            return self._bias
        bias = self._buffers.floats("bias of rows", len(rows), self._length)
        self._add(self._bias.take, rows, 0, bias, "clip")
        return bias

    def _norm(self, x: Floats, name: str) -> Floats:
        """Calls to `(len(x), d_model + 1)`: rows of deviation 1 by the root of `d_model`, and 1."""
        d_model = x.shape[1] - 2
        normed = self._buffers.floats(name, len(x), d_model + 1)
        normed[:, d_model] = 1.0
        self._divide_by_deviation(x[:, : d_model + 1], normed[:, :d_model])
        return normed

    def _divide_by_deviation(self, x: Floats, out: Floats) -> None:
        """Divides centered rows, without their last column, by the root of the sum of squares."""
        deviation = self._buffers.floats("deviation", len(x))
        self._add(row_dot, x, x, deviation)
        self._add(np.sqrt, deviation, deviation)
        self._add(np.divide, x[:, :-1], deviation[:, None], out)

    def _multiply(self, x: Floats, y: Floats, out: Floats) -> None:
        self._calls.append(product_call(x, y, out))

    def _add(self, call: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401 - of any call
        self._calls.append((call, arguments))


def _shift(logits: Floats) -> None:
    """Subtracts the largest of each row."""
    logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)


def _repeat_unless_exact(total: Floats, calls: list[Call]) -> None:
    """Repeats calls if a sum is too small or too large, or not a number."""
    if not (total[total.argmin()] > _MIN_SUM and total[total.argmax()] < _MAX_SUM):
        for call, arguments in calls:
            call(*arguments)
