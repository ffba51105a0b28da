"""Every classic game with every backend; `pytest_plugins` registers these fixtures."""

from __future__ import annotations

import pytest

from entity_env.games.classic import Backend
from entity_env.games.classic.batch_env import ClassicEnv
from tests.games.classic.histories import BACKENDS, GAMES, Game, Make


@pytest.fixture(
    params=[(g, b) for g in GAMES for b in BACKENDS], ids=lambda p: f"{p[0].__name__}-{p[1]}"
)
def game_and_backend(request: pytest.FixtureRequest) -> tuple[Game, Backend]:
    pair: tuple[Game, Backend] = request.param
    return pair


@pytest.fixture
def game(game_and_backend: tuple[Game, Backend]) -> Game:
    return game_and_backend[0]


@pytest.fixture
def make(game_and_backend: tuple[Game, Backend]) -> Make:
    cls, backend = game_and_backend

    def making(*arguments: int, **settings: int) -> ClassicEnv:
        return cls(*arguments, backend=backend, **settings)

    return making
