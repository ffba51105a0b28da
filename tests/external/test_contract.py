"""An `ExternalGame` shows what its Python twin shows, step by step.

The program is `tests.external.serve`, which serves any game of this package.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path
from typing import get_args

import pytest

from entity_env import Game
from entity_env.external import ExternalGame
from entity_env.external.program import Link
from entity_env.vec import Autoreset, VecEnv
from tests.contract.test_executors import Run, played
from tests.helpers.executors import ByHand, Vectorized
from tests.helpers.tiny_games import TINY_GAMES
from tests.helpers.continuous_games import bodies_game

MODES: tuple[Autoreset, ...] = get_args(Autoreset)
ROOT = Path(__file__).parents[2]
PLACES = {
    "count": "tests.helpers.tiny_games:count",
    "together": "tests.helpers.tiny_games:together",
    "in_turn": "tests.helpers.tiny_games:in_turn",
    "bodies": "tests.helpers.continuous_games:bodies_game",
    "chaos": "tests.helpers.tiny_games:chaos",
}
METRICS = "cats", "ends"
GAMES: dict[str, Game] = {**TINY_GAMES, "bodies": bodies_game}


@cache
def external(name: str, link: Link = "unix", *metrics: str) -> ExternalGame:
    """The twin of a game, in a program."""
    command = [sys.executable, "-m", "tests.external.serve", PLACES.get(name, name), *metrics]
    return ExternalGame(command, folder=ROOT, link=link)


@pytest.mark.parametrize("autoreset", MODES)
@pytest.mark.parametrize("name", PLACES)
def test_it_shows_what_its_twin_shows(name: str, autoreset: Autoreset) -> None:
    if name == "chaos" and autoreset == "same_step":
        pytest.skip("an episode that ends before the first question takes a step")
    game = GAMES[name]
    twin = ByHand(game, 3, 5, autoreset)
    expected = played(twin, game, autoreset)
    twin.close()
    vec = VecEnv(external(name, "unix", *METRICS), 3, seed=5, autoreset=autoreset)
    executor = Vectorized(vec)
    try:
        for step, (batch, wanted) in enumerate(
            zip(played(executor, game, autoreset), expected, strict=True)
        ):
            assert batch == wanted, f"step {step}"
    finally:
        executor.close()
