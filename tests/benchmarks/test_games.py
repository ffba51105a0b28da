"""The twenty games of the benchmark follow the rules, and can be learned."""

import json
from importlib import import_module

import numpy as np
import pytest

from benchmarks.games import BENCHMARK_GAMES, BenchmarkGame
from benchmarks.games.__main__ import line_of
from benchmarks.games.measure import SCORES, measure, scores_of
from entity_env.agents import RandomAgent, random_actions
from entity_env.check import check_game
from entity_env.cli.load_game import load_game
from entity_env.vec import VecEnv
from tests import ROOT

GAMES = list(BENCHMARK_GAMES.values())
every_game = pytest.mark.parametrize("game", GAMES, ids=lambda game: game.name)


def require(game: BenchmarkGame) -> None:
    for package in game.needs:
        pytest.importorskip(package)


def test_there_are_ten_of_each_kind_and_five_are_held_out() -> None:
    assert len(GAMES) == 20
    assert sum(game.seats == 1 for game in GAMES) == 10
    assert sum(game.held_out for game in GAMES) == 5
    assert {game.seats > 1 for game in GAMES if game.held_out} == {False, True}


@pytest.mark.slow
@every_game
def test_is_a_correct_game(game: BenchmarkGame) -> None:
    require(game)
    made = game.make()
    assert (made.num_agents, made.name) == (game.seats, game.name)
    assert check_game(made, episodes=2, new_process=False) > 0


@every_game
def test_runs_in_a_vec_env(game: BenchmarkGame) -> None:
    require(game)
    with VecEnv(game.make(), 3, seed=1) as vec:
        rng, obs = np.random.default_rng(1), vec.reset()
        for _ in range(3):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
        assert np.isfinite(obs.reward).all()


@every_game
def test_the_command_line_finds_it(game: BenchmarkGame) -> None:
    require(game)
    assert load_game(str(ROOT / game.file)).name == game.name


@pytest.mark.slow
@every_game
def test_the_scripted_player_is_ahead_of_random_moves(game: BenchmarkGame) -> None:
    require(game)
    found = measure(game, game.scripted, RandomAgent, episodes=24)
    random = measure(game, RandomAgent, RandomAgent, episodes=24)
    assert found.score > random.score


@every_game
def test_the_stored_scores_tell_them_apart(game: BenchmarkGame) -> None:
    stored = json.loads(SCORES.read_text())[game.name]
    random, scripted = stored["random"], stored["scripted"]
    gap = scripted["score"] - random["score"]
    assert gap > 1.5 * (scripted["half"] ** 2 + random["half"] ** 2) ** 0.5
    assert ("random_against_scripted" in stored) == game.has_company


def test_the_table_shows_all_figures() -> None:
    game = BENCHMARK_GAMES["throws"]
    line = line_of(game, scores_of(game, episodes=4))
    assert line.startswith("throws         win rate")
    assert line.count("±") == 4


def test_a_game_without_its_package_says_so() -> None:
    game = BenchmarkGame("courier", 1, needs=("no_such_package",))
    assert not game.is_installed
    assert BENCHMARK_GAMES["courier"].is_installed
    assert import_module(game.module).courier is game.make()
