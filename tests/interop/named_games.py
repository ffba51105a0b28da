"""All games of the registry that need no file, for tests over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pytest

from entity_env import Game
from entity_env.games import GAMES

NAMED: Final[Mapping[str, Game]] = {
    name: game
    for name, game in GAMES.items()
    if all(parameter.default is not parameter.empty for parameter in game.parameters.values())
}
_IMPORTS_TORCH: Final = "pixel:"


def each_of(
    names: Iterable[str], *, slow: Callable[[str], bool] = lambda _: False
) -> pytest.MarkDecorator:
    """Parametrizes a test with `name`; games that import torch are slow."""
    params: list[Any] = [
        pytest.param(name, marks=pytest.mark.slow)
        if name.startswith(_IMPORTS_TORCH) or slow(name)
        else name
        for name in names
    ]
    return pytest.mark.parametrize("name", params)


def needs(name: str) -> None:
    """Skips the test if a package that the game needs is not installed."""
    if name.startswith(_IMPORTS_TORCH):
        pytest.importorskip("torch")
