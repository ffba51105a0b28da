"""The last lines of `entity-env train`: results, compared with random play."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from entity_env.agents.ppo import MeanReward, RandomPlay, read_run
from entity_env.agents.training.tracking.rewards import UNKNOWN, PolicyScores
from entity_env.agents.training.tracking.runs import RUN_FILE
from entity_env.cli.run_summary import random_words
from tests.cli.test_evaluation import run, train

RANDOM = RandomPlay(76.0, 50.0, 30.0, 100)


def reward(mean: float, num_episodes: int = 100, std: float = 50.0) -> MeanReward:
    return MeanReward.of(mean, std, num_episodes)


RANDOM_WORDS = "random play: mean reward 76.000 ± 9.971 (95 %, 100 episodes)"


@pytest.mark.parametrize(
    ("greedy", "sampled", "plays", "words"),
    [
        (79.5, 70.0, "greedy", "no better than random: 79.500 ± 9.971 greedily, random 76.000"),
        (70.0, 79.5, "sampled", "no better than random: 79.500 ± 9.971 by sampling, random 76.0"),
        (62.4, 62.4, "sampled", "no better than random: 62.400 ± 9.971 by sampling, random 76.0"),
        (62.0, 40.0, "greedy", "worse than random: 62.000 ± 9.971 greedily, random 76.000"),
        (89.9, 40.0, "greedy", RANDOM_WORDS),
        (85.0, 40.0, "greedy", "no better than random: 85.000 ± 9.971 greedily, random 76.000"),
        (89.8, 40.0, "greedy", RANDOM_WORDS),  # neither is shown
        (40.0, 480.0, "sampled", RANDOM_WORDS),
        (480.0, 40.0, "greedy", RANDOM_WORDS),
    ],
)
def test_the_better_policy_is_compared_with_random_play(
    greedy: float, sampled: float, plays: str, words: str
) -> None:
    found = random_words(RANDOM, PolicyScores(reward(greedy), reward(sampled), plays), None)
    assert found.startswith(words)


def test_few_episodes_are_no_verdict() -> None:
    few = RandomPlay(76.0, 50.0, 30.0, 99)
    assert random_words(few, PolicyScores(reward(10.0), None), None).startswith("random play:")
    for num_episodes, words in ((99, "random play:"), (100, "worse than random: 10.000")):
        scores = PolicyScores(reward(10.0, num_episodes), None)
        assert random_words(RANDOM, scores, None).startswith(words)


def test_training_is_compared_without_evaluations_if_it_is_like_random_play() -> None:
    found = random_words(RANDOM, UNKNOWN, reward(76.0))
    assert found == "no better than random: 76.000 ± 9.971 in training, random 76.000 ± 9.971"
    assert random_words(RANDOM, UNKNOWN, None) == RANDOM_WORDS
    assert random_words(RANDOM, UNKNOWN, reward(76.0)._replace(is_biased=True)) == RANDOM_WORDS
    found = random_words(RandomPlay(0.0, 0.0, 4.0, 100, False), UNKNOWN, reward(0.01, std=0.0))
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
