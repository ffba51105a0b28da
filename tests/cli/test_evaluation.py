"""`entity-env train`: evaluations, the best checkpoint, checkpoints along the run, `--stop-at`."""

from __future__ import annotations

import io
import itertools
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from entity_env.agents.ppo import TrainProgress
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, save_checkpoint
from entity_env.agents.training.tracking.runs import EVALUATED, read_run
from entity_env.agents.training.tracking.settings_file import RUN_FORMAT
from entity_env.cli import main
from entity_env.cli.display.train_dashboard import TrainDisplay
from entity_env.cli.evaluation import evaluation_lines
from entity_env.core.spaces import Entity, ObsSpace

SMALL = ("--num-envs=8", "--num-workers=0", "--set-train=net={d_model=8,n_layer=1}")


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


def train(game: str, out: Path, *args: str) -> Result:
    return run("train", game, "--out", str(out), *SMALL, "--num-steps=16", "--steps=512", *args)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("runs") / "snake"
    options = ("--set=board_size=4", "--eval-interval=128", "--keep-checkpoints=2")
    return out, train("snake", out, *options)


@pytest.mark.slow
def test_a_run_is_evaluated_and_keeps_its_best_and_others(trained: tuple[Path, Result]) -> None:
    out, result = trained
    assert (result.exit_code, result.stderr) == (0, "")
    curves = read_run(out).curves
    assert curves[EVALUATED].steps.tolist() == [128, 256, 384, 512]
    assert set(curves["evaluation/num_episodes"].values) == {20}
    assert re.search(
        r"^step 512 of 512 .*  evaluation [\d.]+ \(greedy, at 100%", result.stdout, re.M
    )
    steps = [f"checkpoints/step-{step:09}" for step in (256, 512)]
    for name in ("best", *steps):
        played = run("eval", "snake", "--set=board_size=4", "--agent", str(out / name), "--greedy")
        assert played.exit_code == 0
        assert "trained agents played their most probable actions (see --sample)\n" in played.stdout


@pytest.mark.slow
def test_the_end_of_a_run_says_what_each_network_scored(trained: tuple[Path, Result]) -> None:
    out, result = trained
    score = r"-?[\d.]+ ± [\d.]+ \(95 %, \d+ episodes\)"
    assert re.search(rf"^evaluation: mean reward {score}, greedy$", result.stdout, re.M)
    best = re.search(r"^best: (\S+), (of step|which is the last network).*$", result.stdout, re.M)
    assert best
    assert best[1] == str(out / "best")


def figure(step: int, mean: float, cut: float = 0.0) -> dict[str, float]:
    figures = {"step": step, "mean_reward": mean, "std_reward": 2.0, "num_episodes": 100}
    return {**figures, "cut": cut}


@pytest.mark.parametrize(
    ("facts", "kept", "lines"),
    [
        ({}, None, []),
        ({}, 300, ["best: {out}/best, of step 300, not compared with the last one"]),
        (
            {"policy": "greedy", "last": figure(500, 7.0), "kept": 500},
            500,
            [
                "evaluation: mean reward 7.000 ± 0.399 (95 %, 100 episodes), greedy",
                "best: {out}/best, which is the last network",
            ],
        ),
        (
            {"policy": "greedy", "last": figure(500, 7.0), "best": figure(300, 9.0)},
            300,
            [
                "evaluation: mean reward 7.000 ± 0.399 (95 %, 100 episodes), greedy",
                "best: {out}/best, of step 300: mean reward 9.000 ± 0.399 (95 %, 100 episodes)",
            ],
        ),
        (
            {
                "policy": "greedy",
                "last": figure(500, 7.0),
                "best": figure(300, 7.0),
                "match": {"win_rate": 0.62, "num_episodes": 100},
            },
            500,
            [
                "evaluation: mean reward 7.000 ± 0.399 (95 %, 100 episodes), greedy",
                "best: {out}/best, which is the last network now: step 300 had 7.000 ± 0.399 "
                "(95 %, 100 episodes); the last one won 62% of 100 games of the two",
            ],
        ),
        (
            {
                "policy": "greedy",
                "last": figure(500, 8.0),
                "best": figure(300, 7.0),
                "match": {"win_rate": 0.41, "num_episodes": 100},
            },
            300,
            [
                "evaluation: mean reward 8.000 ± 0.399 (95 %, 100 episodes), greedy",
                "best: {out}/best, of step 300: mean reward 7.000 ± 0.399 (95 %, 100 episodes); "
                "kept because the last one won 41% of 100 games of the two",
            ],
        ),
        (
            {
                "policy": "greedy",
                "last": figure(500, -300.0, cut=1.0),
                "other_policy": figure(500, -15.0),
                "greedy_is_worse": True,
                "plays": "sampled",
                "replay": "replays/greedy.replay",
            },
            None,
            [
                "evaluation: mean reward -300.000 ± 0.399 (95 %, 100 episodes), greedy",
                "the greedy policy does not reach an end, as if in a loop: greedy play earns "
                "-300.000 ± 0.399, sampled play -15.000 ± 0.399; the agent samples unless --greedy "
                "is given; watch greedy play: entity-env replay {out}/replays/greedy.replay",
            ],
        ),
        (
            {
                "policy": "sampled",
                "last": figure(500, 3.0),
                "other_policy": figure(500, 5.0),
                "plays": "greedy",
            },
            None,
            [
                "evaluation: mean reward 3.000 ± 0.399 (95 %, 100 episodes), sampled",
                "greedy play earns 5.000 ± 0.399, sampled play 3.000 ± 0.399; the agent plays "
                "greedily unless --sample is given",
            ],
        ),
        (
            {
                "policy": "greedy",
                "last": figure(500, 3.0) | {"num_episodes": 8},
                "other_policy": figure(500, 5.0) | {"num_episodes": 8},
            },
            None,
            [
                "evaluation: mean reward 3.000 ± 1.787 (95 %, 8 episodes), greedy",
                "greedy play earns 3.000 ± 1.787, sampled play 5.000 ± 1.787 (too few episodes to "
                "tell which is better); the agent samples unless --greedy is given",
            ],
        ),
        ({"policy": "greedy", "last": {"step": "x"}, "match": 3, "best": []}, None, []),
    ],
)
def test_what_is_said_of_networks_and_policies(
    tmp_path: Path, facts: dict[str, object], kept: int | None, lines: list[str]
) -> None:
    about = {"format": RUN_FORMAT, "evaluated": facts}
    (tmp_path / "run.json").write_text(json.dumps(about))
    if kept is not None:
        net = RogueNet(ObsSpace([], {"A": Entity(["x"])}), {}, RogueNetConfig(d_model=4, n_head=1))
        save_checkpoint(tmp_path / "best", net, training={"step": kept})
    expected = [line.format(out=tmp_path) for line in lines]
    assert evaluation_lines(read_run(tmp_path), 500) == expected


@pytest.mark.slow
def test_a_reward_ends_a_run_which_can_go_on(tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ("--eval-interval=128", "--eval-opponent=random", "--eval-episodes=4")
    result = train("tic_tac_toe", out, *options, "--stop-at=-2")
    reason = r"stopped: the evaluation reward -?[\d.]+ has reached -2; resume: "
    assert re.search(reason, result.stdout)
    assert "evaluation/win_rate" in read_run(out).curves
    assert read_run(out).step < 512
    assert train("tic_tac_toe", out, "--resume", "--stop-at=99").exit_code == 0
    assert read_run(out).step >= 512


@pytest.mark.parametrize(
    ("game", "options", "words"),
    [
        ("snake", ("--eval-interval=0", "--stop-at=3"), "--stop-at needs evaluations"),
        ("snake", ("--eval-opponent=random",), "snake is for 1 agent: leave out --eval-opponent"),
        ("tic_tac_toe", ("--eval-opponent=human",), "against does not support human players"),
        ("tic_tac_toe", ("--eval-opponent=nobody",), "no agent 'nobody'"),
    ],
)
def test_options_that_cannot_be_are_refused(
    tmp_path: Path, game: str, options: tuple[str, ...], words: str
) -> None:
    result = train(game, tmp_path / "run", *options)
    assert result.exit_code != 0
    assert words in result.stderr
    assert result.stdout == ""
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_bot_has_the_other_seats(tmp_path: Path) -> None:
    bot = tmp_path / "bots.py"
    bot.write_text(
        "from entity_env.agents import ScriptedAgent\n"
        "class First(ScriptedAgent):\n"
        "    def choose(self, obs, *actions):\n"
        "        return obs.allowed(actions[0])[0]\n"
    )
    out = tmp_path / "run"
    result = train("tic_tac_toe", out, f"--eval-opponent={bot}:First")
    assert (result.exit_code, result.stderr) == (0, "")
    curves = read_run(out).curves
    rates = curves["evaluation/win_rate"].values
    assert rates.tolist() == curves["evaluation/against/First"].values.tolist()
    assert rates.tolist() == pytest.approx([0.5 + mean / 2 for mean in curves[EVALUATED].values])


@pytest.mark.slow
def test_without_evaluation_there_is_no_curve(tmp_path: Path) -> None:
    assert train("cartpole", tmp_path, "--eval-interval=0").exit_code == 0
    assert EVALUATED not in read_run(tmp_path).curves
    assert not (tmp_path / "best").exists()


def test_the_display_remembers_the_last_and_the_best() -> None:
    file = io.StringIO()
    display = TrainDisplay(
        "run", Console(file=file, width=200), clock=itertools.count(0, 9).__next__
    )
    for step, metrics in enumerate(({}, {EVALUATED: 2.0}, {}, {EVALUATED: 1.0}, {})):
        display(TrainProgress(step + 1, 5, metrics=metrics))
    found = [re.search("evaluation.*", line) for line in file.getvalue().splitlines()]
    assert [each and each[0] for each in found] == [
        None,
        "evaluation 2.000 (greedy, at 40%)",
        "evaluation 2.000 (greedy, at 40%)",
        "evaluation 1.000 (greedy, at 80%; best 2.000)",
        "evaluation 1.000 (greedy, at 80%; best 2.000)",
    ]
