"""The client for Godot plays the episodes of its Python twins."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from entity_env.vec import Autoreset
from entity_env.vec.external.game import ExternalGame
from tests.vec.external.twins import require_equal, require_failure, require_verified, twin_of

FOLDER: Final = Path(__file__).parents[4] / "clients" / "godot"
GODOT: Final = next(filter(None, map(shutil.which, ("godot3-server", "godot3", "godot"))), None)
GAMES: Final = ("snake", "multi_snake", "cherry_pick")
pytestmark = [
    pytest.mark.skipif(GODOT is None, reason="Godot 3 is not installed"),
    pytest.mark.slow,
]


def game_of(name: str, **settings: Any) -> ExternalGame:  # noqa: ANN401
    command = [str(GODOT), "--path", str(FOLDER), "--no-window", "-s", f"games/{name}.gd"]
    return ExternalGame(command, link="tcp", **settings)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(name: str, autoreset: Autoreset) -> None:
    require_equal(game_of(name), twin_of(name), autoreset)


@pytest.mark.parametrize("name", GAMES)
def test_replays_are_those_of_its_twin(name: str) -> None:
    require_verified(game_of(name))


def test_settings_that_it_refuses() -> None:
    message = require_failure(game_of("snake"), board_size=1)
    assert "board_size must be at least 2" in message
