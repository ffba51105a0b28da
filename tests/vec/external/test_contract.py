"""An `ExternalGame` shows what its Python twin shows, step by step.

The program is `tests.vec.external.serve`, which serves any game of this package.
"""

from __future__ import annotations

import pickle
import sys
from functools import cache
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from entity_env import Continuous, Game, Obs
from entity_env.agents import Agent, ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.local_run import Turn
from entity_env.errors import UsageError, WorkerError
from entity_env.vec import Autoreset, OnError, VecEnv
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.program import Link
from tests.contract.test_executors import played
from tests.helpers.continuous_games import bodies_game
from tests.helpers.executors import ByHand, Vectorized
from tests.helpers.tiny_games import TINY_GAMES, Dot, Move, dots_game

pytestmark = pytest.mark.slow  # every program imports numpy
MODES: tuple[Autoreset, ...] = get_args(Autoreset)
ROOT = Path(__file__).parents[3]
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
    command = [sys.executable, "-m", "tests.vec.external.serve", PLACES.get(name, name), *metrics]
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


def test_workers_share_the_copies_between_programs() -> None:
    game = TINY_GAMES["together"]
    twin = ByHand(game, 3, 5, "same_step")
    expected = played(twin, game, "same_step")
    twin.close()
    vec = VecEnv(external("together", "unix", *METRICS), 3, 2, seed=5)
    executor = Vectorized(vec)
    try:
        assert played(executor, game, "same_step") == expected
    finally:
        executor.close()


@pytest.mark.parametrize("link", get_args(Link))
def test_every_link_shows_the_same(link: Link) -> None:
    game = TINY_GAMES["count"]
    twin = ByHand(game, 2, 5, "same_step")
    expected = played(twin, game, "same_step", num_envs=2)
    twin.close()
    executor = Vectorized(VecEnv(external("count", link), 2, seed=5))
    try:
        assert played(executor, game, "same_step", num_envs=2) == expected
    finally:
        executor.close()


class LastBot(ScriptedAgent):
    """Takes the last choice that is allowed."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        parts = [self._part(obs, action) for action in actions]
        return parts[0] if len(parts) == 1 else parts

    def _part(self, obs: Obs, action: ActionKey) -> object:
        if isinstance(action, Continuous):
            return [list(action.space.high) for _ in obs.actors_of(action)]
        allowed = obs.allowed(action)
        if isinstance(action, type):
            return allowed[-1]
        return [choices[-1] if choices else None for choices in allowed]


@pytest.mark.parametrize("name", PLACES)
def test_a_single_copy_plays_the_episodes_of_its_twin(name: str) -> None:
    game = GAMES[name]
    twin = external(name, "unix", *METRICS)
    agents = [LastBot()] * game.num_agents
    expected: list[Turn] = []
    shown: list[Turn] = []
    first = game.run(*agents, seed=7, episodes=6, watch=expected.append)
    second = twin.run(*agents, seed=7, episodes=6, watch=shown.append)
    assert first == second
    assert len(expected) == len(shown)
    twin.close()


def test_settings_change_the_spaces_and_the_rules() -> None:
    game = external("entity_env.games:snake")
    assert {name: each.default for name, each in game.parameters.items()} == {"board_size": 10}
    small = game.with_settings(board_size="4")
    assert small.settings == {"board_size": 4}
    with VecEnv(small, 8) as vec:
        obs = vec.reset()
        assert obs.features["Food"].values.max() <= 3
    with pytest.raises(UsageError, match="board_size"):
        game.with_settings(board_sise=4)
    with pytest.raises(WorkerError, match="board_size must be at least 2"):
        game.with_settings(board_size=1).run(LastBot())


def test_pickled_it_is_the_same_game() -> None:
    game = external("entity_env.games:snake").with_settings(board_size=5)
    again = pickle.loads(pickle.dumps(game))
    assert again.source == game.source
    assert again.settings == {"board_size": 5}
    assert again.ready == game.ready


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_a_game_that_raises(on_error: OnError) -> None:
    game = external("tests.vec.external.test_contract:fragile")
    with VecEnv(game, 2, seed=1, on_error=on_error) as vec:
        obs = vec.reset()
        act = {"Move": np.zeros(2, dtype=np.int64)}
        obs = vec.act(act)
        if on_error == "raise":
            with pytest.raises(WorkerError, match="ValueError: a wheel came off") as caught:
                vec.act(act)
            error = caught.value
            assert (error.env_id, error.episode, error.step) == (0, 0, 2)
            assert "play_fragile" in error.game_traceback
            obs = vec.reset()
            assert obs.reward.tolist() == [0.0, 0.0]
            return
        obs = vec.act(act)
        assert obs.truncated.all()
        assert [each.metrics for each in obs.episodes] == [{"error": 1.0}] * 2
        assert [each.length for each in obs.episodes] == [2, 2]
        obs = vec.act(act)
        assert not obs.truncated.any()


def play_fragile(agent: Agent, *, seed: int) -> None:
    """Raises in the second step."""
    for _ in range(2):
        if agent.act(Obs().entities([Dot(1.0)]), Move) is None:
            return
    raise ValueError("a wheel came off")


fragile = dots_game(play_fragile)
fragile.name = "fragile"
