"""Varying numbers of entities and actors: known at construction, or measured."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode

from entity_env import Categorical, Game, Obs, SchemaError, UsageError
from entity_env.agents import Agent
from entity_env.games import cherry_pick, multi_snake, snake, tic_tac_toe, treasure_hunt
from entity_env.interop.gymnasium import EntityVectorEnv, GameEnv, make_vector_env
from entity_env.vec import VecEnv
from tests.helpers.tiny_games import Move


@dataclass
class Worker:
    """An actor that builds other workers."""

    x: float


@dataclass
class Wall:
    """A wall; there are always three."""

    x: float


STEP = Categorical(Move)


def play(agent: Agent, *, seed: int, every: int = 4, most: int = 3) -> None:
    """Adds a worker every few steps, up to a maximum; all of them act."""
    for step in range(40):
        workers = [Worker(i) for i in range(min(1 + step // every, most))]
        obs = Obs(step).actors(workers).entities([Wall(i) for i in range(3)])
        if agent.act(obs, STEP) is None:
            return
    agent.game_over(Obs(40))


base = Game(play, entities=(Worker, Wall), actions=(STEP,), name="base")


def makes() -> list[Callable[..., Any]]:
    found: list[Callable[..., Any]] = [
        GameEnv,
        partial(make_vector_env, num_envs=2),
        partial(make_vector_env, num_envs=9, autoreset_mode=AutoresetMode.SAME_STEP),
        lambda game, **given: EntityVectorEnv(VecEnv(game, 3, autoreset="disabled"), **given),
    ]
    try:
        from entity_env.interop.pettingzoo import GameParallelEnv
    except ImportError:
        return found
    return [*found, GameParallelEnv]


NONE: dict[str, Any] = {"max_entities": {}}
"""Numbers that override those of a game."""


@pytest.mark.parametrize("make", makes())
@pytest.mark.parametrize(
    ("game", "given", "message"),
    [
        (cherry_pick, NONE, r"type 'Cherry'.*max_entities=\{'Cherry': \.\.\.\}, or max_"),
        (treasure_hunt, NONE, r"entities of type 'Treasure'.*max_entities=\{'Treasure': "),
        (treasure_hunt, {"max_entities": {"Treasure": 9}}, r"entities of type 'Trap'.*\"auto\""),
        (base, {}, r"entities of type 'Worker' varies, 1 to 3 in random episodes: .*\"auto\""),
        (
            base,
            {"max_entities": {"Worker": 9}},
            r"actors of action 'Move' varies, 1 to 3 in .*max_actors=\{'Move': \.\.\.\}, or",
        ),
    ],
    ids=["cherry_pick", "treasure_hunt", "trap", "worker", "actors"],
)
def test_numbers_that_vary_are_refused_when_an_environment_is_made(
    make: Callable[..., Any], game: Game, given: dict[str, Any], message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        make(game, **given)


@pytest.mark.parametrize("make", makes())
def test_fixed_numbers_need_no_room(make: Callable[..., Any]) -> None:
    """Also for several entities; results are as if nothing had been played before."""
    env = make(base.with_settings(most=1))
    again = make(base.with_settings(most=1), max_entities={})
    for _ in range(2):
        first, second = env.reset(seed=3)[0], again.reset(seed=3)[0]
        np.testing.assert_equal(first, second)
    env.close()
    again.close()


def test_room_is_measured() -> None:
    env = GameEnv(base, max_entities="auto", max_actors="auto", every=2, most=6)
    assert isinstance(env.observation_space, spaces.Dict)
    shapes = {name: space.shape for name, space in env.observation_space.items()}
    assert shapes == {"Worker": (12, 1), "Worker_mask": (12,), "Wall": (3, 1)}
    assert env.action_space == spaces.MultiDiscrete([3] * 12)
    obs, _ = env.reset(seed=1)
    for _ in range(39):
        obs, *_ = env.step(np.zeros(12, np.int64))
    assert obs["Worker_mask"].sum() == 6
    env.close()


@pytest.mark.slow
@pytest.mark.parametrize("game", [snake, cherry_pick, treasure_hunt, multi_snake, base])
def test_it_is_measured_alike_for_one_and_for_many(game: Game) -> None:
    auto: dict[str, Any] = {"max_entities": "auto", "max_actors": "auto"}
    env = GameEnv(game, **auto)
    for limit in (None, 5):
        envs = make_vector_env(game, 3, max_episode_steps=limit, **auto)
        assert envs.single_observation_space == env.observation_space
        assert envs.single_action_space == env.action_space
        envs.close()
    env.close()


def test_one_may_be_measured_and_the_other_given() -> None:
    env = GameEnv(base, max_entities="auto", max_actors={"Move": 4})
    assert env.action_space == spaces.MultiDiscrete([3] * 4)
    env.close()
    with pytest.raises(UsageError, match=r"must be a dict, as .*, or .auto.: got 'most'"):
        GameEnv(base, max_entities="most")  # type: ignore[arg-type]


@pytest.mark.slow
def test_agents_of_pettingzoo_have_measured_room() -> None:
    pytest.importorskip("pettingzoo")
    from entity_env.interop.pettingzoo import GameAECEnv, GameParallelEnv

    for cls in (GameAECEnv, GameParallelEnv):
        env = cls(tic_tac_toe, max_entities="auto")
        shapes = {name: env.entities[name].shape for name in ("Empty", "Mine", "Theirs")}
        assert shapes == {"Empty": (18, 2), "Mine": (10, 2), "Theirs": (10, 2)}
        env.close()


def games_in_play() -> Sequence[Callable[[], Any]]:
    found: list[Callable[[], Any]] = [
        lambda: GameEnv(snake, max_entities={"Segment": 99}),
        lambda: make_vector_env(snake, 2, max_entities={"Segment": 99}),
    ]
    try:
        from entity_env.interop.pettingzoo import GameAECEnv, GameParallelEnv
    except ImportError:
        return found
    squares = {"Empty": 9, "Mine": 5, "Theirs": 5}
    return [
        *found,
        lambda: GameAECEnv(tic_tac_toe, max_entities=squares),
        lambda: GameParallelEnv(tic_tac_toe, max_entities=squares),
    ]


@pytest.mark.parametrize("make", games_in_play())
@pytest.mark.parametrize("how", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_game_in_play_refuses_to_be_copied(
    make: Callable[[], Any], how: Callable[[Any], Any]
) -> None:
    env = make()
    env.reset(seed=1)
    name = type(env).__name__
    with pytest.raises(UsageError, match=rf"this {name} cannot be copied or pickled: its game is"):
        how(env)
    env.close()
