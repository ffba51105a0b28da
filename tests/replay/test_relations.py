"""Replays and datasets of games with relations: round trips, other processes, wrong references."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Game, SchemaError, UsageError
from entity_env.agents import RandomAgent, random_actions
from entity_env.agents.imitation.dataset import Dataset
from entity_env.replay import Replay, branch, dataset_of, record, verify_in_new_process
from entity_env.replay.encoding import checksum, observation_from_json, observation_to_json
from entity_env.vec import VecEnv
from tests.games.relation_games import convoys, random_relations, routes, travels

GAMES = [routes, travels, convoys, random_relations]


@pytest.mark.slow
@settings(max_examples=25)
@given(st.sampled_from(GAMES), st.integers(0, 99), st.booleans())
def test_episodes_come_back(game: Game, seed: int, see: bool) -> None:
    replay = record(game, RandomAgent(seed=seed), seed=seed, see=see)
    read = Replay.from_bytes(replay.to_bytes())
    assert read.lines == replay.lines
    assert read.verify(game) is None
    space = game.obs_space()
    shown = [list(each.turns(game)) for each in (replay, read)]
    for one, other in zip(*shown, strict=True):
        assert checksum(one.observation, space) == checksum(other.observation, space)
    continued = branch(read, min(2, read.num_decisions), [RandomAgent(seed=seed + 1)], game)
    assert continued.verify(game) is None


@pytest.mark.slow
def test_another_process_repeats_it() -> None:
    for game in GAMES:
        replays = [record(game, RandomAgent(seed=seed), seed=seed) for seed in range(3)]
        assert verify_in_new_process(game, replays) == [None] * 3


def test_batches_make_the_same_replays() -> None:
    found: list[Replay] = []
    rng = np.random.default_rng(0)
    with VecEnv(routes, 3, seed=1) as vec:
        vec.watch_episodes(lambda _, make: found.append(make()))
        obs = vec.reset()
        for _ in range(10):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))
    assert len(found) == 6
    assert [replay.verify(routes) for replay in found] == [None] * 6


def seen() -> Any:  # noqa: ANN401 - JSON
    """An observation of `routes` as in a file."""
    replay = record(routes, RandomAgent(seed=1), seed=2, see=True)
    first = replay.turns(routes)[0].observation
    return json.loads(json.dumps(observation_to_json(first, routes.obs_space())))


@pytest.mark.parametrize("value", [4, -1, 0.5])
def test_a_wrong_reference_in_a_replay_is_refused(value: float) -> None:
    data = seen()
    spaces = routes.obs_space(), routes.action_space()
    observation_from_json(data, spaces, reward=0.0)
    data["o"]["Route"][1][0] = value
    message = (
        rf"relation Route: 'source' of row 1 is {value:g}, expected a whole number from 0 to 3"
    )
    with pytest.raises(SchemaError, match=message):
        observation_from_json(data, spaces, reward=0.0)


def test_datasets_keep_relations(tmp_path: Path) -> None:
    replays = [record(game, RandomAgent(seed=1), seed=3) for game in (routes, routes)]
    dataset = dataset_of(replays, routes)
    assert dataset.obs_space == routes.obs_space()
    dataset.save(tmp_path / "routes.npz")
    read = Dataset.load(tmp_path / "routes.npz")
    assert read.obs_space == routes.obs_space()
    for name, rows in dataset.obs.features.items():
        assert np.array_equal(read.obs.features[name].values, rows.values)
    read.obs.features["Route"].values[3, 1] = 4
    with pytest.raises(UsageError, match="'target' of row 3 is 4, expected a whole number from 0"):
        read.save(tmp_path / "wrong.npz")  # checked as when it is read
