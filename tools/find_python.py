"""Finds an interpreter of a Python version, for other tools and the Makefile.

    python tools/find_python.py 3.12

Prints its path. Exits with 1 if there is none on PATH or in pyenv's folder. Skips pyenv shims of
inactive versions, which do not run.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

_SHOW = "import sys; print('%d.%d' % sys.version_info[:2], sys.executable)"


def find_python(version: str) -> Path | None:
    """Return the interpreter of a version such as "3.12", or None if none runs."""
    for candidate in _candidates(version):
        done = subprocess.run([candidate, "-c", _SHOW], text=True, capture_output=True, check=False)
        found, _, path = done.stdout.strip().partition(" ")
        if done.returncode == 0 and found == version:
            return Path(path)
    return None


def _candidates(version: str) -> Iterator[str]:
    for folder in os.get_exec_path():
        if found := shutil.which(f"python{version}", path=folder):
            yield found
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    yield from map(str, sorted(pyenv.glob(f"versions/{version}.*/bin/python"), reverse=True))


if __name__ == "__main__":
    python = find_python(sys.argv[1])
    sys.exit(1) if python is None else print(python)
