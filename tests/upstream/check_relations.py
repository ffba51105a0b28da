"""Relations in entity-gym: rows like those of other entities; selecting one needs a mask."""

from __future__ import annotations

import numpy as np
import pytest

from entity_env import Game, Obs, SchemaError
from entity_env.agents import Agent
from entity_env.interop.entity_gym import environment, vec_env
from tests.games.relation_games import Kind, Planet, Route, routes
from tests.helpers.strategies import Move


def play(agent: Agent, *, seed: int) -> None:
    """Two planets with two routes."""
    a, b = planets = [Planet(1.0), Planet(2.0)]
    shown = [Route(1.0, a, Kind.FAST, b), Route(1.0, b, Kind.FAST, a)]
    if agent.act(Obs().entities(planets).relations(shown), Move) is not None:
        agent.game_over(Obs())


def test_their_rows_are_shown() -> None:
    game = Game(play, entities=(Planet,), relations=(Route,), actions=(Move,), name="fixed")
    shown = environment(game)().reset()
    assert np.asarray(shown.features["Route"])[:, :2].tolist() == [[0, 1], [1, 0]]
    envs = vec_env(game, 2)
    assert list(envs.obs_space().entities["Route"].features)[:2] == ["source", "target"]
    envs.close()


def test_selecting_one_is_refused() -> None:
    message = r"'SelectRoute' masks entities, and entity-gym has no masks of selections"
    envs = vec_env(routes, 2)
    with pytest.raises(SchemaError, match=message):
        envs.reset(envs.obs_space())
    envs.close()
