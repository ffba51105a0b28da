"""Reads an uncompressed tar archive in memory, as a handful of small files by base name.

Only what a checkpoint needs: regular files, told apart by the last part of their paths. Nothing is
ever written, links and devices are refused, and a member is a slice of the archive, so no header
can ask for more memory than the file has.
"""

from __future__ import annotations

from typing import Final

from entity_env.errors import CheckpointError

_BLOCK: Final = 512
_REGULAR: Final = (b"0", b"\0", b"7")
_FOLDER: Final = b"5"
_LONG_NAME: Final = b"L"
_EXTENDED: Final = b"x"
_IGNORED: Final = (b"g", b"K")
_MAX_MEMBERS: Final = 1000
_MAX_PATH: Final = 1 << 16


def read_tar(content: bytes, where: str) -> dict[str, memoryview]:
    """The content of every regular file by its base name.

    Raises:
        CheckpointError: it is truncated or no tar archive, or holds links, devices, sparse files,
            or two files of one name.
    """
    members: dict[str, memoryview] = {}
    view = memoryview(content)
    at, path = 0, None
    for _ in range(_MAX_MEMBERS):
        header = content[at : at + _BLOCK]
        if header == bytes(_BLOCK):
            return members
        kind, size = _kind_and_size(header, f"{where}: byte {at}")
        start = at + _BLOCK
        at = start + (size + _BLOCK - 1) // _BLOCK * _BLOCK
        if start + size > len(content):
            raise CheckpointError(
                f"{where}: byte {start}: a file of {size} bytes is beyond the end: "
                "the archive is incomplete"
            )
        if kind in (_LONG_NAME, _EXTENDED):
            told = bytes(view[start : start + min(size, _MAX_PATH)])
            path = _long_path(kind, told, f"{where}: byte {start}") or path
            continue
        if kind in _IGNORED:
            continue
        name = (path or _path(header)).rstrip("/").rpartition("/")[2]
        path = None
        if kind == _FOLDER:
            continue
        if kind not in _REGULAR:
            raise CheckpointError(
                f"{where}: {name!r} is no regular file but of kind {kind!r}: pack plain files only"
            )
        if name in members:
            raise CheckpointError(f"{where} holds more than one file {name!r}")
        members[name] = view[start : start + size]
    raise CheckpointError(f"{where} has more than {_MAX_MEMBERS} members, or no end")


def _kind_and_size(header: bytes, where: str) -> tuple[bytes, int]:
    """Type and size that a header tells, after its checksum is found right."""
    if len(header) < _BLOCK:
        raise CheckpointError(f"{where}: expected one more header: the archive is incomplete")
    checksum = sum(header[:148]) + sum(header[156:]) + 8 * ord(" ")
    if _octal(header[148:156], where) != checksum:
        raise CheckpointError(f"{where}: this is no header of an uncompressed tar archive")
    return header[156:157], _octal(header[124:136], where)


def _octal(field: bytes, where: str) -> int:
    digits = field.strip(b" \0")
    if not digits:
        return 0
    if digits.strip(b"01234567"):
        raise CheckpointError(f"{where}: {field!r} is no octal number of a tar archive")
    return int(digits, 8)


def _path(header: bytes) -> str:
    name = header[:100].partition(b"\0")[0]
    if header[257:262] == b"ustar" and header[263:265] == b"00":
        name = header[345:500].partition(b"\0")[0] + b"/" + name
    return name.decode(errors="replace")


def _long_path(kind: bytes, content: bytes, where: str) -> str | None:
    """The path of the next member, from a member that only tells it.

    Raises:
        CheckpointError: the next member is sparse: its bytes are not those of the file.
    """
    if kind == _LONG_NAME:
        return content.partition(b"\0")[0].decode(errors="replace")
    for record in content.split(b"\n"):  # "length key=value"
        key, _, value = record.partition(b" ")[2].partition(b"=")
        if key.startswith(b"GNU.sparse."):
            raise CheckpointError(
                f"{where}: a sparse file: pack plain files only, without --sparse"
            )
        if key == b"path":
            return value.decode(errors="replace")
    return None
