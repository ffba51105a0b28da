"""Does our trainer, with its defaults, learn as well as others?

- Ordinary control tasks, compared with Stable-Baselines3's PPO with its defaults, on equal numbers
  of steps. It runs in eight environments (fast) and in one (often better), on `STEP_TASKS` only in
  one. Rewards are compared with the better of its runs, speed with the faster.
- The games of entity-gym, compared with enn-trainer. It uses its settings for these games
  (`benchmarks/peers/training.py`); ours uses its defaults.
- Twenty games of `benchmarks/games`: our defaults, which depend on the game, are compared with
  eight fixed settings. These run with the first seed; the best four also run with the other seeds.
  Games whose packages are not installed are left out, as are held-out games unless named.

Each run is a process with one thread. The score of a control task is the mean reward of 40 greedy
episodes after training (`sampled`: of 40 episodes with sampled actions). The score of an entity-gym
game is the mean reward in the last tenth of the run. Scores of the twenty games are from sampled
episodes after training, where 0 is random play and 1 the scripted player.

`--keep FILE` stores every finished run and reuses the stored ones; `--tables` prints Markdown
tables. `python -m tools.docs.plots` draws the runs in docs/results. The peers' environment
`.venv-learning` is created if missing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.common import report
from benchmarks.games.registry import BENCHMARK_GAMES
from benchmarks.games.train import DEFAULT, SETTINGS
from benchmarks.peers.environment import ROOT, made_python
from benchmarks.peers.trainee import ONE_THREAD, Trainee
from benchmarks.peers.training import CONTROL_TASKS, NUM_PIECES, STEP_TASKS, TASKS as ENTITY_TASKS
from benchmarks.vec import Progress
from entity_env.agents.intervals import interquartile_mean

_FOLDER = ROOT / ".venv-learning"
_PEERS = (
    *("stable-baselines3==2.9.2", "gymnasium[box2d,mujoco]"),
    *("minigrid==3.2.0", "minatar==1.0.15", "sb3-contrib==2.9.2"),
)
_NEEDED = ("numba", "greenlet", "rich", "click", "tensorboard", "safetensors")
_PACKAGES = ("stable-baselines3", "gymnasium", "torch", "numpy", "numba", "minigrid", "minatar")

_SB3 = ("sb3", "sb3_1")
"""Stable-Baselines3 in eight environments and in one."""
_NUM_SEEDS = 5
_NUM_ENTITY_SEEDS = 9
_NUM_GAME_SEEDS = 3
_NUM_FINALISTS = 4
_MAX_POINTS = 30
"""Maximum number of points of a stored curve."""
_GAME_COLUMNS = (DEFAULT, "greedy", "best of eight", "beats scripted", "as good")
_ROUNDING = 1e-6
"""Rounding error of rewards summed in a different order."""
_GAMES = tuple(
    name for name, game in BENCHMARK_GAMES.items() if game.is_installed and not game.held_out
)

Run = dict[str, Any]


@dataclass(frozen=True)
class Job:
    """A run to be made: task, trainer or settings, and seed."""

    task: str
    who: str
    seed: int


def main() -> None:
    """Measures and reports."""
    given = _arguments()
    progress = Progress()
    first = [Job(task, who, 1) for task in given.only for who in _who(task)]
    runs = _runs(first, given.keep, given.jobs, progress)
    rest = [
        Job(task, who, seed)
        for task in given.only
        for seed in range(2, 1 + _num_seeds(task, given.seeds))
        for who in _finalists(task, runs)
    ]
    runs += _runs(rest, given.keep, given.jobs, progress)
    progress.end()
    if given.tables:
        sys.stdout.write(_tables(given.only, runs))
        return
    figures: dict[str, float] = {}
    for task in given.only:
        of_task = [run for run in runs if run["task"] == task]
        figures |= _family(task)(task, of_task)
    games = [name for name in BENCHMARK_GAMES if name in given.only]
    if games:
        figures |= _all_games([[run for run in runs if run["task"] == name] for name in games])
    for group, names, kinds in (
        ("control", CONTROL_TASKS, ("as_good",)),
        ("steps", STEP_TASKS, ("beats_one", "above_worst")),
        ("games", games, ("beats_scripted", "as_good")),
    ):
        found = [name for name in names if name in given.only]
        for kind in kinds if found else ():
            figures[f"{group}_{kind}_of_{len(found)}"] = sum(
                figures[f"{name}_{kind}"] for name in found
            )
    # `report` prints the versions in the trainers' environment.
    sys.path[:0] = [str(path) for path in _FOLDER.glob("lib/*/site-packages")]
    report("Learning", figures, _PACKAGES, given.json)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    tasks = [*CONTROL_TASKS, *ENTITY_TASKS, *_GAMES]
    choices = [*tasks, *(name for name in BENCHMARK_GAMES if name not in tasks)]
    parser.add_argument("--only", nargs="+", choices=choices, default=tasks, metavar="TASK")
    parser.add_argument(
        "--seeds", type=int, help="runs per task; default 5, entity-gym 9, twenty games 3"
    )
    parser.add_argument("--jobs", type=int, default=1, help="number of parallel runs")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="store finished runs here")
    parser.add_argument("--tables", action="store_true", help="print tables instead of figures")
    return parser.parse_args()


def _num_seeds(task: str, given: int | None) -> int:
    if task in BENCHMARK_GAMES:
        return given or _NUM_GAME_SEEDS
    return given or (_NUM_ENTITY_SEEDS if task in ENTITY_TASKS else _NUM_SEEDS)


def _who(task: str) -> tuple[str, ...]:
    """The trainers of a task, or the settings of ours."""
    if task in BENCHMARK_GAMES:
        return (DEFAULT, *SETTINGS)
    if task in CONTROL_TASKS:
        return ("ours", "sb3_1") if task in STEP_TASKS else ("ours", *_SB3)
    return ("ours", "enn")


def _finalists(task: str, runs: Sequence[Run]) -> tuple[str, ...]:
    """The members of `_who` that run with all seeds, chosen by their runs with the first seed."""
    if task not in BENCHMARK_GAMES:
        return _who(task)
    first = {run["who"]: run["sampled"] for run in runs if run["task"] == task}
    best = sorted(SETTINGS, key=lambda who: -first[who])[:_NUM_FINALISTS]
    return (DEFAULT, *(who for who in SETTINGS if who in best))


def _runs(jobs: Sequence[Job], keep: Path | None, num_jobs: int, progress: Progress) -> list[Run]:
    """All runs, in the order of the jobs; stored runs are not repeated."""
    if keep is not None:
        keep.parent.mkdir(parents=True, exist_ok=True)
    lines = keep.read_text().splitlines() if keep is not None and keep.exists() else []
    kept = {_job(run): run for run in map(json.loads, lines)}
    todo = [job for job in jobs if job not in kept]
    here = Path(sys.executable)
    has_peers = any(job.task in CONTROL_TASKS for job in todo)
    with_peers = sb3_python(progress.say) if has_peers else here
    lock = threading.Lock()

    def made(job: Job) -> None:
        if job.task in ENTITY_TASKS:
            run = _entity_run(job)
        elif job.task in CONTROL_TASKS:
            run = _process(with_peers, "benchmarks.peers.learn", job.who, job.task, job.seed)
        else:
            run = _process(here, "benchmarks.games.train", job.task, job.who, job.seed)
        run["curve"] = thinned(run["curve"])
        with lock:
            kept[job] = {"task": job.task, "who": job.who, "seed": job.seed, **run}
            if keep is not None:
                with keep.open("a") as file:
                    file.write(json.dumps(kept[job]) + "\n")
            left = sum(job not in kept for job in jobs)
            progress.say(f"{job.task}, {job.who}, seed {job.seed} done; {left} runs left")

    with ThreadPoolExecutor(max(num_jobs, 1)) as pool:
        for _ in pool.map(made, todo):
            pass
    return [kept[job] for job in jobs]


def thinned(curve: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Evenly spaced points of a curve, including the last, rounded to five digits."""
    last, count = len(curve) - 1, min(len(curve), _MAX_POINTS)
    places = sorted({round(last * i / max(count - 1, 1)) for i in range(count)})
    return [(curve[i][0], float(f"{curve[i][1]:.5g}")) for i in places]


def _job(run: Run) -> Job:
    return Job(run["task"], run["who"], run["seed"])


def _process(python: Path, module: str, *arguments: object) -> Run:
    """Makes one run in a separate process."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        [str(python), "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise SystemExit(f"{done.stderr}\n{module} {arguments} has failed")
    run: Run = json.loads(done.stdout)
    return run


def _entity_run(job: Job) -> Run:
    """Makes one run of an entity-gym game; `last` is the mean reward of the last tenth."""
    task = ENTITY_TASKS[job.task]
    module = "train_theirs" if job.who == "enn" else "train_defaults"
    num_steps, cpu_s, curve = task.steps_per_update, 0.0, []
    trainee = Trainee(module, job.task, task, job.seed)
    try:
        ends = [round(task.num_updates * (i + 1) / NUM_PIECES) for i in range(NUM_PIECES)]
        for begin, end in zip([1, *ends], ends, strict=False):
            piece = trainee.piece(end - begin)
            cpu_s += piece.cpu_s
            num_steps += (end - begin) * task.steps_per_update
            curve.append((num_steps, piece.mean_reward))
    finally:
        trainee.close()
    return {"steps": num_steps, "cpu_s": cpu_s, "last": curve[-1][1], "curve": curve}


def _control(task: str, runs: Iterable[Run]) -> dict[str, float]:
    """Figures of a control task."""
    of = {who: [run for run in runs if run["who"] == who] for who in _who(task)}
    greedy = {who: [run["greedy"] for run in each] for who, each in of.items()}
    means = {who: statistics.mean(each) for who, each in greedy.items()}
    theirs = [who for who in _SB3 if who in of]
    best = max(theirs, key=lambda who: means[who])
    spread = max(statistics.pstdev(greedy[who]) for who in ("ours", best))
    return {
        **{f"{task}_{who}_seed_{run['seed']}": run["greedy"] for who in of for run in of[who]},
        **{f"{task}_{who}": mean for who, mean in means.items()},
        **{f"{task}_{who}_sampled": _mean(of[who], "sampled") for who in of},
        f"{task}_minus_sb3": means["ours"] - means[best],
        f"{task}_as_good": float(means["ours"] >= means[best] - spread - _ROUNDING),
        f"{task}_beats_one": float(means["ours"] >= means["sb3_1"] - _ROUNDING),
        f"{task}_above_worst": float(means["ours"] >= min(greedy["sb3_1"]) - _ROUNDING),
        f"{task}_cpu_vs_one": _mean(of["ours"], "cpu_s") / _mean(of["sb3_1"], "cpu_s"),
        f"steps_per_cpu_s_{task}": _speed(of["ours"]),
        f"steps_per_cpu_s_vs_sb3_{task}": _speed(of["ours"])
        / max(_speed(of[who]) for who in theirs),
    }


def _entities(task: str, runs: Iterable[Run]) -> dict[str, float]:
    """Figures of an entity-gym game."""
    of = {who: [run for run in runs if run["who"] == who] for who in ("ours", "enn")}
    rewards = {who: [run["last"] for run in each] for who, each in of.items()}
    return {
        **{f"{task}_{who}": statistics.mean(each) for who, each in rewards.items()},
        **{f"{task}_{who}_least": min(each) for who, each in rewards.items()},
        f"{task}_vs_enn": statistics.mean(rewards["ours"]) / statistics.mean(rewards["enn"]),
        f"steps_per_cpu_s_vs_enn_{task}": _speed(of["ours"]) / _speed(of["enn"]),
    }


def _game(task: str, runs: Sequence[Run]) -> dict[str, float]:
    """Figures of one of the twenty games: of the default and of the best other settings."""
    of = _scores(runs)
    means = {who: statistics.mean(each) for who, each in of.items()}
    best = _best(of)
    spread = max(statistics.pstdev(of[who]) for who in (DEFAULT, best))
    figures: dict[str, float] = {}
    for who in of:
        interval = interquartile_mean([of[who]])
        figures |= {f"{task}_{who}": interval.value}
        if interval.is_known:
            figures |= {f"{task}_{who}_low": interval.low, f"{task}_{who}_high": interval.high}
    return {
        **figures,
        f"{task}_greedy": _mean([run for run in runs if run["who"] == DEFAULT], "greedy"),
        f"{task}_beats_scripted": float(means[DEFAULT] >= 1),
        f"{task}_minus_best": means[DEFAULT] - means[best],
        f"{task}_as_good": float(means[DEFAULT] >= means[best] - spread - _ROUNDING),
    }


def _scores(runs: Iterable[Run]) -> dict[str, list[float]]:
    """Scores in one game by settings (the default and the other eight), ordered by seed."""
    scores: dict[str, list[float]] = {who: [] for who in (DEFAULT, *SETTINGS)}
    for run in sorted(runs, key=lambda run: run["seed"]):
        scores[run["who"]].append(run["sampled"])
    return scores


def _best(scores: dict[str, list[float]]) -> str:
    """The best of the settings that ran with all seeds."""
    most = max(len(scores[who]) for who in SETTINGS)
    finalists = [who for who in SETTINGS if len(scores[who]) == most]
    return max(finalists, key=lambda who: statistics.mean(scores[who]))


def _all_games(games: Sequence[Sequence[Run]]) -> dict[str, float]:
    """Interquartile means over all games, with equally many seeds in each: as many as all have."""
    figures: dict[str, float] = {"games": len(games)}
    for who in (DEFAULT, *SETTINGS):
        of_games = [_scores(runs)[who] for runs in games]
        least = min(map(len, of_games))
        interval = interquartile_mean([scores[:least] for scores in of_games])
        figures |= {f"games_{who}": interval.value}
        if interval.is_known:
            figures |= {f"games_{who}_low": interval.low, f"games_{who}_high": interval.high}
    return figures


def _tables(tasks: Sequence[str], runs: Sequence[Run]) -> str:
    """One Markdown table per kind of task: means, interquartile means and intervals."""
    lines: list[str] = []
    for family, names, columns in (
        (_control_row, CONTROL_TASKS, ("ours", "sb3", "sb3_1", "its least", "CPU time")),
        (_entity_row, ENTITY_TASKS, ("ours", "least", "enn", "least", "steps/CPU-s")),
        (_game_row, BENCHMARK_GAMES, _GAME_COLUMNS),
    ):
        chosen = [task for task in names if task in tasks]
        if chosen:
            lines += ["| task | " + " | ".join(columns) + " |", "|---" * (1 + len(columns)) + "|"]
        for task in chosen:
            row = family(task, [run for run in runs if run["task"] == task])
            lines.append("| " + " | ".join([task, *row]) + " |")
    return "\n".join([*lines, ""])


def _control_row(task: str, runs: Sequence[Run]) -> list[str]:
    of = {who: [run for run in runs if run["who"] == who] for who in ("ours", *_SB3)}
    greedy = {who: [run["greedy"] for run in each] for who, each in of.items()}
    other = "sb3_1" if of["sb3_1"] else "sb3"
    cpu = _mean(of["ours"], "cpu_s") / _mean(of[other], "cpu_s")
    return [*map(_words, greedy.values()), f"{min(greedy[other]):.4g}", f"{cpu:.2f}"]


def _entity_row(task: str, runs: Sequence[Run]) -> list[str]:
    cells, speeds = list[str](), list[str]()
    for who in _who(task):
        of_who = [run for run in runs if run["who"] == who]
        last = [run["last"] for run in of_who]
        cells += [_words(last), f"{min(last):.3f}"]
        speeds.append(f"{_speed(of_who):,.0f}")
    return [*cells, ", ".join(speeds)]


def _game_row(task: str, runs: Sequence[Run]) -> list[str]:
    scores, figures = _scores(runs), _game(task, runs)
    best = _best(scores)
    answers = (figures[f"{task}_{kind}"] for kind in ("beats_scripted", "as_good"))
    signs = ["yes" if each else "no" for each in answers]
    greedy = f"{figures[f'{task}_greedy']:.4g}"
    both = [_words(scores[DEFAULT]), greedy, f"`{best}` {_words(scores[best])}"]
    return [*both, *signs]


def _words(values: Sequence[float]) -> str:
    """Mean, interquartile mean if it differs, and its interval; empty without values."""
    if not values:
        return ""
    found = interquartile_mean([values])
    means = dict.fromkeys(f"{mean:.4g}" for mean in (statistics.mean(values), found.value))
    bounds = f" [{found.low:.4g}, {found.high:.4g}]" if found.is_known else ""
    return "; ".join(means) + bounds


def _family(task: str) -> Callable[[str, Sequence[Run]], dict[str, float]]:
    """The function that computes the figures of a task."""
    if task in BENCHMARK_GAMES:
        return _game
    return _control if task in CONTROL_TASKS else _entities


def _mean(runs: Sequence[Run], name: str) -> float:
    return float(statistics.mean(run[name] for run in runs))


def _speed(runs: Sequence[Run]) -> float:
    return float(statistics.median(run["steps"] / run["cpu_s"] for run in runs))


def sb3_python(say: Callable[[str], None]) -> Path:
    """The interpreter of the environment with Stable-Baselines3; creates it if missing."""
    constraints = ("--constraint", str(ROOT / "constraints.txt"))
    first = (*constraints, "torch", "swig")  # installed first: pip then keeps this torch
    return made_python(_FOLDER, [first, (*constraints, *_PEERS, *_NEEDED)], say)


if __name__ == "__main__":
    main()
