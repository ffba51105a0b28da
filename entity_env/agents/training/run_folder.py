"""The folder of a run, locked for one training process at a time."""

from __future__ import annotations

import json
import logging
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TextIO

from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER, find_checkpoint, prepare_place
from entity_env.core.files import lock_file, parse_json
from entity_env.errors import CheckpointError, UsageError

LOCK: Final = ".entity_env.lock"
"""Lock file in a training run's folder; names the process."""
_LOCK_TRIES: Final = 50
_log: Final = logging.getLogger(__name__)
_held: Final[dict[str, int]] = {}
"""Folders in which this process trains, with its pid, since file locks only separate processes."""


@contextmanager
def run_folder(out: Path | None) -> Iterator[None]:
    """Context that locks the folder of a run, and prepares its checkpoint folder; None = no folder.

    Raises:
        UsageError: another run trains there, the checkpoint folder has other files, or the folder
            is not writable.
    """
    if out is None:
        yield
        return
    prepare_place(out / SUBFOLDER)
    key = str(out.resolve())
    if _held.get(key) == os.getpid():
        raise UsageError(f"another run of this process is training in {out}: choose another folder")
    with _locked(out / LOCK):
        _held[key] = os.getpid()
        try:
            yield
        finally:
            del _held[key]


def require_new_run(out: Path, *, can_resume: bool = True) -> None:
    """Raises `UsageError` if a folder has a checkpoint, which a new run would overwrite.

    `can_resume`: the message offers `resume=True`.
    """
    try:
        found = find_checkpoint(out)
    except CheckpointError:
        return
    raise UsageError(
        f"{found} holds a trained agent: "
        + "resume=True continues training it, or " * can_resume
        + "choose another folder"
    )


def has_lock(out: Path) -> bool:
    """True if this process sees a run's lock in a folder; waits up to 5 s for network drives."""
    for _ in range(_LOCK_TRIES):
        if (out / LOCK).exists():
            return True
        time.sleep(0.1)
    return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Context that holds a lock; leaving it unlocks, even if child processes still run."""
    with _open_locked(path) as file:
        holder = {"pid": os.getpid(), "host": socket.gethostname()}
        text = json.dumps({**holder, "since": time.strftime("%Y-%m-%d %H:%M:%S")})
        try:
            file.truncate(0)
            with suppress(OSError):  # a full disk; the lock needs no content
                os.write(file.fileno(), text.encode())
            yield
        finally:
            if os.getpid() == holder["pid"]:  # not in a forked child
                _remove(path, file)


def _remove(path: Path, file: TextIO) -> None:
    """Removes a lock's file: while the lock is held if the system allows it, else afterwards."""
    try:
        path.unlink(missing_ok=True)
    except PermissionError:  # Windows cannot remove an open file
        file.close()
        with suppress(PermissionError):  # the next run has opened it
            path.unlink(missing_ok=True)


def _open_locked(path: Path) -> TextIO:
    while True:
        try:
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - returned
        except OSError as error:
            raise UsageError(f"cannot write to {path.parent}: {error}") from error
        try:
            _take_lock(file, path.parent)
            is_there = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        except BaseException:
            file.close()
            raise
        if is_there:
            return file
        file.close()  # the last holder of the lock has just removed the file


def _take_lock(file: TextIO, out: Path) -> None:
    try:
        lock_file(file.fileno())
    except BlockingIOError:
        file.seek(0)
        who = "another process"
        with suppress(ValueError, TypeError, KeyError):
            holder: Any = parse_json(file.read(1000).encode())
            who = f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
        raise UsageError(
            f"a run is already training in {out}: {who}; wait until it ends, or choose another "
            "folder"
        ) from None
    except OSError as error:
        _log.warning("%s is on a drive without locks: start only one run there (%s)", out, error)
