"""The client for Lua plays the episodes of its Python twin."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from entity_env.core.vec_obs import VecObs
from entity_env.errors import WorkerError
from entity_env.vec import Autoreset, ExternalGame, VecEnv
from entity_env.vec.external.program import Link
from tests.vec.external.twins import require_equal, require_verified, signals, twin_of

FOLDER = Path(__file__).parents[3] / "clients" / "lua"
SIGNALS = Path(__file__).parent / "clients" / "signals.lua"
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


@pytest.mark.parametrize("autoreset", get_args(Autoreset))
def test_decisions_in_several_parts(autoreset: Autoreset) -> None:
    require_equal(ExternalGame(["lua5.4", str(SIGNALS)], link="stdio"), signals, autoreset)


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("{wheel = {}}", r"the decision has no part wheel, which has a mask"),
        ("{flag = {{true, false, false}}}", r"flag must have 2 lists, one for each choice of"),
        ("{turn = {{true, false}}}", r"the mask of turn must have flags instead of lists"),
    ],
)
def test_wrong_masks_of_parts(mask: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "tests" / "vec" / "external" / "clients" / "signals.lua"
    path.parent.mkdir(parents=True)
    code = SIGNALS.read_text().replace("if next(mask) then", f"mask = {mask} if true then")
    path.write_text(code)
    (tmp_path / "clients").symlink_to(FOLDER.parent)
    with (
        VecEnv(ExternalGame(["lua5.4", str(path)], link="stdio"), 1) as vec,
        pytest.raises(WorkerError, match=message),
    ):
        vec.reset()


def test_replays_are_those_of_its_twin() -> None:
    require_verified(snake())


def test_an_error_of_the_game() -> None:
    with (
        VecEnv(snake(board_size=1), 2) as vec,
        pytest.raises(WorkerError, match="board_size must be at least 2"),
    ):
        vec.reset()


def game_with(folder: Path, old: str, new: str) -> ExternalGame:
    """The game in the README with a mistake."""
    readme = re.search(r"```lua\n(.*?)```", (FOLDER / "README.md").read_text(), re.DOTALL)
    assert readme is not None
    assert old in readme[1]
    (folder / "coin.lua").write_text(readme[1].replace(old, new))
    shutil.copy(FOLDER / "entity_env.lua", folder)
    return ExternalGame(["lua5.4", "coin.lua"], link="stdio", folder=folder)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", ""),
        ("Coin = {{turn}}", "Coins = {{turn}}", "coin.lua:13: the game has no entities Coins"),
        ("Coin = {{0}}", "Dot = {{0}}", "coin.lua:17: the game has no entities Dot"),
        ("agent:game_over", "print", "play returned without game_over"),
    ],
)
def test_the_game_in_the_readme(old: str, new: str, message: str, tmp_path: Path) -> None:
    with VecEnv(game_with(tmp_path, old, new), 2) as vec:
        if message:
            with pytest.raises(WorkerError, match=message):
                played(vec)
        else:
            assert played(vec).terminated.all()


def played(vec: VecEnv) -> VecObs:
    obs = vec.reset()
    for _ in range(10):
        obs = vec.act({"Side": np.zeros(len(vec), dtype=np.int64)})
    return obs


@pytest.mark.parametrize(
    ("link", "old", "new", "message"),
    [
        ("stdio", "action =", "actions =", "coin.lua:3: the game needs action"),
        ("stdio", "labels =", "label =", "coin.lua:3: the game needs labels or parts"),
        ("unix", "", "", 'entity-env check "exec+stdio:lua5.4 game.lua"'),
    ],
)
def test_a_program_that_cannot_serve(
    link: Link,
    old: str,
    new: str,
    message: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(WorkerError, match="if it printed an error, that is above"):
        ExternalGame(game_with(tmp_path, old, new).command, link=link, folder=tmp_path)
    assert message in capfd.readouterr().err


def test_it_is_small() -> None:
    assert len((FOLDER / "entity_env.lua").read_text().splitlines()) < 330
