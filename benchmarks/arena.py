"""Do agents beat the bots of kaggle-environments after an hour, and how fast is their training?

`orbit_wars_vs_starter_pct` is the share of 200 games, half of them from each seat, that an agent
wins with sampled actions after 60 minutes of training against that bot, with two workers;
`planet_wars_vs_nearest_enemy_pct` is that after 4 minutes. A draw counts half. They are medians
over the seeds, with the minutes and decisions of the training.

`GAME_decisions_per_s` is the number of decisions per second of processor time when training
continues from that agent, in one process with one thread; `GAME_rules_share`,
`GAME_features_share` and `GAME_bot_share` are the parts of that time for the rules of the package,
the features and masks of the adapter, and the bot (`benchmarks/peers/arena_speed.py`). Median of
three processes per seed.

`--curves FILE` writes a line of JSON for each run: the mean reward of recent episodes of training,
by decision.

`--keep FOLDER` stores every finished run as FOLDER/GAME-SEED, with its measurements next to it, and
reuses the stored ones. Everything runs in the environment `.venv-interop`, which `make interop`
makes.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from benchmarks.common import Median, report
from benchmarks.learning import thinned
from benchmarks.peers.environment import ROOT
from benchmarks.peers.trainee import ONE_THREAD, interop_python
from benchmarks.vec import Progress
from entity_env.agents.training.tracking.runs import REWARD, read_run

_NUM_GAMES: Final = 200
_EVAL_SEED: Final = 10_000
_NUM_SPEEDS: Final = 3
_PACKAGES: Final = ("entity-env", "kaggle-environments", "torch", "numpy", "numba")


@dataclass(frozen=True)
class ArenaTask:
    """A game of kaggle-environments, the bot to beat, and the minutes of training."""

    game: str
    bot: str
    minutes: float


TASKS: Final = {
    "orbit_wars": ArenaTask("orbit_wars", "starter", 60.0),
    "planet_wars": ArenaTask("planet_wars", "nearest_enemy", 4.0),
}


def main() -> None:
    """Makes or reuses all runs, and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--keep", type=Path, help="folder of finished runs")
    parser.add_argument(
        "--tasks", nargs="*", default=[*TASKS], choices=TASKS, help="names of tasks"
    )
    parser.add_argument("--seeds", type=int, default=3, help="runs per task")
    parser.add_argument("--minutes", type=float, help="of training, instead of a task's own")
    parser.add_argument("--games", type=int, default=_NUM_GAMES, help="games after training")
    parser.add_argument("--curves", type=Path, help="file for the curves of the runs")
    given = parser.parse_args()
    figures: dict[str, float] = {}
    curves: list[dict[str, Any]] = []
    progress = Progress()
    with TemporaryDirectory() as temporary:
        folder = given.keep or Path(temporary)
        for name in given.tasks:
            runs = []
            for seed in range(1, given.seeds + 1):
                progress.say(f"{name}, seed {seed}")
                run = trained(folder, TASKS[name], seed, given.minutes)
                runs.append(measured(run, TASKS[name], given.games))
                curve = curve_of(run)
                curves.append({"task": name, "who": "ours", "seed": seed, "curve": curve})
            figures |= figures_of(TASKS[name], runs)
    progress.end()
    if given.curves is not None:
        given.curves.write_text("".join(json.dumps(each) + "\n" for each in curves))
    sys.path[:0] = map(str, interop_python().parents[1].glob("lib/*/site-packages"))  # for versions
    report("Games of Kaggle", figures, _PACKAGES, given.json)


def trained(folder: Path, task: ArenaTask, seed: int, minutes: float | None) -> Path:
    """A run of a task, made now or before with the same bot and minutes."""
    limit = f"{60 * (task.minutes if minutes is None else minutes):.0f}s"
    run = folder / f"{task.game}-vs-{task.bot}-{limit}-{seed}"
    if not run.exists():
        part = run.with_suffix(".part")
        shutil.rmtree(part, ignore_errors=True)  # of a run that was interrupted
        words = ["train", f"kaggle:{task.game}", "--max-time", limit, "--seed", str(seed)]
        words += ["--num-workers", "2", "--opponent", task.bot, "--eval-opponent", task.bot]
        _run("entity_env", *words, "--out", str(part))
        part.rename(run)
    return run


def measured(run: Path, task: ArenaTask, num_games: int) -> dict[str, Any]:
    """The measurements of a run, made now or before with the same number of games."""
    file = run.with_suffix(".json")
    found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
    if found.get("num_games") != num_games:
        about, names = read_run(run), f"{task.bot},{run}"
        words = ["--agents", names, "--games", str(num_games), "--seed", str(_EVAL_SEED), "--json"]
        played = json.loads(_run("entity_env", "eval", f"kaggle:{task.game}", *words))
        [row] = [each for each in played["agents"] if each["name"] != task.bot]
        found |= {"vs_pct": 100 * row["win_rate"], "num_games": row["num_games"]}
        found |= {"minutes": about.elapsed_s / 60, "decisions": about.step}
        file.write_text(json.dumps(found, indent=1) + "\n")
    if "speeds" not in found:
        speed = "benchmarks.peers.arena_speed", task.game, task.bot, str(run)
        found["speeds"] = [json.loads(_run(*speed)) for _ in range(_NUM_SPEEDS)]
        file.write_text(json.dumps(found, indent=1) + "\n")
    return found


def curve_of(run: Path) -> list[tuple[int, float]]:
    """Decisions and mean rewards of recent episodes, without the first tenth.

    There, most finished episodes are short, which the agent tends to win.
    """
    curve = read_run(run).curves[REWARD]
    is_later = curve.steps >= curve.steps[-1] / 10
    points = zip(curve.steps[is_later].tolist(), curve.values[is_later].tolist(), strict=True)
    return thinned([*points])


def figures_of(task: ArenaTask, runs: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Medians over the runs; of speeds, over all processes."""
    name = f"{task.game}_vs_{task.bot}_pct"
    shares = [run["vs_pct"] for run in runs]
    figures = {name: statistics.median(shares)}
    figures |= {f"{name}_least": min(shares), f"{name}_most": max(shares)}
    for key in ("num_games", "minutes", "decisions"):
        figures[f"{task.game}_{key}"] = statistics.median(run[key] for run in runs)
    speeds = [speed for run in runs for speed in run["speeds"]]
    return figures | {
        f"{task.game}_{key}": Median.of(speed[key] for speed in speeds) for key in speeds[0]
    }


def _run(*words: str) -> str:
    command = [str(interop_python()), "-m", *words]
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
