"""The virtual environment of envpool, a gigabyte that no other benchmark should have to install."""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.environment import ROOT

# Inside the other peers' folder, which is ignored and cleaned; when that is made anew, so is this.
_FOLDER = ROOT / ".venv-peers" / "envpool"
_STAMP = _FOLDER / ".installed"
_PACKAGES = ("envpool==1.2.5", "gymnasium==1.4.0", "numpy", "greenlet", "rich")


def envpool_python(say: Callable[[str], None]) -> Path:
    """The interpreter of envpool's environment, which is made when it is missing or has changed.

    From then on `importlib.metadata` knows the versions in it as well.

    Args:
        say: told what takes so long.

    Raises:
        SystemExit: it cannot be installed.
    """
    python = _FOLDER / "bin" / "python"
    wanted = "\n".join((sys.version, *_PACKAGES))
    if not _STAMP.exists() or _STAMP.read_text() != wanted:
        say("installing envpool into .venv-peers/envpool, a gigabyte")
        venv.create(_FOLDER, clear=True, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", *_PACKAGES]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode:
            raise SystemExit(f"{' '.join(command)}\n{result.stderr}")
        _STAMP.write_text(wanted)  # last, so that an interrupted installation begins anew
    sys.path += [str(path) for path in _FOLDER.glob("lib/*/site-packages")]
    return python
