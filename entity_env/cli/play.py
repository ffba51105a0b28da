"""`entity-env play`: watch agents, or play yourself."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import click
from rich.console import Console

from entity_env.agents.describe import describe_number
from entity_env.cli.failures import failures_of
from entity_env.cli.find import find_game
from entity_env.cli.options import agent_option, game_argument, greedy_option, set_option
from entity_env.cli.seats import HUMAN, load_agents, seat_names
from entity_env.cli.view import TerminalView
from entity_env.episode import Episode
from entity_env.game import Game


@click.command()
@game_argument
@agent_option
@greedy_option
@click.option("--render/--no-render", default=True, help="Draw the game; on unless turned off.")
@click.option(
    "--fps",
    type=click.FloatRange(min=0, min_open=True),
    default=10,
    show_default=True,
    help="Frames a second.",
)
@click.option(
    "--episodes", type=click.IntRange(min=1), default=1, show_default=True, help="How many to play."
)
@click.option("--seed", type=click.IntRange(min=0), help="Repeats a run; a fresh one if left out.")
@set_option
def play(
    game: str,
    agents: Sequence[str],
    greedy: bool,
    render: bool,
    fps: float,
    episodes: int,
    seed: int | None,
    settings: Sequence[str],
) -> None:
    """Play a game: watch agents, or play yourself with --agent human."""
    chosen = find_game(game, settings)
    names = seat_names(chosen, agents)
    seed = secrets.randbelow(2**31) if seed is None else seed
    humans = tuple(i for i, name in enumerate(names) if name == HUMAN)
    with TerminalView(chosen, Console(), fps=fps, humans=humans) as view:
        seats = load_agents(names, seed, greedy=greedy, view=view if render else None)
        with failures_of(chosen):
            watch = view if render else None
            played = chosen.run(*seats, seed=seed, episodes=episodes, watch=watch)
    for episode in sorted(played, key=lambda episode: episode.number):
        click.echo(_describe(episode, chosen))
    if len(played) < episodes * chosen.num_agents:
        click.echo("left before the end")
    click.echo(f"seed {seed}")


def _describe(episode: Episode, game: Game) -> str:
    who = f", agent {episode.agent_id}" if game.num_agents > 1 else ""
    end = "cut short" if episode.truncated else "over"
    score = describe_number(episode.reward)
    return f"episode {episode.number + 1}{who}: reward {score}, {episode.length} steps, {end}"
