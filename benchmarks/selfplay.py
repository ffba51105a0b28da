"""Results of self-play, and the cost of opponents.

- `tic_tac_toe_losses_vs_perfect`: games that the network from `entity-env train tic_tac_toe --steps
  200000` loses, playing greedily, in 1,000 games from both seats against perfect play (minimax,
  random among the best moves); median, minimum and maximum over the seeds.
- `rock_paper_scissors_exploitability`: mean win per round of the exact best response to the network
  from `entity-env train rock_paper_scissors --steps 200000`, with sampled throws; 0 in equilibrium.
- `selfplay_steps_vs_plain`: the learner's decisions per second of processor time with a pool of
  opponents, divided by those of one network in all seats; measured in turns.
- `evaluation_overhead_pct`: see `benchmarks/evaluation.py`.
- `azul_vs_greedy_pct`, `azul_shipped_vs_mcts_50ms_pct`: games that the shipped agent, or the agent
  given by `--azul`, wins against the greedy player and against the search with 50 ms per move.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import interleaved, report
from benchmarks.evaluation import evaluation_overhead
from benchmarks.peers.environment import ROOT
from entity_env.agents import Agent, BatchPolicy, load_agent
from entity_env.agents.ppo import Callback, PPOConfig, TrainState, train
from entity_env.agents.ppo.self_play import Opponent, SelfPlayVecEnv
from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent
from entity_env.agents.rogue_net.torch_net.distributions import CategoricalDistribution
from entity_env.agents.training.presets import DEFAULT_OPPONENTS
from entity_env.agents.training.self_play.pool import OpponentPool
from entity_env.authoring.schema import Schema
from entity_env.cli.load_game import AgentLoader, load_player
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.games import rock_paper_scissors, tic_tac_toe
from entity_env.games.azul import azul
from entity_env.vec import VecEnv
from entity_env.vec.evaluation.matches import MatchGames

_NUM_GAMES: Final = 1000
_SHIPPED: Final = ROOT / "examples" / "azul" / "azul.agent"
_NUM_STEPS: Final = 200_000
_NUM_TIMED_STEPS: Final = 16_000
_LINES: Final = (
    *((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)),
)
Board = tuple[int, ...]
"""The squares: 1 mine, -1 theirs, 0 empty."""


# ------------------------------------------------------------------ tic-tac-toe


@cache
def board_value(board: Board) -> int:
    """Minimax value for the player to move: 1 win, 0 draw, -1 loss."""
    if any(all(board[i] == -1 for i in line) for line in _LINES):
        return -1
    if 0 not in board:
        return 0
    return max(_value_after(board, square) for square in range(9) if board[square] == 0)


@cache
def best_squares(board: Board) -> tuple[int, ...]:
    """The moves that keep the value of a position."""
    free = [square for square in range(9) if board[square] == 0]
    return tuple(each for each in free if _value_after(board, each) == board_value(board))


def _value_after(board: Board, square: int) -> int:
    after = [-each for each in board]
    after[square] = -1
    return -board_value(tuple(after))


class PerfectPlayer:
    """Plays tic-tac-toe by minimax, at random among the best moves; a `BatchPolicy`."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def decide_batch(self, obs: VecObs, schema: Schema | None = None) -> VecActions:
        """See `BatchPolicy`."""
        return {"Square": np.array([self._choose(obs, row) for row in range(len(obs))], np.int64)}

    def _choose(self, obs: VecObs, row: int) -> int:
        board = [0] * 9
        for name, owner in (("Mine", 1), ("Theirs", -1)):
            for x, y in obs.features[name][row].astype(int).tolist():
                board[x + 3 * y] = owner
        return int(self._rng.choice(best_squares(tuple(board))))


def lost_to_perfect(agent: Agent, *, seed: int = 0, num_games: int = _NUM_GAMES) -> int:
    """Number of games lost against perfect play, of `num_games`, half of which are in each seat."""
    if not isinstance(agent, BatchPolicy):
        raise TypeError(f"{agent} does not decide for batches")
    perfect = Opponent("perfect", PerfectPlayer(seed).decide_batch, "perfect")
    num_envs, num_lost, played = num_games // 2, 0, np.zeros(num_games // 2, np.int64)
    with SelfPlayVecEnv(VecEnv(tic_tac_toe, num_envs, seed=seed), [perfect]) as vec:
        obs = vec.reset()
        while played.min() < 2:
            obs = vec.act(agent.decide_batch(obs, tic_tac_toe.schema))
            for one in obs.episodes:  # two per environment: one from each seat
                num_lost += played[one.env_id] < 2 and one.reward < 0
                played[one.env_id] += 1
    return num_lost


# ------------------------------------------------------------------ rock, paper, scissors


def throw_probabilities(folder: str | Path) -> NDArray[np.float64]:
    """`(3, 3)`: a trained network's probability of each throw, by its own strength."""
    agent = load_agent(folder, backend="torch")
    if not isinstance(agent, NeuralAgent):
        raise TypeError(f"{folder} holds no network")
    with VecEnv(rock_paper_scissors, 64, seed=1) as vec:
        obs = vec.reset()
        shown = agent.net.distributions(obs)[0]["Throw"]
        if not isinstance(shown, CategoricalDistribution):
            raise TypeError(f"{folder} was trained for another game")
        probabilities = shown.logprobs.exp().detach().cpu().double().numpy()
        strength = obs.features["Player"].values.argmax(axis=1)
        return np.stack([probabilities[strength == each].mean(axis=0) for each in range(3)])


def exploitability(policy: NDArray[np.float64]) -> float:
    """Mean win per round of the best response to a policy `(own strength, throw)`."""
    won = np.zeros((3, 3))
    for strength in range(3):
        for throw in range(3):
            wins = (throw - np.arange(3)) % 3 == 1
            loses = (np.arange(3) - throw) % 3 == 1
            for theirs in range(3):
                gain = wins * (2 if throw == strength else 1)
                loss = loses * np.where(np.arange(3) == theirs, 2, 1)
                won[strength, throw] += float(policy[theirs] @ (gain - loss)) / 3
    return float(won.max(axis=1).mean())


# ------------------------------------------------------------------ Azul


def azul_vs_greedy_pct(agent: str | Path, *, num_games: int = 400) -> float:
    """Games that an agent file wins against the greedy player, in percent, with shared wins."""
    return 100 * _azul_win_rate(agent, "greedy", num_games)


def azul_vs_mcts_50ms_pct(agent: str | Path, *, num_games: int = 100) -> float:
    """Games that an agent file wins against the search with 50 ms per move, in percent."""
    return 100 * _azul_win_rate(agent, "mcts:0.05", num_games)


def _azul_win_rate(agent: str | Path, other: str, num_games: int) -> float:
    paths = {"agent": str(agent), "other": other}

    def make(name: str, seed: int) -> Agent:
        return load_player(azul, paths[name], seed, AgentLoader(greedy=True))

    played = MatchGames(game=azul, names=tuple(paths), make=make, num_games=num_games, seed=1).run()
    return played.win_rate(*paths)[0]


# ------------------------------------------------------------------ the command line


def trained(game: str, seed: int, out: Path) -> Path:
    """Trains with the plain command; returns the folder of the run."""
    words = ["train", game, "--steps", str(_NUM_STEPS), "--seed", str(seed), "--out", str(out)]
    command = [sys.executable, "-m", "entity_env", *words, "--num-workers", "0", "--keep", "none"]
    subprocess.run(command, check=True, capture_output=True, cwd=ROOT)
    return out


def learner_steps_per_s(shares: Mapping[str, float]) -> float:
    """Decisions per second of processor time in tic-tac-toe, without the first update."""
    clock: list[tuple[float, int]] = []

    class Clock(Callback):
        def on_update(self, state: TrainState) -> None:
            clock.append((time.process_time(), state.progress.step))

    inner = VecEnv(tic_tac_toe, 128)
    vec: VecEnvironment = inner
    callbacks: list[Callback] = [Clock()]
    if shares:
        pool = OpponentPool(inner, tic_tac_toe.schema, shares)
        vec = pool.vec
        callbacks.append(pool)
    config = PPOConfig.for_env(vec, total_steps=_NUM_TIMED_STEPS)
    try:
        train(vec, config, callbacks=callbacks)
    finally:
        vec.close()
    (begin, first), (end, last) = clock[0], clock[-1]
    return (last - first) / (end - begin)


def main() -> None:
    """Measures and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    parser.add_argument("--seeds", type=int, default=5, help="runs per game, at least 5")
    parser.add_argument("--rounds", type=int, default=5, help="measurements of the speed")
    azul_help = "agent that plays Azul, trained separately with entity-env train azul"
    parser.add_argument("--azul", type=Path, default=_SHIPPED, help=azul_help)
    given = parser.parse_args()
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as name:
        for game, key, measure in (
            ("tic_tac_toe", "tic_tac_toe_losses_vs_perfect", _losses),
            ("rock_paper_scissors", "rock_paper_scissors_exploitability", _exploited),
        ):
            seeds = range(1, 1 + max(given.seeds, 5))
            found = [measure(trained(game, seed, Path(name, f"{game}-{seed}"))) for seed in seeds]
            figures[key] = statistics.median(found)
            figures[f"{key}_least"], figures[f"{key}_most"] = min(found), max(found)
    speeds = interleaved(
        {
            "selfplay_steps_per_s": lambda: learner_steps_per_s(DEFAULT_OPPONENTS),
            "plain_steps_per_s": lambda: learner_steps_per_s({}),
        },
        max(given.rounds, 5),
    )
    ratio = speeds["selfplay_steps_per_s"] / speeds["plain_steps_per_s"]
    figures |= {"selfplay_steps_vs_plain": ratio, **speeds}
    figures |= evaluation_overhead(max(given.rounds, 5))
    figures["azul_vs_greedy_pct"] = azul_vs_greedy_pct(given.azul)
    figures["azul_shipped_vs_mcts_50ms_pct"] = azul_vs_mcts_50ms_pct(given.azul)
    report("Self-play", figures, ["entity-env", "numpy", "torch", "numba"], given.json)


def _losses(out: Path) -> float:
    return lost_to_perfect(load_agent(out, greedy=True, backend="torch"))


def _exploited(out: Path) -> float:
    return exploitability(throw_probabilities(out))


if __name__ == "__main__":
    main()
