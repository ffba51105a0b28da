"""The client for Lua plays the episodes of its Python twin."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import get_args

import pytest

from entity_env.errors import WorkerError
from entity_env.vec import Autoreset, ExternalGame, VecEnv
from tests.vec.external.twins import require_equal, require_verified, twin_of

FOLDER = Path(__file__).parents[3] / "clients" / "lua"
pytestmark = [
    pytest.mark.skipif(shutil.which("lua5.4") is None, reason="lua5.4 is not installed"),
    pytest.mark.slow,
]


def snake(**settings: int) -> ExternalGame:
    command = ["lua5.4", str(FOLDER / "games" / "snake.lua")]
    return ExternalGame(command, link="stdio", **settings)  # type: ignore[arg-type]  # no folder


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
def test_it_equals_its_twin(autoreset: Autoreset) -> None:
    twin = twin_of("snake").with_settings(board_size=5)
    require_equal(snake(board_size=5), twin, autoreset)


def test_replays_are_those_of_its_twin() -> None:
    require_verified(snake())


def test_an_error_of_the_game() -> None:
    with (
        VecEnv(snake(board_size=1), 2) as vec,
        pytest.raises(WorkerError, match="board_size must be at least 2"),
    ):
        vec.reset()


def test_it_is_small() -> None:
    assert len((FOLDER / "entity_env.lua").read_text().splitlines()) < 250
