"""`entity-env eval`: how well an agent plays, with how sure that is."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn
from rich.table import Table

from entity_env.agents import BatchPolicy
from entity_env.cli.failures import failures_of
from entity_env.cli.find import find_game
from entity_env.cli.options import (
    agent_option,
    default_workers,
    game_argument,
    greedy_option,
    set_option,
)
from entity_env.cli.play_many import play_many
from entity_env.cli.seats import HUMAN, load_agents, seat_names
from entity_env.episode import Episode
from entity_env.errors import UsageError
from entity_env.game_run import Turn

_Z95: Final = 1.959964  # half width of a 95 % interval of the normal distribution, in deviations
_PATIENCE_S: Final = 1.0


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
@click.option(
    "--episodes",
    type=click.IntRange(min=1),
    default=100,
    show_default=True,
    help="How many to play.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="The same seed gives every agent the same starts.",
)
@click.option(
    "--num-workers",
    type=click.IntRange(min=0),
    help="Processes that play; 0 = none. Games for several agents are played one by one.  "
    "[one a core]",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@set_option
def evaluate(
    game: str,
    agents: Sequence[str],
    greedy: bool,
    episodes: int,
    seed: int,
    num_workers: int | None,
    as_json: bool,
    settings: Sequence[str],
) -> None:
    """Measure an agent over many episodes.

    Prints mean and standard deviation of the episodes' rewards, the half width of the 95 %
    confidence interval of the mean, and the mean length. In a game for several agents, --json
    reports the first, and all of them under `agents`.
    """
    chosen = find_game(game, settings)
    names = seat_names(chosen, agents)
    if HUMAN in names:
        raise UsageError("nobody wants to play so many episodes: entity-env play --agent human")
    seats = load_agents(names, seed, greedy=greedy)
    workers = default_workers(episodes) if num_workers is None else num_workers
    with failures_of(chosen), _Progress(episodes) as progress:
        if len(seats) == 1 and isinstance(seats[0], BatchPolicy):
            played = play_many(
                chosen,
                seats[0],
                episodes,
                seed=seed,
                num_workers=workers,
                on_episode=progress.count,
            )
        else:
            played = chosen.run(*seats, seed=seed, episodes=episodes, watch=progress)
    figures = [
        Figures.of([episode for episode in played if episode.agent_id == agent_id])
        for agent_id in range(chosen.num_agents)
    ]
    if as_json:
        click.echo(json.dumps(_as_json(figures)))
    else:
        Console().print(_table(names, figures))


class _Progress:
    """Shows a bar on stderr when it takes more than a moment, and stderr is a terminal."""

    def __init__(self, episodes: int) -> None:
        console = Console(stderr=True)
        self._bar = Progress(
            "playing",
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task = self._bar.add_task("playing", total=episodes)
        self._start_s = time.monotonic() + _PATIENCE_S if console.is_terminal else math.inf

    def __enter__(self) -> _Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar.live.is_started:
            self._bar.stop()

    def __call__(self, turn: Turn) -> None:
        if turn.episode is not None and not turn.agent_id:
            self.count(turn.episode)

    def count(self, episode: Episode) -> None:
        """One more has been played."""
        self._bar.advance(self._task)
        if time.monotonic() > self._start_s:
            self._bar.start()
            self._start_s = math.inf


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
