"""`train --seeds`: lists of seeds, command lines of the runs, and whole studies."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from entity_env.agents.ppo import read_run
from entity_env.cli import main
from entity_env.cli.app import command_of
from entity_env.cli.commands.seeds import read_seeds
from entity_env.cli.run_settings import typed_words

TINY = (
    *(
        "--steps",
        "256",
        "--num-envs",
        "8",
        "--num-steps",
        "16",
        "--set-train=net={d_model=8,n_layer=1}",
    ),
    *("--eval-episodes", "2", "--keep", "none", "--compile", "never"),
)


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("1..5", (1, 2, 3, 4, 5)), ("1,3,7", (1, 3, 7)), ("4", (4,)), ("0..1, 9", (0, 1, 9))],
)
def test_seeds_are_read(text: str, seeds: tuple[int, ...]) -> None:
    assert read_seeds(text) == seeds


@pytest.mark.parametrize(
    "text", ["", "1..", "1-5", "a", "-1", "5..1", "1,1", "1..3,2", "1..100000", str(2**63)]
)
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"seeds|seed .* twice"):
        read_seeds(text)


def test_a_run_gets_the_words_that_were_typed() -> None:
    line = "--gamma=0.9 --set-train norm_returns=false --set a=1 --set b='2 3' --seeds 1..2 --adapt"
    context = command_of("train").make_context("train", [*shlex.split(line), "--", "-g"])
    words = typed_words(context, ("seeds", "out", "resume"))
    assert words[-2:] == ["--", "-g"]
    assert sorted(words[:-2]) == sorted(
        [
            "--gamma",
            "0.9",
            "--set-train",
            "norm_returns=false",
            "--set",
            "a=1",
            "--set",
            "b=2 3",
            "--adapt",
        ]
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seeds", "x"), "'x' is not a list of seeds, such as 1..5 or 1,3,7"),
        (("--seeds", "1..2", "--seed", "3"), "--seeds cannot be combined with --seed"),
        (("--seeds", "1..2", "--ray", "local"), "--seeds cannot be combined with --ray"),
        (("--jobs", "2"), "--jobs goes with --seeds"),
        (("--seeds", "1..2", "--out", "held"), "held/seed-2 holds a trained agent"),
    ],
)
def test_what_does_not_go_together_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "held" / "seed-2" / "checkpoint").mkdir(parents=True)
    result = CliRunner().invoke(main, ["train", "snake", *words])
    assert result.exit_code == 2
    assert told in result.stderr
    assert result.stdout == ""


def test_seeds_do_not_stand_in_files(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text('[run]\nseeds = "1..2"\n')
    result = CliRunner().invoke(main, ["train", "snake", "--config", str(tmp_path / "a.toml")])
    assert (result.exit_code, "no option 'seeds'" in result.stderr) == (2, True)


GAME = """
import sys
from tests.helpers.tiny_games import ask, dots_game
from entity_env import Obs


def play(agent, *, seed: int) -> None:
    for _ in range(4):
        if ask(agent) is None:
            return
        if "2" in sys.argv[sys.argv.index("--seed") + 1]:
            raise ValueError("boom")
    agent.game_over(Obs(seed % 3))


game = dots_game(play)
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_seed_that_fails_is_named_and_the_others_are_compared(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "game.py").write_text(GAME)
    words = ["train", "game.py", *TINY, "--seeds", "1..3", "--jobs", "2", "--out", "out"]
    done = subprocess.run(
        [sys.executable, "-m", "entity_env", *words], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == (
        "entity-env: seed 2 failed: ValueError: boom (see out/seed-2/output.txt)\n"
    )
    table = done.stdout[done.stdout.index("game ", done.stdout.index("\n\n")) :]
    assert table.splitlines()[1].split()[:3] == ["game.py", "2", "256"]
    assert "compare: entity-env runs out" in done.stdout
    runs = [read_run(tmp_path / "out" / f"seed-{seed}") for seed in (1, 3)]
    assert [run.seed for run in runs] == [1, 3]
    assert all(run.step == 256 and run.final_evaluation is not None for run in runs)
    assert "trained 256 steps" in (tmp_path / "out" / "seed-1" / "output.txt").read_text()


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_each_is_the_run_of_its_seed_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")

    def run(*words: str) -> None:
        command = [sys.executable, "-m", "entity_env", "train", "snake", *TINY, *words]
        subprocess.run(command, cwd=tmp_path, capture_output=True, check=True)

    run("--seeds", "1,2", "--out", "many")
    run("--seed", "2", "--out", "one")
    for path in (tmp_path / "one" / "checkpoint").iterdir():
        if path.suffix == ".safetensors":
            other = tmp_path / "many" / "seed-2" / "checkpoint" / path.name
            assert path.read_bytes() == other.read_bytes(), path.name
    run("--seeds", "1..3", "--out", "many", "--resume", "--steps", "512")
    steps = [read_run(tmp_path / "many" / f"seed-{seed}").step for seed in (1, 2, 3)]
    assert steps == [512, 512, 512]
    about = json.loads((tmp_path / "many" / "seed-1" / "run.json").read_text())
    assert len(about["resumed"]) == 1
