"""Names of a package that are imported when they are first asked for, as PEP 562 has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module

from entity_env.errors import MissingExtraError

_OPTIONAL = ("torch", "safetensors", "warp")


def late_names(
    package: str, modules: Mapping[str, str], extra: str = "train"
) -> Callable[[str], object]:
    """Return the `__getattr__` of a package whose other names take long to import.

    Args:
        package: its `__name__`.
        modules: per name the module below the package that defines it.
        extra: what to install when one of those modules needs torch or its like, which is missing.

    Returns:
        A function that raises AttributeError for other names, and MissingExtraError where a package
        is not installed.
    """

    def find(name: str) -> object:
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
