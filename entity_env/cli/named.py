"""The record of code and paths that the user has named.

A replay, a settings file or a run folder may refer to a game, a bot or a folder, but only what the
user named on a command line, now or before, is imported or opened.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

import click

from entity_env.core.files import code_digest, read_file, write_file

Name: TypeAlias = Path | str
"""A file or folder, which counts as named while its content stays unchanged; or other words."""

_APP: Final = "entity-env"
_MAX_BYTES: Final = 1 << 16
_PRIVATE: Final = 0o700


def remember(name: Name) -> None:
    """Records a name for later commands of this user.

    Skips unreadable files and folders, and everything if the user's settings folder is not
    writable. Such names must be typed again.
    """
    if was_named(name):
        return
    with suppress(OSError, ValueError):
        entry = _entry(name)
        entry.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        write_file(entry, _content(name))


def was_named(name: Name) -> bool:
    """True if the user named this before, and a file or folder has not changed since."""
    try:
        return read_file(_entry(name), _MAX_BYTES) == _content(name)
    except (OSError, ValueError):
        return False


def may_name(source: Path, name: Name) -> bool:
    """True if a file may refer to this, because the user named it before.

    If the referring file was created or accepted here and is unchanged, the named code may have
    changed since it was named. But the code's path must be the one that was named, because in
    another folder the same words mean another file.
    """
    return was_named(name) or (was_named(source) and was_recorded(name))


def was_recorded(name: Name) -> bool:
    """True if the user named this before, whatever its content then."""
    try:
        return read_file(_entry(name), _MAX_BYTES).partition(b"\n")[2] == _text(name) + b"\n"
    except (OSError, ValueError):
        return False


def _entry(name: Name) -> Path:
    """The file that records a name: one per path, so a new digest replaces the old."""
    key = hashlib.sha256(_text(name)).hexdigest()[:32]
    return Path(click.get_app_dir(_APP), "named", key)


def _content(name: Name) -> bytes:
    digest = code_digest(name) if isinstance(name, Path) else "words"
    return b"%s\n%s\n" % (digest.encode(), _text(name))


def _text(name: Name) -> bytes:
    text = os.path.realpath(name) if isinstance(name, Path) else name
    return text.encode("utf-8", "surrogatepass")
