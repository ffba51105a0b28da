"""`NamedCode`: finds modules of named files, and compiles them from their sources."""

from __future__ import annotations

import functools
import hashlib
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.machinery import (
    ExtensionFileLoader,
    ModuleSpec,
    PathFinder,
    SourceFileLoader,
    SourcelessFileLoader,
)
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, Final

from entity_env.authoring.named_code.check import CodeCheck
from entity_env.core.files import MAX_CODE_BYTES, below, read_file

_MAX_SOURCE_BYTES: Final = 1 << 26


@dataclass
class NamedCode:
    """A finder in `sys.meta_path` for the code of files that the user named.

    It finds what Python finds, but compiles modules below `folders` from their source: bytecode in
    `__pycache__` may be that of another source. `check` is called with every file before it runs.

    Args:
        folders: folders and packages of named files.
        searched: those that were added to `sys.path`.
        check: None = everything may run.
        is_loading: a named file is being loaded, see `_watched`.
    """

    folders: list[str] = field(default_factory=list)
    searched: list[str] = field(default_factory=list)
    check: CodeCheck | None = None
    is_loading: bool = False

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        loader = getattr(spec, "loader", None)
        if spec is not None and self.folders and spec.origin and self._has(spec.origin):
            for kind, checked in _CHECKED_LOADERS.items():
                if type(loader) is kind:
                    spec.loader = checked(name, spec.origin)
        return spec

    def require(self, file: str, content: bytes) -> None:
        """Raises `UsageError` if a file with this content must not run."""
        if self.check is not None:
            self.check(Path(file), hashlib.sha256(content).hexdigest())

    def add(self, folder: Path) -> None:
        if str(folder) not in self.folders:
            self.folders.append(str(folder))

    def search(self, folder: Path, *, first: bool = False) -> None:
        """Adds a folder to `sys.path`, at its front or end."""
        place = str(folder)
        if first and place in self.searched and place in sys.path:
            sys.path.remove(place)
        if place not in sys.path or (first and sys.path[0] != place):
            sys.path.insert(0 if first else len(sys.path), place)
            if place not in self.searched:
                self.searched.append(place)
            self.add(folder)
        importlib.invalidate_caches()  # files may be new

    @contextmanager
    def only_installed(self) -> Iterator[None]:
        """Removes the folders of named files from `sys.path`, also the current one."""
        before = sys.path.copy()
        for place in self.searched:
            with suppress(ValueError):
                sys.path.remove(place)
        inside = sys.path.copy()
        try:
            yield
        finally:
            sys.path[:] = before + [place for place in sys.path if place not in inside]

    def line_of(self, frame: FrameType | None, path: Path) -> str:
        """File and line of named code that runs in a frame; "" while it imports a module.

        Args:
            path: the file that is being loaded.
        """
        while frame is not None:
            file = frame.f_code.co_filename
            if file == str(path) or (self.folders and self._has(file)):
                return f"{below(Path(file))}, line {frame.f_lineno}"
            if file.startswith("<frozen importlib"):
                return ""
            frame = frame.f_back
        return ""

    def _has(self, file: str) -> bool:
        for place in map(str, (Path(file), *Path(file).parents)):
            if place in self.folders:
                return True
            if place in sys.path:  # installed below a named folder, as in its .venv
                return False
        return False


@functools.cache
def named_code() -> NamedCode:
    """The `NamedCode` of this process, in `sys.meta_path` before Python's finder of files."""
    found = NamedCode()
    places = [i for i, finder in enumerate(sys.meta_path) if finder is PathFinder]
    sys.meta_path.insert(places[0] if places else len(sys.meta_path), found)
    return found


@dataclass(frozen=True)
class ImportState:
    """Where a process finds modules, and what of them may run: sent to the processes it starts."""

    path: Sequence[str]
    code: NamedCode

    @classmethod
    def of_this_process(cls) -> ImportState:
        return cls(sys.path.copy(), named_code())

    def restore(self) -> None:
        """Makes this process import as the other one."""
        sys.path[:] = self.path
        vars(named_code()).update(vars(self.code))


class _FromSource(SourceFileLoader):
    """Compiles a module from its source, without bytecode, after it was checked."""

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        content = read_file(Path(path), _MAX_SOURCE_BYTES)
        named_code().require(path, content)
        code: CodeType = self.source_to_code(content, path)
        return code


class NamedFileLoader(_FromSource):
    """Marks modules loaded from a file named by the user."""


class _OfBytecode(SourcelessFileLoader):
    def get_data(self, path: str) -> bytes:
        content = super().get_data(path)
        named_code().require(path, content)
        return content


class _OfExtension(ExtensionFileLoader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        named_code().require(self.path, read_file(Path(self.path), MAX_CODE_BYTES))
        return super().create_module(spec)


_CHECKED_LOADERS: Final[dict[type, Callable[[str, str], Any]]] = {
    SourceFileLoader: _FromSource,
    SourcelessFileLoader: _OfBytecode,
    ExtensionFileLoader: _OfExtension,
}
