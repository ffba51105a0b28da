"""Lazy imports: names of a package (PEP 562), and numpy."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, TypeGuard

from entity_env.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["has_numpy", "is_array", "late_module", "late_names", "np"]


class _LateModule(ModuleType):
    """A module imported when one of its names is first used."""

    def __getattr__(self, name: str) -> object:
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        # Without `__getattr__`, looking a name up takes half the time.
        self.__class__ = ModuleType  # type: ignore[assignment]
        return getattr(module, name)


def late_module(name: str) -> ModuleType:
    """Returns a module; if not loaded yet, it is imported when one of its names is first used."""
    return sys.modules.get(name) or _LateModule(name)


# Games in plain Python need no arrays, and should not wait for the import of numpy.
if TYPE_CHECKING:
    import numpy as np
else:
    np = late_module("numpy")


def has_numpy() -> bool:
    """Whether numpy has been imported. If not, lists are read without it."""
    return sys.modules.get("numpy") is not None


def is_array(value: object) -> TypeGuard[NDArray[Any]]:
    """`isinstance(value, np.ndarray)` without importing numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


_OPTIONAL = ("torch", "safetensors", "warp")


def late_names(
    package: str,
    modules: Mapping[str, str],
    extra: str = "train",
    deprecated: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[str], object]:
    """Returns a `__getattr__` for a package whose names are slow to import.

    Args:
        package: its `__name__`.
        modules: for each name, the module that defines it, relative to the package.
        extra: the extra of this package that installs torch and the like.
        deprecated: for each old name, the new one with its package, such as
            "entity_env.replay.record". An old name works for one more minor release, with a
            DeprecationWarning.

    Returns:
        A function that raises AttributeError for unknown names, and MissingExtraError if torch,
        safetensors or warp is needed but not installed.
    """

    def find(name: str) -> object:
        if new := deprecated.get(name):
            message = (
                f"{package}.{name} is deprecated, to be removed in the next minor release: "
                f"use {new}"
            )
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            home, _, new_name = new.rpartition(".")
            return getattr(import_module(home), new_name)
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        try:
            module = import_module(f"{package}.{modules[name]}")
        except ModuleNotFoundError as error:
            if error.name not in _OPTIONAL:
                raise
            raise MissingExtraError(error.name, extra, f"{package}.{name}") from error
        return getattr(module, name)

    return find
