"""Agents against each other: one game, or as many as it takes to tell who is better.

Example:
    >>> from entity_env.games.azul import GreedyAgent, RandomAgent, play_match
    >>> match = play_match({"greedy": GreedyAgent(), "random": RandomAgent()}, num_games=10)
    >>> [row.name for row in match.table()]
    ['greedy', 'random']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from math import log10, sqrt
from typing import Final

import numpy as np

from entity_env.errors import UsageError
from entity_env.games.azul.actions import is_integer
from entity_env.games.azul.agents import AgentInput, AzulAgent
from entity_env.games.azul.backend import Backend
from entity_env.games.azul.env import AzulEnv, EnvConfig, EnvStep
from entity_env.games.azul.errors import IllegalAction, InvalidActionId
from entity_env.games.azul.scoring import full_rows
from entity_env.games.azul.state import End, GameState

_Z95: Final = 1.959964
_ELO: Final = 400.0
_ELO_ROUNDS: Final = 2000
_SURE: Final = 1e-9

Watch = Callable[[EnvStep], None]


@dataclass(frozen=True)
class GameResult:
    """How a game ended; seats are those of the game.

    Attributes:
        names: who sat where.
        scores: final points.
        rows: full rows, which tell between equal points.
        num_moves: how many were made.
        num_rounds: how many were played.
        end: why it was over; None = it was cut.
    """

    names: tuple[str, ...]
    scores: tuple[int, ...]
    rows: tuple[int, ...]
    num_moves: int
    num_rounds: int
    end: End | None

    @property
    def shares(self) -> tuple[float, ...]:
        """What each seat has of the win: 1, or as much less as there are others who share it."""
        ranks = list(zip(self.scores, self.rows, strict=True))
        first = ranks.count(max(ranks))
        return tuple(1 / first if rank == max(ranks) else 0.0 for rank in ranks)


def play_game(
    agents: Sequence[AzulAgent],
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    starting_player: int = 0,
    max_rounds: int | None = None,
    watch: Watch | None = None,
    backend: Backend = "auto",
) -> GameResult:
    """Plays one game, and sees to it that everybody answers legally.

    Args:
        agents: 2 to 4, by seat.
        seed: what is dealt, and what the agents draw, follow from it.
        names: of the agents; what their classes are called when left out.
        starting_player: who begins.
        max_rounds: after how many rounds the game is cut; None = never.
        watch: called with every step, the first included.
        backend: which engine plays; see `Backend`.

    Raises:
        UsageError: a number of agents, or a value, that cannot be.
        InvalidActionId, IllegalAction: an agent answered so; says which one, and when.
    """
    if names is None:
        names = [type(agent).__name__ for agent in agents]
    if len(names) != len(agents):
        raise UsageError(f"play_game: {len(agents)} agents need as many names, got {len(names)}")
    config = EnvConfig(
        num_players=len(agents),
        starting_player=starting_player,
        include_full_state_in_step=any(agent.needs_state for agent in agents) or watch is not None,
        max_rounds=max_rounds,
    )
    deals, draws = np.random.SeedSequence(seed).generate_state(2, np.uint64).tolist()
    env, rng = AzulEnv(config, seed=deals, backend=backend), np.random.default_rng(draws)
    step = env.reset()
    num_moves = 0
    if watch is not None:
        watch(step)
    while not step.done:
        player = step.current_player
        action_id = agents[player].select_action(AgentInput.of(step), rng)
        step = _step(env, action_id, f"{names[player]} in seat {player}, move {num_moves}")
        num_moves += 1
        if watch is not None:
            watch(step)
    return _result(tuple(names), env.state, num_moves)


def _step(env: AzulEnv, action_id: int, who: str) -> EnvStep:
    try:
        return env.step(action_id)
    except (IllegalAction, InvalidActionId) as error:
        raise type(error)(f"{who} answered illegally: {error}") from error


def _result(names: tuple[str, ...], state: GameState, num_moves: int) -> GameResult:
    return GameResult(
        names=names,
        scores=tuple(state.scores),
        rows=tuple(full_rows(player.wall) for player in state.players),
        num_moves=num_moves,
        num_rounds=state.round,
        end=state.end,
    )


@dataclass(frozen=True)
class Standing:
    """How an agent did in a match.

    Attributes:
        name: of the agent.
        num_games: how many it played.
        wins: how many it won; shared ones count in part.
        win_rate: `wins / num_games`.
        low, high: 95 % confidence interval of the win rate (Wilson 1927).
        mean_score: points a game.
        elo: rating, 0 for the mean of all agents; 400 more = 10 times the odds.
    """

    name: str
    num_games: int
    wins: float
    win_rate: float
    low: float
    high: float
    mean_score: float
    elo: float


@dataclass(frozen=True)
class Match:
    """The games of a match.

    Attributes:
        names: of all agents.
        games: in the order in which they were played.
    """

    names: tuple[str, ...]
    games: tuple[GameResult, ...]

    def table(self) -> list[Standing]:
        """How each agent did, the best first."""
        elo = dict(zip(self.names, elo_ratings(self.names, self.games), strict=True))
        rows = [self._standing(name, elo[name]) for name in self.names]
        return sorted(rows, key=lambda row: -row.elo)

    def win_rate(self, name: str, other: str) -> tuple[float, float, float]:
        """How often an agent was ahead of another at the same table, and the interval of that.

        Raises:
            UsageError: they have not met.
        """
        results = [_duel(game, name, other) for game in self.games]
        met = [result for result in results if result is not None]
        if not met:
            raise UsageError(f"{name!r} and {other!r} have not met")
        return (sum(met) / len(met), *wilson(sum(met), len(met)))

    def _standing(self, name: str, elo: float) -> Standing:
        seats = [
            (game.shares[i], game.scores[i])
            for game in self.games
            for i, sits in enumerate(game.names)
            if sits == name
        ]
        wins = sum(share for share, _ in seats)
        low, high = wilson(wins, len(seats))
        return Standing(
            name=name,
            num_games=len(seats),
            wins=wins,
            win_rate=wins / len(seats),
            low=low,
            high=high,
            mean_score=sum(score for _, score in seats) / len(seats),
            elo=elo,
        )

    def __str__(self) -> str:
        width = max(5, *(len(name) for name in self.names))
        lines = [f"{'agent':{width}}    elo  win rate     95 %        score  games"]
        for row in self.table():
            lines.append(
                f"{row.name:{width}}  {row.elo:5.0f}  {row.win_rate:7.1%}  "
                f"{row.low:6.1%} to {row.high:6.1%}  {row.mean_score:6.1f}  {row.num_games:5}"
            )
        return "\n".join(lines)


def play_match(
    agents: Mapping[str, AzulAgent],
    num_games: int,
    *,
    num_players: int = 2,
    seed: int = 0,
    max_rounds: int | None = None,
    on_game: Callable[[GameResult], None] | None = None,
    backend: Backend = "auto",
) -> Match:
    """Plays every group of agents that fits around a table.

    Games come in sets of `num_players` with the same deals of the first round, in which everybody
    sits once in every seat; seat 0 begins. So each agent begins as often as the others.

    Args:
        agents: by name; at least as many as players.
        num_games: games of each group, a multiple of `num_players`.
        num_players: 2 to 4.
        seed: deals and draws follow from it.
        max_rounds, backend: as for `play_game`.
        on_game: called with every result.

    Raises:
        UsageError: numbers that cannot be.
        InvalidActionId, IllegalAction: as `play_game` does.
    """
    EnvConfig(num_players=num_players, max_rounds=max_rounds)
    if len(agents) < num_players:
        raise UsageError(
            f"play_match: {num_players} players need as many agents, got {', '.join(agents)}"
        )
    if not is_integer(num_games) or num_games < 1 or num_games % num_players:
        raise UsageError(
            f"play_match: num_games must be a multiple of {num_players}, so that everybody sits in "
            f"every seat as often: got {num_games!r}"
        )
    games = []
    for group in combinations(agents, num_players):
        for number in range(num_games):
            shift = number % num_players
            names = group[shift:] + group[:shift]
            result = play_game(
                [agents[name] for name in names],
                seed=seed + number // num_players,
                names=names,
                max_rounds=max_rounds,
                backend=backend,
            )
            games.append(result)
            if on_game is not None:
                on_game(result)
    return Match(tuple(agents), tuple(games))


def wilson(wins: float, count: int) -> tuple[float, float]:
    """95 % confidence interval of a rate (Wilson 1927); shared wins make it a little too wide."""
    rate, z2 = wins / count, _Z95**2 / count
    centre = (rate + z2 / 2) / (1 + z2)
    half = sqrt(z2 * (rate * (1 - rate) + z2 / 4)) / (1 + z2)
    return max(0.0, centre - half), min(1.0, centre + half)


def elo_ratings(names: Sequence[str], games: Sequence[GameResult]) -> list[float]:
    """Ratings whose odds fit best who was ahead of whom, by pairs (Bradley and Terry 1952).

    Found by the iteration of Hunter 2004, with one drawn game added to every pair that met, so that
    who has lost all games has a rating, too. Their mean is 0.
    """
    met, won = _meetings(names, games)
    strengths = np.ones(len(names))
    for _ in range(_ELO_ROUNDS):
        divided = met / (strengths[:, None] + strengths[None, :])
        after = won.sum(axis=1) / np.maximum(divided.sum(axis=1), 1e-300)
        after = np.where(met.sum(axis=1) > 0, after, 1.0)
        after /= np.exp(np.mean(np.log(after)))
        change = np.abs(after / strengths - 1).max()
        strengths = after
        if change < _SURE:
            break
    return [_ELO * log10(strength) for strength in strengths]


def _meetings(names: Sequence[str], games: Sequence[GameResult]) -> tuple[np.ndarray, np.ndarray]:
    """How often each agent met each other, and was ahead."""
    met, won = np.zeros((len(names), len(names))), np.zeros((len(names), len(names)))
    for i, name in enumerate(names):
        for j, other in enumerate(names):
            duels = [_duel(game, name, other) for game in games] if i != j else []
            results = [result for result in duels if result is not None]
            if results:
                met[i, j] = len(results) + 1
                won[i, j] = sum(results) + 0.5
    return met, won


def _duel(game: GameResult, name: str, other: str) -> float | None:
    """1 if one agent was ahead of another, 0.5 for a tie; None if they did not meet."""
    if name not in game.names or other not in game.names:
        return None
    ranks = list(zip(game.scores, game.rows, strict=True))
    mine, theirs = ranks[game.names.index(name)], ranks[game.names.index(other)]
    return 0.5 if mine == theirs else float(mine > theirs)
