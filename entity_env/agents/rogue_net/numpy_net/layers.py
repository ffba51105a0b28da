"""Layers of a RogueNet for one observation, each fusing operations into few numpy calls.

`bind` adds the calls of a layer to a plan.

The state of an entity is a row of `d_model + 2` columns:

- `d_model` columns hold its embedding minus the embedding's mean.
- The next column holds a constant. Its square is what a layer norm adds to the sum of squares, and
  heads multiply it to get their biases.
- The last column holds the mean.

Layer norms divide the first `d_model` columns by the root of the sum of squares, which includes the
constant, and append a column of ones for the bias of the next matrix.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.numpy_net.functions import (
    ACTIVATIONS,
    CLIP,
    EPSILON,
    SCALE,
    SHIFT,
    Call,
    input_statistics,
)
from entity_env.agents.rogue_net.numpy_net.plan import Columns, Plan
from entity_env.agents.rogue_net.operations import Operation
from entity_env.core.ragged import Floats
from entity_env.core.spaces import EntityName

Double: TypeAlias = NDArray[np.float64]
Doubles: TypeAlias = Mapping[str, Double]
Rows: TypeAlias = NDArray[np.intp] | None

_CONSTANT: Final = 8.0
"""Value of the constant unit in a feedforward's hidden layer, before and after the GELU."""
_MAX_SCORES: Final = 1 << 15
"""Maximum size of `FusedAttention._scores`; larger networks compare queries with keys."""
_MIN_SUM = 1e-25
_MAX_SUM = 1e30
"""Unnormalized attention sums between these are accurate enough; others are recomputed."""
_MAX_LOGIT = 50.0
"""If all logits are within ± this, attention sums are between `_MIN_SUM` and `_MAX_SUM`."""
_CALL = 150_000
"""Attention among states saves a few calls, which take as long as this many multiplications."""


class FusedEmbedding:
    """The embeddings of all types: `repeat`, or `normalize`, `linear`, `relu` and `layer_norm`.

    Features are columns of one matrix, with an additional column per type that is 1 for its
    entities. One product applies the linear layers of all types.

    Args:
        operations: by name of the entity type, the operations that embed it, in order.
        num_shared: number of global features, which are the last columns of every type.
    """

    def __init__(
        self,
        operations: Mapping[EntityName, Sequence[Operation]],
        tensors: Doubles,
        num_shared: int,
    ) -> None:
        parts = {name: [each.of(tensors) for each in own] for name, own in operations.items()}
        widths = [0 if len(own) == 1 else len(own[0]["mean"]) for own in parts.values()]
        last = next(iter(parts.values()))[-1]
        d_model = last["embedding" if "embedding" in last else "bias"].shape[-1]
        num_types, num_columns = len(parts), sum(widths)
        deviations = np.full(num_columns + num_types, np.inf)
        # The last column is 1 for every entity; `centering` makes it the constant of a layer norm.
        linear = np.zeros((len(deviations), d_model + 1))
        linear[num_columns:, d_model] = 1.0
        scale, shift = np.zeros((num_types, d_model)), np.zeros((num_types, d_model + 2))
        self.columns: list[Columns] = []
        stop = 0
        for number, ((name, own), width) in enumerate(zip(parts.items(), widths, strict=True)):
            start, middle, stop = stop, stop + width - num_shared, stop + width
            mark = num_columns + number
            mean: Floats = np.zeros(0, np.float32)
            if not width:
                shift[number] = _to_state(own[0]["embedding"][0], is_start=True)
            else:
                norm, layer, layer_norm = own
                mean, deviations[start:stop] = input_statistics(norm)
                linear[start:stop, :d_model] = layer["weight"].T / deviations[start:stop, None]
                linear[mark, :d_model] = layer["bias"]
                scale[number] = layer_norm["weight"] * math.sqrt(d_model)
                shift[number] = _to_state(layer_norm["bias"], is_start=True)
            means = np.split(mean, [width - num_shared])
            columns = slice(start, middle), slice(middle, stop)
            self.columns.append(Columns(name, *columns, mark, *means))
        centering = np.zeros((d_model + 1, d_model + 1))
        centering[:d_model, :d_model] = np.eye(d_model) - 1.0 / d_model
        centering[d_model, d_model] = _constant(d_model)
        self.limit, self.scale, self.shift = _f32(CLIP * deviations), _f32(scale), _f32(shift)
        self._linear, self._centering = _f32(linear), _f32(centering)
        self._state = _f32(_to_state(np.eye(d_model)))

    @staticmethod
    def fits(operations: Sequence[Operation]) -> bool:
        """True if the operations embed one type in this way."""
        return _kinds(operations) in (["repeat"], ["normalize", "linear relu", "layer_norm"])

    def bind(self, plan: Plan) -> Floats:
        """Adds the calls; returns the states.

        Limits, scale and shift are repeated for every entity, because numpy is slow at broadcasting
        short rows, such as 9 or 32 numbers.
        """
        wide, floats = plan.wide, plan.floats
        length, d_model = len(wide), len(self._state)
        highest, lowest = (floats(name, *wide.shape) for name in ("highest", "lowest"))
        zeros = floats("zeros", length, d_model + 1)
        highest[:], lowest[:], zeros[:] = self.limit, -self.limit, 0.0  # equal in all plans
        above, centered = (floats(name, length, d_model + 1) for name in ("above", "centered"))
        scaled, x = floats("scaled", length, d_model), floats("state", length, d_model + 2)
        plan.add(partial(np.minimum, out=wide), wide, highest)
        plan.add(partial(np.maximum, out=wide), wide, lowest)
        plan.multiply(wide, self._linear, above)
        plan.add(partial(np.maximum, out=above), above, zeros)
        plan.multiply(above, self._centering, centered)
        plan.divide_by_deviation(centered, scaled)
        plan.add(np.multiply, scaled, plan.scale, scaled)
        plan.multiply(scaled, self._state, x)
        plan.add(np.add, x, plan.shift, x)
        return x


class FusedAttention:
    """`layer_norm`, `linear` to query, key, value and gate, `attend`, `linear`, `add`.

    The values of each head are followed by a column of ones. Multiplied by unnormalized attention,
    it gives the sum of the weights. After the division by that sum it is 1 again, so the bias of
    the next projection is a row of the projection's matrix.

    Among few entities, normed states are compared directly: the matrix of the keys is merged into
    that of the queries, and the matrix of the values into the projection.
    """

    mixes = True

    def __init__(self, operations: Sequence[Operation], tensors: Doubles) -> None:
        norm = operations[0].of(tensors)
        layers = {each.output: each.of(tensors) for each in operations if each.kind == "linear"}
        (attend,) = (each for each in operations if each.kind == "attend")
        self._n_head = n_head = int(attend.constants["n_head"])
        self._has_relpos = "positions" in attend.inputs
        gate = next((each for each in operations if each.output == "gate"), None)
        activation = None if gate is None else gate.constants.get("activation")
        self._activate = None if activation is None else ACTIVATIONS[activation]
        last = layers["mixed"]
        d_model = len(last["bias"])
        self._d_head = d_head = d_model // n_head
        projection = np.zeros((n_head, d_head + 1, d_model))
        projection[:, :-1] = last["weight"].T.reshape(n_head, d_head, d_model)
        projection[0, -1] = last["bias"]
        attention = _after_norm(norm, *_heads(layers, n_head))
        self._attention = _f32(attention)
        self._projection = _f32(_to_state(projection).reshape(-1, d_model + 2))
        self._is_bounded = False
        """True if all attention logits are known to stay within ± `_MAX_LOGIT`."""
        self._scores: Floats | None = None
        """Converts normed states to queries that are compared with normed states instead of keys.

        None = queries are always compared with keys.
        """
        if self._has_relpos or n_head * (d_model + 1) ** 2 > _MAX_SCORES:
            return
        heads = attention[:, : n_head * (3 * d_head + 1)].reshape(d_model + 1, n_head, -1)
        q, k, v = np.split(heads, (d_head, 2 * d_head), axis=2)
        by_head = np.einsum("ihc,jhc->ihj", q, k)
        self._scores = _f32(by_head.reshape(d_model + 1, -1))
        values = np.einsum("ihc,hcj->hij", v, projection).reshape(-1, d_model)
        self._values = _f32(_to_state(values))
        # Bounds of logits: a normed state without its last column, a 1, has at most length 1.
        hypot = np.hypot.reduce
        of_head = hypot(hypot(by_head[:-1, :, :-1], axis=2), axis=0) + abs(by_head[-1, :, -1])
        of_head += hypot(by_head[:-1, :, -1], axis=0) + hypot(by_head[-1, :, :-1], axis=1)
        self._is_bounded = bool(of_head.max() < _MAX_LOGIT)

    @staticmethod
    def fits(operations: Sequence[Operation]) -> bool:
        kinds = _kinds(each for each in operations if each.output != "gate")
        return kinds == ["layer_norm", *["linear"] * 3, "attend", "linear", "add"]

    def bind(self, plan: Plan, x: Floats, rows: Rows) -> Floats:
        normed = plan.norm(x, "normed")
        x = plan.take(x, rows, "state of rows")
        scores = self._scores
        if scores is not None and self._compares_states(scores, len(normed), len(x)):
            mixed = self._attend_to_states(plan, scores, normed, rows)
            projection = self._values
        else:
            mixed, projection = self._attend(plan, normed, rows), self._projection
        return _added(plan, x, mixed.reshape(len(x), -1), projection)

    def _compares_states(self, scores: Floats, length: int, num_rows: int) -> bool:
        """True if `_attend_to_states` is faster than `_attend`."""
        pairs = 2 * num_rows * self._n_head * length
        among_states = pairs * len(scores) + 2 * num_rows * scores.size
        among_heads = pairs * (self._d_head + 1)
        among_heads += length * self._attention.size + num_rows * self._projection.size
        return among_states <= among_heads + _CALL

    def _attend_to_states(self, plan: Plan, scores: Floats, normed: Floats, rows: Rows) -> Floats:
        """Adds calls for `(num_rows, n_head, d_model + 1)` attention means of normed states."""
        n_head = self._n_head
        length, width = normed.shape
        asking = plan.take(normed, rows, "normed of rows")
        num_rows = len(asking)
        queries = plan.floats("queries", num_rows * n_head, width)
        plan.multiply(asking, scores, queries.reshape(num_rows, -1))
        logits = plan.floats("logits", num_rows * n_head, length)
        begin = len(plan.calls)
        plan.multiply(queries, normed.T, logits)
        if (bias := plan.bias_of(rows)) is not None:
            by_row = logits.reshape(num_rows, n_head, length)
            plan.add(np.add, by_row, bias[:, None], by_row)
        mixed, total = _mix(plan, begin, logits, normed, self._is_bounded)
        means = plan.floats("means", num_rows, n_head, width)
        plan.add(np.divide, mixed, total, means.reshape(-1, width))
        return means

    def _attend(self, plan: Plan, normed: Floats, rows: Rows) -> Floats:
        """Adds calls for `(num_rows, n_head, d_head + 1)` attention means of values."""
        n_head, d_head, length = self._n_head, self._d_head, len(normed)
        stop = n_head * (3 * d_head + 1)
        parts = plan.floats("heads", length, self._attention.shape[1])
        plan.multiply(normed, self._attention, parts)
        heads = parts[:, :stop].reshape(length, n_head, -1).transpose(1, 0, 2)
        q, v = plan.take(heads[:, :, :d_head], rows, "queries", axis=1), heads[:, :, 2 * d_head :]
        k = heads[:, :, d_head : 2 * d_head].transpose(0, 2, 1)
        logits = plan.floats("logits", n_head, q.shape[1], length)
        begin = len(plan.calls)
        plan.multiply(q, k, logits)
        if self._has_relpos:
            plan.add(plan.positions.add_logits, q, rows, logits)
        if (bias := plan.bias_of(rows)) is not None:
            plan.add(np.add, logits, bias, logits)
        mixed, total = _mix(plan, begin, logits, v, self._is_bounded)
        if self._has_relpos:
            gate = parts[:, stop:] if stop < parts.shape[1] else None
            if self._activate is not None:
                plan.add(self._activate, gate)
            plan.add(plan.positions.add_values, logits, gate, rows, mixed[:, :, :d_head])
        means = plan.floats("means", q.shape[1], n_head, d_head + 1)
        plan.add(np.divide, mixed, total, means.transpose(1, 0, 2))
        return means


class FusedFeedforward:
    """`layer_norm`, `linear`, `gelu`, `linear`, `add`.

    The hidden layer has a constant unit for the next bias, and is scaled for the GELU table.
    """

    mixes = False

    def __init__(self, operations: Sequence[Operation], tensors: Doubles) -> None:
        norm, first, second, _ = (each.of(tensors) for each in operations)
        output = np.concatenate((second["weight"].T, second["bias"][None] / _CONSTANT))
        weight = np.pad(first["weight"].T * SCALE, ((0, 0), (0, 1)))
        bias = np.append(first["bias"], _CONSTANT) * SCALE + SHIFT
        self._hidden = _f32(_after_norm(norm, weight, bias))
        self._output = _f32(_to_state(output))

    @staticmethod
    def fits(operations: Sequence[Operation]) -> bool:
        return _kinds(operations) == ["layer_norm", "linear gelu", "linear", "add"]

    def bind(self, plan: Plan, x: Floats, rows: Rows) -> Floats:
        x = plan.take(x, rows, "state of rows")
        hidden = plan.floats("hidden", len(x), self._hidden.shape[1])
        plan.multiply(plan.norm(x, "normed for mlp"), self._hidden, hidden)
        plan.gelu(hidden)
        return _added(plan, x, hidden, self._output)


def fused_head(layer: Doubles, factor: float = 1.0) -> Floats:
    """Matrix that applies a linear layer, times a factor, to the embeddings in states."""
    weight, bias = layer["weight"].T * factor, layer["bias"] * factor
    constant = bias / _constant(len(weight))
    return _f32(np.concatenate((weight, constant[None], weight.sum(axis=0, keepdims=True))))


def _kinds(operations: Iterable[Operation]) -> list[str]:
    return [f"{each.kind} {each.constants.get('activation', '')}".strip() for each in operations]


def _heads(layers: Mapping[str, Doubles], n_head: int) -> tuple[Double, Double]:
    """Merged weight and bias: query, key, value and a column of ones per head; then the gate."""
    d_model = len(layers["query"]["bias"])
    d_head = d_model // n_head
    weights: list[Double] = []
    biases: list[Double] = []
    for head in range(n_head):
        rows = slice(head * d_head, (head + 1) * d_head)
        for part, factor in (("query", 1.0 / math.sqrt(d_head)), ("key", 1.0), ("value", 1.0)):
            weights.append(layers[part]["weight"][rows].T * factor)
            biases.append(layers[part]["bias"][rows] * factor)
        weights.append(np.zeros((d_model, 1)))
        biases.append(np.ones(1))
    if "gate" in layers:
        weights.append(layers["gate"]["weight"].T)
        biases.append(layers["gate"]["bias"])
    return np.concatenate(weights, axis=1), np.concatenate(biases)


def _after_norm(norm: Doubles, weight: Double, bias: Double) -> Double:
    """Merges a layer norm's scale and shift into the next linear layer; the last row is a bias."""
    scaled = math.sqrt(len(weight)) * norm["weight"][:, None] * weight
    return np.concatenate((scaled, (norm["bias"] @ weight + bias)[None]))


def _to_state(added: Double, is_start: bool = False) -> Double:
    """Converts embeddings, or a matrix that outputs them, to columns of states.

    With `is_start`, the results are whole states; otherwise their constant is 0, for adding them to
    states.
    """
    d_model = added.shape[-1]
    constant = np.full((*added.shape[:-1], 1), _constant(d_model) if is_start else 0.0)
    mean = added.mean(axis=-1, keepdims=True)
    return np.concatenate((added - mean, constant, mean), axis=-1)


def _constant(d_model: int) -> float:
    """Constant of a state: its square over `d_model` is what layer norms add to the variance."""
    return math.sqrt(float(EPSILON) * d_model)


def _f32(array: Double) -> Floats:
    return np.ascontiguousarray(array, dtype=np.float32)


def _added(plan: Plan, x: Floats, y: Floats, matrix: Floats) -> Floats:
    """Adds calls that add `y @ matrix` to the states."""
    added = plan.floats("added", *x.shape)
    plan.multiply(y, matrix, added)
    plan.add(np.add, x, added, x)
    return x


def _mix(
    plan: Plan, begin: int, logits: Floats, values: Floats, is_bounded: bool
) -> tuple[Floats, Floats]:
    """Adds calls for unnormalized attention sums of values, and the sum of weights, `(…, 1)`.

    `begin` is the index of the first call that computes the logits. The calls overwrite the logits.
    """
    mixed = plan.floats("mixed", *logits.shape[:-1], values.shape[-1])
    again = plan.calls[begin:]
    plan.add(np.exp, logits, logits)
    plan.multiply(logits, values, mixed)
    if not is_bounded:
        shifted: list[Call] = [(_shift, (logits,)), *plan.calls[begin + len(again) :]]
        total = mixed.reshape(-1, mixed.shape[-1])[:, -1]
        plan.add(_repeat_unless_exact, total, again + shifted)
    return mixed, mixed[..., -1:]


def _shift(logits: Floats) -> None:
    logits -= np.maximum.reduce(logits, axis=-1, keepdims=True)


def _repeat_unless_exact(total: Floats, calls: list[Call]) -> None:
    """Runs `calls`, which repeat the attention exactly, if a sum is NaN, too small or too large."""
    if not (total[total.argmin()] > _MIN_SUM and total[total.argmax()] < _MAX_SUM):
        for call, arguments in calls:
            call(*arguments)
