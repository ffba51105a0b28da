"""Adapters for environments and datasets of other libraries: a package each, imported at first use.

Each converts in both directions where possible. Code that needs no other library belongs elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_LIBRARIES = ("entity_gym", "gymnasium", "kaggle", "minari", "pettingzoo")


def __getattr__(name: str) -> ModuleType:
    if name in _LIBRARIES:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
