"""`OnnxGraph`: a graph of ONNX operators, added one by one.

Uses only operators of opset 15 that Unity's Inference Engine has. Nothing is reduced along an axis
that may be empty, because engines disagree about the result.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from entity_env.agents.rogue_net.features import LARGEST_INPUT
from entity_env.core.ragged import Floats

OPSET: Final = 15
_IR_VERSION: Final = 8
"""Version of the file format in the first release of onnx with this opset."""
_TO_END: Final = np.iinfo(np.int32).max
_DTYPES: Final = {
    np.float32: TensorProto.FLOAT,
    np.int64: TensorProto.INT64,
    np.bool_: TensorProto.BOOL,
}

Value: TypeAlias = str
"""Name of a tensor in the graph."""


class OnnxGraph:
    """Operators in the order in which they are added. Every method returns the name of its result.

    Arrays and numbers (float32 or int64) are accepted as inputs of operators, as constants.
    """

    def __init__(self) -> None:
        self._nodes: list[NodeProto] = []
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []
        self._constants: dict[Value, NDArray[Any]] = {}
        self._known: dict[tuple[str, tuple[int, ...], bytes], Value] = {}

    def input(self, name: str, dtype: type[np.generic], shape: Sequence[int | str]) -> Value:
        """Declares an input; text in `shape` names a dimension of any size."""
        self._inputs.append(helper.make_tensor_value_info(name, _DTYPES[dtype], shape))
        return name

    def output(self, name: str, value: Value, shape: Sequence[int | str]) -> None:
        """Makes a float32 tensor an output of this name."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def shape_of(self, name: Value) -> list[int | str]:
        """The declared shape of an input."""
        found = next(each for each in self._inputs if each.name == name)
        return [each.dim_param or each.dim_value for each in found.type.tensor_type.shape.dim]

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the outputs."""
        return tuple(each.name for each in self._outputs)

    def op(self, kind: str, *inputs: Value | NDArray[Any] | float, **attributes: Any) -> Value:  # noqa: ANN401 - as onnx
        """Adds an operator."""
        names = [each if isinstance(each, str) else self._constant(each) for each in inputs]
        name = f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, names, [name], **attributes))
        return name

    def _constant(self, value: NDArray[Any] | float) -> Value:
        dtype = np.int64 if isinstance(value, int) else np.float32
        array = value if isinstance(value, np.ndarray) else np.array(value, dtype)
        key = array.dtype.str, array.shape, hashlib.sha256(array.tobytes()).digest()
        name = self._known.setdefault(key, f"constant_{len(self._known)}")
        self._constants[name] = array
        return name

    # ------------------------------------------------------------------ combinations

    def cast(self, x: Value, dtype: type[np.generic]) -> Value:
        return self.op("Cast", x, to=_DTYPES[dtype])

    def reshape(self, x: Value, *shape: int) -> Value:
        return self.op("Reshape", x, np.array(shape, np.int64))

    def transpose(self, x: Value, *axes: int) -> Value:
        return self.op("Transpose", x, perm=axes)

    def unsqueeze(self, x: Value, axis: int) -> Value:
        return self.op("Unsqueeze", x, np.array([axis], np.int64))

    def concat(self, parts: Sequence[Value | NDArray[Any]], axis: int) -> Value:
        """The parts joined along an axis; a single part unchanged."""
        if len(parts) == 1 and isinstance(parts[0], str):
            return parts[0]
        return self.op("Concat", *parts, axis=axis)

    def rows(self, x: Value, start: int, stop: int = _TO_END) -> Value:
        """Rows of a matrix, as a slice."""
        return self.op("Slice", x, *(np.array([n], np.int64) for n in (start, stop, 0)))

    def first_row(self, x: Value, width: int) -> Value:
        """`(1, width)` first row of a matrix; 0 if it has no rows."""
        return self.rows(self.concat([x, np.zeros((1, width), np.float32)], 0), 0, 1)

    def columns(self, x: Value, index: Sequence[int]) -> Value:
        """Columns of a matrix, in this order."""
        return self.op("Gather", x, np.array(index, np.int64), axis=1)

    def count(self, x: Value) -> Value:
        """`(1,)` int64, the number of rows."""
        return self.rows(self.op("Shape", x), 0, 1)

    def repeat(self, row: Value | NDArray[Any], count: Value | NDArray[np.int64]) -> Value:
        """A matrix of one row, repeated `count` times, or a vector of one number."""
        ndim = row.ndim if isinstance(row, np.ndarray) else 2
        return self.op("Expand", row, self.concat([count, *[np.ones(1, np.int64)] * (ndim - 1)], 0))

    def sum_rows(self, x: Value, width: int) -> Value:
        """`(1, width)` sum of a matrix with any number of rows."""
        padded = self.concat([x, np.zeros((1, width), np.float32)], 0)
        return self.op("ReduceSum", padded, np.array([0], np.int64))

    def total(self, parts: Iterable[Value]) -> Value:
        """Sum of tensors, from left to right."""
        first, *rest = parts
        for each in rest:
            first = self.op("Add", first, each)
        return first

    def length(self, parts: Sequence[Value]) -> Value:
        """Length of vectors, given as an array per axis."""
        return self.op("Sqrt", self.total(self.op("Mul", each, each) for each in parts))

    def standardized(self, x: Value, mean: Floats, deviation: Floats, limit: float) -> Value:
        """`x` in deviations from the mean, clipped."""
        normed = self.op("Div", self.op("Sub", x, mean), deviation)
        return self.op("Clip", normed, -limit, limit)

    def limited(self, x: Value) -> Value:
        """`features.limited`; infinite numbers count as the limit, too."""
        return self.op("Clip", x, -float(LARGEST_INPUT), float(LARGEST_INPUT))

    def linear(self, x: Value, weight: NDArray[Any], bias: NDArray[Any]) -> Value:
        """`x @ weight.T + bias` of a matrix."""
        return self.op("Gemm", x, weight, bias, transB=1)

    # ------------------------------------------------------------------ the file

    def model(self, metadata: Mapping[str, str], version: str) -> ModelProto:
        """The graph without inputs, operators and constants that no output needs."""
        needed, nodes = set(self.outputs), list[NodeProto]()
        for node in reversed(self._nodes):
            if needed.intersection(node.output):
                needed.update(node.input)
                nodes.append(node)
        constants = [
            numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), each)
            for each, values in self._constants.items()
            if each in needed
        ]
        inputs = [each for each in self._inputs if each.name in needed]
        graph = helper.make_graph(nodes[::-1], "network", inputs, self._outputs, constants)
        model = helper.make_model(
            graph,
            ir_version=_IR_VERSION,
            opset_imports=[helper.make_opsetid("", OPSET)],
            producer_name="entity_env",
            producer_version=version,
        )
        helper.set_model_props(model, dict(metadata))
        return model
