"""Tensors in msgpack, as hyperstate writes them: one map from names to tensors.

A tensor is a map of four binary keys: `__tensor__` ("torch" or "numpy"), `dtype` (numpy's name),
`shape` and `data` (C order). Everything else is refused while reading, so a file never takes much
more memory than its length.
"""

from __future__ import annotations

import math
from importlib import import_module
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.weights import MAX_TENSORS, Tensors
from entity_env.errors import CheckpointError, MissingExtraError, shown

DTYPES: Final = frozenset(["<f2", "<f4", "<f8", "|i1", "<i2", "<i4", "<i8", "|u1", "|b1"])
"""Numbers only: with a dtype of objects, numpy would follow pointers from the file."""
_MAX_DIMENSIONS: Final = 8
_MAX_NAME: Final = 1024
_KEYS: Final = {b"__tensor__", b"dtype", b"shape", b"data"}
_KINDS: Final = ("torch", "numpy")
_PICKLE: Final = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))


def read_blob(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The tensors of a blob, as read-only arrays."""
    if content.startswith(_PICKLE):
        raise CheckpointError(
            f"{where} begins like a pickle, which could run any code when it is read: "
            "save the checkpoint again with hyperstate 0.4 or later"
        )
    msgpack = _msgpack(where)
    unpacker = msgpack.Unpacker(
        max_buffer_size=max(len(content), 1),
        max_bin_len=max(len(content), 1),
        max_str_len=_MAX_NAME,
        max_array_len=_MAX_DIMENSIONS,
        max_map_len=len(_KEYS),
        max_ext_len=0,
        list_hook=_shape,
        object_pairs_hook=_fields,
    )
    unpacker.feed(content)
    tensors: dict[str, NDArray[Any]] = {}
    name: object = None
    try:
        count = unpacker.read_map_header()  # not bounded by `max_map_len`
        if count > MAX_TENSORS:
            raise ValueError(f"expected at most {MAX_TENSORS} tensors, got {count}")
        for _ in range(count):
            name = unpacker.unpack()
            if not isinstance(name, str) or name in tensors:
                raise ValueError("expected the name of one more tensor")
            tensors[name] = _array(unpacker.unpack())
        if unpacker.tell() != len(content):
            raise ValueError(f"{len(content) - unpacker.tell()} bytes follow the last tensor")
    except (ValueError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        raise CheckpointError(
            f"{where}: byte {unpacker.tell()}, tensor {shown(name)}: {type(error).__name__} "
            f"{error}; expected tensors in msgpack, the file is incomplete or damaged"
        ) from error
    return tensors


def write_blob(tensors: Tensors) -> bytes:
    """A blob of these tensors, in order."""
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


def _shape(sizes: list[object]) -> tuple[object, ...]:
    """Refuses nested lists as soon as they are read."""
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"the impossible shape {shown(sizes)}")
    return tuple(sizes)


def _fields(pairs: list[tuple[object, object]]) -> dict[object, object]:
    """Refuses maps other than tensors as soon as they are read."""
    fields = dict(pairs)
    if fields.keys() != _KEYS or len(pairs) != len(_KEYS):
        raise ValueError(f"a tensor has the keys {shown([key for key, _ in pairs])}")
    return fields


def _array(fields: object) -> NDArray[Any]:
    if not isinstance(fields, dict):
        raise ValueError(f"expected a tensor, got {shown(fields)}")
    dtype, shape, data = fields[b"dtype"], fields[b"shape"], fields[b"data"]
    if fields[b"__tensor__"] not in _KINDS:
        raise ValueError(f"the unknown kind {shown(fields[b'__tensor__'])}")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"the dtype {shown(dtype)}, which is not supported")
    if not isinstance(data, bytes) or not isinstance(shape, tuple):
        raise ValueError(f"shape {shown(shape)} and data of type {type(data).__name__}")
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size != len(data):
        raise ValueError(f"shape {shape} of {dtype} needs {size} bytes, but has {len(data)}")
    return np.ndarray(shape, dtype, data)


def _msgpack(purpose: str) -> ModuleType:
    try:
        return import_module("msgpack")
    except ModuleNotFoundError as error:
        raise MissingExtraError("msgpack", "train", purpose) from error
