"""The last lines of `entity-env train`: results, compared with random play."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from entity_env.agents.ppo import MeanReward, RandomPlay, read_run
from entity_env.agents.training.tracking.runs import RUN_FILE
from entity_env.cli.run_summary import random_words
from tests.cli.test_evaluation import run, train

RANDOM = RandomPlay(76.0, 50.0, 30.0, 100)


def reward(mean: float, error: float = 9.4) -> MeanReward:
    return MeanReward(mean, error, 100)


@pytest.mark.parametrize(
    ("evaluation", "training", "words"),
    [
        (reward(79.5), None, "no better than random (79.500 played greedily vs 76.000 ± 9.971)"),
        (None, reward(79.5), "no better than random (79.500 vs 76.000 ± 9.971)"),
        (reward(62.4), None, "no better than random (62.400 played greedily vs 76.000 ± 9.971)"),
        (reward(62.2), None, "worse than random (62.200 played greedily vs 76.000 ± 9.971)"),
        (reward(89.8), None, "random play: mean reward 76.000 ± 9.971 (95 %, 100 episodes)"),
        (reward(79.5, math.nan), None, "random play: mean reward 76.000 .*"),
        (None, None, "random play: mean reward 76.000 .*"),
        (
            reward(-1.9, 0.0),
            reward(331.0),
            "worse than random (-1.900 played greedily vs 76.000 ± 9.971; 331.000 in training, "
            "where it draws)",
        ),
    ],
)
def test_a_run_is_compared_with_random_play_within_the_errors(
    evaluation: MeanReward | None, training: MeanReward | None, words: str
) -> None:
    found = random_words(RANDOM, evaluation, training)
    assert re.fullmatch(words.replace("(", r"\(").replace(")", r"\)"), found)


def test_the_training_of_self_play_is_not_compared() -> None:
    found = random_words(RandomPlay(0.0, 0.0, 4.0, 100, False), None, reward(0.01))
    assert found == "random play: mean reward 0.000 ± 0.000 (95 %, 100 episodes)"


@pytest.mark.slow
def test_a_run_says_what_random_play_gets(tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = train("snake", out, "--set=board_size=4", "--learning-rate=1e-9")
    assert (result.exit_code, result.stderr) == (0, "")
    found = read_run(out).random_play
    assert found is not None
    assert found.is_like_training
    shown = re.escape(f"(random {found.mean_reward:.3f}")
    assert re.search(rf"^step 512 of 512 .*  reward [\d.]+ {shown}", result.stdout, re.M)
    assert re.search(r"^(no better than random|worse than random|random play)", result.stdout, re.M)
    trust = (out / RUN_FILE).read_bytes()
    again = run("train", "snake", "--out", str(out), "--resume", "--steps=640")
    assert (again.exit_code, again.stderr) == (0, "")
    assert (out / RUN_FILE).read_bytes() != trust
    assert read_run(out).random_play == found


@pytest.mark.slow
def test_self_play_without_evaluations_measures_nothing(tmp_path: Path) -> None:
    assert train("tic_tac_toe", tmp_path / "a", "--eval-interval=0").exit_code == 0
    assert read_run(tmp_path / "a").random_play is None
    result = train("tic_tac_toe", tmp_path / "b", "--opponent=none")
    found = read_run(tmp_path / "b").random_play
    assert found is not None
    assert (found.mean_reward, found.is_like_training) == (0, False)
    assert re.search(r"  evaluation -?[\d.]+ \(greedy, at .*random 0\.000\)", result.stdout)
