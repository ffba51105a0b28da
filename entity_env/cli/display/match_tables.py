"""Tables of matches between agents, and their numbers for JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.table import Table

from entity_env.agents.ratings import Match, Standing
from entity_env.authoring.local_run import HANGS, AgentFailure
from entity_env.cli.display.console import plain_table

_GAP: Final = 3


def match_table(match: Match[Any]) -> RenderableType:
    """Ratings and win rates, best first, and win rates by seat; for more than two agents also the
    win rate per pair."""
    rows, short = match.table(), distinct_ends(match.names)
    has_failed = any(row.num_failed for row in rows)
    columns = ["Elo", "win rate", "95 %", "mean score", "games", *["failed"] * has_failed]
    table = plain_table("agent", *columns, gap=_GAP)
    for row in rows:
        table.add_row(
            short[row.name],
            f"{row.elo:+.0f}",
            f"{row.win_rate:.1%}",
            f"{row.low:.1%} to {row.high:.1%}",
            f"{row.mean_score:.2f}",
            str(row.num_games),
            *[str(row.num_failed)] * has_failed,
        )
    parts: list[RenderableType] = [table, "", _by_seat(match, rows, short)]
    if len(rows) > 2:
        parts += ["", _duels(match, rows, short)]
    return Group(*parts)


def match_lines(match: Match[Any]) -> list[str]:
    """Agents that failed, with reason and place; apart from the tables, which wrap them."""
    short = distinct_ends(match.names)
    return [
        f"{short[name]} lost {line}"
        for name in match.names
        for line in failure_lines(match.failures(name))
    ]


def _by_seat(match: Match[Any], rows: Sequence[Standing], short: Mapping[str, str]) -> Table:
    """Win rate of each agent in each seat, and of all agents together."""
    seats = match.seats()
    table = plain_table("win rate in seat", *(str(each.seat + 1) for each in seats), gap=_GAP)
    for row in rows:
        rates = {each.seat: f"{each.win_rate:.1%}" for each in row.seats}
        table.add_row(short[row.name], *(rates.get(each.seat, "") for each in seats))
    table.add_row("all", *(f"{each.win_rate:.1%}" for each in seats))
    return table


def failure_lines(failures: Sequence[AgentFailure], what: str = "game") -> list[str]:
    """How often agents failed for which reason, and where; the most frequent first."""
    return [
        f"{count} {what}{'s' if count > 1 else ''} because it {_verb(reason)}" + place
        for (reason, place), count in _counted(failures)
    ]


def failures_json(failures: Sequence[AgentFailure]) -> list[dict[str, object]]:
    """`failure_lines` as data."""
    return [
        {"reason": reason, "place": place.removeprefix(" (").removesuffix(")"), "count": count}
        for (reason, place), count in _counted(failures)
    ]


def _counted(failures: Sequence[AgentFailure]) -> list[tuple[tuple[str, str], int]]:
    places = [(each.reason, f" ({each.place})" if each.place else "") for each in failures]
    return Counter(places).most_common()


def _verb(reason: str) -> str:
    return reason if reason.startswith(HANGS) else f"raised {reason}"


def distinct_ends(names: Sequence[str]) -> dict[str, str]:
    """Paths without leading folders, as short as possible but distinct, to fit a table."""
    found = {name: name for name in names}
    for count in reversed(range(1, max(name.count("/") for name in names) + 1)):
        ends = ["/".join(name.split("/")[-count:]) for name in names]
        found |= {name: end for name, end in zip(names, ends, strict=True) if ends.count(end) == 1}
    return found


def match_json(match: Match[Any]) -> dict[str, object]:
    """`match_table` as numbers."""
    return {
        "agents": [
            {
                **vars(row),
                "seats": [vars(each) for each in row.seats],
                "failures": failures_json(match.failures(row.name)),
            }
            for row in match.table()
        ],
        "seats": [vars(each) for each in match.seats()],
        "duels": [
            {"name": name, "other": other, "win_rate": rate, "low": low, "high": high}
            for name, other in combinations(match.names, 2)
            if match.has_met(name, other)
            for rate, low, high in [match.win_rate(name, other)]
        ],
        "num_games": len(match.games),
        "num_truncated": sum(game.is_cut for game in match.games),
    }


def _duels(match: Match[Any], rows: Sequence[Standing], short: Mapping[str, str]) -> Table:
    names = [row.name for row in rows]
    table = plain_table("ahead of", *(short[name] for name in names), gap=_GAP)
    for name in names:
        rates = [
            f"{match.win_rate(name, other)[0]:.1%}" if match.has_met(name, other) else ""
            for other in names
        ]
        table.add_row(short[name], *rates)
    return table
