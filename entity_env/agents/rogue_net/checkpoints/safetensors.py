"""Reads and writes the safetensors format, without the package safetensors.

A file is 8 bytes, the little-endian length of the header; the header, JSON `{name: {"dtype",
"shape", "data_offsets"}}`; then the data of the tensors, without gaps.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.weights import MAX_TENSORS
from entity_env.errors import CheckpointError, shown

_DTYPES: Final = {
    "BOOL": "|b1",
    "U8": "|u1",
    "I8": "|i1",
    "I16": "<i2",
    "I32": "<i4",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}
_NAMES: Final = {np.dtype(dtype): name for name, dtype in _DTYPES.items()}
MAX_HEADER: Final = 16 << 20
"""Maximum size of a header in bytes; the header of the largest network takes half of this."""
_MAX_NAME: Final = 1024
_MAX_DIMENSIONS: Final = 8


def read_safetensors(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The tensors in a file's content, as read-only arrays that share its memory.

    Raises:
        CheckpointError: the content is damaged.
    """
    try:
        return _read(content)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"cannot read {where}: {error}; the file is missing or incomplete, copy the whole "
            "folder"
        ) from error


def write_safetensors(tensors: Mapping[str, NDArray[Any]]) -> bytes:
    """A file's content with these tensors, sorted by name."""
    header: dict[str, dict[str, object]] = {}
    start = 0
    for name, tensor in sorted(tensors.items()):
        header[name] = {
            "dtype": _NAMES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, start + tensor.nbytes],
        }
        start += tensor.nbytes
    text = json.dumps(header, ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    data = [tensors[name].tobytes() for name in header]
    return b"".join([len(text).to_bytes(8, "little"), text, *data])


class _Entry(NamedTuple):
    """A tensor in the header; `start` and `stop` count from the end of the header."""

    start: int
    stop: int
    dtype: str
    shape: tuple[int, ...]


def _read(content: bytes) -> dict[str, NDArray[Any]]:
    length = int.from_bytes(content[:8], "little")
    begin = 8 + length
    if length > MAX_HEADER or begin > len(content):
        raise ValueError(
            f"the header takes {length} bytes, more than the file ({len(content)} bytes) or the "
            f"limit ({MAX_HEADER}) allows"
        )
    text = content[8:begin]
    # Bound the memory: a list of empty lists takes 30 times the memory of its text. The entry of a
    # tensor has only 3 opening brackets in 50 bytes or more.
    if text.count(b"[") + text.count(b"{") > 1000 + length // 8:
        raise ValueError(f"a header of {length} bytes has too many brackets")
    entries: list[_Entry] = []
    header = json.loads(text, object_hook=partial(_entry_or_dict, entries))
    if not isinstance(header, dict):
        raise ValueError("the header is not a JSON object")
    header.pop("__metadata__", None)
    for name, entry in header.items():
        if len(name) > _MAX_NAME or not isinstance(entry, _Entry):
            raise ValueError(f"the header does not describe the tensor {name[:80]!r}")
    if len(entries) > min(len(header), MAX_TENSORS):
        raise ValueError(f"the header has more than {MAX_TENSORS} tensors, or a name twice")
    tensors: dict[str, NDArray[Any]] = {}
    filled = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]):
        if entry.start != filled or not entry.start <= entry.stop <= len(content) - begin:
            raise ValueError(
                f"the data of {name!r} must begin at byte {filled} and end by byte "
                f"{len(content) - begin}, got bytes {entry.start} to {entry.stop}"
            )
        size = math.prod(entry.shape) * np.dtype(entry.dtype).itemsize
        if size != entry.stop - entry.start:
            raise ValueError(
                f"{name!r} of shape {entry.shape} and {entry.dtype} needs {size} bytes, not "
                f"{entry.stop - entry.start}"
            )
        tensors[name] = np.ndarray(entry.shape, entry.dtype, content, begin + entry.start)
        filled = entry.stop
    if begin + filled != len(content):
        raise ValueError(f"{len(content) - begin - filled} bytes belong to no tensor")
    return tensors


def _entry_or_dict(entries: list[_Entry], found: dict[str, Any]) -> _Entry | dict[str, Any]:
    """Converts a tensor's JSON to an `_Entry` as soon as it is read, and adds it to `entries`.

    Returns other objects unchanged.
    """
    match found:
        case {"dtype": str(dtype), "shape": [*shape], "data_offsets": [int(start), int(stop)]}:
            if dtype not in _DTYPES:
                raise ValueError(f"the dtype {dtype[:80]!r} is not supported")
            if len(shape) > _MAX_DIMENSIONS or not all(type(n) is int and n >= 0 for n in shape):
                raise ValueError(f"{shown(shape)} is not a shape")
            entries.append(_Entry(start, stop, _DTYPES[dtype], tuple(shape)))
            return entries[-1]
    return found
