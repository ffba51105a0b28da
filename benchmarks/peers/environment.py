"""Virtual environments of the peers, whose versions conflict with those of this package.

All entity-gym releases require Python < 3.11 and numpy < 2. They run on Python 3.11 if the
dependencies are listed by hand and the required Python version is ignored.
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
    """The interpreter of the peers' environment; creates it if it is missing or outdated.

    Args:
        say: called with a message before a slow installation.

    Raises:
        SystemExit: it cannot be installed.
    """
    without_demands = ("--no-deps", "--ignore-requires-python", *_PEERS)
    return made_python(_FOLDER, [_DEPENDENCIES, without_demands], say)


def envpool_python(say: Callable[[str], None]) -> Path:
    """Like `peers_python`, for envpool: one gigabyte that no other benchmark needs."""
    # In the folder of the peers, so it is ignored by git, cleaned and recreated with them.
    return made_python(_FOLDER / "envpool", [_ENVPOOL], say)


def made_python(
    folder: Path, installs: Sequence[Sequence[str]], say: Callable[[str], None]
) -> Path:
    """The interpreter of a virtual environment; creates it if it is missing or outdated.

    Adds the environment to `sys.path`, so `importlib.metadata` finds its versions.

    Args:
        folder: the environment.
        installs: arguments of each call of `pip install`.
        say: called with a message before a slow installation.

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
        stamp.write_text(wanted)  # last, so an interrupted installation is repeated
    sys.path += [str(path) for path in folder.glob("lib/*/site-packages")]
    return python
