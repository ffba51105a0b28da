"""Do agents with memory learn what hides, compared with RecurrentPPO of sb3-contrib?

Each run is a process with one thread (`benchmarks/peers/recall.py`): `entity-env train` with a
memory, or RecurrentPPO with its defaults in eight environments, on equal numbers of steps. The
score is the mean reward of 200 episodes after training, greedy or with sampled actions, whichever
is higher: a greedy player of `concentration` may turn the same cards for ever. The tasks are in
`benchmarks/peers/memory_tasks.py`.

`--keep FOLDER` stores every finished run and reuses the stored ones. The peers' environment
`.venv-learning` is created if missing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from benchmarks.common import report
from benchmarks.learning import sb3_python
from benchmarks.peers.environment import ROOT
from benchmarks.peers.trainee import ONE_THREAD
from benchmarks.vec import Progress

_SEEDS: Final = (1, 2, 3)
_TASKS: Final = (
    *("keydoor_10", "keydoor_40", "cartpole_positions", "memory_s7"),
    *("repeat_previous", "concentration"),
)
_SPEED: Final = "cartpole"
_PACKAGES: Final = ("entity-env", "torch", "numpy", "sb3-contrib", "gymnasium", "minigrid")

Run: TypeAlias = Mapping[str, float]


def main() -> None:
    """Makes or reuses all runs, and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--keep", type=Path, help="folder of finished runs")
    parser.add_argument("--tasks", nargs="*", default=[*_TASKS, _SPEED], help="names of tasks")
    arguments = parser.parse_args()
    with TemporaryDirectory() as folder:
        found = runs(arguments.keep or Path(folder), arguments.tasks)
    report("Memory", figures(found), _PACKAGES, arguments.json)


def runs(folder: Path, tasks: Sequence[str]) -> dict[tuple[str, str], list[Run]]:
    """The runs by task and trainer, one per seed."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, str], list[Run]] = {}
    whose = [(task, who) for task in tasks for who in trainers(task)]
    progress = Progress()
    python = sb3_python(progress.say)
    for task, who in whose:
        for seed in (1,) if task == _SPEED else _SEEDS:
            progress.say(f"{task}, {who}, seed {seed}")
            path = folder / f"{who}-{task}-{seed}.json"
            if not path.exists():
                words = [str(python), "-m", "benchmarks.peers.recall", who, task, str(seed)]
                env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
                done = subprocess.run(words, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True)
                if done.returncode:
                    raise SystemExit(f"{' '.join(words)} failed")
                path.write_text(done.stdout)
            found.setdefault((task, who), []).append(json.loads(path.read_text()))
    progress.end()
    return found


def trainers(task: str) -> tuple[str, ...]:
    """Who trains on a task: the smallest one also without memory."""
    return (
        ("ours", "recurrent_ppo", "forgetful")
        if task == "keydoor_10"
        else ("ours", "recurrent_ppo")
    )


def figures(found: Mapping[tuple[str, str], Sequence[Run]]) -> dict[str, float]:
    """Mean and smallest reward of the seeds, and speeds."""
    named: dict[str, float] = {}
    for (task, who), each in found.items():
        rewards = [max(run[way] for way in ("greedy", "sampled") if way in run) for run in each]
        if task != _SPEED:
            named[f"{task}_{who}"] = statistics.mean(rewards)
            named[f"{task}_{who}_least"] = min(rewards)
            named[f"{task}_{who}_most"] = max(rewards)
    speeds = {
        who: statistics.median(run["steps"] / run["cpu_s"] for run in each)
        for (task, who), each in found.items()
        if task == _SPEED
    }
    if len(speeds) > 1:
        named["steps_per_cpu_s_vs_recurrent_ppo"] = speeds["ours"] / speeds["recurrent_ppo"]
    return named


if __name__ == "__main__":
    main()
