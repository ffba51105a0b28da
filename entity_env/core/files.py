"""Bounded reads of untrusted files, atomic writes, locks, and descriptors that always close."""

from __future__ import annotations

import errno
import hashlib
import io
import json
import os
import stat
import sys
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final

_KINDS: Final = {
    stat.S_IFDIR: "a folder",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
}
_SPARE_BRACKETS: Final = 1000
_BYTES_A_BRACKET: Final = 12
"""JSON may have `_SPARE_BRACKETS` brackets, plus one per this many bytes. The JSON of observation
and action spaces has 14 bytes or more per bracket."""
MAX_CODE_BYTES: Final = 1 << 30
"""Largest size of code, and of other files that the user names, that is digested."""
_MAX_CODE_FILES: Final = 10_000
_IMPORTABLE: Final = (".py", ".pyc", ".so", ".pyd", ".dll", ".dylib")
_LOCKED_BYTE: Final = 1 << 30
"""On Windows, `lock_file` locks this byte: beyond the content, because other processes cannot read
locked bytes."""


class Descriptor:
    """File descriptor, closed by `close`, or at the latest when this object is collected."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._release = weakref.finalize(self, os.close, number)

    def close(self) -> None:
        self._release()


def read_file(path: Path, max_bytes: int) -> bytes:
    """Content of a regular file, or of the target of a symbolic link.

    Raises:
        OSError: not a regular file, larger than `max_bytes`, or unreadable.
    """
    _size_of(os.stat(path), path)  # before opening, which has side effects on some devices
    with open(path, "rb", opener=_open_without_waiting) as file:
        size = _size_of(os.fstat(file.fileno()), path)
        _require_size(size, max_bytes, path)
        return file.read(size)


def write_file(
    path: Path, content: bytes, *, replaces: bool = True, is_durable: bool = False
) -> None:
    """Writes a file atomically and creates its folder.

    If it fails or is interrupted, an existing file stays, and nothing else is left.

    Args:
        replaces: replace an existing file.
        is_durable: the content is on the disk before the file gets its name.

    Raises:
        FileExistsError: the file exists and `replaces` is False.
        ValueError: the name contains NUL.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            if is_durable:
                file.flush()
                os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        if replaces:
            os.replace(name, path)
        else:
            os.link(name, path)
    finally:
        with suppress(OSError):  # already renamed
            os.unlink(name)


def lock_file(descriptor: int) -> None:
    """Locks a file that is open for writing, until this process closes the file.

    Raises:
        BlockingIOError: another process has the lock.
        OSError: the drive has no locks.
    """
    try:
        if sys.platform == "win32":
            import msvcrt

            before = os.lseek(descriptor, 0, os.SEEK_CUR)
            os.lseek(descriptor, _LOCKED_BYTE, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(descriptor, before, os.SEEK_SET)
        else:
            import fcntl

            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except PermissionError as error:  # on some systems, another process has the lock
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)) from error


def parse_json(content: bytes) -> object:
    """Parses JSON; ValueError if it is invalid, has too many brackets or is nested too deeply.

    The limit on brackets bounds memory: a list of empty lists takes 20 times as much as its text.
    """
    num_brackets = content.count(b"[") + content.count(b"{")
    if num_brackets > _SPARE_BRACKETS + len(content) // _BYTES_A_BRACKET:
        raise ValueError(f"{len(content)} bytes hold {num_brackets} brackets, which are too many")
    try:
        return json.loads(content)
    except RecursionError as error:
        raise ValueError("its brackets are nested too deeply") from error


def code_digest(path: Path) -> str:
    """SHA-256 of a file, of a package's code, or of the files directly in another folder.

    Raises:
        OSError: there are no such files, they are unreadable, or they are too many or too large.
    """
    if path.is_file():
        return file_digest(path, MAX_CODE_BYTES)
    total = hashlib.sha256()
    for file, digest in code_digests(path).items():
        total.update(f"{digest} {file.relative_to(path)}\n".encode("utf-8", "surrogatepass"))
    return total.hexdigest()


def code_digests(folder: Path) -> dict[Path, str]:
    """SHA-256 of every file that `code_digest` covers in a folder, sorted by path.

    In a package, these are the files that Python can import: sources, compiled modules, and
    bytecode that is not in a `__pycache__`, also in linked folders.

    Raises:
        OSError: as `code_digest`.
    """
    is_package = (folder / "__init__.py").is_file()
    inside = _importable(folder) if is_package else folder.iterdir()
    found = sorted(islice((each for each in inside if each.is_file()), _MAX_CODE_FILES + 1))
    if not found:
        raise FileNotFoundError(str(folder))
    size = sum(each.stat().st_size for each in found)
    if len(found) > _MAX_CODE_FILES or size > MAX_CODE_BYTES:
        raise OSError(errno.EFBIG, f"more than {_MAX_CODE_FILES} files, or too large", str(folder))
    return {file: file_digest(file, MAX_CODE_BYTES) for file in found}


def file_digest(path: Path, max_bytes: int | None = None) -> str:
    """SHA-256 of a file in hexadecimal, as printed by `sha256sum`; reads it in pieces.

    Raises:
        OSError: as `read_file`; without `max_bytes`, the file may have any size.
    """
    _size_of(os.stat(path), path)
    with open(path, "rb", opener=_open_without_waiting) as content:
        _require_size(_size_of(os.fstat(content.fileno()), path), max_bytes, path)
        return hashlib.file_digest(content, "sha256").hexdigest()


def _importable(folder: Path) -> Iterator[Path]:
    seen = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        if (real := os.path.realpath(place)) in seen:
            folders.clear()  # a link to a folder around it
            continue
        if "pyvenv.cfg" in files:  # a virtual environment
            folders.clear()
            continue
        seen.add(real)
        folders[:] = [name for name in folders if name != "__pycache__"]
        yield from (Path(place, name) for name in files if name.endswith(_IMPORTABLE))


def _require_size(size: int, max_bytes: int | None, path: Path) -> None:
    if max_bytes is not None and size > max_bytes:
        words = f"{size} bytes are too many, at most {max_bytes} are read"
        raise OSError(errno.EFBIG, words, str(path))


def real_path(path: Path) -> Path:
    """The path without links. For links in a circle, `Path.resolve` of Python 3.11 raises."""
    return Path(os.path.realpath(path))


def below(file: Path) -> str:
    """Path of a file relative to the current folder, or only its name if elsewhere."""
    try:
        return real_path(file).relative_to(Path.cwd()).as_posix()
    except ValueError:
        return file.name


def _size_of(found: os.stat_result, path: Path) -> int:
    if not stat.S_ISREG(found.st_mode):
        kind = _KINDS.get(stat.S_IFMT(found.st_mode), "something else")
        raise OSError(errno.EINVAL, f"expected a regular file, got {kind}", str(path))
    return found.st_size


def _open_without_waiting(path: str, flags: int) -> int:
    # The file may have been replaced by a FIFO since the check: without O_NONBLOCK, opening a FIFO
    # waits for a writer.
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0))


def zip_of(files: Mapping[str, Path]) -> bytes:
    """A zip of files by their names in it; equal files give equal bytes."""
    import zipfile  # few commands write one

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in files.items():
            info = zipfile.ZipInfo(name)  # its date is constant
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return packed.getvalue()
