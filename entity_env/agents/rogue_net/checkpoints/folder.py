"""Checkpoint folders: three files, replaced atomically.

    <path>/config.json         format version, size of the network, spaces, settings, progress
    <path>/model.safetensors   parameters and statistics of the network
    <path>/optimizer.safetensors   needed only to resume training

Other files are never changed, and a folder with other files that is not a checkpoint is refused.
A save has an id, stored in `config.json`:

1. Write every file to `<name>.<id>.new` and flush it.
2. Replace `config.json`: now the new save is valid.
3. Rename the other files to `<name>`.

A reader takes `<name>.<id>.new` if it exists, else `<name>`; if another process has saved
meanwhile, the reader starts over. The next save completes a save that was killed after step 2, and
removes the files of a save that was killed before step 2.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from entity_env.agents.rogue_net.config import NetConfig, net_from_json
from entity_env.core.files import (
    Descriptor,
    file_digest,
    lock_file,
    parse_json,
    read_file,
    write_file,
)
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ObsSpace,
    spaces_from_json,
    spaces_to_json,
)
from entity_env.errors import CheckpointError, EntityEnvError, UsageError, shown

FORMAT = "entity_env.rogue_net"
VERSION = 1
SUBFOLDER = "checkpoint"
"""Name of the checkpoint's folder in a training run."""

_MAX_BYTES = 4 << 20
CONFIG, MODEL, OPTIMIZER = "config.json", "model.safetensors", "optimizer.safetensors"

_NEW: Final = re.compile(r"(.+)\.([0-9a-f]{16})\.new")
"""Temporary file name, with the id of its save."""
_LOCKS_FOLDERS: Final = sys.platform != "win32"
"""True if a folder itself can be locked; otherwise a file in it is locked."""
_PATIENCE_S: Final = 60.0
"""Longest wait for another writer."""
_PAUSE_S: Final = 0.005


@dataclass(frozen=True)
class Header:
    """Content of `config.json`.

    Args:
        training: settings and progress of the trainer, as JSON; may be empty.
        save: id of the save, 16 hexadecimal digits; empty in checkpoints of release 1.0.
        files: names of the other files in that save; empty if `save` is empty.
    """

    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    config: NetConfig
    training: Mapping[str, object]
    save: str = ""
    files: tuple[str, ...] = ()

    def to_bytes(self) -> bytes:
        data: dict[str, object] = {
            "format": FORMAT,
            "version": VERSION,
            "net": self.config.to_json(),
            "spaces": spaces_to_json(self.obs_space, self.action_space),
            "training": dict(self.training),
        }
        if self.save:
            data["save"] = {"id": self.save, "files": list(self.files)}
        return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()

    def place_of(self, folder: Path, name: str) -> Path | None:
        """Path of a file of this save; None if `files` shows that the save lacks it.

        The temporary name takes precedence, because a file with the final name is then older.
        """
        if self.save and name not in self.files:
            return None
        new = folder / _new_name(name, self.save)
        return new if self.save and new.exists() else folder / name


def find_checkpoint(path: Path) -> Path:
    """The folder to read: `path` itself, or the checkpoint of the training run in `path`.

    Also finds a checkpoint that release 1.0 left under another name, see `old_of`. Raises
    `CheckpointError` if there is none.
    """
    for place in (path, path / SUBFOLDER):
        for folder in (place, old_of(place)):
            if os.path.isfile(folder / CONFIG):
                return folder
    what = "the path is a file" if os.path.exists(path) else "the path does not exist"
    what = "the folder holds none" if os.path.isdir(path) else what
    raise CheckpointError(
        f"no checkpoint at {path}: {what}. Expected a folder with {CONFIG} and {MODEL}, or a "
        f"training run with the folder {SUBFOLDER!r}"
    )


def network_digest(path: Path) -> str:
    """SHA-256 of a network file, or of the parameters in a checkpoint or training run.

    Raises:
        CheckpointError: there is no such file, or it cannot be read.
    """
    file = path
    if not path.is_file():
        folder = find_checkpoint(path)
        file = read_header(folder).place_of(folder, MODEL) or folder / MODEL
    try:
        return file_digest(file)
    except OSError as error:
        raise CheckpointError(f"cannot read {file}: {error.strerror}") from error


def read_header(folder: Path) -> Header:
    """Reads `config.json`; CheckpointError if it is damaged, or has another format."""
    path = folder / CONFIG
    try:
        return _parsed_header(read_file(path, _MAX_BYTES), path)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error


def _parsed_header(content: bytes, path: Path) -> Header:
    data = parse_json(content)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError(
            f'{path} is not a checkpoint of entity_env: it lacks "format": "{FORMAT}"'
        )
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {shown(data.get('version'))} of the format, expected {VERSION}: "
            "read it with the release that wrote it"
        )
    training = data.get("training")
    try:
        obs_space, action_space = spaces_from_json(data.get("spaces"))
        config = net_from_json(data.get("net"))
    except EntityEnvError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not isinstance(training, dict):
        raise CheckpointError(f'{path}: expected an object under "training", got {shown(training)}')
    return Header(obs_space, action_space, config, training, *_save_of(data, path))


_MAX_PREPARATIONS: Final = 10


def old_of(path: Path) -> Path:
    """Path where release 1.0 left the checkpoint `path` if it was killed during a save."""
    if path.name in ("", ".."):  # the current or the parent folder, which exists
        return path
    return path.with_name(f"{path.name}.old")


def require_place(path: Path, is_ours: Callable[[Path], bool] | None = None) -> None:
    """Raises `UsageError` unless a checkpoint can be written to `path`.

    `path` may be missing, an empty folder, or a folder that satisfies `is_ours`: by default, a
    checkpoint of this format.
    """
    if path.is_symlink() and not path.exists():
        raise UsageError(
            f"{path} is a symbolic link to {os.readlink(path)}, which does not exist: make that "
            "folder, or remove the link"
        )
    if not path.exists():
        return
    if not path.is_dir():
        raise UsageError(f"{path} is a file, but a checkpoint is a folder: move the file away")
    if (is_ours or _is_checkpoint)(path):
        return
    others = sorted(name for name in os.listdir(path) if not _NEW.fullmatch(name))
    if others:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        raise UsageError(
            f"{path} is not a checkpoint but holds {others[0]!r}{more}, and only checkpoints are "
            "replaced: choose another folder, or move the files away"
        )


def prepare_place(path: Path) -> None:
    """Checks that a checkpoint can be written to `path`; creates its parent folders."""
    for attempt in range(_MAX_PREPARATIONS):
        try:
            return _prepare_place(path)
        except EntityEnvError:
            raise
        except (OSError, ValueError) as error:
            # Another run that starts here has just created or removed the folder.
            is_race = isinstance(error, FileExistsError | FileNotFoundError)
            if not is_race or attempt + 1 == _MAX_PREPARATIONS:
                raise UsageError(f"cannot write a checkpoint to {path}: {error}") from error


def _prepare_place(path: Path) -> None:
    require_place(path)
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    probe = path / _new_name(CONFIG, secrets.token_hex(8))
    with _lock(path):
        probe.touch()
        _finish(path)
    if is_new:
        with contextlib.suppress(OSError):  # another run has started there
            path.rmdir()


def write_checkpoint(path: Path, header: Header, files: Mapping[str, bytes]) -> None:
    """Writes the checkpoint to the folder `path`, replacing the last one; other files stay."""
    require_place(path)
    header = replace(header, save=secrets.token_hex(8), files=tuple(files))
    content = header.to_bytes()
    _require_readable(content, path / CONFIG)
    path.mkdir(parents=True, exist_ok=True)
    with _lock(path):
        require_place(path)
        try:
            _finish(path)
            write_new(path, {**files, CONFIG: content}, header.save)
            os.replace(path / _new_name(CONFIG, header.save), path / CONFIG)
            flush_folder(path)
        except BaseException:
            with contextlib.suppress(OSError):
                _finish(path)  # frees disk space
            raise
        _finish(path)


def note_training(path: Path, facts: Mapping[str, object]) -> None:
    """Adds facts to `training` of the checkpoint in the folder `path`; the network stays."""
    with _lock(path):
        _finish(path)
        header = read_header(path)
        content = replace(header, training={**header.training, **facts}).to_bytes()
        _require_readable(content, path / CONFIG)
        write_file(path / CONFIG, content)


def _require_readable(content: bytes, path: Path) -> None:
    """Checks that `read_header` will accept the file."""
    try:
        if len(content) > _MAX_BYTES:
            raise ValueError(f"{len(content)} bytes are too many, at most {_MAX_BYTES} are read")
        _parsed_header(content, path)
    except (CheckpointError, ValueError) as error:
        raise CheckpointError(f"cannot save {path}: {error}; nothing was written") from error


def write_new(folder: Path, files: Mapping[str, bytes], save: str) -> None:
    """Writes and flushes files under temporary names; `files` has their final names."""
    for name, content in files.items():
        with open(folder / _new_name(name, save), "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    flush_folder(folder)


def name_new(folder: Path, names: Iterable[str], save: str) -> None:
    """Renames files of `write_new` to their final names, if they exist."""
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.replace(folder / _new_name(name, save), folder / name)


def remove_new(folder: Path, names: Iterable[str]) -> None:
    """Removes temporary files of `write_new`, from any save, given their final names."""
    for found in os.listdir(folder):
        match = _NEW.fullmatch(found)
        if match is not None and match[1] in names:
            (folder / found).unlink(missing_ok=True)


def flush_folder(folder: Path) -> None:
    """Makes renames in a folder durable; does nothing on Windows, which cannot open folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _finish(folder: Path) -> None:
    """Completes the valid save, and removes what other saves left."""
    if os.path.isfile(folder / CONFIG):
        header = read_header(folder)
        name_new(folder, header.files, header.save)
        if header.save and OPTIMIZER not in header.files:
            (folder / OPTIMIZER).unlink(missing_ok=True)
        flush_folder(folder)
    remove_new(folder, (CONFIG, MODEL, OPTIMIZER))


@contextlib.contextmanager
def _lock(folder: Path) -> Iterator[None]:
    """Excludes other writers; without effect on drives without locks."""
    if _LOCKS_FOLDERS:
        place, flags = folder, os.O_RDONLY
    else:
        place, flags = folder / _new_name("lock", "0" * 16), os.O_RDWR | os.O_CREAT
    locked = Descriptor(os.open(place, flags))
    try:
        _wait_for_lock(folder, locked.number)
        yield
    finally:
        locked.close()
        if not _LOCKS_FOLDERS:
            with contextlib.suppress(OSError):  # Windows keeps a file that another writer opened
                place.unlink()


def _wait_for_lock(folder: Path, descriptor: int) -> None:
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            _take_lock(descriptor)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise TimeoutError(
                    f"another process has been writing to {folder} for {_PATIENCE_S:.0f} seconds"
                ) from None
            time.sleep(_PAUSE_S)
        except OSError:  # a drive without locks
            return


def _take_lock(descriptor: int) -> None:
    if sys.platform != "win32" and _LOCKS_FOLDERS:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    else:
        lock_file(descriptor)


def _is_checkpoint(folder: Path) -> bool:
    """True if a folder has a `config.json` of our format."""
    try:
        data = parse_json(read_file(folder / CONFIG, _MAX_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(data, dict) and data.get("format") == FORMAT


def _new_name(name: str, save: str) -> str:
    return f"{name}.{save}.new"


def _save_of(data: Mapping[str, object], path: Path) -> tuple[str, tuple[str, ...]]:
    save = data.get("save")
    if save is None:
        return "", ()
    known = (MODEL, OPTIMIZER)
    if isinstance(save, dict) and set(save) == {"id", "files"}:
        number, files = save["id"], save["files"]
        is_id = isinstance(number, str) and _NEW.fullmatch(_new_name(CONFIG, number))
        is_list = isinstance(files, list) and MODEL in files
        if is_id and is_list and all(name in known for name in files):
            return number, tuple(files)
    raise CheckpointError(
        f'{path}: expected "save" with an "id" of 16 hexadecimal digits and "files" with {MODEL} '
        f"and possibly {OPTIMIZER}"
    )
