"""Minari: recorded decisions as Minari datasets, for offline reinforcement learning."""

from __future__ import annotations

from entity_env.errors import MissingExtraError

try:
    from minari import MinariDataset as MinariDataset
except ImportError as error:
    raise MissingExtraError("minari>=0.5.2", "minari", "entity_env.interop.minari") from error

from entity_env.interop.minari.to_minari import to_minari as to_minari

__all__ = ["MinariDataset", "to_minari"]
