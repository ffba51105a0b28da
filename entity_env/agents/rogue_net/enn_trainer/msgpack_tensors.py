"""Tensors in msgpack, as hyperstate keeps them: one map from names to tensors.

A tensor is a map of four binary keys: `__tensor__` ("torch" or "numpy"), `dtype` (numpy's name),
`shape` and `data`, raw and row by row. Whatever else msgpack can hold is refused while it is read,
so a file never costs much more memory than its own length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any, Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.weights import MAX_TENSORS, Tensors
from entity_env.errors import CheckpointError, MissingExtraError, shown

DTYPES: Final = frozenset(["<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "|b1"])
"""Plain numbers only: a dtype of objects would make numpy follow pointers from the file."""
MAX_DIMENSIONS: Final = 8
MAX_NAME: Final = 1024
_KEYS: Final = ("__tensor__", "dtype", "shape", "data")
_KINDS: Final = ("torch", "numpy")
_PICKLE: Final = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))


def read_blob(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The tensors of a blob, as read-only arrays over its bytes.

    Raises:
        CheckpointError: it is truncated, no map of tensors, or a tensor is not what it says.
        MissingExtraError: msgpack is not installed.
    """
    if content.startswith(_PICKLE):
        raise CheckpointError(
            f"{where} begins like a pickle, which could run any code when it is read: "
            "save the checkpoint anew with hyperstate 0.4 or later"
        )
    msgpack = _msgpack(where)
    unpacker = msgpack.Unpacker(
        raw=False,
        max_buffer_size=max(len(content), 1),
        max_str_len=MAX_NAME,
        max_bin_len=max(len(content), 1),
        max_array_len=0,  # shapes and maps are read item by item
        max_map_len=0,
        max_ext_len=0,
    )
    unpacker.feed(content)
    try:
        tensors = _Reader(unpacker, where).tensors()
        at = unpacker.tell()
    except CheckpointError:
        raise
    except (ValueError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        raise CheckpointError(
            f"{where}: byte {unpacker.tell()}: expected tensors in msgpack: "
            f"{type(error).__name__} {error}; the file is incomplete or damaged"
        ) from error
    if at != len(content):
        raise CheckpointError(f"{where}: {len(content) - at} bytes follow the last tensor")
    return tensors


def write_blob(tensors: Tensors) -> bytes:
    """A blob of these tensors, in order.

    Raises:
        MissingExtraError: msgpack is not installed.
    """
    packer = _msgpack("a checkpoint for enn-trainer").Packer(use_bin_type=True, autoreset=False)
    packer.pack_map_header(len(tensors))
    for name, tensor in tensors.items():
        array = np.ascontiguousarray(tensor).reshape(tensor.shape)  # a scalar stays one
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        packer.pack(name)
        packer.pack(
            {
                b"__tensor__": "torch",
                b"dtype": array.dtype.str,
                b"shape": list(array.shape),
                b"data": array.tobytes(),
            }
        )
    content: bytes = packer.bytes()
    return content


class _Reader:
    def __init__(self, unpacker: Any, where: str) -> None:  # noqa: ANN401 - msgpack has no types
        self._unpacker, self._where = unpacker, where

    def tensors(self) -> dict[str, NDArray[Any]]:
        found: dict[str, NDArray[Any]] = {}
        count = self._unpacker.read_map_header()
        if count > MAX_TENSORS:
            self._fail(f"expected at most {MAX_TENSORS} tensors, got {count}")
        for _ in range(count):
            name = self._unpacker.unpack()
            if not isinstance(name, str) or name in found:
                self._fail(f"expected the name of one more tensor, got {shown(name)}")
            found[name] = self._tensor(name)
        return found

    def _tensor(self, name: str) -> NDArray[Any]:
        fields: dict[str, object] = {}
        for _ in range(self._header(self._unpacker.read_map_header, len(_KEYS), name)):
            key = self._unpacker.unpack()
            text = key.decode("latin-1") if isinstance(key, bytes) else key
            if text not in _KEYS or text in fields:
                self._fail(f"tensor {name!r} has the unexpected key {shown(key)}")
            fields[text] = self._shape(name) if text == "shape" else self._unpacker.unpack()
        missing = [key for key in _KEYS if key not in fields]
        if missing:
            self._fail(f"tensor {name!r} lacks {missing[0]!r}")
        return self._array(name, fields)

    def _shape(self, name: str) -> tuple[int, ...]:
        count = self._header(self._unpacker.read_array_header, MAX_DIMENSIONS, name)
        shape = tuple(self._unpacker.unpack() for _ in range(count))
        if not all(type(size) is int and size >= 0 for size in shape):
            self._fail(f"tensor {name!r} has the impossible shape {shown(shape)}")
        return shape

    def _array(self, name: str, fields: dict[str, object]) -> NDArray[Any]:
        kind, dtype = fields["__tensor__"], fields["dtype"]
        shape, data = fields["shape"], fields["data"]
        if kind not in _KINDS:
            self._fail(f"tensor {name!r} is of the unknown kind {shown(kind)}")
        if not isinstance(dtype, str) or dtype not in DTYPES:
            self._fail(f"tensor {name!r} has the dtype {shown(dtype)}, which is not read")
        if not isinstance(data, bytes) or not isinstance(shape, tuple):
            self._fail(f"tensor {name!r} has data of type {type(data).__name__}, expected bytes")
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size != len(data):
            self._fail(
                f"tensor {name!r} of shape {shape} and dtype {dtype} needs {size} bytes, "
                f"but has {len(data)}"
            )
        return np.ndarray(shape, dtype, data)

    def _header(self, read: Callable[[], int], largest: int, name: str) -> int:
        count = read()
        if count > largest:
            self._fail(f"tensor {name!r} has {count} items where at most {largest} belong")
        return count

    def _fail(self, message: str) -> NoReturn:
        raise CheckpointError(f"{self._where}: byte {self._unpacker.tell()}: {message}")


def _msgpack(purpose: str) -> ModuleType:
    try:
        return import_module("msgpack")
    except ModuleNotFoundError as error:
        raise MissingExtraError("msgpack", "train", purpose) from error
