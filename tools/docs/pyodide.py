"""Downloads Pyodide with npm into the cache, where `entity-env page` finds it.

    python -m tools.docs.pyodide

Also downloads numpy for it, which only games that need numpy load. Checks the hashes of the files.
If npm is missing or a download fails, a line says so, and the site is built without games to play.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from base64 import b64encode
from hashlib import sha256, sha384
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final
from urllib.request import urlopen

from entity_env.page.pyodide import CDN, FILES, NUMPY, VERSION, WHEELS_URL, Pyodide, cache_folder

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


def download_numpy(url: str = WHEELS_URL) -> str:
    """Downloads the numpy that `pyodide-lock.json` in the cache names; returns what happened."""
    wheel = cache_folder() / NUMPY.file
    if wheel.is_file():
        return f"numpy for Pyodide is in {cache_folder()}"
    try:
        lock = json.loads((cache_folder() / "pyodide-lock.json").read_text())
        with urlopen(f"{url}{NUMPY.file}", timeout=_TIMEOUT_S) as answer:
            content: bytes = answer.read()
        if sha256(content).hexdigest() != lock["packages"]["numpy"]["sha256"]:
            raise ValueError("its hash differs")
        with TemporaryDirectory(dir=wheel.parent) as beside:  # no part stays after an interrupt
            made = Path(beside) / wheel.name
            made.write_bytes(content)
            os.replace(made, wheel)
    except (OSError, ValueError, LookupError) as error:
        return (
            f"numpy for Pyodide is not downloaded, so games that need it run only with --pyodide "
            f"{CDN}: {' '.join(str(error).split())}"
        )
    return f"numpy for Pyodide is downloaded into {cache_folder()}"


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
    if is_there():
        sys.stdout.write(f"{download_numpy()}\n")


if __name__ == "__main__":
    main()
