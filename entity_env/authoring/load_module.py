"""`load_module`: the module of a Python file that a user named."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from entity_env.errors import UsageError


class NamedFileLoader(SourceFileLoader):
    """Marks modules that were loaded from a file that a user named."""


def load_module(path: Path) -> ModuleType:
    """Executes a file and returns its module; it can import modules beside it.

    Raises:
        UsageError: no such file. Errors of the file itself are raised as they are.
    """
    if not path.is_file():
        files = [str(path.parent / file.name) for file in path.parent.glob("*.py")]
        raise UsageError(f"no file {path}{nearest(str(path), files)}")
    name = path.stem
    if not isinstance(getattr(sys.modules.get(name), "__loader__", None), NamedFileLoader | None):
        name = f"{name}_game"  # it would hide a module that is loaded already
    return _executed(name, path)


def load_module_once(path: Path) -> ModuleType:
    """As `load_module`, but a file that was imported before keeps its module and its classes."""
    file = str(path.resolve())
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == file:
            return module
    if path.is_file() and str(path.resolve().parent) not in sys.path:
        # The last one: workers must find what is loaded already by its name.
        sys.path.append(str(path.resolve().parent))
    if path.stem not in sys.modules or not path.is_file():
        return load_module(path)
    count = sum(name.rstrip("_") == path.stem for name in sys.modules)
    module = _executed(path.stem + "_" * count, path)
    import cloudpickle  # takes 10 ms

    cloudpickle.register_pickle_by_value(module)  # no process can import it by this name
    return module


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean snake?" for a name that is close to a known one, else ""."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _executed(name: str, path: Path) -> ModuleType:
    file = path.resolve()
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))  # as Python does for a script
    spec = spec_from_file_location(name, file, loader=NamedFileLoader(name, str(file)))
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
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
