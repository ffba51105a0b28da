"""Datasets of decisions in several parts, and networks that learn them."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import Game, Obs, RaggedArray, SchemaError, UsageError
from entity_env.agents import RandomAgent, ScriptedAgent
from entity_env.agents.imitation import CloneConfig, Dataset, DatasetRecorder, clone
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.replay import record
from entity_env.replay.dataset import dataset_of
from tests.agents.imitation.decisions import assert_same_dataset
from tests.contract.test_parts import RULES
from tests.games.composite_games import SEND, Planet, RandomGame, Send, Share, send
from tests.games.relation_games import random_relations, routes, travels


def dataset(rules_seed: int = 0, episodes: int = 3) -> Dataset:
    recorder = DatasetRecorder()
    send.run(RandomAgent(seed=rules_seed), seed=rules_seed, episodes=episodes, watch=recorder)
    return recorder.dataset()


FILES = pytest.mark.parametrize(
    "suffix",
    [
        ".npz",
        pytest.param(
            ".parquet",
            marks=pytest.mark.skipif(not find_spec("pyarrow"), reason="needs the extra parquet"),
        ),
    ],
)
RELATIONS = (routes, travels, random_relations, random_relations.with_settings(arrays=True))


@pytest.mark.slow
@FILES
@settings(max_examples=25)
@given(game=RULES.map(RandomGame) | st.sampled_from(RELATIONS), seed=st.integers(0, 99))
def test_files_hold_masks_and_relations(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, game: Game, seed: int
) -> None:
    recorder = DatasetRecorder()
    try:
        game.run(RandomAgent(seed=seed), seed=seed, episodes=2, watch=recorder)
        written = recorder.dataset()
    except UsageError:
        return  # no step asked any actor
    file = tmp_path_factory.mktemp("files") / f"a{suffix}"
    written.save(file)
    read = Dataset.load(file)
    assert_same_dataset(read, written)
    both = Dataset.concat([read, written]).select(np.arange(len(read))[::-1])
    checked_vec_actions(both.actions, both.obs.action_masks, game.action_space(), str)
    renumbered = Dataset.concat([written])
    assert_same_dataset(both.select(np.arange(len(read))[::-1]), renumbered)


@FILES
@pytest.mark.parametrize("game", [travels, send])
def test_a_clone_of_a_file_is_that_of_the_decisions(
    tmp_path: Path, suffix: str, game: Game
) -> None:
    recorder = DatasetRecorder()
    game.run(RandomAgent(seed=3), seed=3, episodes=8, watch=recorder)
    written = recorder.dataset()
    written.save(tmp_path / f"a{suffix}")
    config = CloneConfig(epochs=2, net=RogueNetConfig(d_model=16, n_layer=1, n_head=1))
    found, wanted = (
        clone(each, config).net.state_dict()
        for each in (Dataset.load(tmp_path / f"a{suffix}"), written)
    )
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[key], wanted[key]) for key in wanted)


def test_replays_hold_the_same_decisions() -> None:
    replay = record(send, RandomAgent(seed=0), seed=0)
    found, wanted = dataset_of([replay], send), dataset(0, 1)
    assert_same_ragged_masks(found, wanted)


def assert_same_ragged_masks(found: Dataset, wanted: Dataset) -> None:
    for name, mask in wanted.obs.action_masks.items():
        other: Any = found.obs.action_masks[name]
        assert getattr(other, "mask", None) == getattr(mask, "mask", None)
        assert getattr(other, "per_actor", None) == getattr(mask, "per_actor", None)
        assert found.actions[name] == wanted.actions[name]


@pytest.mark.parametrize(
    ("column", "change", "message"),
    [
        ("per_actor/Send.share", lambda x: x + 1, r"has \d choices in decision 0, expected \d"),
        ("chosen/Send.share", lambda x: (x + 1) % 3, r"'Send\.share': .*which its mask forbids"),
        ("actors/Send.share", lambda x: 1 - x, r"needs the actors of 'Send\.target'"),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    column: str,
    change: Callable[[NDArray[Any]], NDArray[Any]],
    message: str,
) -> None:
    columns = dataset().columns()
    old = columns[column]
    assert isinstance(old, RaggedArray)
    columns[column] = RaggedArray(change(old.values), old.lengths)
    with pytest.raises(SchemaError, match=message):
        Dataset.from_columns(send_spaces(), columns)


def send_spaces() -> Any:  # noqa: ANN401 - spaces
    return send.obs_space(), send.action_space()


class Largest(ScriptedAgent):
    """Sends what the largest planet needs; quickly, if it is large."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        planet = max(obs.of_class(Planet), key=lambda each: each.size)
        return [Send(planet, Share(int(planet.size)), planet.size > 1) for _ in obs.actors_of(SEND)]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_bot_is_imitated_from_replays() -> None:
    replays = [record(send, Largest(), seed=seed) for seed in range(40)]
    config = CloneConfig(
        epochs=40,
        net=RogueNetConfig(d_model=16, n_layer=1, n_head=1),
        minibatch_size=32,
        learning_rate=0.01,
    )
    result = clone(dataset_of(replays, send), config)
    assert result.held_out.accuracy > 0.9
    played = send.run(NeuralAgent(result.net, greedy=True), seed=99, episodes=30)
    chance = send.run(RandomAgent(0), seed=99, episodes=30)
    learned, random = (np.mean([each.reward for each in one]) for one in (played, chance))
    assert learned > 0.9 > 0.7 > random
