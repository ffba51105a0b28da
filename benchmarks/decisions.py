"""Decisions in several parts: do the parts agree? And what facts about pairs of entities save.

`pairs_that_must_agree` is the share of passes in which both parts take the same lane, in the game
`parts` of `benchmarks/peers/decision_games.py`, whose best players choose lanes at random;
`pairs_apart` is that of the same game with two separate actions. Median over the seeds, of 200
episodes with sampled actions after 30,000 decisions with the defaults of `entity-env train`.

`attack_the_nearest` is the number of decisions until an evaluation is 95 % right, in the game
`related` of the same file, which shows distances as relations, divided by that of the game
`placed`, which shows positions instead. Runs that do not get there count with all their decisions.
Both numbers are medians over the seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.common import report
from benchmarks.peers import decision_games
from benchmarks.peers.environment import ROOT
from benchmarks.peers.trainee import ONE_THREAD
from benchmarks.vec import Progress
from entity_env.agents import load_agent

_SEEDS: Final = (1, 2, 3, 4, 5)
_NUM_STEPS: Final = 30_000
_NUM_EPISODES: Final = 200
_GAMES: Final = {"pairs_that_must_agree": "parts", "pairs_apart": "apart"}
_RIGHT: Final = 0.95 * decision_games.NUM_ROUNDS
_MOST_STEPS: Final = {"related": 30_000, "placed": 300_000}
_PACKAGES: Final = ("entity-env", "torch", "numpy", "numba")


def main() -> None:
    """Trains and plays, and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    arguments = parser.parse_args()
    progress = Progress()
    figures: dict[str, float] = {}
    for name, game in _GAMES.items():
        shares = []
        for seed in _SEEDS:
            progress.say(f"{game}, seed {seed}")
            shares.append(agreement(game, seed))
        figures[name] = statistics.median(shares)
        figures[f"{name}_least"], figures[f"{name}_most"] = min(shares), max(shares)
    for game in _MOST_STEPS:
        steps = []
        for seed in _SEEDS:
            progress.say(f"{game}, seed {seed}")
            steps.append(steps_until_right(game, seed))
        figures[f"{game}_steps"] = statistics.median(steps)
    figures["attack_the_nearest"] = figures["related_steps"] / figures["placed_steps"]
    progress.end()
    report("Decisions in several parts", figures, _PACKAGES, arguments.json)


def agreement(game: str, seed: int) -> float:
    """Share of passes whose parts agree, after training."""
    source = f"{ROOT / 'benchmarks' / 'peers' / 'decision_games.py'}:{game}"
    with TemporaryDirectory() as folder:
        train = ["--steps", str(_NUM_STEPS), "--seed", str(seed), "--eval-interval", "0"]
        _run("train", source, *train, "--num-workers", "0", "--out", folder + "/run")
        agent = load_agent(folder + "/run", seed=seed)
    played = getattr(decision_games, game).run(agent, episodes=_NUM_EPISODES, seed=seed)
    return statistics.mean(float(episode.metrics["agree"]) for episode in played)


def steps_until_right(game: str, seed: int) -> int:
    """Decisions until an evaluation is 95 % right."""
    source = f"{ROOT / 'benchmarks' / 'peers' / 'decision_games.py'}:{game}"
    interval = _MOST_STEPS[game] // 60
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train = ["--steps", str(_MOST_STEPS[game]), "--seed", str(seed), "--num-workers", "0"]
        evaluate = ["--eval-interval", str(interval), "--stop-at", str(_RIGHT)]
        _run("train", source, *train, *evaluate, "--out", str(out))
        last: int = json.loads((out / "curves.jsonl").read_text().splitlines()[-1])["step"]
    return last


def _run(*words: str) -> None:
    command = [sys.executable, "-m", "entity_env", *words]
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stderr}")


if __name__ == "__main__":
    main()
