"""`CodeCheck`: what of named code may run; the records of what the user has named."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from entity_env.core.files import read_file, write_file
from entity_env.errors import UsageError

_MAX_RECORD_BYTES: Final = 1 << 16
_PRIVATE: Final = 0o700


@dataclass
class CodeCheck:
    """Allows or refuses every file of named code before it runs, by its digest.

    Args:
        records: folder of the records of what the user has named, see `write_record`.
        typed: folders of code that was named on this command line: their files may run, and are
            recorded.
        unchanged: folders of code that only a file names: a file in them may run if it was recorded
            and has not changed since.
        digests: more files that may run, by path.
    """

    records: Path
    typed: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    digests: dict[str, str] = field(default_factory=dict)

    def __call__(self, file: Path, digest: str) -> None:
        """Checks a file with this digest.

        Raises:
            UsageError: it must not run.
        """
        text = _text(file)
        if self._is_typed(file):
            with suppress(OSError):
                if not is_record(self.records, text, digest):
                    write_record(self.records, text, digest)
            return
        is_known = digest == self.digests.get(os.path.realpath(file))
        if not is_known and not is_record(self.records, text, digest):
            raise UsageError(
                f"{file} is new or has changed since you named the code that imports it: if you "
                "trust it, name that code on the command line"
            )
        if any(file.parent.glob(f"__pycache__/{file.stem}.*.nb[ic]")):
            raise UsageError(
                f"{file} has compiled code of numba in {file.parent / '__pycache__'}, which cannot "
                "be checked: if you trust it, name that code on the command line"
            )

    def _is_typed(self, file: Path) -> bool:
        for folder in map(str, file.parents):
            if folder in self.typed or folder in self.unchanged:
                return folder in self.typed
        return not self.unchanged


def is_record(records: Path, text: bytes, digest: str) -> bool:
    """True if these words or this path were recorded with a digest."""
    try:
        return read_file(_record(records, text), _MAX_RECORD_BYTES) == _content(text, digest)
    except (OSError, ValueError):
        return False


def has_record(records: Path, text: bytes) -> bool:
    """True if these words or this path were recorded, with any digest."""
    try:
        content = read_file(_record(records, text), _MAX_RECORD_BYTES)
        return content.partition(b"\n")[2] == text + b"\n"
    except (OSError, ValueError):
        return False


def write_record(records: Path, text: bytes, digest: str) -> None:
    """Records words or a path; a path has one record, so a new digest replaces the old.

    Raises:
        OSError: the folder is not writable.
    """
    records.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    write_file(_record(records, text), _content(text, digest))


def _record(records: Path, text: bytes) -> Path:
    return records / hashlib.sha256(text).hexdigest()[:32]


def _content(text: bytes, digest: str) -> bytes:
    return b"%s\n%s\n" % (digest.encode(), text)


def _text(file: Path) -> bytes:
    return os.path.realpath(file).encode("utf-8", "surrogatepass")
