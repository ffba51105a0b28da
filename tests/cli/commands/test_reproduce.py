"""`entity-env reproduce` repeats a run bit for bit, and names the differences."""

from __future__ import annotations

import functools
import itertools
import json
import re
import shutil
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from entity_env.agents.ppo import compiling, run as ppo_run
from entity_env.agents.training.tracking.runs import read_about, read_run
from entity_env.agents.training.tracking.time_limit import TimeLimit
from entity_env.cli import main
from tests.cli.commands.test_replay import GAME

SMALL = (
    "--num-envs=8",
    "--num-workers=0",
    "--num-steps=8",
    "--set-train=net={d_model=8,n_layer=1}",
)


def run(*args: str | Path) -> Result:
    return CliRunner().invoke(main, list(map(str, args)))


def done(*args: str | Path) -> Result:
    result = run(*args)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def network(out: str) -> bytes:
    return Path(out, "checkpoint", "model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_run_is_repeated_bit_by_bit() -> None:
    done("train", "snake", *SMALL, "--steps=192", "--seed=3", "--set=board_size=5", "--out=a")
    result = done("reproduce", "a")
    assert re.search(r"equal, bit for bit: \d+ curves at 3 steps, and the network", result.stdout)
    assert network("a") == network("a-again")


@pytest.mark.slow
def test_run_json_as_settings_gives_the_same_network() -> None:
    """Promised in docs/explanation/seeds.md."""
    done("train", "snake", *SMALL, "--steps=192", "--seed=3", "--set=board_size=5", "--out=a")
    done("train", "--config", "a/run.json", "--out=b")
    assert network("a") == network("b")


@pytest.mark.slow
def test_a_run_that_ended_early_is_repeated_up_to_there() -> None:
    done("train", "snake", *SMALL, "--steps=640", "--until=128", "--out=a")
    assert read_about(Path("a"))["steps"] == 128
    assert "curves at 2 steps" in done("reproduce", "a").stdout
    assert read_about(Path("a-again"))["config"] == read_about(Path("a"))["config"]


@pytest.mark.slow
def test_a_run_whose_schedules_followed_the_time_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ticking = functools.partial(TimeLimit, clock=itertools.count().__next__)
    monkeypatch.setattr(ppo_run, "TimeLimit", ticking)
    options = ("--steps=1000000", "--max-time=200", "--set-train=gamma=[[0,0.5],[1,0.9]]")
    done("train", "snake", *SMALL, *options, "--out=a")
    rates = read_run(Path("a")).curves["charts/learning_rate"].values
    assert rates[-1] < 0.9 * rates[0]
    assert "equal, bit for bit" in done("reproduce", "a").stdout
    assert network("a") == network("a-again")
    assert "time_of" not in read_about(Path("a-again"))["options"]


@pytest.mark.slow
def test_a_run_that_was_killed_is_compared_up_to_its_checkpoint() -> None:
    done("train", "snake", *SMALL, "--steps=192", "--until=128", "--out=a")
    with open("a/curves.jsonl", "a") as file:  # an update after the last checkpoint
        file.write('{"step": 192, "losses/policy": 1}\n')
    assert "curves at 2 steps" in done("reproduce", "a").stdout


@pytest.mark.slow
def test_a_run_that_was_compiled_in_the_middle_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compiling, "_CHILD", "pass")
    monkeypatch.setattr(compiling, "_must_compile", lambda net: True)
    start = compiling.KernelSwitch._start_child

    def start_and_wait(self: compiling.KernelSwitch, *args: object) -> None:
        start(self, *args)  # type: ignore[arg-type]
        assert self._child is not None
        self._child.wait()

    monkeypatch.setattr(compiling.KernelSwitch, "_start_child", start_and_wait)
    result = done("train", "snake", *SMALL, "--steps=320", "--compile=background", "--out=a")
    assert "compiled code ran from step 128 on" in result.stdout
    assert "--compile wait" in result.stdout
    assert read_about(Path("a"))["compiled_from_step"] == 128
    result = done("reproduce", "a")
    assert read_about(Path("a-again"))["compiled_from_step"] == 128
    assert network("a") == network("a-again")


@pytest.mark.slow
def test_what_differs_is_named(here: Path) -> None:
    (here / "mine.py").write_text(GAME)
    done("train", "mine.py", *SMALL, "--steps=128", "--out=a")
    about = json.loads(Path("a/run.json").read_text())
    about["versions"]["torch"] = "1.0"
    Path("a/run.json").write_text(json.dumps(about))
    result = run("reproduce", "a", "mine.py", "--gamma=0.5")
    assert result.exit_code == 1
    assert "different: curves from step 64 on" in result.stdout
    assert "differs: torch: 1.0, now " in result.stdout
    assert "differs: gamma: 0.99, now 0.5" in result.stdout
    assert "network: " in result.stdout


@pytest.mark.slow
def test_code_of_a_stranger_is_not_run(here: Path) -> None:
    (here / "mine.py").write_text(GAME)
    done("train", "mine.py", *SMALL, "--steps=64", "--out=a")
    shutil.rmtree(click.get_app_dir("entity-env"))  # as on another machine
    (here / "theirs.py").write_text(f"open('ran', 'w').close()\n{GAME}")
    text = Path("a/run.json").read_text()
    Path("a/run.json").write_text(text.replace("mine.py", "theirs.py"))
    result = run("reproduce", "a")
    assert result.exit_code == 2
    assert "used only if you have named them" in result.stderr
    assert not (here / "ran").exists()
    assert not (here / "a-again").exists()
    assert run("reproduce", "a", "theirs.py").exit_code == 0
    assert (here / "ran").exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    "about",
    [
        {"num_threads": 10**30},
        {"compiled_from_step": -5},
        {"compiled_from_step": 10**30},
        {"num_threads": [], "compiled_from_step": {}, "machine": 1, "versions": [], "identity": 2},
    ],
)
def test_what_a_file_says_is_not_trusted(about: dict[str, object]) -> None:
    done("train", "snake", *SMALL, "--steps=64", "--out=a")
    text = Path("a/run.json").read_text()
    Path("a/run.json").write_text(json.dumps({**json.loads(text), **about}))
    result = run("reproduce", "a")
    assert result.exit_code in (0, 2)
    assert result.exit_code == 0 or result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("about", "message"),
    [
        (None, "is not a training run"),
        ({}, "has no run.json with its settings"),
        ({"config": {}, "imitates": []}, "was made by clone"),
        ({"config": {}}, "has no curves to compare with"),
    ],
)
def test_what_cannot_be_repeated(here: Path, about: dict[str, object] | None, message: str) -> None:
    (here / "a").mkdir()
    if about is not None:
        (here / "a" / "run.json").write_text(json.dumps({"format": "entity_env.run", **about}))
    result = run("reproduce", "a")
    assert result.exit_code == 2
    assert message in result.stderr


@pytest.mark.slow
def test_a_folder_that_is_used_is_refused() -> None:
    done("train", "snake", *SMALL, "--steps=64", "--out=a")
    done("reproduce", "a")
    result = run("reproduce", "a")
    assert result.exit_code == 2
    assert "choose another --out" in result.stderr
