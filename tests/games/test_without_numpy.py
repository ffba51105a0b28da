"""Games play without numpy as with it: every kind of action and mask, agents, bots and replays."""

import json
import subprocess
import sys

import pytest

from entity_env.page.live.players import RandomPlayer
from entity_env.page.obstacles import find_obstacles
from tests import ROOT
from tests.games.plain_games import PLAYERS, SEEDS, LastAllowed, plain, play_all


class ArrayPlayer(RandomPlayer):
    _takes_plain = False


class ArrayBot(LastAllowed):
    _takes_plain = False


ARRAYS = (ArrayPlayer, lambda seed: ArrayBot())


@pytest.fixture(scope="module")
def without_numpy() -> object:
    words = [sys.executable, "-m", "tests.games.plain_games"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
def test_every_action_and_mask_is_played_without_numpy(without_numpy: object) -> None:
    assert play_all(PLAYERS, SEEDS) == without_numpy


@pytest.mark.slow
def test_arrays_of_numpy_give_the_same_decisions_and_checksums(without_numpy: object) -> None:
    assert play_all(ARRAYS, SEEDS) == without_numpy


def test_lists_and_arrays_give_the_same_decisions_and_checksums() -> None:
    lists, arrays = (play_all(each, [5]) for each in (PLAYERS, ARRAYS))
    assert lists == arrays


@pytest.mark.slow
def test_a_page_plays_every_action_and_mask() -> None:
    assert find_obstacles(plain, episodes=2).obstacles == ()
