"""`Plan`: all numpy calls that embed one observation of a given size, bound to their arrays.

The code around a numpy call (views, shapes, new arrays, name lookups) takes as long as the call.
A plan runs that code only once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.numpy_net.functions import HIDDEN, Call, gelu_calls, product_call
from entity_env.agents.rogue_net.numpy_net.relpos import RelposArrays
from entity_env.core.ragged import Floats
from entity_env.core.spaces import EntityName


def _einsum_rows(x: Floats, y: Floats, out: Floats) -> None:
    np.einsum("ij,ij->i", x, y, out=out)


row_dot: Callable[[Floats, Floats, Floats], object] = getattr(np, "vecdot", _einsum_rows)
"""Dot products of rows. With `einsum`, for numpy 1, five of them take a tenth of a decision."""
_LARGEST_DOT = 8192
"""Maximum length of vectors for which BLAS starts no thread."""


class Size(NamedTuple):
    """Key of a plan.

    Args:
        length: number of entities, at least 1.
        num_wanted: number of states to return; None = all.
        is_hidden: some entity is hidden.
    """

    length: int
    num_wanted: int | None
    is_hidden: bool


class Buffers:
    """Named memory shared by plans, which run one at a time."""

    def __init__(self) -> None:
        self._flat: dict[tuple[str, type], NDArray[Any]] = {}
        self.laid_out: object = None
        """The mark of the plan that last set type-dependent content."""

    def floats(self, name: str, *shape: int) -> Floats:
        """An uninitialized contiguous array, in the memory of this name if that is large enough."""
        return self._array(name, np.float32, shape)

    def indices(self, name: str, *shape: int) -> NDArray[np.intp]:
        return self._array(name, np.intp, shape)

    def _array(self, name: str, dtype: type, shape: tuple[int, ...]) -> NDArray[Any]:
        size = math.prod(shape)
        flat = self._flat.get((name, dtype))
        if flat is None or len(flat) < size:
            # Earlier plans keep the smaller array; doubling limits the total memory.
            flat = np.empty(size if flat is None else max(size, 2 * len(flat)), dtype)
            self._flat[name, dtype] = flat
        return flat[:size].reshape(shape)


class _Positions:
    """Contribution of relative positions to attention."""

    def __init__(self) -> None:
        self.tables: RelposArrays | None = None

    def add_logits(self, q: Floats, rows: NDArray[np.intp] | None, logits: Floats) -> None:
        """Adds to the logits of these query rows; None = all."""
        logits += self._of(rows).logits(q[None])[0]

    def add_values(
        self, attention: Floats, gate: Floats | None, rows: NDArray[np.intp] | None, mixed: Floats
    ) -> None:
        mixed += self._of(rows).values(attention[None], None if gate is None else gate[None])[0]

    def _of(self, rows: NDArray[np.intp] | None) -> RelposArrays:
        tables = self.tables
        if tables is None:
            raise TypeError("this network needs the tables of relative positions")
        return tables if rows is None else tables.of_queries(rows)


class Columns(NamedTuple):
    """Columns of one entity type in the matrix of all features."""

    name: EntityName
    own: slice
    shared: slice
    mark: int
    own_mean: Floats
    shared_mean: Floats


class PlannedEmbedding(Protocol):
    """Layers from features to states, for all types at once.

    Attributes:
        columns: columns of every type.
        limit: `(num_columns,)`, largest absolute value of the centered features.
        scale, shift: one row per type.
    """

    columns: list[Columns]
    limit: Floats
    scale: Floats
    shift: Floats

    def bind(self, plan: Plan) -> Floats:
        """Adds calls; returns the states that they compute."""


class PlannedLayer(Protocol):
    """A layer from states to states."""

    mixes: bool
    """True if a state depends on other entities' states."""

    def bind(self, plan: Plan, x: Floats, rows: NDArray[np.intp] | None) -> Floats:
        """Adds calls; returns the states of all entities, or of `rows`."""


class Plan:
    """Embeds observations of one size, see `run`. Not thread-safe."""

    def __init__(
        self,
        embedding: PlannedEmbedding,
        layers: Sequence[PlannedLayer],
        size: Size,
        buffers: Buffers,
    ) -> None:
        self.length, num_wanted, is_hidden = size
        self.floats, self.positions = buffers.floats, _Positions()
        self._embedding, self._buffers = embedding, buffers
        self._bias = self.floats("bias", self.length, self.length) if is_hidden else None
        self._wanted = None if num_wanted is None else np.empty(num_wanted, dtype=np.intp)
        self._mark = object()  # not the plan itself: a reference cycle would free its memory late
        self._counts: tuple[int, ...] = ()
        self._own: list[tuple[EntityName, Floats, Floats]] = []
        self._shared: list[tuple[Floats, Floats]] = []
        self.wide = self.floats("wide", self.length, len(embedding.limit))
        self._flat = self.wide.reshape(-1)
        self.scale = self.floats("scale", self.length, embedding.scale.shape[1])
        self.shift = self.floats("shift", self.length, embedding.shift.shape[1])
        self.calls: list[Call] = []
        is_few = num_wanted is not None and num_wanted < self.length
        # The last layer that mixes is the last reader of all states.
        last = max((i for i, each in enumerate(layers) if each.mixes and is_few), default=None)
        x = embedding.bind(self)
        for i, layer in enumerate(layers):
            x = layer.bind(self, x, self._wanted if i == last else None)
        self._state = x
        self._picked = self._wanted if last is None else None

    def run(
        self,
        counts: tuple[int, ...],
        arrays: Mapping[EntityName, Floats],
        shared: Floats,
        visible: NDArray[np.bool_] | None,
        wanted: NDArray[np.int64] | None,
        tables: RelposArrays | None,
    ) -> Floats | None:
        """New states, `(num_wanted, d_model + 2)`; None if a feature is not finite or too large.

        The check uses the sum of squares of few features, or the plain sum of many.

        Args:
            counts: number of entities of each type.
            arrays: features of every type with entities.
            shared: the global features.
            visible: `(num_entities,)` bool; required if an entity is hidden.
            wanted: entities whose states are returned, in this order; None = all.
            tables: keys and values of relative positions, if the network has them.
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
        self.positions.tables = tables
        for call, arguments in self.calls:
            call(*arguments)
        self.positions.tables = None
        return self._state.copy() if self._picked is None else self._state.take(self._picked, 0)

    def _lay_out(self, counts: tuple[int, ...]) -> None:
        embedding, wide = self._embedding, self.wide
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
            self.scale[start:stop] = embedding.scale[number]
            self.shift[start:stop] = embedding.shift[number]
            if len(columns.own_mean):
                self._own.append((columns.name, columns.own_mean, rows[:, columns.own]))
            if len(columns.shared_mean):
                self._shared.append((columns.shared_mean, rows[:, columns.shared]))
        self._counts = counts
        self._buffers.laid_out = self._mark

    def add(self, call: Callable[..., object], *arguments: Any) -> None:  # noqa: ANN401 - of any call
        self.calls.append((call, arguments))

    def multiply(self, x: Floats, y: Floats, out: Floats) -> None:
        self.calls.append(product_call(x, y, out))

    def gelu(self, u: Floats) -> None:
        """Adds calls that replace `u` with the GELU of `(u - SHIFT) / SCALE`."""
        piece = self._buffers.indices("piece", *u.shape)
        self.calls += gelu_calls(u, piece, self.floats("part", *u.shape))

    def take(self, x: Floats, rows: NDArray[np.intp] | None, name: str, axis: int = 0) -> Floats:
        """Adds a call that copies these rows; None = all, without a call or copy."""
        if rows is None:
            return x
        shape = *x.shape[:axis], len(rows), *x.shape[axis + 1 :]
        taken = self.floats(name, *shape)
        self.add(x.take, rows, axis, taken, "clip")
        return taken

    def bias_of(self, rows: NDArray[np.intp] | None) -> Floats | None:
        """Bias that hides entities in the logits of these rows; None = nothing is hidden."""
        return None if self._bias is None else self.take(self._bias, rows, "bias of rows")

    def norm(self, x: Floats, name: str) -> Floats:
        """Adds calls that scale rows to deviation 1 / sqrt(`d_model`) and append a one."""
        d_model = x.shape[1] - 2
        normed = self.floats(name, len(x), d_model + 1)
        normed[:, d_model] = 1.0
        self.divide_by_deviation(x[:, : d_model + 1], normed[:, :d_model])
        return normed

    def divide_by_deviation(self, x: Floats, out: Floats) -> None:
        """Adds calls that divide centered rows by the root of their sum of squares.

        The last column is part of the sum, but not of the output.
        """
        deviation = self.floats("deviation", len(x))
        self.add(row_dot, x, x, deviation)
        self.add(np.sqrt, deviation, deviation)
        self.add(np.divide, x[:, :-1], deviation[:, None], out)
