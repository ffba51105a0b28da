"""Facts of runs: what `run.json` records, and what old files have."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

from entity_env.agents.ppo import PPOConfig
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.training.tracking.runs import TrainingRun, read_run
from entity_env.cli.report.run_facts import run_facts
from tests import DATA
from tests.cli.report.made_runs import make, runs_of

MACHINE = {"host": "my-laptop", "platform": "Linux-6", "cpu": "Fast", "num_cpus": 2}


def facts(*runs: TrainingRun) -> dict[str, list[str]]:
    return {fact.label: list(fact.values) for fact in run_facts(runs)}


def changed(run: TrainingRun, **about: object) -> TrainingRun:
    return dataclasses.replace(run, about={**run.about, **about})


def run_with(folder: Path, about: Mapping[str, object]) -> TrainingRun:
    make(folder, [1, 2])
    data = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**data, **about}))
    return read_run(folder)


def test_everything_is_told_that_repeats_a_run(tmp_path: Path) -> None:
    config = dataclasses.replace(PPOConfig(), gamma=0.9, seed=7)
    about = {
        "command": ["/bin/entity-env", "train", "snake", "--gamma", "0.9"],
        "identity": {"package": "entity-env 1.0", "version": 3, "sha256": "0123456789abcdef"},
        "config": config.to_json(),
        "default_config": PPOConfig().to_json(),
        "opponents": {"random": 0.25},
        "options": {"eval_opponent": "bots/bot.py:Bot"},
        "init_from": {"path": "runs/before", "sha256": "ab"},
        "num_envs": 32,
        "num_workers": 1,
        "num_ranks": 2,
        "seed": 7,
        "began": "2026-11-27T04:37:56+0000",
        "ended": "2026-11-27T05:40:00+0000",
        "resumed": [["2026-11-27T05:00:00+0000", 100]],
        "machine": MACHINE,
        "versions": {"python": "3.11.7", "numpy": "2.4.6"},
    }
    assert facts(run_with(tmp_path / "a", about)) == {
        "Command": ["entity-env train snake --gamma 0.9"],
        "Game": ["snake, board_size=6, version 3, entity-env 1.0, source 0123456789ab"],
        "Trainer settings": ["gamma = 0.9 (default: 0.99)"],
        "Opponents": ["random in 25% of the environments, bots/bot.py:Bot in evaluations"],
        "Started from": ["runs/before"],
        "Environments": ["32 environments, 1 worker, 2 ranks"],
        "Seed": ["7"],
        "Steps": ["200"],
        "Duration": ["0:00:02"],
        "Date": ["2026-11-27 04:37 +0000 to 2026-11-27 05:40 +0000, resumed once"],
        "Machine": ["Fast, 2 cores, Linux-6"],
        "Versions": ["python 3.11.7, numpy 2.4.6"],
    }


def test_runs_of_a_group_are_told_together(tmp_path: Path) -> None:
    runs = []
    for i, hour in enumerate((5, 4, 6)):
        about = {
            "command": ["entity-env", "train", "--seed", str(i)],
            "began": f"2026-11-27T0{hour}:00:00+0000",
            "ended": f"2026-11-27T0{hour}:30:00+0000",
            "seed": i,
            "machine": MACHINE,
            "versions": {"numpy": str(min(i, 1))},
        }
        runs.append(run_with(tmp_path / str(i), about))
    found = facts(*runs)
    assert found["Command"] == [f"entity-env train --seed {i}" for i in range(3)]
    assert found["Seeds"] == ["0, 1, 2"]
    assert found["Date"] == ["2026-11-27 04:00 +0000 to 2026-11-27 06:30 +0000"]
    assert found["Machine"] == ["Fast, 2 cores, Linux-6"]
    assert found["Versions"] == ["numpy 0", "numpy 1"]
    many = [changed(runs[0], command=["entity-env", str(i)]) for i in range(20)]
    assert facts(*many)["Command"][-1] == "and 12 more"
    assert len(facts(*many[:9])["Command"]) == 9  # one more is not left out


def test_settings_are_compared_with_the_defaults_of_the_run(tmp_path: Path) -> None:
    make(tmp_path / "a", [1], gamma=0.5, net=MLPConfig(hidden=(8,)))
    [run] = runs_of(tmp_path)
    [*of_class] = facts(run)["Trainer settings"]
    assert "gamma = 0.5 (default of PPOConfig: 0.99)" in of_class
    assert "net.hidden = 8" in of_class  # another network has other settings
    assert len([each for each in of_class if not each.startswith("net.")]) == 1
    default = dataclasses.replace(PPOConfig(), gamma=0.5, net=MLPConfig()).to_json()
    [own] = facts(changed(run, default_config=default))["Trainer settings"]
    assert own.startswith("net.hidden = 8 (default: ")
    same = changed(run, default_config=run.about["config"])
    assert facts(same)["Trainer settings"] == ["the defaults"]


def test_old_runs_show_what_they_have() -> None:
    old = facts(read_run(DATA / "corpus" / "good" / "run"))
    assert old["Game"] == ["snake, board_size=6"]
    assert old["Date"] == ["2026-01-01 00:00 +0000"]
    assert old["Versions"] == ["entity-env 0.1.0"]
    assert not {"Command", "Machine", "Opponents", "Environments"} & old.keys()
    assert facts(TrainingRun(Path("a"))) == {"Steps": ["0"], "Duration": ["0:00:00"]}
