"""Sweeps: what is varied, errors before anything starts, pictures; with Ray whole sweeps."""

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
from entity_env.agents.ppo.presets import PRESETS
from entity_env.agents.rogue_net import RogueNetConfig
from entity_env.authoring.identity import identity_of
from entity_env.cli import main
from entity_env.cluster import sweep as sweep_module
from entity_env.cluster.search_range import SearchRange, changed
from entity_env.cluster.session import connect
from entity_env.cluster.sweep import Sweep, SweepTrial, run_sweep
from entity_env.cluster.sweep_report import by_importance, importance, picture, ranked
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
    assert changed(config, {"net.hidden": found.at(0.9)}).net.to_json() == {"hidden": [128, 32]}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("learning_rate", "--vary needs NAME="),
        ("learning_rat=1e-4:1e-3", "did you mean learning_rate?"),
        ("net.d_mode=1,2", "did you mean net.d_model?"),
        ("xyz=1,2", "there are seed"),
        ("total_steps=1,2", "see --steps"),
        ("net=1,2", "vary a field of the network"),
        ("learning_rate=1e-2:1e-3", "from low to high"),
        ("learning_rate=1e-3:1e-3", "from low to high"),
        ("ent_coef=0:0.1:log", "above 0"),
        ("learning_rate=1e-4:1e-2:lin", "LOW:HIGH:log"),
        ("learning_rate=1:2:3:4", "LOW:HIGH:log"),
        ("learning_rate=0.001", "several values"),
        ("learning_rate=", "float, got ''"),
        ("learning_rate=a,b", "float, got 'a'"),
        ("learning_rate=-1:1", "learning_rate must be above 0"),
        ("gamma=0.9:1.5", "between 0 and 1"),
        ("gamma=nan:1", "range of numbers"),
        ("gamma=0.5:inf", "range of numbers"),
        ("num_steps=8:32.5", "is an integer"),
        ("norm_adv=0:1", "True or False"),
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
        ((), "varies one setting at least"),
        (("--vary", "gama=0.9:0.99"), "did you mean gamma?"),
        (("--vary", "gamma=0.9:0.99", "--trials", "0"), "--trials"),
        (("--vary", "gamma=0.9:0.99", "--vary", "gamma=0.5,0.6"), "gamma is varied twice"),
        (("--vary", "gamma=0.9:0.99", "--resume"), "no sweep to resume"),
        (("--vary", "net.d_model=16,32", "--population"), "net.d_model cannot change"),
        (("--vary", "norm_returns=true,false", "--population"), "norm_returns cannot change"),
        (("--vary", "gamma=0.9,1", "--population", "--trials", "1"), "2 trials at least"),
        (("--vary", "net.n_head=2,4", "--vary", "net.d_model=32,34"), "multiple of n_head"),
        (("--vary", "gamma=0.9,1", "--set", "sice=3"), "sice"),
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
        with pytest.raises(UsageError, match=f"has other {told}"):
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
    trials = trials_of([1.0, 2.0, 3.0, 40.0], **settings)
    assert importance(rate, trials) == pytest.approx(1)
    assert math.isnan(importance(gamma, trials))
    # Ranks 0 to 3 in two groups: means 0.5 and 2.5, so 2 / sqrt(5).
    assert importance(net, trials) == pytest.approx(-2 / math.sqrt(5))
    assert importance(flag, trials) == pytest.approx(2 / math.sqrt(5))
    assert math.isnan(importance(rate, trials[:2]))
    assert [each.name for each, _ in by_importance([gamma, net, rate], trials)] == [
        "learning_rate",
        "net.d_model",
        "gamma",
    ]


def test_the_picture_has_a_panel_of_each_setting_and_a_point_of_each_trial() -> None:
    found = ranges("learning_rate=1e-4:1e-2:log", "net.d_model=16,32")
    trials = trials_of(
        [1.0, 2.0, 3.0, math.nan],
        learning_rate=[1e-4, 1e-3, 1e-2, 2e-3],
        **{"net.d_model": [16, 16, 32, 32]},
    )
    trials[0].state = "stopped"
    svg = ElementTree.fromstring(picture("snake & <more>", found, trials))
    space = "{http://www.w3.org/2000/svg}"
    groups = svg.findall(f"{space}g")
    assert len(groups) == 2
    headings = [str(group.findtext(f"{space}text")) for group in groups]
    assert headings[0] == "learning_rate   ρ = +1.00"
    assert headings[1].startswith("net.d_model   ρ = +0.87")
    for group in groups:
        circles = group.findall(f"{space}circle")
        assert len(circles) == 3
        assert [circle.get("fill") == "none" for circle in circles] == [True, False, False]
    across = [float(str(circle.get("cx"))) for circle in groups[0].findall(f"{space}circle")]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.2)  # log axis


@pytest.mark.parametrize("rewards", [[math.nan], [1.0], [1.0, 1.0]])
def test_a_picture_of_hardly_anything(rewards: list[float]) -> None:
    found = ranges("learning_rate=1e-4:1e-2:log")
    rates = [1e-3] * len(rewards)
    ElementTree.fromstring(picture("few", found, trials_of(rewards, learning_rate=rates)))


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
    assert "what mattered" in stdout
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
    """Trials that are over stay as they are; the others continue from their checkpoint."""
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
    """Two trials take turns on one CPU; the worse one gets settings near those of the other."""
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
    """Holds CPUs."""


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
