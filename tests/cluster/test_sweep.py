"""Sweeps: varied settings, early errors, pictures; whole sweeps with Ray."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, strategies as st

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.training.presets import PRESETS
from entity_env.authoring.identity import identity_of
from entity_env.cli import main
from entity_env.cluster import sweep as sweep_module
from entity_env.cluster.search_range import SearchRange, changed
from entity_env.cluster.session import connect
from entity_env.cluster.sweep import run_sweep
from entity_env.cluster.sweep_plan import Sweep, SweepTrial
from entity_env.cluster.sweep_report import (
    by_importance,
    importance,
    num_scored,
    picture,
    ranked,
)
from entity_env.errors import UsageError
from entity_env.games import snake
from entity_env.vec import VecEnv

CONFIG = PPOConfig(total_steps=2_000, net=RogueNetConfig(d_model=16, n_layer=1))
SNAKE = partial(VecEnv, snake, 16)
slow = pytest.mark.slow
with_ray = pytest.mark.timeout(300)


def ranges(*texts: str) -> list[SearchRange]:
    return [SearchRange.parse(text, CONFIG) for text in texts]


def sweep_of(out: Path, *texts: str, num_trials: int = 3, **options: Any) -> Sweep:  # noqa: ANN401
    return Sweep(SNAKE, CONFIG, ranges(*texts), num_trials, out, **options)


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, words)
    return result.exit_code, result.stdout, result.stderr


# ------------------------------------------------------------------ what is varied


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("learning_rate=3e-4:1e-2:log", SearchRange("learning_rate", 3e-4, 1e-2, is_log=True)),
        ("vf_coef=0:1", SearchRange("vf_coef", 0, 1)),
        ("target_kl = 0.01:0.1", SearchRange("target_kl", 0.01, 0.1)),
        ("num_steps=8:32", SearchRange("num_steps", 8, 32, is_integer=True)),
        ("net.d_model=32,64", SearchRange("net.d_model", choices=(32, 64))),
        ("norm_adv=true,False", SearchRange("norm_adv", choices=(True, False))),
        ("net.pooling=none,mean", SearchRange("net.pooling", choices=(None, "mean"))),
        ("target_kl=none,0.02", SearchRange("target_kl", choices=(None, 0.02))),
    ],
)
def test_a_range_is_read(text: str, expected: SearchRange) -> None:
    assert SearchRange.parse(text, CONFIG) == expected


def test_widths_of_an_mlp_are_read() -> None:
    config = PPOConfig(**PRESETS["control"].settings_for(16))
    found = SearchRange.parse("net.hidden=64,128x32", config)
    assert found.choices == ([64], [128, 32])
    assert changed(config, {"net.hidden": found.at(0.9)}).net == MLPConfig((128, 32))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("learning_rate", "--vary needs NAME="),
        ("learning_rat=1e-4:1e-3", "did you mean learning_rate?"),
        ("net.d_mode=1,2", "did you mean net.d_model?"),
        ("xyz=1,2", "no setting 'xyz' of a trial; train GAME --set-train help lists them"),
        ("total_steps=1,2", "see --steps"),
        ("net=1,2", "vary a field of the network"),
        ("learning_rate=1e-2:1e-3", "from low to high"),
        ("learning_rate=1e-3:1e-3", "from low to high"),
        ("ent_coef=0:0.1:log", "above 0"),
        ("learning_rate=1e-4:1e-2:lin", "LOW:HIGH:log"),
        ("learning_rate=1:2:3:4", "LOW:HIGH:log"),
        ("learning_rate=0.001", "several values"),
        ("learning_rate=", "a number, 0 or more, got ''"),
        ("learning_rate=a,b", "a number, 0 or more, got 'a'"),
        ("learning_rate=-1:1", "learning_rate must be a number, 0 or more"),
        ("gamma=0.9:1.5", "a number from 0 to 1"),
        ("gamma=nan:1", "range of numbers"),
        ("gamma=0.5:inf", "range of numbers"),
        ("num_steps=8:32.5", "must be an integer"),
        ("norm_adv=0:1", "true or false"),
        ("net.d_model=32,33", "multiple of n_head"),
        ("net.pooling=sum,mean", "pooling must be one of"),
    ],
)
def test_a_wrong_range_is_refused(text: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        SearchRange.parse(text, CONFIG)


RANGES = ("learning_rate=1e-5:1:log", "gamma=0.1:0.9", "num_steps=3:5", "seed=1:1000:log")


@given(text=st.sampled_from(RANGES), share=st.floats(0, 1), seed=st.integers(0, 1000))
def test_values_stay_in_their_range(text: str, share: float, seed: int) -> None:
    [found] = ranges(text)
    rng = np.random.default_rng(seed)
    value = found.at(share)
    for _ in range(5):
        assert found.low <= value <= found.high
        assert type(value) is (int if found.is_integer else float)
        assert 0 <= found.share_of(value) <= 1
        value = found.explored(value, rng)


def test_a_share_of_a_logarithmic_range_is_one_of_orders_of_magnitude() -> None:
    [found] = ranges("learning_rate=1e-5:1e-1:log")
    assert found.at(0.5) == pytest.approx(1e-3)
    assert found.share_of(1e-2) == pytest.approx(0.75)


def test_integers_have_the_same_probability() -> None:
    [found] = ranges("num_steps=3:5")
    values = [found.at(i / 300) for i in range(300)]
    assert [values.count(each) for each in (3, 4, 5)] == [100, 100, 100]


def test_a_seed_samples_the_same_and_covers_the_ranges(tmp_path: Path) -> None:
    texts = ("learning_rate=1e-4:1e-2:log", "net.d_model=16,32")
    first = sweep_of(tmp_path, *texts, num_trials=10, seed=3).samples()
    assert first == sweep_of(tmp_path, *texts, num_trials=10, seed=3).samples()
    assert first != sweep_of(tmp_path, *texts, num_trials=10, seed=4).samples()
    assert [each["net.d_model"] for each in first].count(16) == 5
    [rate, _] = ranges(*texts)
    tenths = {int(rate.share_of(each["learning_rate"]) * 10) for each in first}
    assert tenths == set(range(10))


# ------------------------------------------------------------------ errors before anything starts


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "varies at least one setting"),
        (("--vary", "gama=0.9:0.99"), "did you mean gamma?"),
        (("--vary", "gamma=0.9:0.99", "--trials", "0"), "--trials"),
        (("--vary", "gamma=0.9:0.99", "--vary", "gamma=0.5,0.6"), "gamma is varied twice"),
        (("--vary", "gamma=0.9:0.99", "--resume"), "no sweep to resume"),
        (("--vary", "net.d_model=16,32", "--population"), "net.d_model cannot change"),
        (("--vary", "norm_returns=true,false", "--population"), "norm_returns cannot change"),
        (
            ("--vary", "gamma=0.9,1", "--population", "--trials", "1"),
            "a population needs 2 trials or more",
        ),
        (("--vary", "net.n_head=2,4", "--vary", "net.d_model=32,34"), "multiple of n_head"),
        (("--vary", "gamma=0.9,1", "--set", "sice=3"), "sice"),
        (("--vary", "gamma=0.9,1", "--population"), "a population runs on Ray: name a cluster"),
        (
            ("--vary", "gamma=0.9,1", "--population", "--stop-early", "--ray", "local"),
            "does not stop runs early",
        ),
        (
            ("--vary", "gamma=0.9,1", "--population", "--repeats", "2"),
            "cannot be combined with a populat",
        ),
        (("--vary", "seed=1:9", "--repeats", "2"), "cannot be combined with a seed that is varied"),
        (("--vary", "gamma=0.9,1", "--ray", "local", "--jobs", "2"), "--jobs is for this machine"),
        (("--vary", "gamma=0.9,1", "--ray", "nowhere"), "not the address of a Ray cluster"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    out = tmp_path / "out"
    code, stdout, stderr = run("sweep", "snake", "--out", str(out), *words)
    assert code == 2
    assert told in stderr
    assert not stdout
    assert "Traceback" not in stderr
    assert not out.exists()


def test_a_folder_that_holds_a_sweep_is_not_overwritten(tmp_path: Path) -> None:
    words = ("sweep", "snake", "--out", str(tmp_path), "--vary", "gamma=0.9,1")
    (tmp_path / "sweep.json").write_text("{}")
    assert "holds a sweep" in run(*words)[2]
    assert "cannot be read" in run(*words, "--resume")[2]
    (tmp_path / "sweep.json").unlink()
    (tmp_path / "trial-003").mkdir()
    assert "in the way" in run(*words)[2]


def test_a_sweep_identifies_its_game(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Sweep] = []

    def keep(sweep: Sweep, **_: object) -> NoReturn:
        found.append(sweep)
        raise UsageError("enough")

    monkeypatch.setattr("entity_env.cluster.sweep.run_sweep", keep)
    words = ("sweep", "snake", "--out", str(tmp_path), "--vary", "gamma=0.9,1")
    assert "enough" in run(*words)[2]
    assert found[0].identity == identity_of(snake)
    sweep_module._save(found[0], [])
    assert json.loads((tmp_path / "sweep.json").read_text())["identity"] == found[0].identity
    about = {"format": "entity_env.run", "game_name": "snake", "identity": {"sha256": "0"}}
    (tmp_path / "trial-000").mkdir()
    (tmp_path / "trial-000" / "run.json").write_text(json.dumps(about))
    told = run(*words, "--resume")[2]
    assert told.count("the game has changed since the run") == 1
    assert "enough" in told


def test_another_sweep_is_not_resumed(tmp_path: Path) -> None:
    plan = sweep_of(tmp_path, "gamma=0.9,1").to_json()
    (tmp_path / "sweep.json").write_text(json.dumps({"sweep": plan, "trials": []}))
    others = [
        (sweep_of(tmp_path, "gamma=0.9,1", num_trials=4), "num_trials"),
        (sweep_of(tmp_path, "gamma=0.9,0.95"), "ranges"),
        (sweep_of(tmp_path, "gamma=0.9,1", seed=5), "seed"),
        (sweep_of(tmp_path, "gamma=0.9,1", environments="cherry_pick"), "environments"),
    ]
    for other, told in others:
        with pytest.raises(UsageError, match=f"differs in {told}"):
            run_sweep(other, resume=True)


# ------------------------------------------------------------------ what mattered


def trials_of(rewards: list[float], **settings: list[Any]) -> list[SweepTrial]:
    return [
        SweepTrial(i, {name: each[i] for name, each in settings.items()}, "done", reward, 100)
        for i, reward in enumerate(rewards)
    ]


def test_the_best_is_first_and_failures_are_last() -> None:
    trials = trials_of([1.0, math.nan, 3.0, 2.0])
    trials[2].state = "failed"
    assert [each.number for each in ranked(trials)] == [3, 0, 1, 2]


def test_settings_are_ranked_by_the_evaluations_of_all_their_seeds() -> None:
    scores = {0: (1.0, 9.0, 2.0), 1: (5.0, 5.5, 4.5), 2: (6.0, math.nan, math.nan)}
    trials = [
        SweepTrial(number, {}, "done", 100 - number, 10, "", seed, evaluation)
        for number, each in scores.items()
        for seed, evaluation in enumerate(each)
    ]
    for trial in trials[-2:]:
        trial.reward = math.nan  # before the first episode
    first, second, third = ranked(trials)
    assert [each.number for each in (first, second, third)] == [2, 1, 0]
    assert (first.score.value, first.score.is_known) == (6, False)
    assert second.score.value == pytest.approx(5)
    assert second.score.half == pytest.approx(4.302653 * 0.5 / 3**0.5)
    assert third.best.name == "trial-000-seed-1"
    trials[3].state = "failed"
    assert ranked(trials)[-1].state == "1 failed, 2 done"
    assert ranked(trials)[-1].number == 1


def many(rewards: list[float], copies: int, **settings: list[Any]) -> list[SweepTrial]:
    """Trials that repeat a few results."""
    return trials_of(rewards * copies, **{name: each * copies for name, each in settings.items()})


@pytest.mark.slow
def test_importance_is_the_correlation_of_ranks() -> None:
    rate, gamma, net, flag = ranges(
        "learning_rate=1e-4:1e-2:log", "gamma=0.1:0.9", "net.d_model=16,32", "norm_adv=true,false"
    )
    settings: dict[str, list[Any]] = {
        "learning_rate": [1e-4, 1e-3, 2e-3, 1e-2],
        "gamma": [0.5, 0.5, 0.5, 0.5],
        "net.d_model": [32, 32, 16, 16],
        "norm_adv": [True, True, False, False],
    }
    trials = many([1.0, 2.0, 3.0, 40.0], 3, **settings)
    assert importance(rate, trials).value == pytest.approx(1)
    assert math.isnan(importance(gamma, trials).value)
    # Ranks 0 to 3 in two groups: means 0.5 and 2.5, so 2 / sqrt(5).
    found = importance(net, trials)
    assert found.value == pytest.approx(-2 / math.sqrt(5))
    assert -1 <= found.low < found.value < found.high < 0
    # A fifth of the variance is within groups, with 12 trials and 2 choices.
    assert importance(flag, trials).value == pytest.approx(math.sqrt(1 - 11 / 10 / 5))
    assert math.isnan(importance(rate, trials[:9]).value)
    assert num_scored(trials) == 12
    assert [each.name for each, _ in by_importance([gamma, net, rate], trials)] == [
        "learning_rate",
        "net.d_model",
        "gamma",
    ]


@pytest.mark.slow
def test_settings_without_an_effect_have_an_interval_around_zero() -> None:
    """About 1 of 20 intervals may miss zero."""
    rng = np.random.default_rng(3)
    [rate] = ranges("learning_rate=1e-4:1e-2:log")
    flag = SearchRange("norm_adv", choices=(True, False))
    for found in (rate, flag):
        outside = 0
        for _ in range(20):
            values = [found.at(share) for share in rng.random(16)]
            trials = trials_of(rng.normal(size=16).tolist(), **{found.name: values})
            weight = importance(found, trials)
            outside += not weight.low <= 0 <= weight.high
        assert outside <= 4


@pytest.mark.slow
def test_the_picture_has_a_panel_of_each_setting_and_a_point_of_each_run() -> None:
    found = ranges("learning_rate=1e-4:1e-2:log", "net.d_model=16,32")
    trials = many(
        [1.0, 2.0, 3.0, math.nan],
        4,
        learning_rate=[1e-4, 1e-3, 1e-2, 2e-3],
        **{"net.d_model": [16, 16, 32, 32]},
    )
    trials[0].state = "stopped"
    svg = ElementTree.fromstring(picture("snake & <more>", found, trials))
    space = "{http://www.w3.org/2000/svg}"
    groups = svg.findall(f"{space}g")
    assert len(groups) == 2
    headings = [str(group.findtext(f"{space}text")) for group in groups]
    assert headings[0] == "learning_rate   ρ = +1.00 [+1.00, +1.00]"
    assert headings[1].startswith("net.d_model   ρ = +0.87 [")
    for group in groups:
        circles = group.findall(f"{space}circle")
        assert len(circles) == 12
        assert sum(circle.get("fill") == "none" for circle in circles) == 1
    across = sorted({float(str(circle.get("cx"))) for circle in groups[0].iter(f"{space}circle")})
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2)  # log axis
    few = picture("snake", found, trials[:3])
    assert "ρ" not in few


@pytest.mark.parametrize("rewards", [[math.nan], [1.0], [1.0, 1.0]])
def test_a_picture_of_hardly_anything(rewards: list[float]) -> None:
    found = ranges("learning_rate=1e-4:1e-2:log")
    rates = [1e-3] * len(rewards)
    ElementTree.fromstring(picture("few", found, trials_of(rewards, learning_rate=rates)))


# ------------------------------------------------------------------ on this machine

HERE = (
    *("sweep", "snake", "--num-envs", "16", "--trials", "2", "--repeats", "2", "--jobs", "2"),
    *("--vary", "learning_rate=1e-3:1e-2:log"),
)


@slow
@pytest.mark.timeout(300)
def test_a_sweep_runs_here_without_ray(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, stdout, stderr = run(*HERE, "--steps", "1000", "--out", str(out))
    assert code == 0, stderr
    head, first, second, *rest = stdout[stdout.index("trial ") :].splitlines()
    assert head.split() == ["trial", "evaluation", "seeds", "learning_rate", "steps", "state"]
    assert {first.split()[0], second.split()[0]} == {"trial-000", "trial-001"}
    assert "±" in first
    assert "which settings mattered: needs results of 10 trials or more, 2 trials have one" in rest
    names = [f"trial-00{number}-seed-{seed}" for number in (0, 1) for seed in (1, 2)]
    assert sorted(each.name for each in out.iterdir()) == ["sweep.json", "sweep.svg", *names]
    rows = json.loads((out / "sweep.json").read_text())["trials"]
    assert [row["seed"] for row in rows] == [1, 2, 1, 2]
    assert {row["state"] for row in rows} == {"done"}
    groups = json.loads(run("runs", str(out), "--json")[1])["groups"]
    assert [(each["game"], each["seeds"]) for each in groups] == [("snake", [1, 2])] * 2
    scores = [row["evaluation"] for row in rows]
    assert sorted(scores) == sorted(score for each in groups for score in each["scores"])
    code, again, stderr = run(*HERE, "--steps", "1000", "--out", str(out), "--resume")
    assert code == 0, stderr
    assert again[again.index("trial ") :].partition("\n\n")[0] in stdout  # nothing was left to do


# ------------------------------------------------------------------ with Ray

WORDS = (
    *("sweep", "snake", "--num-envs", "16", "--trials", "3", "--ray", "local"),
    *("--vary", "learning_rate=1e-4:1e-2:log", "--vary", "net.d_model=16,32"),
)


@slow
@with_ray
def test_a_sweep_runs_its_trials_and_draws_them(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    out = tmp_path / "out"
    code, stdout, stderr = run(*WORDS, "--steps", "2000", "--out", str(out))
    assert code == 0, stderr
    assert stdout.count("trial-00") == 4
    assert "which settings mattered: needs results of 10 trials or more" in stdout
    assert f"--agent {out}/trial-00" in stdout
    assert sorted(each.name for each in out.iterdir()) == [
        *("sweep.json", "sweep.svg", "trial-000", "trial-001", "trial-002")
    ]
    rows = json.loads((out / "sweep.json").read_text())["trials"]
    assert {row["state"] for row in rows} <= {"done", "stopped"}
    assert {"done"} <= {row["state"] for row in rows}
    best = next(line for line in stdout.splitlines() if line.startswith("best: "))
    folder = best.rpartition(" ")[2]
    assert run("eval", "snake", "--agent", folder, "--episodes", "2")[0] == 0
    code, again, stderr = run(*WORDS, "--steps", "2000", "--out", str(out), "--resume")
    assert code == 0, stderr
    assert again.partition("\n\n")[0] in stdout  # nothing was left to do


@slow
@with_ray
def test_an_interrupted_sweep_resumes(tmp_path: Path) -> None:
    """Finished trials are kept; the others continue from their checkpoints."""
    pytest.importorskip("ray")
    out = tmp_path / "out"
    words = (*WORDS, "--steps", "15000", "--out", str(out))
    process = subprocess.Popen(
        [sys.executable, "-c", "from entity_env.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 200
        while not any(row["step"] for row in _rows(out)):
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert process.returncode == 130, stderr
    assert "--resume continues" in stderr
    assert "Traceback" not in stderr
    before = _rows(out)
    assert any(row["state"] == "running" for row in before)
    code, _, stderr = run(*words, "--resume")
    assert code == 0, stderr
    for row, was in zip(_rows(out), before, strict=True):
        assert row["settings"] == was["settings"]
        assert row["state"] in ("done", "stopped")
        if was["state"] in ("done", "stopped"):
            assert row == was


def _rows(out: Path) -> list[dict[str, Any]]:
    path = out / "sweep.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text())["trials"] if path.exists() else []
    return rows


@slow
@with_ray
def test_a_worse_trial_of_a_population_continues_a_better_one(tmp_path: Path) -> None:
    """Two trials take turns on one CPU; the worse one gets settings close to the other's."""
    ray = pytest.importorskip("ray")
    sweep = sweep_of(
        tmp_path / "out", "learning_rate=1e-4:1e-2:log", num_trials=2, is_population=True
    )
    with connect("local", num_cpus=1) as num_cpus:
        if num_cpus > 1:
            others: Any = ray.remote(num_cpus=num_cpus - 1)(Idle).remote()
            ray.get(others.__ray_ready__.remote())
        trials = run_sweep(sweep, address="auto")
    assert [(each.state, each.error) for each in trials] == [("done", "")] * 2
    assert all(each.step >= 2_000 for each in trials)
    assert [each.settings for each in trials] != sweep.samples()
    assert not (tmp_path / "out" / "tune").exists()


class Idle:
    """Occupies CPUs."""


@slow
@with_ray
def test_a_trial_that_diverges_fails_alone(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    config = PPOConfig(total_steps=600, net=CONFIG.net)
    found = [SearchRange.parse("learning_rate=1e-3,1e30", config)]
    sweep = Sweep(SNAKE, config, found, 2, tmp_path / "out")
    trials = run_sweep(sweep, address="local")
    assert sorted(each.state for each in trials) == ["done", "failed"]
    [failed] = [each for each in trials if each.state == "failed"]
    assert "diverged" in failed.error
    assert os.listdir(tmp_path) == ["out"]
