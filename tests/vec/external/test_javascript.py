"""The client for JavaScript plays the episodes of its Python twins."""

from __future__ import annotations

import json
import re
import shutil
from importlib import metadata
from pathlib import Path
from typing import Any, get_args

import pytest

from entity_env.vec import Autoreset
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.program import Link
from tests.vec.external.twins import (
    GAMES,
    require_equal,
    require_failure,
    require_verified,
    twin_of,
)

FOLDER = Path(__file__).parents[3] / "clients" / "javascript"
pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed"),
    pytest.mark.slow,
]


def game_of(name: str, link: Link = "unix", **settings: Any) -> ExternalGame:  # noqa: ANN401
    command = ["node", str(FOLDER / "games" / f"{name}.mjs")]
    return ExternalGame(command, link=link, **settings)


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(name: str, autoreset: Autoreset) -> None:
    require_equal(game_of(name), twin_of(name), autoreset)


@pytest.mark.parametrize("name", GAMES)
def test_replays_are_those_of_its_twin(name: str) -> None:
    require_verified(game_of(name))


@pytest.mark.parametrize("link", get_args(Link))
def test_every_link(link: Link) -> None:
    twin = twin_of("snake").with_settings(board_size=5)
    require_equal(game_of("snake", link, board_size=5), twin, "same_step", num_steps=60)


def test_settings_that_it_refuses() -> None:
    message = require_failure(game_of("snake"), board_size=1)
    assert "board_size must be at least 2" in message


def test_the_package_has_the_version_and_all_names() -> None:
    package = json.loads((FOLDER / "package.json").read_text())
    assert package["version"] == metadata.version("entity-env")
    exported = re.findall(
        r"^export (?:async )?(?:class|const|function) (\w+)",
        (FOLDER / "entity-env.mjs").read_text(),
        re.MULTILINE,
    )
    declared = (FOLDER / "entity-env.d.mts").read_text()
    assert len(exported) == 8
    for name in exported:
        assert re.search(rf"^export (?:class|function) {name}\b", declared, re.MULTILINE), name
