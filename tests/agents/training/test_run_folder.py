"""Locks of run folders and checkpoints, also as on systems that only lock bytes of open files."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from entity_env.agents.rogue_net.checkpoints import folder as checkpoint_folder
from entity_env.agents.rogue_net.checkpoints.folder import prepare_place, require_place
from entity_env.agents.training.run_folder import LOCK, _locked, run_folder
from entity_env.core.files import lock_file
from entity_env.errors import UsageError

_LOCK_NOW = 2
"""`msvcrt.LK_NBLCK`."""


def lock_bytes(descriptor: int, num_bytes: int) -> None:
    """Locks bytes of a file for one open descriptor, starting at its position."""
    request = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_CUR, 0, num_bytes, 0)
    fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, request)


def locking(descriptor: int, mode: int, num_bytes: int) -> None:
    """Like `msvcrt.locking`."""
    if mode != _LOCK_NOW:
        raise ValueError(mode)
    try:
        lock_bytes(descriptor, num_bytes)
    except OSError as error:
        raise OSError(errno.EACCES, "Permission denied") from error


def unlink(path: str | Path, *, dir_fd: int | None = None) -> None:
    """As on Windows, where open files cannot be removed."""
    if Path(path).absolute() in [place.resolve() for place in Path("/proc/self/fd").iterdir()]:
        raise PermissionError(errno.EACCES, "in use", str(path))
    os.remove(path)


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    module = SimpleNamespace(locking=locking, LK_NBLCK=_LOCK_NOW)
    monkeypatch.setitem(sys.modules, "msvcrt", module)
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(checkpoint_folder, "_LOCKS_FOLDERS", False)


pytestmark = pytest.mark.usefixtures("windows")


def test_one_run_at_a_time_has_a_folder(tmp_path: Path) -> None:
    path = tmp_path / LOCK
    holder = f"is already training in {tmp_path}: process {os.getpid()} on"
    for _ in range(2):
        with _locked(path), pytest.raises(UsageError, match=holder), _locked(path):
            pass
        assert not path.exists()


def test_the_name_of_the_holder_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / LOCK
    with _locked(path), open(path, "r+b") as file:
        lock_bytes(file.fileno(), len(file.peek()))


def test_a_lock_whose_file_another_run_has_opened_is_free_all_the_same(tmp_path: Path) -> None:
    path = tmp_path / LOCK
    with _locked(path):
        other = open(path, "a+")  # noqa: SIM115 - closed below
    assert path.exists()
    with other:
        lock_file(other.fileno())
        assert other.tell() > 0  # locking does not move the position
        with pytest.raises(UsageError, match="already training"), _locked(path):
            pass
    with _locked(path):
        pass
    assert not path.exists()


def test_a_run_leaves_nothing_behind(tmp_path: Path) -> None:
    with run_folder(tmp_path / "run"):
        assert os.listdir(tmp_path / "run") == [LOCK]
    assert os.listdir(tmp_path / "run") == []


def test_one_writer_at_a_time_has_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_folder, "_PATIENCE_S", 0.02)
    with checkpoint_folder._lock(tmp_path):
        require_place(tmp_path)  # the lock does not count as a foreign file
        with pytest.raises(UsageError, match="another process has been writing to"):
            prepare_place(tmp_path)
    prepare_place(tmp_path)
    assert os.listdir(tmp_path) == []
