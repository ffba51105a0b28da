"""Tensors in msgpack, as in checkpoints of enn-trainer: one map from names to tensors.

hyperstate, enn-trainer's checkpoint library, writes this format. A tensor is a map with four binary
keys: `__tensor__` ("torch" or "numpy"), `dtype` (numpy's `dtype.str`, such as `<f4`), `shape` and
`data` (C order). Everything else is refused while reading, so reading never takes much more memory
than the file.
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
"""Supported dtypes. An object dtype would make numpy follow pointers from the file."""
_MAX_DIMENSIONS: Final = 8
_MAX_NAME: Final = 1024
_KEYS: Final = {b"__tensor__", b"dtype", b"shape", b"data"}
_KINDS: Final = ("torch", "numpy")
_PICKLE: Final = tuple(b"\x80" + bytes([protocol]) for protocol in range(2, 6))


def read_blob(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The tensors of a blob, as read-only arrays; raises `CheckpointError` if it is invalid."""
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
                raise ValueError(f"expected a new tensor name as text, got {shown(name)}")
            tensors[name] = _array(unpacker.unpack())
        if unpacker.tell() != len(content):
            rest = len(content) - unpacker.tell()
            raise ValueError(f"expected the end after the last tensor, got {rest} more bytes")
    except (ValueError, msgpack.UnpackException, RecursionError, OverflowError) as error:
        raise CheckpointError(
            f"{where}: expected tensors in msgpack, but byte {unpacker.tell()}, tensor "
            f"{shown(name)}, is incomplete or damaged: {type(error).__name__}: {error}"
        ) from error
    return tensors


def write_blob(tensors: Tensors) -> bytes:
    """A blob of these tensors, in order."""
    packer = _msgpack("a checkpoint for enn-trainer").Packer(use_bin_type=True, autoreset=False)
    packer.pack_map_header(len(tensors))
    for name, tensor in tensors.items():
        # `ascontiguousarray` makes scalars one-dimensional.
        array = np.ascontiguousarray(tensor).reshape(tensor.shape)
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
    """Converts a list to a shape; refuses other lists as soon as they are read."""
    if not all(type(size) is int and size >= 0 for size in sizes):
        raise ValueError(f"expected a shape of integers, 0 or more, got {shown(sizes)}")
    return tuple(sizes)


def _fields(pairs: list[tuple[object, object]]) -> dict[object, object]:
    """Refuses maps other than tensors as soon as they are read."""
    fields = dict(pairs)
    if fields.keys() != _KEYS or len(pairs) != len(_KEYS):
        raise ValueError(
            f"expected the four keys of a tensor, got {shown([key for key, _ in pairs])}"
        )
    return fields


def _array(fields: object) -> NDArray[Any]:
    if not isinstance(fields, dict):
        raise ValueError(f"expected a tensor, got {shown(fields)}")
    dtype, shape, data = fields[b"dtype"], fields[b"shape"], fields[b"data"]
    if fields[b"__tensor__"] not in _KINDS:
        raise ValueError(f"expected the kind torch or numpy, got {shown(fields[b'__tensor__'])}")
    if not isinstance(dtype, str) or dtype not in DTYPES:
        raise ValueError(f"expected the dtype {', '.join(sorted(DTYPES))}, got {shown(dtype)}")
    if not isinstance(data, bytes) or not isinstance(shape, tuple):
        raise ValueError(
            f"expected a list as shape and bytes as data, got shape {shown(shape)} "
            f"and data of type {type(data).__name__}"
        )
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size != len(data):
        raise ValueError(f"expected {size} bytes for shape {shape} of {dtype}, got {len(data)}")
    return np.ndarray(shape, dtype, data)


def _msgpack(purpose: str) -> ModuleType:
    try:
        return import_module("msgpack")
    except ModuleNotFoundError as error:
        raise MissingExtraError("msgpack", "train", purpose) from error
