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
