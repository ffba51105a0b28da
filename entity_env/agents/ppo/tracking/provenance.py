"""Where a run was made: machine, processor, versions of the packages. None of it is sent away."""

from __future__ import annotations

import os
import platform
import re
import socket
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("entity-env", "numpy", "torch", "numba")
_CPU_INFO: Final = Path("/proc/cpuinfo")
_MODEL: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that a network depends on."""
    found = {"python": platform.python_version()}
    for package in _PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def machine() -> dict[str, str | int]:
    """Host, operating system, model of the processor, and its cores that this process may use."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "num_cpus": usable or 1,
    }


def _cpu() -> str:
    """The model of the processor; its architecture where the system does not say."""
    with suppress(OSError):
        if found := _MODEL.search(_CPU_INFO.read_text(errors="replace")):
            return found[1].strip()
    return platform.processor() or platform.machine()
