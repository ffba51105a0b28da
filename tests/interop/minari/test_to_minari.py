"""`to_minari`: data read by Minari equals a `GameEnv` with the same actions."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from entity_env import Categorical, Game, Obs, UsageError
from entity_env.agents import Agent, RandomAgent
from entity_env.agents.imitation import Dataset, DatasetRecorder
from entity_env.games import cherry_pick, multi_snake, snake, tic_tac_toe
from tests.helpers.continuous_games import PUSH, Body

minari: Any = pytest.importorskip("minari")
from entity_env.interop.gymnasium import GameEnv  # noqa: E402 - after the skip
from entity_env.interop.minari import to_minari  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")  # no author, no link


@dataclass
class Unit:
    x: int


class Go(Enum):
    BACK = -1
    STAY = 0
    ON = 1


class Sail(Enum):
    UP = 0
    DOWN = 1


GO, SAIL = Categorical(Go), Categorical(Sail)


def play_crews(agent: Agent, *, seed: int, limit: int = 4) -> None:
    """One to three units that also set a sail; truncated, or terminated at the border."""
    rng = Random(seed)
    units, score = [Unit(rng.randrange(3)) for _ in range(rng.randint(1, 3))], 0.0

    def observe() -> Obs:
        allowed = [[unit.x > 0, True, unit.x < 9] for unit in units]
        return Obs(score).actors(units).mask(GO, allowed)

    for _ in range(limit):
        answer = agent.act(observe(), GO, SAIL)
        if answer is None:
            return
        moves, _ = answer
        for unit, move in zip(units, moves, strict=True):
            unit.x += move.value
        score += rng.random()
        if max(unit.x for unit in units) > 4:
            agent.game_over(observe())
            return
    agent.game_over(observe(), truncated=True)


crews = Game(play_crews, entities=(Unit,), actions=(GO, SAIL), name="crews")


def play_pushes(agent: Agent, *, seed: int) -> None:
    """One to three bodies with continuous pushes."""
    rng, score = Random(seed), 0.0
    for _ in range(4):
        bodies = [Body(rng.random()) for _ in range(rng.randint(1, 3))]
        pushes = agent.act(Obs(score).actors(bodies), PUSH)
        if pushes is None:
            return
        score += float(pushes.sum())
    agent.game_over(Obs(score), truncated=True)  # an empty observation


pushes = Game(play_pushes, entities=(Body,), actions=(PUSH,), name="pushes")
GAMES: dict[str, tuple[Game, dict[str, int], dict[str, int]]] = {
    "snake": (snake.with_settings(board_size=4), {"Segment": 16, "Food": 2}, {}),
    "cherry_pick": (cherry_pick, {"Cherry": 40}, {}),
    "multi_snake": (
        multi_snake.with_settings(board_size=4, num_snakes=1, max_step=12),
        {"Segment": 16, "Food": 16},
        {},
    ),
    "crews": (crews, {"Unit": 4}, {"Go": 3, "Sail": 3}),
}


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def recorded(game: Game, episodes: int = 5) -> Dataset:
    recorder = DatasetRecorder()
    agents = [RandomAgent(seed=i) for i in range(game.num_agents)]
    game.run(*agents, episodes=episodes, seed=1, watch=recorder)
    return recorder.dataset()


def at(tree: Any, index: int) -> Any:  # noqa: ANN401 - arrays in dicts
    if isinstance(tree, dict):
        return {name: at(each, index) for name, each in tree.items()}
    return tree[index]


def assert_same(one: Any, two: Any) -> None:  # noqa: ANN401 - arrays in dicts
    if isinstance(one, dict):
        assert one.keys() == two.keys()
        for name in one:
            assert_same(one[name], two[name])
    else:
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("name", GAMES)
def test_a_game_env_shows_the_same(name: str) -> None:
    game, max_entities, max_actors = GAMES[name]
    env = GameEnv(game, max_entities=max_entities, max_actors=max_actors)
    for seed in range(3):
        _, info = env.reset(seed=seed)
        recorder = DatasetRecorder()
        game.play_episode(RandomAgent(seed=seed), seed=info["episode_seed"], watch=recorder)
        room = {"max_entities": max_entities, "max_actors": max_actors}
        to_minari(recorder.dataset(), f"test/{seed}-v0", **room)
        read = minari.load_dataset(f"test/{seed}-v0")
        assert read.observation_space == env.observation_space
        assert read.action_space == env.action_space
        [episode] = read.iterate_episodes()
        obs, info = env.reset(seed=seed)
        is_over = False
        for step in range(len(episode.rewards)):
            assert not is_over
            assert_same(at(episode.observations, step), obs)
            assert_same(at(episode.infos.get("action_mask", {}), step), info.get("action_mask", {}))
            obs, reward, terminated, truncated, info = env.step(at(episode.actions, step))
            assert reward == episode.rewards[step]
            assert (terminated, truncated) == (
                episode.terminations[step],
                episode.truncations[step],
            )
            is_over = terminated or truncated
        assert is_over
        assert_same(at(episode.observations, -1), obs)
        if "episode_seed" in episode.infos:
            assert set(episode.infos["episode_seed"]) == {info["episode_seed"]}
    env.close()


def test_each_agent_has_episodes_and_room_is_what_the_dataset_needs() -> None:
    dataset = recorded(tic_tac_toe)
    to_minari(dataset, "test/two-v0")
    read = minari.load_dataset("test/two-v0")
    assert (read.total_episodes, read.total_steps) == (2 * 5, len(dataset))
    assert read.observation_space["Empty"].shape == (9, 2)
    rewards = [episode.rewards.sum() for episode in read.iterate_episodes()]
    assert sum(rewards) == dataset.reward.sum()
    seeds = [episode.infos["episode_seed"][0] for episode in read.iterate_episodes()]
    assert dataset.seed is not None
    assert set(seeds) == set(dataset.seed.tolist())


def test_numbers_and_a_cut_that_shows_nothing() -> None:
    dataset = recorded(pushes)
    read = to_minari(dataset, "test/pushes-v0", max_entities={"Body": 4}, max_actors={"push": 4})
    episodes = list(read.iterate_episodes())
    assert [len(each.rewards) for each in episodes] == [3] * 5  # the last decision has no result
    assert all(each.truncations[-1] for each in episodes)
    first = dataset.actions["push"][0]
    np.testing.assert_array_equal(episodes[0].actions[0][: len(first)], first)
    assert not episodes[0].actions[0][len(first) :].any()
    assert episodes[0].actions.shape == (3, 4, 2)


def test_the_description_says_where_it_is_from_and_metadata_replace_it() -> None:
    dataset = recorded(snake, 1)
    made = to_minari(dataset, "test/a-v0")
    assert json.loads(made.storage.metadata["description"]) == list(dataset.recordings)
    made = to_minari(dataset, "test/b-v0", description="mine", author="me")
    assert made.storage.metadata["description"] == "mine"


def test_without_last_observations_cut_episodes_lose_a_decision() -> None:
    dataset = replace(recorded(crews, 20), final=None)
    made = to_minari(dataset, "test/old-v0")
    ends = dataset.terminated | dataset.truncated
    lengths = dataset.step[ends] + 1 - dataset.truncated[ends]
    assert dataset.truncated.any()
    assert [len(each.rewards) for each in made.iterate_episodes()] == lengths[lengths > 0].tolist()
    for episode in made.iterate_episodes():
        assert episode.terminations[-1] or episode.truncations[-1]
        assert len(episode.observations["Unit"]) == len(episode.rewards) + 1


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (slice(-1), "the last decision of agent 0 is missing"),
        (slice(0, 0), "no decisions are left"),
    ],
)
def test_episodes_must_be_whole(rows: slice, problem: str) -> None:
    dataset = recorded(snake, 2)
    with pytest.raises(UsageError, match=problem):
        to_minari(dataset.select(np.arange(len(dataset))[rows]), "test/part-v0")
