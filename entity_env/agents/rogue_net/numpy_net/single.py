"""Decisions for single observations: in C, or in as few numpy calls as possible.

`_forward.c`, the version in C, was compiled if the package was installed with a C compiler.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from entity_env.agents.rogue_net.features import LARGEST_INPUT, Inputs
from entity_env.agents.rogue_net.memory import Past, recur
from entity_env.agents.rogue_net.numpy_net.distributions import (
    FORBIDDEN,
    are_usable,
    bounds,
    middle_and_half,
)
from entity_env.agents.rogue_net.numpy_net.functions import (
    ACTIVATIONS,
    CLIP,
    EPSILON,
    HIDDEN,
    LARGEST_OF_A_ROW,
    input_statistics,
    product,
    softmax,
)
from entity_env.agents.rogue_net.numpy_net.relpos import NumpyRelpos, RelposArrays
from entity_env.agents.rogue_net.numpy_net.single_reader import RequestedAction
from entity_env.agents.rogue_net.operations import Operation
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName, ContinuousActionSpace, EntityName, has_dependent

try:
    from entity_env.agents.rogue_net.numpy_net import _forward
except ImportError:  # no compiler, or no wheel for this platform
    IS_COMPILED = False
else:
    IS_COMPILED = True


class SingleNet(Protocol):
    """Network that decides for single observations; agents in several threads may share it."""

    def decide(
        self,
        own: dict[EntityName, Floats],
        shared: Floats,
        visible: NDArray[np.bool_] | None,
        asked: list[RequestedAction],
        temperature: float,
        state: Floats | None,
        /,
    ) -> bool:
        """Writes the answers of all requested actions.

        Arguments as in `SingleObservation`; `state` is `(1, state_width)`, what the network
        remembers, and is replaced by the state after the observation; None without memory. Returns
        False if it cannot decide, for example if a feature is not finite, or a result not usable.
        """


def single_net(weights: Weights) -> SingleNet | None:
    """The fastest network for single observations; None = only `NumpyNet` can compute it.

    If actions depend on others, it answers those whose `given` actions have one allowed choice.
    """
    is_dependent = has_dependent(weights.action_space)
    if is_dependent and _depends_on_numbers(weights):
        return None
    if IS_COMPILED:
        try:
            return _forward.Forward(agent_bytes(weights), (single_net, (weights,)))
        except ValueError:  # it is too large, or a parameter is not finite
            pass
    fits = not is_dependent and PlainSingleNet.fits(weights)
    return PlainSingleNet(weights) if fits else None


def _depends_on_numbers(weights: Weights) -> bool:
    spaces = weights.action_space
    given = {name for space in spaces.values() for name in space.given}
    return any(isinstance(spaces[name], ContinuousActionSpace) for name in given)


_Tensors: TypeAlias = Mapping[str, NDArray[Any]]
_EMBEDDING: Final = ("normalize", "linear", "layer_norm", "repeat")
_ATTENTION: Final = ["linear", "linear", "linear", "attend", "linear"]
_GATED: Final = ["linear", *_ATTENTION]
_POOLING: Final = ["linear", "pool", "linear", "spread"]
_MEMORY: Final = ["pool", "linear", "recur", "linear", "spread", "add"]
_FEEDFORWARD: Final = ["add", "layer_norm", "linear", "linear", "add"]
_BLOCKS: Final = [["layer_norm", *mixer, *_FEEDFORWARD] for mixer in (_ATTENTION, _GATED, _POOLING)]
_ZERO: Final = np.float32(0)
_NONE: Final = np.zeros(0, np.int64)
_MAX_LOGIT: Final = 50.0
"""Up to this logit, no exponential is too large or small for its sum."""
_MOST_SQUARES: Final = float(LARGEST_INPUT) ** 2
"""Above this sum of squares, a number may be larger than `LARGEST_INPUT`."""
_MAX_COLUMNS: Final = 1024
"""Maximum number of features of all types together, which are columns of one array."""


class PlainSingleNet:
    """`SingleNet` of a RogueNet in numpy, in less than half the time of `NumpyNet`.

    It has no batch to lay out and computes no values; entity types are embedded at once; and the
    last attention computes only the entities that heads read.

    Args:
        weights: of a network that `fits`.
    """

    def __init__(self, weights: Weights) -> None:
        listed, tensors = weights.operations(), weights.tensors
        config = weights.rogue_net_config()
        self._inputs = Inputs(weights.obs_space, weights.action_space, config.translation)
        embedding, positions, memory, blocks = _parts(listed)
        self._memory = _PlainMemory(memory, tensors) if memory else None
        self._embedding = _Embedding(self._inputs.widths, embedding, tensors)
        self._relpos = next((NumpyRelpos(each, tensors) for each in positions), None)
        last = len(blocks) - 1 if config.pooling is None else -1
        self._blocks = [_Block(each, tensors, i == last) for i, each in enumerate(blocks)]
        self._has_picked = last >= 0
        self._heads = {
            each.inputs[0]: _Linear(each.of(tensors)) for each in listed if each.kind == "linear"
        }
        self._ranges: dict[ActionName, tuple[Floats, Floats]] = {}
        """As `middle_and_half`, of continuous actions."""
        for name, space in weights.action_space.items():
            if isinstance(space, ContinuousActionSpace):
                self._ranges[name] = middle_and_half(*bounds(space))

    @staticmethod
    def fits(weights: Weights) -> bool:
        """True if it can compute this network."""
        listed = weights.operations()
        embedding, positions, memory, blocks = _parts(listed)
        num_memories = sum(each.kind == "recur" for each in listed)
        num_columns = sum(
            len(each.tensors["mean"]) for each in embedding if each.kind == "normalize"
        )
        return (
            any(each.kind == "concatenate" for each in listed)
            and not any(each.kind == "pairs" for each in listed)
            and num_columns <= _MAX_COLUMNS
            and all(
                each.kind in ("normalize", "linear", "layer_norm", "repeat") for each in embedding
            )
            and all([each.kind for each in block] in _BLOCKS for block in blocks)
            and len(positions) <= 1
            and [each.kind for each in memory] in ([], _MEMORY)
            and num_memories <= (1 if memory else 0)  # a value network has its own
        )

    def decide(
        self,
        own: dict[EntityName, Floats],
        shared: Floats,
        visible: NDArray[np.bool_] | None,
        asked: list[RequestedAction],
        temperature: float,
        state: Floats | None,
        /,
    ) -> bool:
        rows = [each for action in asked for each in action[1:3] if each is not None and len(each)]
        if not rows and state is None:
            return True
        wanted = rows[0] if len(rows) == 1 else np.concatenate([_NONE, *rows])
        with np.errstate(all="ignore"):
            # A single product finds numbers that are not finite, or not `limited`.
            if not all(np.vdot(each, each) < _MOST_SQUARES for each in (*own.values(), shared)):
                return False
            arrays = self._inputs.of_one(own, shared)
            x = self._embedding(arrays)
            if visible is not None and visible.all():
                visible = None
            if self._memory is not None and state is not None:
                x += self._memory(x if visible is None else x[visible], state)
                if not are_usable(state):
                    return False
            tables = None if self._relpos is None else self._relpos.look_up(arrays)
            for block in self._blocks:
                x = block(x, visible, tables, wanted)
            if not self._has_picked:
                x = x.take(wanted, 0)
            stop = 0
            for action in asked:
                start, middle = stop, stop + len(action.actors)
                stop = middle if action.actees is None else middle + len(action.actees)
                if start < middle and not self._answer(
                    action, x[start:middle], x[middle:stop], temperature
                ):
                    return False
        return True

    def _answer(
        self, action: RequestedAction, actors: Floats, actees: Floats, temperature: float
    ) -> bool:
        """Returns False if the results cannot be used."""
        logits = self._heads[f"actors/{action.name}"](actors)
        if action.name in self._ranges:
            middle, half = self._ranges[action.name]
            action.answers[:] = middle + half * logits
            return are_usable(logits)
        if action.actees is not None:
            keys = self._heads[f"actees/{action.name}"](actees)
            logits = product(logits, keys.T) * np.float32(1 / math.sqrt(keys.shape[1]))
        if not are_usable(logits):
            return False
        if temperature != 1.0:
            logits /= np.float32(temperature)
        if action.allowed is not None:
            logits = np.where(action.allowed, logits, FORBIDDEN)
        action.answers[:] = softmax(logits)
        return True


_Parts: TypeAlias = tuple[list[Operation], list[Operation], list[Operation], list[list[Operation]]]


def _parts(listed: Sequence[Operation]) -> _Parts:
    """Operations that embed entities, those for relative positions and memory, if any, and those
    of each block.
    """
    embedding = [*takewhile(lambda each: each.kind != "concatenate", listed)]
    rest = listed[len(embedding) + 1 :]
    positions: list[Operation] = []
    memory: list[Operation] = []
    blocks: list[list[Operation]] = []
    for each in takewhile(lambda each: each.kind not in ("actors", "mean"), rest):
        if each.kind == "positions":
            positions.append(each)
        elif each.layer.endswith(".ln1."):
            blocks.append([each])
        else:
            (blocks[-1] if blocks else memory).append(each)
    return embedding, positions, memory, blocks


class _Embedding:
    """Embeds all entity types at once: features are columns of one array.

    The embedding of a type without features is its shift, with a scale of 0.
    """

    def __init__(
        self, widths: Mapping[EntityName, int], operations: Sequence[Operation], tensors: _Tensors
    ) -> None:
        last = operations[-1].of(tensors)
        d_model = last["embedding" if "embedding" in last else "bias"].shape[-1]
        self._columns: list[tuple[EntityName, slice, Floats]] = []
        self._limit = np.zeros(sum(widths.values()), np.float32)
        self._linear = np.zeros((len(self._limit), d_model), np.float32)
        self._by_type = np.zeros((len(widths), 3 * d_model), np.float32)
        """Bias, scale and shift."""
        self._norm = _Standardize(d_model)
        self._known: tuple[list[int], Floats, Floats, Floats] | None = None
        """Rows of `_by_type` for these numbers of entities."""
        stop = 0
        for (name, width), row in zip(widths.items(), self._by_type, strict=True):
            own = [each.of(tensors) for each in operations if each.output == f"embedded/{name}"]
            start, stop = stop, stop + width
            mean = np.zeros(0, np.float32)
            bias, scale, shift = row.reshape(3, d_model)
            if width:
                norm, layer, layer_norm = own
                mean, deviation = input_statistics(norm)
                self._limit[start:stop] = CLIP * deviation
                self._linear[start:stop] = (layer["weight"] / deviation).T
                bias[:], shift[:] = layer["bias"], layer_norm["bias"]
                scale[:] = layer_norm["weight"] * np.float32(math.sqrt(d_model))
            else:
                shift[:] = own[0]["embedding"]
            self._columns.append((name, slice(start, stop), mean))

    def __call__(self, arrays: Mapping[EntityName, Floats]) -> Floats:
        """`(num_entities, d_model)`."""
        counts = [len(arrays[name]) if name in arrays else 0 for name, _, _ in self._columns]
        known = self._known
        if known is None or known[0] != counts:
            rows = self._by_type.repeat(counts, axis=0)
            bias, scale, shift = (np.ascontiguousarray(part) for part in np.hsplit(rows, 3))
            known = self._known = counts, bias, scale, shift
        _, bias, scale, shift = known
        wide = np.zeros((len(bias), len(self._limit)), np.float32)
        stop = 0
        for (name, columns, mean), count in zip(self._columns, counts, strict=True):
            start, stop = stop, stop + count
            if count and len(mean):
                np.subtract(arrays[name], mean, wide[start:stop, columns])
        np.minimum(wide, self._limit, out=wide)
        np.maximum(wide, -self._limit, out=wide)
        x = product(wide, self._linear)
        x += bias
        x = self._norm(np.maximum(x, _ZERO, out=x))
        x *= scale
        x += shift
        return x


class _Standardize:
    """A layer norm without scale and shift, to rows with a deviation of 1 / sqrt(width)."""

    def __init__(self, width: int) -> None:
        self._mean = np.full(width, 1 / width, np.float32)
        self._epsilon = np.float32(EPSILON * width)

    def __call__(self, x: Floats) -> Floats:
        normed: Floats = x - x.dot(self._mean)[:, None]
        deviation = row_dot(normed, normed)
        deviation += self._epsilon
        root = np.sqrt(deviation)
        root += deviation - deviation  # as in `layer_norm`
        normed /= root[:, None]
        return normed


einsum_row_dot: Callable[[Floats, Floats], Floats] = partial(np.einsum, "ij,ij->i")
row_dot: Callable[[Floats, Floats], Floats] = getattr(np, "vecdot", einsum_row_dot)
"""Dot products of rows; numpy 1 has no `vecdot`."""


class _Linear:
    """`x @ weight.T + bias`, with an activation."""

    def __init__(self, tensors: _Tensors, activation: str = "") -> None:
        self.weight: Floats = np.ascontiguousarray(tensors["weight"].T)
        self.bias: Floats = tensors["bias"]
        self._activate = ACTIVATIONS.get(activation)
        self._is_small = self.weight.size <= LARGEST_OF_A_ROW

    @classmethod
    def after(cls, norm: _Tensors, tensors: _Tensors, activation: str = "") -> _Linear:
        """Includes the scale and shift of the layer norm before it, see `_Standardize`."""
        scale = norm["weight"] * np.float32(math.sqrt(len(norm["weight"])))
        bias = tensors["weight"] @ norm["bias"] + tensors["bias"]
        return cls({"weight": tensors["weight"] * scale, "bias": bias}, activation)

    def __call__(self, x: Floats) -> Floats:
        few = self._is_small or len(x) > 1
        y: Floats = x.dot(self.weight) if few else product(x, self.weight)
        y += self.bias
        return y if self._activate is None else self._activate(y)


class _Block:
    """Attention or pooling, and a feedforward network.

    Args:
        is_last: returns only the states of the wanted entities.
    """

    def __init__(self, operations: Sequence[Operation], tensors: _Tensors, is_last: bool) -> None:
        norms = [each.of(tensors) for each in operations if each.kind == "layer_norm"]
        self._norm = _Standardize(len(norms[0]["bias"]))
        linears = {each.output: each for each in operations if each.kind == "linear"}
        first, *mixer = (each for each in operations[:-5] if each.kind == "linear")
        self._pooling = next(
            (each.constants["of"] for each in operations if each.kind == "pool"), ""
        )
        self._n_head = next(
            (each.constants["n_head"] for each in operations if each.kind == "attend"), 1
        )
        self._is_last = is_last
        self._projection = _Linear(mixer[-1].of(tensors))
        self._gate: _Linear | None = None
        heads = first.of(tensors)
        if not self._pooling:
            each = [linears[name].of(tensors) for name in ("query", "key", "value")]
            scale = np.float32(1 / math.sqrt(len(norms[0]["bias"]) / self._n_head))
            each[0] = {part: tensor * scale for part, tensor in each[0].items()}
            heads = {part: np.concatenate([own[part] for own in each]) for part in heads}
        self._heads = _Linear.after(norms[0], heads)
        if "gate" in linears:
            gate = linears["gate"]
            self._gate = _Linear.after(norms[0], gate.of(tensors), **gate.constants)
        hidden, output = operations[-3:-1]
        self._hidden = _Linear.after(norms[1], hidden.of(tensors), **hidden.constants)
        self._output = _Linear(output.of(tensors))
        self._is_bounded = not self._pooling and self._largest_logit() < _MAX_LOGIT

    def _largest_logit(self) -> float:
        """Bound of the logits without relative positions: normed states have length 1 at most."""
        parts = np.concatenate((self._heads.weight, self._heads.bias[None]))
        heads = parts.reshape(len(parts), 3, self._n_head, -1)[:, :2]
        sizes = np.sqrt(np.square(heads[:-1]).sum(axis=(0, 3))) + np.linalg.norm(heads[-1], axis=2)
        return float((sizes[0] * sizes[1]).max())

    def __call__(
        self,
        x: Floats,
        visible: NDArray[np.bool_] | None,
        tables: RelposArrays | None,
        wanted: NDArray[np.int64],
    ) -> Floats:
        normed = self._norm(x)
        heads = self._heads(normed)
        if self._pooling:
            mixed = _pooled(heads if visible is None else heads[visible], self._pooling)
        else:
            gate = None if self._gate is None else self._gate(normed)
            rows = wanted if self._is_last else None
            mixed = self._attended(heads, gate, visible, tables, rows)
            if self._is_last:
                x = x.take(wanted, 0)
        x = x + self._projection(mixed)
        x += self._output(self._hidden(self._norm(x)))
        return x

    def _attended(
        self,
        heads: Floats,
        gate: Floats | None,
        visible: NDArray[np.bool_] | None,
        tables: RelposArrays | None,
        rows: NDArray[np.int64] | None,
    ) -> Floats:
        """Attention of these rows, None = all, from scaled queries, keys and values."""
        q, k, v = heads.reshape(len(heads), 3, self._n_head, -1).transpose(1, 2, 0, 3)
        if rows is not None:
            q = q.take(rows, 1)
            tables = None if tables is None else tables.of_queries(rows)
        logits = product(q, k.transpose(0, 2, 1))
        if tables is not None:
            logits += tables.logits(q[None])[0]
        if visible is not None:
            asking = visible if rows is None else visible[rows]
            logits += (asking[:, None] & ~visible) * HIDDEN
        if tables is None and self._is_bounded:
            attention = np.exp(logits, logits)
            y = product(attention, v)
            y /= np.add.reduce(attention, 2)[..., None]
            return y.transpose(1, 0, 2).reshape(y.shape[1], -1)
        attention = softmax(logits)
        y = product(attention, v)
        if tables is not None:
            y += tables.values(attention[None], None if gate is None else gate[None])[0]
        mixed: Floats = y.transpose(1, 0, 2).reshape(y.shape[1], -1)
        return mixed


class _PlainMemory:
    """The vector that the memory adds to the embedded entities."""

    def __init__(self, operations: Sequence[Operation], tensors: _Tensors) -> None:
        pool, gates, recur_, context, *_ = operations
        self._of: str = pool.constants["of"]
        self._gates, self._context = _Linear(gates.of(tensors)), _Linear(context.of(tensors))
        self._weight: Floats = recur_.of(tensors)["weight"]

    def __call__(self, x: Floats, state: Floats) -> Floats:
        """`(1, d_model)`, given the visible entities; replaces the state."""
        gates = self._gates(_pooled(x, self._of))
        state[:] = recur(gates, self._weight, Past(state.copy())).states
        return self._context(state)


def _pooled(x: Floats, of: str) -> Floats:
    """`(1, width)` mean or maximum, or both, of the rows; 0 without rows."""
    if not len(x):
        x = np.zeros((1, x.shape[1]), np.float32)
    parts: list[Floats] = []
    if "mean" in of:
        total: Floats = np.add.reduce(x, axis=0, keepdims=True)
        parts.append(total * np.float32(1 / len(x)))
    if "max" in of:
        parts.append(np.maximum.reduce(x, axis=0, keepdims=True))
    return np.concatenate(parts, axis=1)
