"""`load_module`, `import_named`: modules named by the user, by file, folder or dotted name;
`to_pickle`: pickles their definitions for other processes."""

from __future__ import annotations

import functools
import importlib
import io
import logging
import os
import sys
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from importlib.machinery import (
    PathFinder,
)
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from time import monotonic
from types import CodeType, FrameType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

from entity_env.authoring.named_code.finder import NamedFileLoader, named_code
from entity_env.authoring.step_timeout import GameHangs, called_every
from entity_env.errors import UsageError
from entity_env.lazy_imports import late_module

if TYPE_CHECKING:
    import difflib
    import hashlib
    import pickle
else:  # a third of the time in which a page loads this package's modules
    difflib, pickle = late_module("difflib"), late_module("pickle")
    hashlib = late_module("hashlib")

_INIT: Final = "__init__.py"
_LOGGER: Final = logging.getLogger(__name__)
TOLD_AFTER_S: Final = 2.0
MAX_LOAD_S: Final = 300.0
_MOVE: Final = 'put a main loop, and what only a script needs, under if __name__ == "__main__":'
_Cached: TypeAlias = "functools._lru_cache_wrapper[Any]"


@contextmanager
def _watched(path: Path) -> Iterator[None]:
    """Tells where a file is that takes long to load, and ends it after `MAX_LOAD_S`.

    Time for importing other modules, such as torch, does not count.

    Raises:
        UsageError: it runs for ever, such as the main loop of a script.
    """
    code = named_code()
    if code.is_loading:
        yield
        return
    begin, is_told = monotonic(), False

    def look(frame: FrameType | None) -> None:
        nonlocal is_told
        where = code.line_of(frame, path)
        if where and is_told and monotonic() - begin > MAX_LOAD_S:
            raise GameHangs(where)
        if where and not is_told:
            is_told = True
            _LOGGER.warning("%s still runs while %s is loaded: %s", where, path.name, _MOVE)

    code.is_loading = True
    try:
        with called_every(TOLD_AFTER_S, look):
            yield
    except GameHangs as error:
        raise UsageError(
            f"{error} ran for {MAX_LOAD_S:g} s, so {path.name} is not loaded: {_MOVE}"
        ) from None
    finally:
        code.is_loading = False


def load_module(path: Path, *, first: bool = False) -> ModuleType:
    """Loads the module of a file, or of a folder with an `__init__.py`.

    A file of a package is imported as its submodule, `mygame/game.py` as `mygame.game`. It can
    import modules of its package, of its own folder and, if it is below the current folder, of
    that. It and these modules are compiled from their source. A file imported before keeps its
    module and classes. If Python would import another file by this name, the
    module gets another name, and its definitions are sent to other processes by value.

    Args:
        first: put the folder of the file, or of its outermost package, at the front of Python's
            search path, as for a script; else at the end, so workers find the previously loaded
            modules by name.

    Raises:
        UsageError: no such file, not a Python file, or a folder without `__init__.py`. Errors
            raised by the file itself are passed on unchanged.
    """
    file = _file_of(path)
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == str(file):
            return module
    with _watched(file):
        return _loaded(file, first=first)


def _loaded(file: Path, *, first: bool) -> ModuleType:
    name, root = place_in_package(file)
    code = named_code()
    code.search(root, first=first)
    code.search(file.parent)
    if file.is_relative_to(here := Path.cwd()):  # else the folder may be that of a stranger
        code.search(here)
    if file.parent != root:
        code.add(root / file.relative_to(root).parts[0])
    top, _, inner = name.partition(".")
    before = getattr(sys.modules.get(top), "__loader__", None)
    if first and isinstance(before, NamedFileLoader):
        del sys.modules[top]  # a previously loaded file with the same name
    if _finds(top, root):
        is_alone = name == top and file.name != _INIT
        return execute_file(name, file) if is_alone else importlib.import_module(name)
    if inner:
        package = load_module(root / top)
        return importlib.import_module(f"{package.__name__}.{inner}")
    name = f"{top}_game"
    while name in sys.modules:
        name += "_"
    module = execute_file(name, file)
    with suppress(ModuleNotFoundError):  # a page has no cloudpickle, and no other processes
        import cloudpickle  # takes 10 ms

        cloudpickle.register_pickle_by_value(module)  # others cannot import it by this name
    return module


def import_named(name: str) -> ModuleType:
    """Imports a module by its dotted name: the `local_file` of this name, or an installed module.

    Raises:
        UsageError: there is no such module, or several. Errors raised by its code are passed on
            unchanged.
    """
    code = named_code()
    file = local_file(name)
    if file is None:
        return import_installed(name)
    path = file.resolve()
    top = name.partition(".")[0]
    root = path.parents[name.count(".") + (path.stem == "__init__")]
    code.search(root, first=True)
    code.add(root / top if path.parent != root else path)
    with _watched(path):
        return _imported(name, str(path))


def import_installed(name: str) -> ModuleType:
    """Imports an installed module by its dotted name; raises as `import_named`."""
    with named_code().only_installed():
        return _imported(name, _located(name))


def import_watched(name: str) -> ModuleType:
    """Imports a module that code names, wherever Python finds it.

    Raises:
        UsageError: it runs for ever. Errors raised by its code are passed on unchanged.
    """
    file = None if name in sys.modules else _located(name)
    with nullcontext() if file is None else _watched(Path(file)):
        return importlib.import_module(name)


def _imported(name: str, file: str | None) -> ModuleType:
    """Imports a module that is defined by a file, None if unknown."""
    loaded = sys.modules.get(name)
    found = _located(name) if loaded is None else getattr(loaded, "__file__", None)
    if file is not None and found is not None and not _is_same(file, found):
        raise UsageError(
            f"{name} would be the module {file}, but by this name Python imports {found}: give the "
            "path of its file"
        )
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        missing = name if Path(name.partition(".")[0]).exists() else error.name
        where = f"there is no module {missing!r} in {Path.cwd()}, nor in an installed package"
        raise UsageError(where) from error


def _located(name: str, places: Sequence[str] | None = None) -> str | None:
    """The file of the module that Python would import by a dotted name; imports nothing.

    Args:
        places: folders to search; None = everything.
    """
    importlib.invalidate_caches()
    finders = [PathFinder] if places is not None else sys.meta_path
    parts, spec = name.split("."), None
    for count in range(1, len(parts) + 1):
        if count > 1 and places is None:
            return None
        found = (each.find_spec(".".join(parts[:count]), places) for each in finders)
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            return None
        places = spec.submodule_search_locations and [*spec.submodule_search_locations]
    return spec.origin if spec is not None and spec.has_location else None


def _is_same(file: str, other: str) -> bool:
    return os.path.realpath(file) == os.path.realpath(other)


def local_file(name: str) -> Path | None:
    """The file at or below the current folder that a dotted name imports; None if there is none.

    If the current folder is inside the package, the path lacks the leading parts of the name.

    Raises:
        UsageError: an installed module has the same name, so it is unclear which is meant.
    """
    if not all(map(str.isidentifier, name.split("."))):
        return None
    here = Path.cwd()
    file = file_below(name)
    if file is None and (compiled := _located(name, [str(here)])) is not None:
        file = Path(compiled).relative_to(here)
    if file is not None:
        with named_code().only_installed():
            installed = _located(name)
        if installed is not None and not _is_same(installed, str(file)):
            raise UsageError(
                f"the module {name} is installed, {installed}, and the current folder has another "
                f"one: for the latter, give its path, {file}"
            )
    return file


def to_pickle(value: object) -> bytes:
    """Pickles an object with cloudpickle; `pickle.loads` restores it in another process.

    Objects defined in `__main__`, in a function or in a module that other processes cannot import
    are sent by value. Code keeps its file name (cloudpickle 3.1.3 alone would replace it with
    `<dynamic-code>`), so tracebacks show source lines. Functions and properties that cache their
    results, which cloudpickle alone cannot send by value, arrive with an empty cache.

    Raises:
        pickle.PicklingError, TypeError, AttributeError, ValueError: the object cannot be pickled.
    """
    with io.BytesIO() as file:
        _pickler_class()(file).dump(value)
        return file.getvalue()


@functools.cache
def _pickler_class() -> type[pickle.Pickler]:
    import cloudpickle  # takes 10 ms

    reduce_code = cloudpickle.Pickler.dispatch_table[CodeType]

    def reduce_named(code: CodeType) -> tuple[Callable[..., CodeType], tuple[object, ...]]:
        return _make_code, (code.co_filename, *reduce_code(code))

    def reduce_cached(function: _Cached) -> str | tuple[Callable[..., object], tuple[object, ...]]:
        module: str = getattr(function, "__module__", None) or ""
        path: str = getattr(function, "__qualname__", "")  # missing if it wraps a partial
        found: object = sys.modules.get(module)
        for name in path.split("."):
            found = getattr(found, name, None)
        sent = {"__main__", *cloudpickle.list_registry_pickle_by_value()}
        packages = {module.rsplit(".", i)[0] for i in range(module.count(".") + 1)}
        if found is function and not packages & sent:
            return path  # importable by that name
        parameters = function.cache_parameters()
        return _make_cached, (function.__wrapped__, parameters["maxsize"], parameters["typed"])

    class Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # untyped
        dispatch_table: ClassVar = ChainMap(
            {
                CodeType: reduce_named,
                functools._lru_cache_wrapper: reduce_cached,
                functools.cached_property: _reduce_property,
            },
            cloudpickle.Pickler.dispatch_table,
        )

    return Pickler


def _make_code(file: str, make: Callable[..., CodeType], args: tuple[Any, ...]) -> CodeType:
    return make(*args).replace(co_filename=file)


def _make_cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> _Cached:
    return functools.lru_cache(maxsize, typed)(function)


def _reduce_property(
    cached: functools.cached_property[Any],
) -> tuple[Callable[..., object], tuple[object, ...], dict[str, object]]:
    """Pickles a cached property without its lock, which it has before Python 3.12."""
    return functools.cached_property, (cached.func,), {"attrname": cached.attrname}


def split_file_name(text: str) -> tuple[Path, str | None] | None:
    """File and name of `FILE.py:NAME`; the name is None for `FILE.py`. None for any other text."""
    file, has_name, name = text.rpartition(".py:")
    if has_name:
        return Path(f"{file}.py"), name
    return (Path(text), None) if text.endswith(".py") else None


def execute_file(name: str, file: Path) -> ModuleType:
    """Executes a file as the module of this name, replacing any loaded one."""
    folders = [str(file.parent)] if file.name == _INIT else None
    loader = NamedFileLoader(name, str(file))
    spec = spec_from_file_location(name, file, loader=loader, submodule_search_locations=folders)
    if spec is None or spec.loader is None or file.suffix != ".py":
        raise UsageError(f"{file} is not a Python file")
    before = sys.modules.get(name)
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if before is None:
            del sys.modules[name]
        else:
            sys.modules[name] = before
        raise
    return module


def file_below(name: str) -> Path | None:
    """The file at or below the current folder that a dotted name imports; None if there is none.

    If the current folder is inside the package, the path lacks the leading parts of the name.
    """
    parts = name.split(".")
    if not all(map(str.isidentifier, parts)):
        return None
    for first in range(len(parts)):
        path = Path(*parts[first:])
        for file in (path / _INIT, path.with_name(f"{path.name}.py")):  # Python's import order
            if file.is_file() and (not first or place_in_package(file.resolve())[0] == name):
                return file
    return None


def where_tried(error: ImportError, path: Path) -> str:
    """Where a failed import of a file searched, and how to fix it, after "; "."""
    file = _file_of(path)
    name, root = place_in_package(file)
    if "no known parent package" in str(error):
        return (
            f"; {file.parent} is not a package: give it an {_INIT}, or import the modules next to "
            "the "
            "file without the dot"
        )
    if "beyond top-level package" in str(error):
        package = root / name.partition(".")[0]
        return f"; the package ends at {package}: {root} has no {_INIT}"
    places = dict.fromkeys(map(str, (root, file.parent, Path.cwd())))
    text = f"; looked in {', '.join(places)} and in the installed packages"
    missing = (error.name or "").partition(".")[0]
    for folder in file.parents:
        if missing and folder.name == missing and str(folder.parent) not in places:
            return f"{text}: start the command in {folder.parent}, or give {folder} an {_INIT}"
    return text


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean snake?" for a name that is close to a known one, else ""."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _file_of(path: Path) -> Path:
    if path.is_dir():
        if (path / _INIT).is_file():
            return path.resolve() / _INIT
        files = sorted(path.glob("*.py"))
        choose = f", such as {files[0]}" if files else ""
        raise UsageError(
            f"{path} is a folder without {_INIT}, so it is not a package: name a file in it{choose}"
        )
    if not path.is_file():
        others = (file.name for file in path.parent.glob("*.py") if file.name != path.name)
        there = [str(path.parent / name) for name in others]
        raise UsageError(f"no file {path}{nearest(str(path), there)}")
    return path.resolve()


def place_in_package(file: Path) -> tuple[str, Path]:
    """Dotted name of a file's module, and the folder of its top-level module or package."""
    parts = [] if file.name == _INIT else [file.stem.replace(".", "_")]
    folder = file.parent
    while (folder / _INIT).is_file() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    if not parts:  # an __init__.py in a folder whose name cannot be imported
        return file.parent.name, folder
    return ".".join(parts), folder


def _finds(top: str, root: Path) -> bool:
    try:
        spec = find_spec(top)
    except ValueError:  # __main__, and modules created manually
        return False
    places = (root / f"{top}.py", root / top / _INIT)
    return spec is not None and spec.origin is not None and Path(spec.origin).resolve() in places
