"""`Pyodide`: where a page gets Python from."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from entity_env.core.files import parse_json, read_file
from entity_env.errors import UsageError, shown

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
WHEELS_URL: Final = f"https://cdn.jsdelivr.net/pyodide/v{VERSION}/full/"
"""Of the packages that are made for this version."""
_MAX_LOCK: Final = 4 << 20


class Wheel(NamedTuple):
    """A package for Pyodide, such as numpy.

    Args:
        file: its name in the folder of Pyodide.
        modules: that it contains.
        needs: names of other packages that are loaded with it.
        size: in bytes.
    """

    file: str
    modules: Sequence[str]
    needs: Sequence[str]
    size: int


NUMPY: Final = Wheel(
    "numpy-2.4.6-cp314-cp314-pyemscripten_2026_0_wasm32.whl", ("numpy",), (), 3_000_000
)
"""As `pyodide-lock.json` of this version names it, which has the hash; about this size."""


@dataclass(frozen=True)
class Pyodide:
    """Where a page gets Python from.

    Args:
        folder: whose files are copied; None = from the server.
        url: of the files, relative to the page or absolute.
        size: bytes that a page loads, without packages.
        packages: by name, those whose files are in the folder or on the server.
        hashes: expected hashes by file, in the form of the attribute `integrity`; empty for a
            folder.
        wheels_url: where the page gets the files of packages; "" = they are in the folder.
    """

    folder: Path | None
    url: str
    size: int
    packages: Mapping[str, Wheel] = field(default_factory=dict)
    hashes: Mapping[str, str] = field(default_factory=dict)
    wheels_url: str = ""

    @property
    def modules(self) -> list[str]:
        """Modules of all packages."""
        return [module for wheel in self.packages.values() for module in wheel.modules]

    def packages_of(self, modules: Iterable[str]) -> dict[str, Wheel]:
        """The packages that have these modules, and those that they need, by name.

        Raises:
            UsageError: the file of one of them is missing.
        """
        wanted = {*modules}
        left = [name for name, wheel in self.packages.items() if wanted & {*wheel.modules}]
        found: dict[str, Wheel] = {}
        while left:
            name = left.pop()
            if name not in self.packages:
                raise UsageError(
                    f"--pyodide {self.folder}: the file of the package {name} is missing, which "
                    f"{', '.join(found)} needs: add it, as pyodide-lock.json names it"
                )
            found[name] = self.packages[name]
            left += [each for each in found[name].needs if each not in found]
        return found

    @classmethod
    def find(cls, place: str | None) -> Self:
        """Pyodide in a folder, on the server (`CDN`), or for None in the cache of this package.

        Raises:
            UsageError: a folder without the files of Pyodide, or an empty cache.
        """
        if place == CDN:
            return cls(None, _URL, _SIZE, {"numpy": NUMPY}, _HASHES, WHEELS_URL)
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
        size = sum((folder / name).stat().st_size for name in FILES)
        return cls(folder, "pyodide/", size, _packages(folder))


def cache_folder() -> Path:
    """The folder where a page finds Pyodide by default."""
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "entity_env" / f"pyodide-{VERSION}"


def _packages(folder: Path) -> dict[str, Wheel]:
    try:
        lock: Any = parse_json(read_file(folder / "pyodide-lock.json", _MAX_LOCK))
        files = {each.name: each for each in folder.iterdir() if each.is_file()}
        found = {}
        for name, each in lock["packages"].items():
            file, lists = each["file_name"], (each["imports"], each.get("depends", []))
            if not all(isinstance(text, str) for part in lists for text in part):
                raise ValueError(f"the modules of the package {shown(name)} are not texts")
            if file in files:
                size = files[file].stat().st_size
                found[name] = Wheel(file, tuple(lists[0]), tuple(lists[1]), size)
        return found
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        raise UsageError(
            f"--pyodide {folder}: pyodide-lock.json cannot be read: {error}"
        ) from error
