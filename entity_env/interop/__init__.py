"""Neighbours: one file for each library that entity_env meets, loaded when it is asked for."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

_NEIGHBOURS = ("entity_gym", "gymnasium")


def __getattr__(name: str) -> ModuleType:
    """A neighbour is imported at its first use: each needs a library that not everybody has."""
    if name in _NEIGHBOURS:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
