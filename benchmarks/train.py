"""How fast does our trainer learn, compared with enn-trainer?

Both train a network of the same size on entity-gym's own games (ours through `from_entity_gym`),
with the same settings, one core and one thread each, and the same torch and numpy.

A run is timed in ten pieces, in which the two take turns. A ratio is the median, over the pieces of
all runs, of our steps per second divided by theirs. All of training is timed, including TensorBoard
curves, except checkpoints and the first update, which compiles. Rewards are mean episode rewards of
the last piece, averaged over the seeds.

`--quick` times five short pieces at the start with one seed, and reports no rewards.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.common import Median, report
from benchmarks.peers.trainee import Piece, Trainee, interop_python
from benchmarks.peers.training import NUM_PIECES, TASKS, Task
from benchmarks.vec import Progress

_PACKAGES = ("torch", "numpy", "enn-trainer", "rogue-net", "entity-gym", "numba")
_QUICK_PIECES = 5
_QUICK_UPDATES = 4
_OURS, _THEIRS = "train_ours", "train_theirs"


@dataclass(frozen=True)
class Settings:
    """Tasks and seeds to measure, and whether to measure short pieces only."""

    names: Sequence[str]
    seeds: Sequence[int]
    is_quick: bool


Run = list[tuple[Piece, Piece]]
"""Our pieces and theirs, in pairs."""


def main() -> None:
    """Measures and reports."""
    settings, as_json = _arguments()
    python = interop_python()
    progress = Progress()
    figures: dict[str, float] = {}
    for name in settings.names:
        runs = [_run(name, seed, settings, progress) for seed in settings.seeds]
        figures |= _figures(name, runs, settings.is_quick)
    progress.end()
    # `report` prints the versions in the trainers' environment.
    sys.path[:0] = [str(path) for path in python.parents[1].glob("lib/*/site-packages")]
    report("Training", figures, _PACKAGES, as_json)


def _arguments() -> tuple[Settings, bool]:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--only", nargs="+", choices=TASKS, default=list(TASKS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3, help="runs per task and trainer")
    parser.add_argument("--quick", action="store_true", help="only speed, in one or two minutes")
    given = parser.parse_args()
    seeds = range(1, 2 if given.quick else 1 + max(given.seeds, 1))
    return Settings(given.only, seeds, given.quick), given.json


def _run(name: str, seed: int, settings: Settings, progress: Progress) -> Run:
    """Runs both trainers, either to the end or for a few short pieces."""
    task = TASKS[name]
    trainees: list[Trainee] = []
    run: Run = []
    sizes = [_QUICK_UPDATES] * _QUICK_PIECES if settings.is_quick else _sizes(task)
    try:
        for module in (_OURS, _THEIRS):
            progress.say(f"{name}, seed {seed}: starting {module}")
            trainees.append(Trainee(module, name, task, seed))
        for i, size in enumerate(sizes):
            progress.say(f"{name}, seed {seed}: piece {i + 1} of {len(sizes)}")
            ours, theirs = (trainee.piece(size) for trainee in trainees)
            run.append((ours, theirs))
    finally:
        for trainee in trainees:
            trainee.close()
    return run


def _sizes(task: Task) -> list[int]:
    """Updates in each piece, after the first update."""
    ends = [round(task.num_updates * (i + 1) / NUM_PIECES) for i in range(NUM_PIECES)]
    return [end - begin for begin, end in zip([1, *ends], ends, strict=False)]


def _figures(name: str, runs: Sequence[Run], is_quick: bool) -> dict[str, float]:
    pieces = [piece for run in runs for piece in run]
    figures: dict[str, float] = {
        f"fps_ratio_{name}": Median.of(
            ours.steps_per_s / theirs.steps_per_s for ours, theirs in pieces
        ),
        f"cpu_ratio_{name}": Median.of(theirs.cpu_s / ours.cpu_s for ours, theirs in pieces),
        f"fps_ours_{name}": Median.of(ours.steps_per_s for ours, _ in pieces),
        f"fps_theirs_{name}": Median.of(theirs.steps_per_s for _, theirs in pieces),
    }
    if not is_quick:
        ours, theirs = zip(*(run[-1] for run in runs), strict=True)
        for whose, last in (("ours", ours), ("theirs", theirs)):
            rewards = [piece.mean_reward for piece in last]
            figures[f"reward_{whose}_{name}"] = statistics.mean(rewards)
            for seed, reward in enumerate(rewards, 1):
                figures[f"reward_{whose}_{name}_seed_{seed}"] = reward
    return figures


if __name__ == "__main__":
    main()
