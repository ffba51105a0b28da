"""Virtual environments of the peers, which need versions that nothing else here can live with.

Every entity-gym release demands Python < 3.11 and numpy < 2; with its dependencies named by hand
and its demand for a Python ignored, it runs on 3.11.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_FOLDER = ROOT / ".venv-peers"
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
_ENVPOOL = ("envpool==1.2.5", "gymnasium==1.4.0", "numpy", "greenlet", "rich")
_PEERS = ("ragged-buffer==0.4.8", "entity-gym==0.1.10", "entity-gym-rs==0.8.0")


def peers_python(say: Callable[[str], None]) -> Path:
    """The interpreter of the peers' environment, which is made when it is missing or has changed.

    Args:
        say: told what takes so long.

    Raises:
        SystemExit: it cannot be installed.
    """
    without_demands = ("--no-deps", "--ignore-requires-python", *_PEERS)
    return made_python(_FOLDER, [_DEPENDENCIES, without_demands], say)


def envpool_python(say: Callable[[str], None]) -> Path:
    """As `peers_python`, of envpool: a gigabyte that no other benchmark should have to install."""
    # Inside the folder that is ignored and cleaned; when that is made anew, so is this.
    return made_python(_FOLDER / "envpool", [_ENVPOOL], say)


def made_python(
    folder: Path, installs: Sequence[Sequence[str]], say: Callable[[str], None]
) -> Path:
    """The interpreter of a virtual environment, made when it is missing or wanted otherwise.

    From then on `importlib.metadata` knows the versions in it as well.

    Args:
        folder: the environment.
        installs: arguments of `pip install`, one call after another.
        say: told what takes so long.

    Raises:
        SystemExit: pip has failed.
    """
    python, stamp = folder / "bin" / "python", folder / ".installed"
    wanted = "\n".join((sys.version, *(word for words in installs for word in words)))
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"installing the peers into {folder.name}")
        venv.create(folder, clear=True, with_pip=True)
        for words in installs:
            command = [str(python), "-m", "pip", "install", "--quiet", "--no-input", *words]
            result = subprocess.run(command, capture_output=True, text=True)
            if result.returncode:
                raise SystemExit(f"{' '.join(command)}\n{result.stderr}")
        stamp.write_text(wanted)  # last, so that an interrupted installation begins anew
    sys.path += [str(path) for path in folder.glob("lib/*/site-packages")]
    return python
