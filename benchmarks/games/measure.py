"""Scores of players in the games of the benchmark."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from benchmarks.games.registry import BenchmarkGame
from entity_env import Episode
from entity_env.agents import RandomAgent
from entity_env.agents.bots import MakeAgent
from entity_env.agents.intervals import mean_of

SCORES: Final = Path(__file__).with_name("scores.json")
"""Scores of random and scripted play, by game."""


@dataclass(frozen=True)
class Result:
    """Scores of one player.

    Args:
        score: mean score, of the kind given in the game's entry.
        half: half the width of its 95 % interval, see `mean_of`.
        length: mean number of decisions per episode of the player.
        longest: largest number of decisions in an episode.
        decisions_per_s: decisions of all agents, including the game's own time.
    """

    score: float
    half: float
    length: float
    longest: int
    decisions_per_s: float


def measure(
    game: BenchmarkGame, player: MakeAgent, others: MakeAgent, episodes: int = 100, seed: int = 1
) -> Result:
    """Plays episodes with `player` in each seat equally often, and `others` in the remaining seats.

    For a `"joint score"` the player has all seats.
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
    mean = mean_of(scores)
    return Result(
        mean.value, mean.half, statistics.mean(lengths), max(lengths), decisions / elapsed_s
    )


def _score(game: BenchmarkGame, played: list[Episode], seat: int) -> float:
    rewards = [each.reward for each in played]
    if game.score == "joint score":
        return statistics.mean(rewards)
    own = rewards.pop(seat)
    if game.score == "mean score":
        return own
    mean = statistics.mean(rewards)
    return 0.5 if abs(own - mean) < 1e-6 else float(own > mean)


def scores_of(game: BenchmarkGame, episodes: int) -> dict[str, dict[str, float]]:
    """Results of `random` and `scripted`; if others take part, also `..._against_scripted`."""
    pairs: dict[str, tuple[MakeAgent, MakeAgent]] = {
        "random": (RandomAgent, RandomAgent),
        "scripted": (game.scripted, RandomAgent),
    }
    if game.has_company:
        pairs["random_against_scripted"] = (RandomAgent, game.scripted)
        pairs["scripted_against_scripted"] = (game.scripted, game.scripted)
    found = {name: asdict(measure(game, *each, episodes)) for name, each in pairs.items()}
    return {
        name: {key: round(value, 3) for key, value in figures.items()}
        for name, figures in found.items()
    }


def normalized(game: BenchmarkGame, score: float) -> float:
    """Scales a score so that 0 is random play and 1 the scripted player, with equal opponents.

    Args:
        game: the game that was played.
        score: of one agent, against scripted players if others take part.
    """
    scores = json.loads(SCORES.read_text())[game.name]
    company = "_against_scripted" if game.has_company else ""
    low, high = (scores[f"{each}{company}"]["score"] for each in ("random", "scripted"))
    return float((score - low) / (high - low))
