"""`entity-env eval`: rewards of an agent over many episodes, or matches between agents."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, Final

import click
import numpy as np
from rich.console import Console, Group, RenderableType
from rich.table import Table

from entity_env.agents import Agent, BatchPolicy
from entity_env.agents.ratings import Match, Result, Standing, seatings
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.cli.display.console import ProgressBar, plain_table
from entity_env.cli.load_game import (
    HUMAN,
    AgentLoader,
    azul_agent,
    game_errors,
    has_azul_agent,
    load_game,
    load_players,
    max_rounds_of,
    player_names,
)
from entity_env.cli.options import (
    COUNT,
    SEED,
    WORKERS,
    agent_options,
    default_workers,
    game_argument,
    on_error_option,
    set_option,
    step_timeout_option,
)
from entity_env.core.episode import Episode
from entity_env.errors import UsageError
from entity_env.games.azul import AzulGame, play_match
from entity_env.vec import VecEnv
from entity_env.vec.in_process.base import ERROR_METRIC
from entity_env.vec.options import OnError

_MAX_COPIES: Final = 64
_NUM_GAMES: Final = 100
_GAP: Final = 3


def play_episodes(
    game: Game,
    agent: BatchPolicy,
    episodes: int,
    *,
    seed: int,
    num_workers: int,
    num_envs: int = _MAX_COPIES,
    on_episode: Callable[[Episode], None],
    step_timeout_s: float | None = None,
    on_error: OnError = "raise",
) -> list[Episode]:
    """Plays a number of episodes of a game for one agent, `num_envs` at once at most."""
    # Episode `ix` has the seed `EpisodeSeeds(seed)[ix]`, so all agents play the same episodes.
    # Every episode is played to its end: taking the first ones that end would favour short ones.
    copies = min(episodes, num_envs)
    starts = np.arange(copies)
    played: list[Episode] = []
    with VecEnv(
        game,
        copies,
        min(num_workers, copies),
        autoreset="disabled",
        step_timeout_s=step_timeout_s,
        on_error=on_error,
    ) as vec:
        obs = vec.reset(seed, starts=starts)
        while True:
            for episode in obs.episodes:
                if episode.number < episodes:  # later ones only keep a copy busy until the end
                    played.append(replace(episode, env_id=0))
                    on_episode(played[-1])
            if len(played) == episodes:
                return sorted(played, key=lambda episode: episode.number)
            done = obs.done
            if done.any():
                starts[done] = starts.max() + 1 + np.arange(np.count_nonzero(done))
                obs = vec.reset_envs(done, seed, starts=starts)
            else:
                obs = vec.act(agent.decide_batch(obs, game.schema))


_Z95: Final = 1.959964  # half width of a 95 % interval of the normal distribution, in deviations


@dataclass(frozen=True)
class Figures:
    """Statistics over episodes of one agent: `ci95` is half of the 95 % confidence interval."""

    mean_reward: float
    std_reward: float
    ci95: float
    mean_length: float
    episodes: int

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> Figures:
        """The statistics of at least one episode."""
        rewards = [episode.reward for episode in episodes]
        deviation = statistics.stdev(rewards) if len(rewards) > 1 else 0.0
        return cls(
            mean_reward=statistics.fmean(rewards),
            std_reward=deviation,
            ci95=_Z95 * deviation / math.sqrt(len(rewards)),
            mean_length=statistics.fmean(episode.length for episode in episodes),
            episodes=len(rewards),
        )


@click.command("eval")
@game_argument
@agent_options
@click.option("--episodes", type=COUNT, default=100, help="Number of episodes to play.")
@click.option(
    "--agents",
    "entrants",
    metavar="A,B,...",
    help="Let these agents play matches against each other, each in every seat equally often.",
)
@click.option(
    "--games",
    "num_games",
    type=COUNT,
    help="With --agents: number of games of each group of opponents.  [default: about 100]",
)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    help="Seed of the run; with the same seed all agents play the same episodes.",
)
@click.option(
    "--num-workers",
    type=WORKERS,
    help="Number of worker processes; 0 = none. Games for several agents are played one by one, "
    "without workers.  [default: one per core]",
)
@step_timeout_option
@on_error_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@set_option
def evaluate(
    game: str,
    agents: Sequence[str],
    load: AgentLoader,
    episodes: int,
    entrants: str | None,
    num_games: int | None,
    seed: int,
    num_workers: int | None,
    step_timeout_s: float | None,
    on_error: OnError,
    as_json: bool,
    settings: Sequence[str],
) -> None:
    """Measure the rewards of an agent over many episodes.

    Prints the mean reward with half of its 95 % confidence interval, the standard deviation and
    the mean length. In a game for several agents, --json reports the first agent, and all of them
    under `agents`.

    With --agents, the agents play matches against each other: prints win rates with 95 %
    confidence intervals, and Elo ratings. azul has four more agents: greedy, rush, mcts and
    mcts:SECONDS.
    """
    chosen = load_game(game, settings)
    if entrants is not None:
        if agents:
            raise UsageError("--agents lets agents play against each other: leave out --agent")
        _require_raise(on_error)
        names = split_names(entrants)
        with game_errors(chosen):
            match = run_match(
                chosen, names, num_games, seed=seed, load=load, step_timeout_s=step_timeout_s
            )
        _report(match_json(match), match_table(match), as_json)
        return
    _require_episodes(chosen, agents, num_games)
    players = player_names(chosen, agents)
    if HUMAN in players:
        raise UsageError("eval has no human players: use entity-env play --agent human")
    played = _played(
        chosen,
        load_players(players, seed, load),
        episodes,
        seed=seed,
        workers=default_workers(episodes) if num_workers is None else num_workers,
        step_timeout_s=step_timeout_s,
        on_error=on_error,
    )
    num_failed = sum(ERROR_METRIC in episode.metrics for episode in played)
    if num_failed:
        failed = f"{num_failed} of {len(played)} episodes failed"
        click.echo(f"{failed}, and count with the reward until then", err=True)
    figures = [
        Figures.of([episode for episode in played if episode.agent_id == agent_id])
        for agent_id in range(chosen.num_agents)
    ]
    _report(_as_json(figures), _table(players, figures), as_json)


def _require_episodes(game: Game, agents: Sequence[str], num_games: int | None) -> None:
    """Refuses options and agents that only a match has."""
    if num_games is not None:
        raise UsageError("--games is for --agents A,B: otherwise say --episodes")
    if has_azul_agent(game, agents):
        raise UsageError(
            f"{', '.join(agents)}: agents of azul play matches: entity-env eval azul --agents "
            f"{','.join(dict.fromkeys([*agents, 'random']))}"
        )


def _played(
    game: Game,
    players: Sequence[Agent],
    episodes: int,
    *,
    seed: int,
    workers: int,
    step_timeout_s: float | None,
    on_error: OnError,
) -> list[Episode]:
    """Plays the episodes, many at once if there is one agent and it decides for batches."""
    with game_errors(game), _Progress(episodes) as progress:
        if len(players) == 1 and isinstance(players[0], BatchPolicy):
            return play_episodes(
                game,
                players[0],
                episodes,
                seed=seed,
                num_workers=workers,
                on_episode=progress.count,
                step_timeout_s=step_timeout_s,
                on_error=on_error,
            )
        _require_raise(on_error)
        return game.run(
            *players, seed=seed, episodes=episodes, watch=progress, step_timeout_s=step_timeout_s
        )


def _require_raise(on_error: OnError) -> None:
    if on_error != "raise":
        raise UsageError(
            "--on-error restart is for one agent: games for several are played one by one"
        )


def _report(figures: Mapping[str, object], table: RenderableType, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(figures))
    else:
        Console().print(table)


class _Progress(ProgressBar):
    """Counts episodes as the `watch` of `Game.run`."""

    def __call__(self, turn: Turn) -> None:
        if turn.episode is not None and not turn.agent_id:
            self.count(turn.episode)


def _as_json(figures: Sequence[Figures]) -> dict[str, object]:
    first: dict[str, object] = dict(vars(figures[0]))
    return first if len(figures) == 1 else {**first, "agents": [vars(each) for each in figures]}


def _table(names: Sequence[str], figures: Sequence[Figures]) -> Table:
    table = plain_table("agent", "mean reward", "ci95", "std", "mean length", "episodes", gap=_GAP)
    for name, each in zip(names, figures, strict=True):
        table.add_row(
            name,
            f"{each.mean_reward:.3f}",
            f"{each.ci95:.3f}",
            f"{each.std_reward:.3f}",
            f"{each.mean_length:.1f}",
            str(each.episodes),
        )
    return table


# ------------------------------------------------------------------ matches


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
    with ProgressBar(math.comb(len(names), seats) * num_games) as progress:
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
