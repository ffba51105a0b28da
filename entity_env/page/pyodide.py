"""`Pyodide`: where a page gets Python from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from entity_env.core.files import parse_json, read_file
from entity_env.errors import UsageError

VERSION: Final = "314.0.7"
"""The version in the cache and on the server; a folder may hold another one."""
CDN: Final = "cdn"
FILES: Final = (
    "pyodide.mjs",
    "pyodide.asm.mjs",
    "pyodide.asm.wasm",
    "python_stdlib.zip",
    "pyodide-lock.json",
)
_URL: Final = f"https://cdn.jsdelivr.net/npm/pyodide@{VERSION}/"
_HASHES: Final = {
    "pyodide.mjs": ("sha384-Lp79fMwxa4n2BLtugpUAoQMlbxIdg8iCUiP1r3h7nJLkQjwlXT1JzZTeHVL+f4Dg"),
    "pyodide.asm.mjs": ("sha384-/2281iaC0Iimw0B3Kagy1DBfZcJG3W4KYW+EmOqhsdY3fR9BJ88FE2Zt6y0KQKpa"),
    "pyodide.asm.wasm": ("sha384-y++qrQ72KPA1fTjLIuGMP+jppgGxjbLCgfdb0zMrnNnQVhxRUXTOTF6rTxNzllSu"),
    "python_stdlib.zip": (
        "sha384-xW3A5jmenkrPXbsgrIaB1FCJh9OuLT7FRMagsJMgtlhVc19k/mSy3+7nMaF/d767"
    ),
    "pyodide-lock.json": (
        "sha384-o8SQQvpVlZnOl04+3dFTJipKxul9GbViVusA379wlOrfHSgxbzt0yPiqCTxOiYES"
    ),
}
"""Of version `VERSION`, for the browser to check what the server sends (SHA-384)."""
_SIZE: Final = 13_531_207
"""Total size of these files, in bytes."""
_MAX_LOCK: Final = 4 << 20


@dataclass(frozen=True)
class Pyodide:
    """Where a page gets Python from.

    Args:
        folder: whose files are copied; None = from the server.
        url: of the files, relative to the page or absolute.
        size: bytes that a page loads.
        packages: available packages, such as numpy: names of their modules by package.
        files: names of the copied files.
        hashes: expected hashes by file, in the form of the attribute `integrity`; empty for a
            folder.
    """

    folder: Path | None
    url: str
    size: int
    packages: Mapping[str, Sequence[str]] = field(default_factory=dict)
    files: Sequence[str] = ()
    hashes: Mapping[str, str] = field(default_factory=dict)

    def packages_of(self, modules: Iterable[str]) -> list[str]:
        """The available packages that have these modules."""
        wanted = {*modules}
        return [name for name, found in self.packages.items() if wanted & {*found}]

    @classmethod
    def find(cls, place: str | None) -> Self:
        """Pyodide in a folder, on the server (`CDN`), or for None in the cache of this package.

        Raises:
            UsageError: a folder without the files of Pyodide, or an empty cache.
        """
        if place == CDN:
            return cls(None, _URL, _SIZE, hashes=_HASHES)
        folder = cache_folder() if place is None else Path(place)
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing and place is None:
            raise UsageError(
                f"a page needs Pyodide, Python for browsers: unpack `npm pack pyodide@{VERSION}` "
                f"and pass --pyodide FOLDER (or keep it as {folder}), or pass --pyodide cdn, which "
                "lets the page load it from cdn.jsdelivr.net"
            )
        if missing:
            raise UsageError(
                f"--pyodide {folder}: expected the files of Pyodide, as `npm pack "
                f"pyodide@{VERSION}` has them; {', '.join(missing)} missing"
            )
        packages = _packages(folder)
        files = [*FILES, *(file for file, _ in packages.values())]
        return cls(
            folder,
            "pyodide/",
            sum((folder / name).stat().st_size for name in files),
            {name: modules for name, (_, modules) in packages.items()},
            files,
        )


def cache_folder() -> Path:
    """The folder where a page finds Pyodide by default."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "entity_env" / f"pyodide-{VERSION}"


def _packages(folder: Path) -> dict[str, tuple[str, list[str]]]:
    """File and modules of each package that is in a folder, by name."""
    try:
        lock: Any = parse_json(read_file(folder / "pyodide-lock.json", _MAX_LOCK))
        listed = lock["packages"].values()
        return {
            each["name"]: (each["file_name"], each["imports"])
            for each in listed
            if (folder / each["file_name"]).is_file()
        }
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"--pyodide {folder}: pyodide-lock.json cannot be read: {error}"
        ) from error
