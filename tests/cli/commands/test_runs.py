"""`entity-env runs` and `report`: output, files, and errors."""

import io
import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entity_env.cli import main, run_summary
from entity_env.cli.commands import runs
from entity_env.cli.display.console import Console
from entity_env.cli.run_tables import find_runs, run_table
from tests.cli.report.made_runs import EVIL, make


def run(*args: str) -> Result:
    return CliRunner().invoke(main, args)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Makes a current folder with two runs in `runs`."""
    monkeypatch.chdir(tmp_path)
    make(tmp_path / "runs" / "a", [1, 2], seed=1)
    make(tmp_path / "runs" / "b", [1, 3], seed=2, gamma=0.5)
    return tmp_path


def test_runs_are_compared(folder: Path) -> None:
    result = run("runs")
    assert (result.exit_code, result.stderr) == (0, "")
    head, best, other = result.stdout.splitlines()
    assert head.split() == ["run", "game", "gamma", "steps", "time", "training", "seed"]
    assert best.split() == [
        *("runs/b", "snake", "0.5", "200", "0:00:02", "3.000", "±", "0.198", "2")
    ]
    assert other.split()[0] == "runs/a"


def test_what_is_no_run_is_one_line_and_the_others_are_shown(folder: Path) -> None:
    (folder / "runs" / "notes.txt").write_text("mine")
    result = run("runs", "runs/a", "runs/notes.txt", "runs/c")
    assert result.exit_code == 1
    assert re.findall(r"^entity-env: (\S+) is not a training run", result.stderr, re.M) == [
        *("runs/notes.txt", "runs/c")
    ]
    assert "runs/a" in result.stdout
    nothing = run("runs", "runs/c")
    assert (nothing.exit_code, nothing.stdout) == (2, "")
    assert nothing.stderr.count("\n") == 1


def test_runs_are_printed_for_programs(folder: Path) -> None:
    found = json.loads(run("runs", "--json").stdout)
    assert [each["run"] for each in found["runs"]] == ["runs/b", "runs/a"]
    head, *lines = run("runs", "--csv").stdout.splitlines()
    assert head.startswith("run,game,seed,gamma,steps,")
    assert [line.partition(",")[0] for line in lines] == ["runs/b", "runs/a"]
    both = run("runs", "--csv", "--json")
    assert (both.exit_code, both.stdout) == (2, "")


def test_seeds_are_a_table_of_their_own(folder: Path) -> None:
    make(folder / "runs" / "c", [1, 4], seed=3)
    first, _, second = run("runs").stdout.partition("\n\n")
    assert len(first.splitlines()) == 4
    head, better, other, note, *_ = second.splitlines()
    assert head.split()[:5] == ["game", "gamma", "seeds", "steps", "mean"]
    assert better.split()[:3] == ["snake", "0.99", "2"]
    assert "3.000 ± 12.706" in better
    assert other.split()[:3] == ["snake", "0.5", "1"]
    assert "Student" in note


@pytest.mark.parametrize("num_settings", [1, 12])
def test_a_table_fits_80_columns_with_whole_names(tmp_path: Path, num_settings: int) -> None:
    for i in range(2):
        own: dict[str, object] = {f"a_long_setting_{k}": i for k in range(num_settings)}
        make(tmp_path / f"r{i}", [1, 2], about={"settings": own}, seed=i)
    console = Console(file=io.StringIO(), width=80, force_terminal=True, color_system=None)
    found = [
        run.__class__(Path(f"runs/{run.path.name}"), run.about, run.curves, run.clock)
        for run in find_runs([tmp_path]).runs
    ]
    runs._print_table(run_table(found), console)
    assert isinstance(console.file, io.StringIO)
    text = re.sub(r"\x1b\[[\d;]*m", "", console.file.getvalue())
    assert max(map(len, text.splitlines())) <= 80
    assert {"runs/r0", "runs/r1"} <= set(text.split())
    assert text.count("a_long_setting_0") == (1 if num_settings == 1 else 2)


def test_control_characters_do_not_reach_the_terminal(tmp_path: Path) -> None:
    make(tmp_path / "a", [1], game=EVIL)
    assert "\x1b" not in run("runs", str(tmp_path)).stdout


@pytest.mark.parametrize(
    ("name", "begin"), [("r.html", "<!doctype html>"), ("r.svg", "<svg"), ("r.csv", "run,game")]
)
def test_a_report_is_what_its_name_says(folder: Path, name: str, begin: str) -> None:
    result = run("report", "runs/a", "runs/b", "--out", f"new/{name}")
    assert result.exit_code == 0, result.output
    assert re.fullmatch(rf"new/{name}: 2 runs, \d+ KiB\n", result.stdout)
    assert (folder / "new" / name).read_text().startswith(begin)


def test_a_report_has_the_curves_that_are_asked_for(folder: Path) -> None:
    assert run("report", "--curve", "losses/entropy", "--out", "a.svg").exit_code == 0
    text = (folder / "a.svg").read_text()
    assert "losses/entropy" in text
    assert "mean episode reward" not in text


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--out", "report.pdf"), "--out must be named *.html, *.svg or *.csv, got report.pdf"),
        (("--curve", "x"), "no run has the curve 'x'; the curves are "),
        (("--out", "/dev/null/x.svg"), "cannot write /dev/null/x.svg"),
        (("nothing",), "nothing is not a training run: it is not a folder"),
    ],
)
def test_what_cannot_be_reported_is_one_line(folder: Path, args: tuple[str], told: str) -> None:
    result = run("report", *args)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"entity-env: {told}")
    assert result.stderr.count("\n") == 1
    assert not (folder / "report.html").exists()


# ------------------------------------------------------------------ at the end of `train`

SHORT_OR_LONG = """
import random
from entity_env import Obs
from tests.helpers.tiny_games import ask, dots_game


def play(agent, *, seed: int) -> None:
    length = random.Random(seed).choice([1, 200])
    for _ in range(length):
        if ask(agent) is None:
            return
    agent.game_over(Obs(length))


game = dots_game(play)
"""


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_mean_of_short_episodes_is_not_taken_for_that_of_the_game(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The true mean is 100.5; in training, no long episode ends."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "game.py").write_text(SHORT_OR_LONG)
    words = ("--steps", "512", "--num-envs", "16", "--num-steps", "16", "--num-workers", "0")
    result = run("train", "game.py", *words, "--compile", "never", "--out", "run")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert re.search(r"mean episode reward 1\.000 \(\d+ finished episodes only\)", result.stdout)
    [told] = [line for line in lines if line.startswith("evaluation: ")]
    mean, half = map(float, re.findall(r"[\d.]+", told)[:2])
    assert mean - half < 100.5 < mean + half
    assert re.search(r"\(95 %, \d+ episodes\), greedy$", told)
    hint = next(line for line in lines if line.startswith("hint: "))
    assert "that of short episodes; compare runs by their evaluations" in hint
    table = run("runs", "run").stdout
    assert "1.000 *" in table
    assert "* of finished episodes only" in table


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_the_curve_of_a_run_on_a_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], encoding: str
) -> None:
    make(tmp_path / "a", [0, 1, 2])
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    run_summary._show_curve(
        *run_summary._read(tmp_path / "a"), Console(file=file, width=200, force_terminal=True)
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "mean episode reward"
    assert len(lines) == 2 + 9 + 1
    assert max(map(len, lines)) == 79
    assert lines[2].startswith("2 |" if encoding == "ascii" else "2 ┤")
    assert "".join(lines).isascii() == (encoding == "ascii")


def test_a_curve_that_cannot_be_read_is_no_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = make(tmp_path / "a", [0, 1])
    (folder / "run.json").write_text("{")
    run_summary._show_curve(*run_summary._read(folder), Console())
    found = capsys.readouterr()
    assert found.out == ""
    assert found.err.startswith("no learning curve: cannot read the run in")
