"""Do agents with memory learn what hides, compared with RecurrentPPO of sb3-contrib?

Each run is a process with one thread (`benchmarks/peers/recall.py`): `entity-env train` with a
memory, or RecurrentPPO with its defaults in eight environments, on equal numbers of steps. The
score is the mean reward of 200 episodes after training, greedy or with sampled actions, whichever
is higher: a greedy player of `concentration` may turn the same cards for ever. The tasks are in
`benchmarks/peers/memory_tasks.py`.

`fog` is the share of skirmishes in fog that our agent with memory wins against ours without.
`train_cost_of_memory` is the speed of training on snake with memory, divided by that without.
`decision_cost_N_entities` is the time of a single decision of an exported agent with memory about N
entities, divided by that without.

`alone_vs_before` is 1 if networks without memory are trained to the same weights and decisions, bit
for bit, as by the last commit that had no memory; 0 if not. It needs the history of the repository.

`--keep FOLDER` stores every finished run and reuses the stored ones; with `--stored`, it makes no
others, so figures can come from fewer seeds. `TASK_TRAINER_seeds` counts them. The peers'
environment `.venv-learning` is created if missing.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

from benchmarks.common import median, report
from benchmarks.learning import sb3_python
from benchmarks.peers.before import differing_runs, tree_before
from benchmarks.peers.contender import Contender
from benchmarks.peers.environment import ROOT
from benchmarks.peers.trainee import ONE_THREAD
from benchmarks.vec import Progress

_SEEDS: Final = (1, 2, 3)
_TASKS: Final = (
    *("keydoor_10", "keydoor_40", "cartpole_positions", "memory_s7"),
    *("repeat_previous", "concentration", "fog", "snake"),
)
_SPEED: Final = "cartpole_positions"
"""The task for which speeds are compared."""
_NUM_ROUNDS: Final = 11
_ROUND_S: Final = 0.3
_PACKAGES: Final = ("entity-env", "torch", "numpy", "sb3-contrib", "gymnasium", "minigrid")

Run: TypeAlias = Mapping[str, float]


def main() -> None:
    """Makes or reuses all runs, and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--keep", type=Path, help="folder of finished runs")
    parser.add_argument("--stored", action="store_true", help="only use runs in --keep")
    parser.add_argument("--tasks", nargs="*", default=_TASKS, help="names of tasks")
    arguments = parser.parse_args()
    if arguments.stored and arguments.keep is None:
        parser.error("--stored needs --keep FOLDER, with the runs to use")
    with TemporaryDirectory() as folder:
        found = runs(arguments.keep or Path(folder), arguments.tasks, arguments.stored)
    measured = {**figures(found), **decision_cost(), **alone_vs_before()}
    report("Memory", measured, _PACKAGES, arguments.json)


def runs(
    folder: Path, tasks: Sequence[str], only_stored: bool = False
) -> dict[tuple[str, str], list[Run]]:
    """The runs by task and trainer, one per seed."""
    folder.mkdir(parents=True, exist_ok=True)
    found: dict[tuple[str, str], list[Run]] = {}
    whose = [(task, who) for task in tasks for who in trainers(task)]
    progress = Progress()
    python = sb3_python(progress.say)
    for task, who in whose:
        for seed in _SEEDS:
            progress.say(f"{task}, {who}, seed {seed}")
            path = folder / f"{who}-{task}-{seed}.json"
            if not path.exists():
                if only_stored:
                    continue
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
    if task in ("fog", "snake"):
        return ("both",)
    return (
        ("ours", "recurrent_ppo", "forgetful")
        if task == "keydoor_10"
        else ("ours", "recurrent_ppo")
    )


def figures(found: Mapping[tuple[str, str], Sequence[Run]]) -> dict[str, float]:
    """Mean and smallest reward of the seeds, and speeds."""
    named: dict[str, float] = {}
    for (task, who), each in found.items():
        if who == "both":
            continue
        rewards = [max(run[way] for way in ("greedy", "sampled") if way in run) for run in each]
        named[f"{task}_{who}"] = statistics.mean(rewards)
        named[f"{task}_{who}_least"] = min(rewards)
        named[f"{task}_{who}_most"] = max(rewards)
        named[f"{task}_{who}_seeds"] = len(rewards)
    if wins := [run["win_rate"] for run in found.get(("fog", "both"), ())]:
        named |= {"fog": statistics.mean(wins), "fog_least": min(wins), "fog_most": max(wins)}
    if ratios := [run["ratio"] for run in found.get(("snake", "both"), ())]:
        named["train_cost_of_memory"] = statistics.median(ratios)
    speeds = {
        who: statistics.median(run["steps"] / run["cpu_s"] for run in each)
        for (task, who), each in found.items()
        if task == _SPEED
    }
    if len(speeds) > 1:
        named["steps_per_cpu_s_vs_recurrent_ppo"] = speeds["ours"] / speeds["recurrent_ppo"]
    return named


def decision_cost() -> dict[str, float]:
    """See the top: medians over rounds, in which the two agents take turns."""
    found: dict[str, float] = {}
    for size in (10, 100):
        with (
            closing(Contender("decision_ours:agent", size)) as without,
            closing(Contender("decision_ours:remembering_agent", size)) as remembering,
        ):
            found[f"decision_cost_{size}_entities"] = median(
                lambda: remembering.round(_ROUND_S)["us"] / without.round(_ROUND_S)["us"],
                _NUM_ROUNDS,
            )
    return found


def alone_vs_before() -> dict[str, float]:
    """See the top; without the history, one line on stderr and no figure."""
    with tree_before("--diff-filter=A", "--", "entity_env/agents/rogue_net/memory.py") as tree:
        if tree is None:
            sys.stderr.write("alone_vs_before is left out: it needs the commit before memory.py\n")
            return {}
        differing = differing_runs(tree)
    if differing:
        sys.stderr.write(f"alone_vs_before: {', '.join(differing)} differ\n")
    return {"alone_vs_before": float(not differing)}


if __name__ == "__main__":
    main()
