"""Scores of players in the games of the benchmark."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from benchmarks.games.registry import BenchmarkGame
from entity_env import Episode
from entity_env.agents.against import MakeAgent


@dataclass(frozen=True)
class Result:
    """Scores of one player.

    Args:
        score: mean, of the kind that the game's entry names.
        error: standard error of the mean.
        length: mean number of decisions per episode of the player.
        longest: most decisions of one episode.
        decisions_per_s: of all seats, including the game's own time.
    """

    score: float
    error: float
    length: float
    longest: int
    decisions_per_s: float


def measure(
    game: BenchmarkGame, player: MakeAgent, others: MakeAgent, episodes: int = 100, seed: int = 1
) -> Result:
    """Plays episodes of a player, in every seat equally often, and others in the other seats.

    `"joint score"`: the player has all seats.
    """
    made, scores, lengths, decisions = game.make(), [], [], 0
    begin = time.perf_counter()
    for i in range(episodes):
        seat = i % game.seats
        agents = [
            (player if each == seat or game.score == "joint score" else others)(
                (seed + i) * game.seats + each
            )
            for each in range(game.seats)
        ]
        played = made.run(*agents, seed=seed + i)
        scores.append(_score(game, played, seat))
        lengths.append(played[seat].length)
        decisions += sum(each.length for each in played)
    elapsed_s = time.perf_counter() - begin
    error = statistics.stdev(scores) / len(scores) ** 0.5
    mean = statistics.mean(scores)
    return Result(mean, error, statistics.mean(lengths), max(lengths), decisions / elapsed_s)


def _score(game: BenchmarkGame, played: list[Episode], seat: int) -> float:
    rewards = [each.reward for each in played]
    if game.score == "joint score":
        return statistics.mean(rewards)
    own = rewards.pop(seat)
    if game.score == "mean score":
        return own
    mean = statistics.mean(rewards)
    return 0.5 if abs(own - mean) < 1e-6 else float(own > mean)
