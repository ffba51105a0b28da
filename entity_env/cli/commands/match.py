"""`entity-env eval --agents a,b`: matches between agents, with win rates and ratings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table

from entity_env.agents import Agent
from entity_env.agents.ratings import Match, Result, Standing, seatings
from entity_env.authoring.game import Game
from entity_env.cli.display.console import ProgressBar, plain_table
from entity_env.cli.players import HUMAN, azul_agent, max_rounds_of
from entity_env.errors import UsageError
from entity_env.games.azul import AzulGame, play_match

_NUM_GAMES: Final = 100
_GAP: Final = 3


def split_names(text: str) -> list[str]:
    """The agents' names that are separated by commas: no empty ones, none twice, no human."""
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(
            f"--agents needs names separated by commas, as random,greedy: got {text!r}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--agents names {twice[0]!r} twice: an agent cannot play against itself")
    if HUMAN in names:
        raise UsageError("a match has no human players: use entity-env play --agent human")
    return names


def run_match(
    game: Game,
    names: Sequence[str],
    num_games: int | None,
    *,
    seed: int,
    load: Callable[[str, int], Agent],
    step_timeout_s: float | None = None,
) -> Match[Any]:
    """Plays every group of as many agents as the game has, each agent in each seat equally often.

    `num_games` is for each group; None = 100, rounded up to a multiple of the seats.
    """
    seats = game.num_agents
    if seats == 1:
        raise UsageError(
            f"{game.name} is for 1 agent, and --agents lets several play against each other: "
            "measure one after the other with --agent"
        )
    if len(names) < seats:
        raise UsageError(
            f"{game.name} is for {seats} agents: --agents needs at least as many, got "
            f"{', '.join(names)}"
        )
    num_games = -(-_NUM_GAMES // seats) * seats if num_games is None else num_games
    if num_games % seats:
        raise UsageError(
            f"--games must be a multiple of {seats}, so that every agent plays each seat equally "
            f"often: got {num_games}"
        )
    with ProgressBar(comb(len(names), seats) * num_games) as progress:
        if isinstance(game, AzulGame):
            return play_match(
                {name: azul_agent(name, seed + i, load) for i, name in enumerate(names)},
                num_games,
                num_players=seats,
                seed=seed,
                max_rounds=max_rounds_of(game),
                on_game=progress.count,
            )
        agents = {name: load(name, seed + i) for i, name in enumerate(names)}
        results = []
        for seated, number in seatings(names, seats, num_games):
            episodes = game.run(
                *(agents[name] for name in seated),
                seed=seed + number,
                step_timeout_s=step_timeout_s,
            )
            results.append(Result(seated, tuple(episode.reward for episode in episodes)))
            progress.count()
        return Match(tuple(names), tuple(results))


def match_table(match: Match[Any]) -> RenderableType:
    """Ratings and win rates, best first; for more than two agents also the rate of each pair."""
    table = plain_table("agent", "Elo", "win rate", "95 %", "mean score", "games", gap=_GAP)
    rows = match.table()
    for row in rows:
        table.add_row(
            row.name,
            f"{row.elo:+.0f}",
            f"{row.win_rate:.1%}",
            f"{row.low:.1%} to {row.high:.1%}",
            f"{row.mean_score:.2f}",
            str(row.num_games),
        )
    return table if len(rows) < 3 else Group(table, "", _duels(match, rows))


def match_json(match: Match[Any]) -> dict[str, object]:
    """The same as numbers."""
    return {
        "agents": [vars(row) for row in match.table()],
        "duels": [
            {"name": name, "other": other, "win_rate": rate, "low": low, "high": high}
            for name, other in combinations(match.names, 2)
            for rate, low, high in [match.win_rate(name, other)]
        ],
        "num_games": len(match.games),
    }


def _duels(match: Match[Any], rows: Sequence[Standing]) -> Table:
    names = [row.name for row in rows]
    table = plain_table("ahead of", *names, gap=_GAP)
    for name in names:
        rates = [
            "" if name == other else f"{match.win_rate(name, other)[0]:.1%}" for other in names
        ]
        table.add_row(name, *rates)
    return table
