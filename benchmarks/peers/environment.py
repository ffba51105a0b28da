"""The virtual environment of the peers, which need versions that nothing else here can live with.

Every entity-gym release demands Python < 3.11 and numpy < 2; with its dependencies named by hand
and its demand for a Python ignored, it runs on 3.11.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FOLDER = ROOT / ".venv-peers"
_STAMP = _FOLDER / ".installed"
_DEPENDENCIES = (
    "numpy<2",
    "msgpack",
    "msgpack-numpy==0.4.8",
    "cloudpickle<3",
    "tqdm<5",
    "click<9",
    "greenlet",
    "rich",
)
_PEERS = ("ragged-buffer==0.4.8", "entity-gym==0.1.10", "entity-gym-rs==0.8.0")


def peers_python(say: Callable[[str], None]) -> Path:
    """The interpreter of the peers' environment, which is made when it is missing or has changed.

    From then on `importlib.metadata` knows the versions in it as well.

    Args:
        say: told what takes so long.

    Raises:
        SystemExit: it cannot be installed.
    """
    python = _FOLDER / "bin" / "python"
    wanted = "\n".join((sys.version, *_DEPENDENCIES, *_PEERS))
    if not _STAMP.exists() or _STAMP.read_text() != wanted:
        say("installing the peers into .venv-peers")
        venv.create(_FOLDER, clear=True, with_pip=True)
        _install(python, *_DEPENDENCIES)
        _install(python, "--no-deps", "--ignore-requires-python", *_PEERS)
        _STAMP.write_text(wanted)  # last, so that an interrupted installation begins anew
    sys.path += [str(path) for path in _FOLDER.glob("lib/*/site-packages")]
    return python


def _install(python: Path, *arguments: str) -> None:
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", *arguments]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode:
        raise SystemExit(f"{' '.join(command)}\n{result.stderr}")
