"""Names that are imported when they are first asked for: of a package (PEP 562), and numpy."""

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

__all__ = ["is_array", "late_module", "late_names", "np"]


class _LateModule(ModuleType):
    """A module that is imported with the first of its names; from then on it has all of them."""

    def __getattr__(self, name: str) -> object:
        module = import_module(self.__name__)
        vars(self).update(vars(module))
        self.__class__ = ModuleType  # type: ignore[assignment]  # whose names are found twice as fast
        return getattr(module, name)


def late_module(name: str) -> ModuleType:
    """A module that is imported when the first of its names is used."""
    return sys.modules.get(name) or _LateModule(name)


# What is written in plain Python alone needs no arrays: without this, a game waits for numpy to be
# imported before it begins.
if TYPE_CHECKING:
    import numpy as np
else:
    np = late_module("numpy")


def is_array(value: object) -> TypeGuard[NDArray[Any]]:
    """Whether a value is a numpy array; does not import numpy."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


_OPTIONAL = ("torch", "safetensors", "warp")


def late_names(
    package: str,
    modules: Mapping[str, str],
    extra: str = "train",
    deprecated: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[str], object]:
    """Return the `__getattr__` of a package whose other names take long to import.

    Args:
        package: its `__name__`.
        modules: per name the module below the package that defines it.
        extra: what to install when one of those modules needs torch or its like, which is missing.
        deprecated: per old name the new one with its package, such as "entity_env.replay.record".
            An old name works for one more minor release, with a DeprecationWarning at its user.

    Returns:
        A function that raises AttributeError for other names, and MissingExtraError where a package
        is not installed.
    """

    def find(name: str) -> object:
        if new := deprecated.get(name):
            message = (
                f"{package}.{name} is deprecated and goes with the next minor release: use {new}"
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
