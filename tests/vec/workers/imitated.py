"""Removes features from Python, in this process and its workers, to imitate another system.

A process imitates the system in the environment variable `SYSTEM`. So do its workers, because each
interpreter imports the `sitecustomize` that `environment_of` writes.
"""

from __future__ import annotations

import faulthandler
import mmap
import multiprocessing
import os
import select
import signal
import socket
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from tests import ROOT

SYSTEM: Final = "ENTITY_ENV_IMITATES"
_MAPPINGS: Final = "ENTITY_ENV_MAPPINGS"
"""Variable with the folder of files that imitate the named mappings of Windows."""

_NOT_ON_MACOS: Final[list[tuple[ModuleType, list[str]]]] = [
    (os, ["memfd_create", "pidfd_open", "posix_fallocate", "sched_getaffinity"]),
    (select, ["epoll"]),
    (socket, ["MSG_NOSIGNAL", "MSG_CMSG_CLOEXEC"]),
]
_NOT_ON_WINDOWS: Final[list[tuple[ModuleType, list[str]]]] = [
    (os, ["fork", "register_at_fork", "sched_yield"]),
    (select, ["poll"]),
    (socket, ["send_fds", "recv_fds"]),
    (faulthandler, ["register"]),
    (signal, ["SIGUSR1", "SIGALRM", "setitimer"]),
]


def environment_of(system: str, folder: Path) -> dict[str, str]:
    """Environment variables of a process that imitates a system, with its workers."""
    code = "from tests.vec.workers.imitated import imitate\nimitate()\n"
    (folder / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(folder), str(ROOT)])
    return {**os.environ, "PYTHONPATH": path, SYSTEM: system, _MAPPINGS: str(folder)}


def imitate() -> None:
    """Makes this process imitate the system in the environment; call it before all imports."""
    is_windows = os.environ[SYSTEM] == "windows"
    for module, names in _NOT_ON_MACOS + _NOT_ON_WINDOWS * is_windows:
        for name in names:
            if hasattr(module, name):
                delattr(module, name)
    methods = ["spawn"] if is_windows else ["spawn", "fork", "forkserver"]
    _set(multiprocessing, get_all_start_methods=lambda: methods)
    if is_windows:
        _set(socket, socketpair=_tcp_pair)
        from entity_env.vec import options
        from entity_env.vec.workers import shared_memory

        _set(options, missing_for_workers=lambda: "")
        _set(shared_memory, _new_handle=shared_memory._new_name, _map_name=_map_file)


def _set(module: ModuleType, **values: Any) -> None:  # noqa: ANN401 - any values
    for name, value in values.items():
        setattr(module, name, value)


def _tcp_pair(*_: object) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _address = server.accept()
    return ours, theirs


def _map_file(name: str, num_bytes: int) -> mmap.mmap:
    place = Path(os.environ[_MAPPINGS], name)
    with open(place, "a+b") as file:
        if os.fstat(file.fileno()).st_size < num_bytes:
            file.truncate(num_bytes)
        return mmap.mmap(file.fileno(), num_bytes)
