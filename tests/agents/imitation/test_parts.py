"""Datasets of decisions in several parts, and networks that learn them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from numpy.typing import NDArray

from entity_env import Obs, RaggedArray, SchemaError, UsageError
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
from tests.games.composite_games import SEND, Planet, RandomGame, Rules, Send, Share, send


def dataset(rules_seed: int = 0, episodes: int = 3) -> Dataset:
    recorder = DatasetRecorder()
    send.run(RandomAgent(seed=rules_seed), seed=rules_seed, episodes=episodes, watch=recorder)
    return recorder.dataset()


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rules=RULES, seed=st.integers(0, 99))
def test_files_hold_the_masks(tmp_path: Path, rules: Rules, seed: int) -> None:
    recorder, game = DatasetRecorder(), RandomGame(rules)
    try:
        game.run(RandomAgent(seed=seed), seed=seed, episodes=2, watch=recorder)
        written = recorder.dataset()
    except UsageError:
        return  # no step asked any actor
    written.save(tmp_path / "a.npz")
    read = Dataset.load(tmp_path / "a.npz")
    assert_same_dataset(read, written)
    both = Dataset.concat([read, written]).select(np.arange(len(read))[::-1])
    checked_vec_actions(both.actions, both.obs.action_masks, game.action_space(), str)
    assert_same_dataset(both.select(np.arange(len(read))[::-1]), written)


def test_a_parquet_file_holds_the_masks(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    written = dataset()
    written.save(tmp_path / "a.parquet")
    assert_same_dataset(Dataset.load(tmp_path / "a.parquet"), written)


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
