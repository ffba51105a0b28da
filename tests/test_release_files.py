"""Files of earlier releases, and of this one, are read as by the release that wrote them.

`docs/explanation/stability.md` makes the promise; `tests/data/releases/README.md` describes how the
files were made. Networks compute the same results up to float32 rounding.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_env.agents import Agent, PolicyAgent, load_agent
from entity_env.agents.ppo import PPOConfig
from entity_env.agents.training.tracking.settings_file import read_settings
from entity_env.replay import Replay
from examples.my_game import catch
from tests import DATA, ROOT

RELEASES = sorted((DATA / "releases").glob("*/"))
each_release = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)
NETWORKS = ("catch.agent", "checkpoint")


def expected(release: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((release / "expected.json").read_text())
    return data


def as_policy(agent: Agent) -> PolicyAgent:
    assert isinstance(agent, PolicyAgent)
    return agent


def test_this_release_has_its_files() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] in [release.name for release in RELEASES]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {project['version']}\n" in citation
    assert f"\nlicense: {project['license']}\n" in citation
    assert [f"  - name: {author['name']}\n" in citation for author in project["authors"]] == [True]


@each_release
@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_decides_as_it_did(release: Path, name: str) -> None:
    agent = as_policy(load_agent(release / name))
    turns = [turn for turn in Replay.load(release / "catch.replay").turns() if turn.actions]
    thoughts = [thought for turn in turns if (thought := agent.think(turn.observation))]
    found = [thought.probabilities["Move"][0] for thought in thoughts]
    known = expected(release)
    np.testing.assert_allclose(found, known["probabilities"], rtol=0, atol=2e-6)
    assert [thought.value for thought in thoughts] == pytest.approx(known["values"], abs=2e-5)


@each_release
@pytest.mark.parametrize("name", NETWORKS)
def test_an_agent_plays_as_it_did(release: Path, name: str) -> None:
    game, known = catch.with_settings(board_size=6), expected(release)["greedy"]
    greedy = load_agent(release / name, greedy=True)
    [episode] = game.play_episode(greedy, seed=known["seed"])
    assert (episode.reward, episode.length) == (known["reward"], known["length"])


@each_release
def test_a_replay_is_played_again_step_by_step(release: Path) -> None:
    replay, known = Replay.load(release / "catch.replay"), expected(release)
    assert replay.is_whole
    assert replay.verify(catch.with_settings(board_size=6)) is None
    chosen = [turn.actions["Move"] for turn in replay.turns() if turn.actions]
    assert [getattr(action, "index", None) for action in chosen] == known["actions"]
    assert replay.rewards == known["rewards"]
    header = replay.header
    assert (header.episode_seed, header.settings) == (known["episode_seed"], {"board_size": 6})


@each_release
def test_settings_mean_what_they_did(release: Path) -> None:
    settings = read_settings(release / "settings.toml")
    known = expected(release)["settings"]
    config = PPOConfig().changed(settings.trainer, "settings.toml")
    for name, value in known["trainer"].items():
        assert getattr(config, name) == value, name
    for name, value in known["net"].items():
        assert getattr(config.net, name) == value, name
    for step, rate in known["learning_rate"]:
        assert config.at(step).learning_rate == pytest.approx(rate)
    assert settings.run == known["run"]
    assert settings.game == known["game"]


@each_release
def test_a_checkpoint_has_the_progress_of_its_run(release: Path) -> None:
    pytest.importorskip("torch")
    from entity_env.agents.rogue_net import load_checkpoint

    checkpoint = load_checkpoint(release / "checkpoint")
    known = expected(release)["checkpoint"]
    assert {name: checkpoint.training[name] for name in known["training"]} == known["training"]
    assert len(checkpoint.optimizer) == known["num_optimizer_tensors"]
