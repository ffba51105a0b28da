"""`entity-env eval`: how well an agent plays, with how sure that is."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import click
import numpy as np
from rich.console import Console, RenderableType
from rich.table import Table

from entity_env.agents import Agent, BatchPolicy
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.cli.azul.agents import is_azul_name, loading
from entity_env.cli.commands.match import match_json, match_table, run_match, split_names
from entity_env.cli.display.progress_bar import ProgressBar
from entity_env.cli.error_messages import failures_of
from entity_env.cli.load_game import find_game
from entity_env.cli.options import (
    COUNT,
    SEED,
    WORKERS,
    adapt_option,
    agent_option,
    default_workers,
    game_argument,
    greedy_option,
    on_error_option,
    set_option,
    step_timeout_option,
    temperature_option,
)
from entity_env.cli.players import HUMAN, load_agents, seat_names
from entity_env.core.episode import Episode
from entity_env.errors import UsageError
from entity_env.vec import VecEnv
from entity_env.vec.in_process.base import ERROR_METRIC, OnError

_MAX_COPIES: Final = 64


def play_many(
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
    """Plays a number of episodes of a game for one agent.

    Episode `ix` has the seed `EpisodeSeeds(seed)[ix]`, as in `Game.run` and in
    `EpisodeEnv.reset_with_index(ix)`, so that all agents meet the same starts. A copy of the game
    that ends takes the next start, and every episode is played to its end: were the first to end
    counted, short ones would count more often. Workers do not change the episodes, nor do copies,
    but for an agent that draws lots: it decides for all copies together.

    Args:
        game: what to play.
        agent: who plays.
        episodes: how many.
        seed: decides the starts.
        num_workers: processes that play; 0 = none.
        num_envs: how many to play at once, at most.
        on_episode: told of each, in the order in which they end.
        step_timeout_s, on_error: as for `VecEnv`.

    Returns:
        The episodes by their number.
    """
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
                if episode.number < episodes:  # not one that only keeps its copy busy to the end
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
    """What a number of episodes of one agent come to.

    Args:
        mean_reward: mean of the episodes' rewards.
        std_reward: their standard deviation (of the sample, with n - 1); 0 for one episode.
        ci95: half width of the 95 % confidence interval of the mean, `1.96 std / sqrt(n)`.
        mean_length: mean number of actions.
        episodes: how many.
    """

    mean_reward: float
    std_reward: float
    ci95: float
    mean_length: float
    episodes: int

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> Figures:
        """The figures of at least one episode."""
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
@agent_option
@greedy_option
@temperature_option
@adapt_option
@click.option(
    "--episodes",
    type=COUNT,
    default=100,
    show_default=True,
    help="How many to play.",
)
@click.option(
    "--agents",
    "entrants",
    metavar="A,B,...",
    help="Let agents play against each other instead, seats in turn: win rates and Elo ratings.",
)
@click.option(
    "--games",
    "num_games",
    type=COUNT,
    help="With --agents: games of each group that fits around a table.  [100]",
)
@click.option(
    "--seed",
    type=SEED,
    default=0,
    show_default=True,
    help="The same seed gives every agent the same starts.",
)
@click.option(
    "--num-workers",
    type=WORKERS,
    help="Processes that play; 0 = none. Games for several agents are played one by one.  "
    "[one a core]",
)
@step_timeout_option
@on_error_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@set_option
def evaluate(
    game: str,
    agents: Sequence[str],
    greedy: bool,
    temperature: float,
    adapt: bool,
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
    """Measure an agent over many episodes.

    Prints mean and standard deviation of the episodes' rewards, the half width of the 95 %
    confidence interval of the mean, and the mean length. In a game for several agents, --json
    reports the first, and all of them under `agents`.

    With --agents, it prints who wins how often, in a game for several, with 95 % confidence
    intervals. azul is also played by greedy, rush, mcts and mcts:SECONDS.
    """
    chosen = find_game(game, settings)
    load = loading(greedy=greedy, temperature=temperature, adapt=adapt)
    if entrants is not None:
        if agents:
            raise UsageError("--agents lets agents play against each other: leave out --agent")
        _require_raise(on_error)
        names = split_names(entrants)
        with failures_of(chosen):
            match = run_match(
                chosen, names, num_games, seed=seed, load=load, step_timeout_s=step_timeout_s
            )
        _report(match_json(match), match_table(match), as_json)
        return
    _require_episodes(chosen, agents, num_games)
    seated = seat_names(chosen, agents)
    if HUMAN in seated:
        raise UsageError("nobody wants to play so many episodes: entity-env play --agent human")
    seats = load_agents(seated, seed, greedy=greedy, temperature=temperature, adapt=adapt)
    workers = default_workers(episodes) if num_workers is None else num_workers
    played = _played(
        chosen,
        seats,
        episodes,
        seed=seed,
        workers=workers,
        step_timeout_s=step_timeout_s,
        on_error=on_error,
    )
    _report_failed(played)
    figures = _figures_of(played, chosen.num_agents)
    _report(_as_json(figures), _table(seated, figures), as_json)


def _require_episodes(game: Game, agents: Sequence[str], num_games: int | None) -> None:
    """Refuses what only a match can do."""
    if num_games is not None:
        raise UsageError("--games is for --agents A,B: otherwise say --episodes")
    if is_azul_name(game, agents):
        raise UsageError(
            f"{', '.join(agents)}: agents of azul play matches: entity-env eval azul --agents "
            f"{','.join(dict.fromkeys([*agents, 'random']))}"
        )


def _played(
    game: Game,
    seats: Sequence[Agent],
    episodes: int,
    *,
    seed: int,
    workers: int,
    step_timeout_s: float | None,
    on_error: OnError,
) -> list[Episode]:
    """Plays the episodes, many at once where the agent can."""
    with failures_of(game), _Progress(episodes) as progress:
        if len(seats) == 1 and isinstance(seats[0], BatchPolicy):
            return play_many(
                game,
                seats[0],
                episodes,
                seed=seed,
                num_workers=workers,
                on_episode=progress.count,
                step_timeout_s=step_timeout_s,
                on_error=on_error,
            )
        _require_raise(on_error)
        return game.run(
            *seats, seed=seed, episodes=episodes, watch=progress, step_timeout_s=step_timeout_s
        )


def _figures_of(played: Sequence[Episode], num_agents: int) -> list[Figures]:
    return [
        Figures.of([episode for episode in played if episode.agent_id == agent_id])
        for agent_id in range(num_agents)
    ]


def _report_failed(played: Sequence[Episode]) -> None:
    """Says how many episodes ended by a failure of the game, if any did."""
    num_failed = sum(ERROR_METRIC in episode.metrics for episode in played)
    if num_failed:
        click.echo(
            f"{num_failed} of {len(played)} episodes failed, and count with what they had earned",
            err=True,
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
    """Counts the episodes of a game that is watched."""

    def __call__(self, turn: Turn) -> None:
        if turn.episode is not None and not turn.agent_id:
            self.count(turn.episode)


def _as_json(figures: Sequence[Figures]) -> dict[str, object]:
    first: dict[str, object] = dict(vars(figures[0]))
    return first if len(figures) == 1 else {**first, "agents": [vars(each) for each in figures]}


def _table(names: Sequence[str], figures: Sequence[Figures]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 3, 0, 0), header_style="bold")
    table.add_column("agent")
    for column in ("mean reward", "ci95", "std", "mean length", "episodes"):
        table.add_column(column, justify="right")
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
