"""Pictures of games, drawn only from their schema."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from entity_env import Game, Obs, UsageError
from entity_env.agents import Agent
from entity_env.games import snake
from entity_env.vec import VecEnv
from entity_env.vec.executor import render_obs
from tests.helpers.tiny_games import Ghost, Move, dots_game
from tests.helpers.worker_games import DarkLamp, Lamp
from tests.helpers.worker_helpers import stay


@dataclass
class Wall:
    x: int
    y: int


@dataclass
class Ball:
    y: float
    x: float
    speed: float


def cells(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """One pixel per cell, after checking that each cell has a single color."""
    small = image[::16, ::16]
    assert np.array_equal(small.repeat(16, axis=0).repeat(16, axis=1), image)
    return small


def drawn(*shown: Sequence[Wall | Ball | Ghost]) -> NDArray[np.uint8]:
    """Picture of an observation with these entities."""

    def play(agent: Agent, *, seed: int) -> None:
        obs = Obs()
        for group in shown:
            obs.entities(group)
        agent.act(obs, Move)

    with VecEnv(Game(play, entities=(Wall, Ball, Ghost), actions=(Move,)), 1) as vec:
        batch = vec.reset()
        image = render_obs(batch, vec.obs_space(), 0)
        assert np.array_equal(vec.render(), image)
    assert image.dtype == np.uint8
    return cells(image)


def test_entities_lie_where_their_features_say() -> None:
    image = drawn([Wall(0, 0), Wall(2, 1)])
    assert image.shape == (2, 3, 3)
    assert np.argwhere(image.any(axis=2)).tolist() == [[0, 2], [1, 0]]  # y points up


def test_every_type_has_a_colour_of_its_own() -> None:
    image = drawn([Wall(0, 0)], [Ball(y=0, x=1, speed=9)])
    assert image.shape == (1, 2, 3)
    assert tuple(image[0, 0]) != tuple(image[0, 1])
    assert image.any(axis=2).all()


def test_coordinates_are_rounded_and_none_is_negative() -> None:
    image = drawn([Ball(y=-1.4, x=0.6, speed=0), Ball(y=0.2, x=-0.4, speed=0)])
    assert image.shape == (2, 2, 3)
    assert np.argwhere(image.any(axis=2)).tolist() == [[0, 0], [1, 1]]


def test_types_without_coordinates_are_left_out() -> None:
    assert drawn([Ghost()], [Wall(1, 0)]).shape == (1, 2, 3)


def test_nothing_at_all() -> None:
    assert drawn().tolist() == [[[0, 0, 0]]]


def test_each_environment_by_itself() -> None:
    def play(agents: Sequence[Agent], *, seed: int) -> None:
        walls = [Wall(seed % 7, 0)]
        _ = agents[0].act_async(Obs().entities(walls), Move)
        agents[1].act(Obs(), Move)

    game = Game(play, entities=(Wall,), actions=(Move,), num_agents=2)
    with VecEnv(game, 3) as vec:
        batch = vec.reset()
        for env_id in range(3):
            width = int(batch.features["Wall"][2 * env_id][0, 0]) + 1
            assert vec.render(env_id).shape == (16, 16 * width, 3)


@pytest.mark.parametrize("num_envs", [1, 2])
def test_a_game_without_any_coordinates(num_envs: int) -> None:
    with VecEnv(dots_game(lambda agent, *, seed: agent.act(Obs(), Move)), num_envs) as vec:
        vec.reset()
        assert vec.render(num_envs - 1).shape == (16, 16, 3)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_environment_draws_itself(num_workers: int) -> None:
    with VecEnv(Lamp, 4, num_workers) as vec:
        vec.reset()
        vec.act(stay(4))
        for env_id in (3, 0):
            assert vec.render(env_id).tolist() == np.full((2, 2, 3), 2).tolist()
        assert vec.act(stay(4)).reward.tolist() == [1] * 4
        for env_id in (-1, 4):
            with pytest.raises(UsageError, match="env_id must be from 0 to 3"):
                vec.render(env_id)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_environment_that_cannot(num_workers: int) -> None:
    with VecEnv(DarkLamp, 2, num_workers) as vec:
        vec.reset()
        with pytest.raises(NotImplementedError, match="DarkLamp has no render"):
            vec.render(1)
        vec.act(stay(2))


def test_workers_draw_the_same() -> None:
    pictures = []
    for num_workers in (0, 2):
        with VecEnv(snake, 3, num_workers) as vec:
            vec.reset()
            pictures.append([vec.render(i).tolist() for i in range(3)])
    assert pictures[0] == pictures[1]
