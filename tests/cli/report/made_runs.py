"""Made folders of runs, for tests of tables and reports."""

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from entity_env.agents.ppo import PPOConfig, RandomPlay
from entity_env.agents.training.tracking.run_writer import write_run
from entity_env.agents.training.tracking.runs import CURVES_FILE, EVALUATED, REWARD, TrainingRun
from entity_env.cli.run_tables import find_runs

EVIL = "</script><b>&\"'\x1b[2J"


def make(
    folder: Path,
    rewards: Sequence[float],
    game: str = "snake",
    about: dict[str, object] | None = None,
    **changes: Any,  # noqa: ANN401
) -> Path:
    folder.mkdir(parents=True)
    config = dataclasses.replace(PPOConfig(), **changes)
    write_run(folder, config, 0, {"game": game, "settings": {"board_size": 6}, **(about or {})})
    with (folder / CURVES_FILE).open("w") as file:
        for i, reward in enumerate(rewards, 1):
            point = {"step": 100 * i, "elapsed_s": i, REWARD: reward, "losses/entropy": 1 / i}
            more = {"episode/std_reward": 1.0, "episode/window": 101.0}
            file.write(json.dumps({**point, **more}) + "\n")
    return folder


def runs_of(*folders: Path) -> Sequence[TrainingRun]:
    found = find_runs(folders)
    assert found.problems == []
    return found.runs


def make_seeds(tmp_path: Path) -> Sequence[TrainingRun]:
    """Two seeds with one setting, and one with another."""
    make(tmp_path / "a", [0, 2, 4], seed=1)
    make(tmp_path / "b", [0, 4, 8, 9], seed=2)
    make(tmp_path / "c", [1, 1, 1, 5], seed=1, gamma=0.5)
    return runs_of(tmp_path)


def evaluated(folder: Path, reward: float, **changes: Any) -> Path:  # noqa: ANN401
    """A run with an evaluation, and uninformative training rewards."""
    make(folder, [50, 50 - reward], **changes)
    point = {"step": 200, EVALUATED: reward, "evaluation/std_reward": 1.0}
    with (folder / CURVES_FILE).open("a") as file:
        file.write(json.dumps({**point, "evaluation/num_episodes": 20}) + "\n")
    return folder


def random_play(reward: float, *, is_like_training: bool = True) -> dict[str, object]:
    found = RandomPlay(reward, 0.5, 7.0, 100, is_like_training)
    return {"random_play": found.to_json()}
