"""Tensors in the format of safetensors, read without that package.

Eight bytes of length, little-endian; a header of that length in JSON, `{name: {"dtype", "shape",
"data_offsets"}}`, padded with spaces; then the raw data, without gaps. The header is matched entry
by entry in the order in which safetensors writes it: unlike a general reader of JSON, that never
costs much more memory than its text.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.weights import MAX_TENSORS
from entity_env.errors import CheckpointError

DTYPES: Final = {
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
MAX_HEADER: Final = 16 << 20
"""Bytes; that of the largest network has half of them."""
_TEXT: Final = r'"((?:[^"\\]++|\\.)*+)"'
_ENTRY: Final = re.compile(
    rf"""\s*{_TEXT}\s*:\s*\{{
      (?: \s*"dtype"\s*:\s*"([A-Z0-9_]{{1,16}})"\s*,
          \s*"shape"\s*:\s*\[([0-9,\s]*+)\]\s*,
          \s*"data_offsets"\s*:\s*\[\s*([0-9]{{1,20}})\s*,\s*([0-9]{{1,20}})\s*\]\s*
        | (?:\s*{_TEXT}\s*:\s*{_TEXT}\s*,?)*+ )
    \}}\s*(?P<end>,|\}}\s*\Z)""",
    re.VERBOSE,
)
_EMPTY: Final = re.compile(r"\{\s*\}\s*")
_MAX_NAME: Final = 1024
_MAX_DIMENSIONS: Final = 8


def read_safetensors(content: bytes, where: str) -> dict[str, NDArray[Any]]:
    """The tensors of a file, as read-only arrays over its bytes.

    Raises:
        CheckpointError: it is truncated, or its header does not describe its data.
    """
    if len(content) < 8:
        raise _damaged(where, f"it has {len(content)} bytes, fewer than a header")
    length = int.from_bytes(content[:8], "little")
    data = memoryview(content)[8 + length :]
    if length > len(content) - 8:
        raise _damaged(where, f"a header of {length} bytes is beyond its {len(content)} bytes")
    if length > MAX_HEADER:
        raise _damaged(where, f"a header of {length} bytes is longer than {MAX_HEADER}")
    try:
        header = content[8 : 8 + length].decode()
    except UnicodeDecodeError as error:
        raise _damaged(where, f"the header is no text in UTF-8: {error}") from error
    tensors: dict[str, NDArray[Any]] = {}
    filled = 0
    for name, dtype, shape, start, stop in _entries(header, where):
        if name in tensors:
            raise _damaged(where, f"it names {name!r} twice")
        if start != filled or not start <= stop <= len(data):
            raise _damaged(where, f"{name!r} is not where the data of the one before it ends")
        tensors[name] = _array(data[start:stop], name, dtype, shape, where)
        filled = stop
    if filled != len(data):
        raise _damaged(where, f"{len(data) - filled} bytes belong to no tensor")
    return tensors


def _entries(header: str, where: str) -> list[tuple[str, str, tuple[int, ...], int, int]]:
    """Name, dtype, shape and place of every tensor, in the order of their places."""
    entries: list[tuple[str, str, tuple[int, ...], int, int]] = []
    at, end = 1, "}" if _EMPTY.fullmatch(header) else ","
    if not header.startswith("{"):
        raise _damaged(where, "the header is no object of JSON")
    while end == ",":
        match = _ENTRY.match(header, at)
        if match is None:
            raise _damaged(where, f"the header has something else than a tensor at character {at}")
        name, dtype, shape, start, stop = match.group(1, 2, 3, 4, 5)
        if len(entries) == MAX_TENSORS:
            raise _damaged(where, f"it has more than {MAX_TENSORS} tensors")
        if dtype is not None:
            place = int(start), int(stop)
            entries.append((_name(name, where), dtype, _shape(shape, where), *place))
        elif name != "__metadata__":
            raise _damaged(where, f"the header does not say what {name[:80]!r} is")
        at, end = match.end(), match["end"][0]
    return sorted(entries, key=lambda entry: entry[3:])


def _name(quoted: str, where: str) -> str:
    try:
        name = json.loads(f'"{quoted}"') if len(quoted) <= _MAX_NAME else None
    except ValueError as error:
        raise _damaged(where, f"a name is no text of JSON: {error}") from error
    if not isinstance(name, str):
        raise _damaged(where, f"a name is longer than {_MAX_NAME} characters")
    return name


def _shape(text: str, where: str) -> tuple[int, ...]:
    parts = text.split(",", _MAX_DIMENSIONS) if text.strip() else []
    sizes = [part.strip() for part in parts]
    if len(sizes) > _MAX_DIMENSIONS or not all(s.isdecimal() and len(s) <= 20 for s in sizes):
        raise _damaged(where, f"the shape [{text[:80]}] is none")
    return tuple(map(int, sizes))


def _array(
    data: memoryview, name: str, dtype: str, shape: tuple[int, ...], where: str
) -> NDArray[Any]:
    if dtype not in DTYPES:
        raise _damaged(where, f"{name!r} has the dtype {dtype}, which is not read")
    size = math.prod(shape) * np.dtype(DTYPES[dtype]).itemsize
    if size != len(data):
        raise _damaged(
            where, f"{name!r} of shape {shape} and {dtype} needs {size} bytes, not {len(data)}"
        )
    try:
        array: NDArray[Any] = np.ndarray(shape, DTYPES[dtype], data)
    except (ValueError, OverflowError) as error:
        raise _damaged(where, f"{name!r}: {error}") from error
    return array


def _damaged(where: str, what: str) -> CheckpointError:
    return CheckpointError(
        f"cannot read {where}: {what}; the file is missing or incomplete, copy the whole folder"
    )
