"""Downloads Pyodide with npm into the cache, where `entity-env page` finds it.

    python -m tools.docs.pyodide

Checks the hashes of the files. If npm is missing or the download fails, a line says so, and the
site is built without games to play.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from base64 import b64encode
from hashlib import sha384
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from entity_env.page.pyodide import CDN, FILES, VERSION, Pyodide, cache_folder

_TIMEOUT_S: Final = 300


def is_there() -> bool:
    """True if the cache contains all files."""
    return all((cache_folder() / name).is_file() for name in FILES)


def unpack(archive: Path, folder: Path) -> None:
    """Replaces a folder by the files of Pyodide from the archive of the npm package.

    Raises:
        ValueError: a file is missing, or its hash differs.
    """
    contents = {}
    with tarfile.open(archive) as package:
        for name, expected in Pyodide.find(CDN).hashes.items():
            try:
                file = package.extractfile(f"package/{name}")
            except KeyError:
                file = None
            if file is None:
                raise ValueError(f"{name} is missing")
            content = file.read()
            if f"sha384-{b64encode(sha384(content).digest()).decode()}" != expected:
                raise ValueError(f"{name} is not the file of version {VERSION}: its hash differs")
            contents[name] = content
    folder.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder.parent) as beside:  # no part stays after an interrupt
        made = Path(beside) / folder.name
        made.mkdir()
        for name, content in contents.items():
            (made / name).write_bytes(content)
        if folder.exists():
            shutil.rmtree(folder)
        os.replace(made, folder)


def download() -> str:
    """Downloads Pyodide unless the cache contains it; returns what happened, in one line."""
    if is_there():
        return f"Pyodide {VERSION} is in {cache_folder()}"
    npm = shutil.which("npm")
    if npm is None:
        return "Pyodide is not downloaded: npm not found"
    with TemporaryDirectory() as folder:
        words = [npm, "pack", "--silent", f"pyodide@{VERSION}", "--pack-destination", folder]
        try:
            subprocess.run(words, check=True, capture_output=True, timeout=_TIMEOUT_S)
            (archive,) = Path(folder).glob("*.tgz")
            unpack(archive, cache_folder())
        except (OSError, subprocess.SubprocessError, tarfile.TarError, ValueError) as error:
            return f"Pyodide is not downloaded: {' '.join(str(error).split())}"
    return f"Pyodide {VERSION} is downloaded into {cache_folder()}"


def main() -> None:
    sys.stdout.write(f"{download()}\n")


if __name__ == "__main__":
    main()
