"""`entity-env eval --agents a,b`: agents against each other, seats in turn, and who is better."""

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
from entity_env.cli.azul.agents import Load, azul_agent, max_rounds_of
from entity_env.cli.display.progress_bar import ProgressBar
from entity_env.cli.players import HUMAN
from entity_env.errors import UsageError
from entity_env.games.azul import AzulGame, play_match

_NUM_GAMES: Final = 100


def split_names(text: str) -> list[str]:
    """The names of agents that are separated by commas.

    Raises:
        UsageError: a name that is empty, or there twice, or a person.
    """
    names = [name.strip() for name in text.split(",")]
    if not all(names):
        raise UsageError(
            f"--agents needs names separated by commas, as random,greedy: got {text!r}"
        )
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"--agents names {twice[0]!r} twice: an agent cannot play against itself")
    if HUMAN in names:
        raise UsageError("nobody wants to play so many games: entity-env play --agent human")
    return names


def run_match(
    game: Game,
    names: Sequence[str],
    num_games: int | None,
    *,
    seed: int,
    load: Load,
    step_timeout_s: float | None = None,
) -> Match[Any]:
    """Plays every group of agents that fits around a table, everybody in every seat as often.

    Args:
        game: for several agents.
        names: of the agents.
        num_games: games of each group; None = 100, or as few more as seats make it.
        seed: starts, and what agents draw, follow from it.
        load: loads trained agents, and random ones.
        step_timeout_s: as for `Game.run`; Azul, which is our own, does not hang.

    Raises:
        UsageError: a game for one agent, too few agents, or a number of games that cannot be.
        CheckpointError, MissingExtraError: an agent that cannot play.
    """
    seats = game.num_agents
    if seats == 1:
        raise UsageError(
            f"{game.name} is for 1 agent, and --agents lets several play against each other: "
            "measure one after the other with --agent"
        )
    if len(names) < seats:
        raise UsageError(
            f"{game.name} is for {seats} agents: --agents needs as many at least, got "
            f"{', '.join(names)}"
        )
    num_games = -(-_NUM_GAMES // seats) * seats if num_games is None else num_games
    if num_games % seats:
        raise UsageError(
            f"--games must be a multiple of {seats}, so that everybody sits in every seat as "
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
        return _played(game, agents, num_games, seed, progress.count, step_timeout_s)


def _played(
    game: Game,
    agents: dict[str, Agent],
    num_games: int,
    seed: int,
    on_game: Callable[[Result], None],
    step_timeout_s: float | None,
) -> Match[Result]:
    """A match in any game, whose rewards say who is ahead."""
    results = []
    for names, number in seatings(tuple(agents), game.num_agents, num_games):
        seats = [agents[name] for name in names]
        episodes = game.run(*seats, seed=seed + number, step_timeout_s=step_timeout_s)
        results.append(Result(names, tuple(episode.reward for episode in episodes)))
        on_game(results[-1])
    return Match(tuple(agents), tuple(results))


def match_table(match: Match[Any]) -> RenderableType:
    """Ratings and win rates, the best first; of more than two agents also who was ahead of whom."""
    table = _columns("agent", "Elo", "win rate", "95 %", "mean score", "games")
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
    table = _columns("ahead of", *names)
    for name in names:
        rates = [
            "" if name == other else f"{match.win_rate(name, other)[0]:.1%}" for other in names
        ]
        table.add_row(name, *rates)
    return table


def _columns(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column(first)
    for name in others:
        table.add_column(name, justify="right")
    return table
