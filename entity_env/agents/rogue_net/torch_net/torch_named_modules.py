"""Modules by any name."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping

from torch import nn


class NamedModules(nn.Module):
    """Holds modules by name, like `nn.ModuleDict`, but takes names such as "keys" or "a.b"."""

    def __init__(self, modules: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self._by_name = dict(modules)
        self._modules.update(modules)

    def items(self) -> ItemsView[str, nn.Module]:
        """Every name and its module, in order."""
        return self._by_name.items()

    def __getitem__(self, name: str) -> nn.Module:
        return self._by_name[name]

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, object],
        prefix: str,
        local_metadata: Mapping[str, object],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Tells what belongs to no module; torch takes the part of a name before its first dot."""
        if not strict:
            return
        known = tuple(f"{prefix}{name}." for name in self._by_name)
        unexpected_keys.extend(
            key for key in state_dict if key.startswith(prefix) and not key.startswith(known)
        )
