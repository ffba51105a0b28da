"""Decisions in several parts: do the parts agree? And what facts about pairs of entities save.

`pairs_that_must_agree` is the share of passes in which both parts take the same lane, in the game
`parts` of `benchmarks/peers/decision_games.py`, whose best players choose lanes at random;
`pairs_apart` is that of the same game with two separate actions. Median over the seeds, of 200
episodes with sampled actions after 30,000 decisions with the defaults of `entity-env train`.

`attack_the_nearest` is the number of decisions until an evaluation is 95 % right, in the game
`related` of the same file, which shows distances as relations, divided by that of the game
`placed`, which shows only positions. Runs that do not get there count with all their decisions.
Both numbers are medians over the seeds.

`cost_without_GAME` is the speed of training on games without such decisions, divided by that of the
commit before they existed: processor time of both in turns, median of the ratios. `same_bits` is 1
if networks are trained to the same weights as before, bit for bit. They need the history of the
repository.

`numpy_vs_torch_max_abs` is the largest difference of a probability between numpy and torch, of
random networks on random observations of `convoys`, which has parts, and `related`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np
import torch

from benchmarks.common import report
from benchmarks.peers import decision_games
from benchmarks.peers.before import build, differing_runs, tree_before
from benchmarks.peers.contender import Contender
from benchmarks.peers.environment import ROOT
from benchmarks.peers.trainee import ONE_THREAD
from benchmarks.vec import Progress
from entity_env.agents import load_agent, random_actions
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.numpy_net.distributions import CategoricalArrays, Chooser
from entity_env.agents.rogue_net.numpy_net.net import NumpyNet
from entity_env.agents.rogue_net.torch_net.distributions import (
    CategoricalDistribution,
    given_samples,
)
from entity_env.vec import VecEnv

_SEEDS: Final = (1, 2, 3, 4, 5)
_NUM_STEPS: Final = 30_000
_NUM_EPISODES: Final = 200
_GAMES: Final = {"pairs_that_must_agree": "parts", "pairs_apart": "apart"}
_RIGHT: Final = 0.95 * decision_games.NUM_ROUNDS
_MOST_STEPS: Final = 300_000
_EVAL_INTERVALS: Final = {"related": 500, "placed": 5_000}
"""Decisions from one evaluation to the next."""
_WITHOUT: Final = ("snake", "azul")
"""Games without such decisions, trained by `benchmarks/peers/without_parts.py`."""
_ROUNDS: Final = 7
_ROUND_S: Final = 4.0
_NUM_NETS: Final = 10
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
    for game in _EVAL_INTERVALS:
        steps = []
        for seed in _SEEDS:
            progress.say(f"{game}, seed {seed}")
            steps.append(steps_until_right(game, seed))
        figures[f"{game}_steps"] = statistics.median(steps)
    figures["attack_the_nearest"] = figures["related_steps"] / figures["placed_steps"]
    progress.say("before and now")
    figures |= cost_without()
    figures["numpy_vs_torch_max_abs"] = numpy_vs_torch()
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
    with TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        train = ["--steps", str(_MOST_STEPS), "--seed", str(seed), "--num-workers", "0"]
        evaluate = ["--eval-interval", str(_EVAL_INTERVALS[game]), "--stop-at", str(_RIGHT)]
        _run("train", source, *train, *evaluate, "--out", str(out))
        last: int = json.loads((out / "curves.jsonl").read_text().splitlines()[-1])["step"]
    return last


def cost_without(rounds: int = _ROUNDS, round_s: float = _ROUND_S) -> dict[str, float]:
    """See the top; without the history, one line on stderr and no figure."""
    words = ("-Sclass Composite(", "--", "entity_env/authoring/action_type.py")
    with tree_before(*words) as tree:
        if tree is None:
            sys.stderr.write("cost_without is left out: it needs the commit before Composite\n")
            return {}
        build(tree)
        peers = Path("benchmarks") / "peers"
        shutil.copy(ROOT / peers / "without_parts.py", tree / peers)
        figures: dict[str, float] = {}
        for game in _WITHOUT:
            make = f"without_parts:train_{game}"
            for each in (tree, ROOT):  # compile kernels: both must read them from the cache
                with closing(Contender(make, tree=each)) as contender:
                    contender.round(0.001)
            with (
                closing(Contender(make, tree=tree)) as before,
                closing(Contender(make)) as now,
            ):
                ratios = [_cpu(before, round_s) / _cpu(now, round_s) for _ in range(rounds)]
            figures[f"cost_without_{game}"] = statistics.median(ratios)
        differing = differing_runs(tree)
    if differing:
        sys.stderr.write(f"same_bits: {', '.join(differing)} differ\n")
    return {**figures, "same_bits": float(not differing)}


def _cpu(contender: Contender, round_s: float) -> float:
    return contender.round(round_s)["cpu"]


def numpy_vs_torch(num_nets: int = _NUM_NETS) -> float:
    """Largest difference of a probability, given equal choices of the parts before."""
    largest = 0.0
    games = (decision_games.convoys, decision_games.related)
    for game, seed in itertools.product(games, range(num_nets)):
        torch.manual_seed(seed)
        net = RogueNet(game.obs_space(), game.action_space(), RogueNetConfig())
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.add_(torch.randn_like(parameter), alpha=0.1)
        with VecEnv(game, 32, seed=seed) as vec:
            obs = vec.reset()
            actions = random_actions(obs, vec.action_space(), np.random.default_rng(seed))
            chooser = Chooser()
            chooser.chosen.update({name: np.asarray(each) for name, each in actions.items()})
            found = NumpyNet(net.weights()).distributions(obs, chooser)[0]
            samples = {name: torch.from_numpy(each) for name, each in chooser.chosen.items()}
            with torch.no_grad():
                wanted = given_samples(net.distributions(obs)[0], samples)
        for name, each in wanted.items():
            mine = found[name]
            if isinstance(each, CategoricalDistribution) and isinstance(mine, CategoricalArrays):
                difference = np.exp(mine.logprobs) - each.logprobs.exp().numpy()
                largest = max(largest, float(np.abs(difference).max()))
    return largest


def _run(*words: str) -> None:
    command = [sys.executable, "-m", "entity_env", *words]
    env = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}:\n{done.stderr}")


if __name__ == "__main__":
    main()
