"""The record of code and paths that the user has named.

A replay, a settings file or a run folder may refer to a game, a bot or a folder, but only what the
user named on a command line, now or before, is imported or opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from entity_env.authoring.load_module import place_in_package
from entity_env.authoring.named_code.check import CodeCheck, has_record, is_record, write_record
from entity_env.authoring.named_code.finder import named_code
from entity_env.core.files import code_digest, code_digests

if TYPE_CHECKING:
    from entity_env.vec.external.game import ProgramCode

Name: TypeAlias = "Path | str | ProgramCode"
"""A file or folder, or a program, which count as named while their content stays unchanged; or
other words."""

_APP: Final = "entity-env"


@contextmanager
def only_named_code() -> Iterator[None]:
    """Within a command, lets only code run that the user has named, see `CodeCheck`."""
    code = named_code()
    before, code.check = code.check, CodeCheck(_records())
    try:
        yield
    finally:
        code.check = before


def remember(name: Name) -> None:
    """Records a name for later commands of this user.

    Skips unreadable files and folders, and everything if the user's settings folder is not
    writable. Such names must be typed again.
    """
    check, folder = named_code().check, _code_folder(name)
    if check is not None and folder is not None and folder not in check.unchanged:
        check.typed.add(folder)
    if isinstance(name, Path) and name.suffix == ".py":
        look = name.with_name(f"{name.stem}_look.py")
        if os.path.isfile(look) and not was_named(look):
            remember(look)
    if was_named(name):
        return
    with suppress(OSError, ValueError):
        write_record(_records(), _text(name), _digest(name))


def was_named(name: Name) -> bool:
    """True if the user named this before, and a file or folder has not changed since."""
    if not was_recorded(name):  # then nothing is opened
        return False
    try:
        return is_record(_records(), _text(name), _digest(name))
    except (OSError, ValueError):
        return False


def may_name(source: Path, name: Name) -> bool:
    """True if a file may refer to this, because the user named it before.

    If the referring file was created or accepted here and is unchanged, the named code may have
    changed since it was named, unless it is a program. But the code's path must be the one that was
    named, because in another folder the same words mean another file.
    """
    check, folder = named_code().check, _code_folder(name)
    if isinstance(name, (Path, str)) and was_recorded(name) and was_named(source):
        if check is not None and folder is not None:
            check.typed.add(folder)
        return True
    if not was_named(name):
        return False
    if check is not None and folder is not None and folder not in check.typed:
        check.unchanged.add(folder)
        if isinstance(name, Path) and name.is_dir():
            digests = code_digests(name).items()
            check.digests |= {os.path.realpath(file): digest for file, digest in digests}
    return True


def was_recorded(name: Name) -> bool:
    """True if the user named this before, whatever its content then."""
    try:
        return has_record(_records(), _text(name))
    except (OSError, ValueError):
        return False


def _records() -> Path:
    return Path(click.get_app_dir(_APP), "named")


def _code_folder(name: Name) -> str | None:
    """The folder from which a named file or package imports; None for other names."""
    if not isinstance(name, Path):
        return None
    with suppress(OSError, ValueError):
        file = name / "__init__.py" if name.is_dir() else name
        if file.suffix == ".py" and file.is_file():
            return str(place_in_package(file.resolve())[1])
    return None


def _digest(name: Name) -> str:
    if isinstance(name, str):
        return "words"
    return code_digest(name) if isinstance(name, Path) else name.digest()


def _text(name: Name) -> bytes:
    if isinstance(name, Path):
        name = os.path.realpath(name)
    return (name if isinstance(name, str) else name.name).encode("utf-8", "surrogatepass")
