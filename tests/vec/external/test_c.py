"""The client for C plays the episodes of its Python twins."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import get_args

import pytest

from entity_env.vec import Autoreset
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.program import Link
from tests.vec.external.twins import GAMES, require_equal, require_failure, twin_of

FOLDER = Path(__file__).parents[3] / "clients" / "c"
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
GCC = "gcc -std=c99 -D_DEFAULT_SOURCE"
pytestmark = [
    pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed"),
    pytest.mark.slow,
]


def compiled(name: str, folder: Path, *options: str, compiler: str = GCC) -> Path:
    """A game of the client, compiled into a folder."""
    made = folder / name
    source = FOLDER / "games" / f"{name}.c"
    command = [*compiler.split(), *STRICT, "-O1", *options, str(source), "-o", str(made), "-lm"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return made


@pytest.fixture(scope="module")
def games(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("c")
    return {name: compiled(name, folder) for name in GAMES}


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(
    name: str,
    autoreset: Autoreset,
    games: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require_equal(ExternalGame([str(games[name])]), twin_of(name, monkeypatch), autoreset)


@pytest.mark.parametrize("link", get_args(Link))
def test_every_link(link: Link, games: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    game = ExternalGame([str(games["snake"])], link=link, board_size=5)
    twin = twin_of("snake", monkeypatch).with_settings(board_size=5)
    require_equal(game, twin, "same_step", num_steps=60)


def test_settings_that_it_refuses(games: dict[str, Path]) -> None:
    message = require_failure(ExternalGame([str(games["snake"])]), board_size=1)
    assert "board_size must be from 2 to 64" in message


@pytest.mark.parametrize("name", GAMES)
def test_it_compiles_as_cpp(name: str, tmp_path: Path) -> None:
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    compiled(name, tmp_path, "-x", "c++", compiler="g++ -std=c++11")


@pytest.mark.parametrize("name", GAMES)
def test_sanitizers_find_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    monkeypatch.setenv("ASAN_OPTIONS", "detect_leaks=0:detect_stack_use_after_return=0")
    made = compiled(name, tmp_path, *options)
    require_equal(ExternalGame([str(made)]), twin_of(name, monkeypatch), "same_step")
