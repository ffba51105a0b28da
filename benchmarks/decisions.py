"""Decisions in several parts: do the parts agree, if each one sees those before it?

`pairs_that_must_agree` is the share of passes in which both parts take the same lane, in the game
`parts` of `benchmarks/peers/decision_games.py`, whose best players choose lanes at random;
`pairs_apart` is that of the same game with two separate actions. Median over the seeds, of 200
episodes with sampled actions after 30,000 decisions with the defaults of `entity-env train`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
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


def _run(*words: str) -> None:
    command = [sys.executable, "-m", "entity_env", *words]
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stderr}")


if __name__ == "__main__":
    main()
