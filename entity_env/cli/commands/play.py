"""`entity-env play`: watch agents, or play yourself."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

import click
from rich.console import Console

from entity_env.agents.human.describe import describe_number
from entity_env.authoring.game import Game
from entity_env.cli.azul.agents import loading
from entity_env.cli.display.azul_view import play_azul
from entity_env.cli.display.pixel_view import viewed
from entity_env.cli.error_messages import failures_of
from entity_env.cli.load_game import find_game
from entity_env.cli.options import (
    COUNT,
    SEED,
    FiniteRange,
    adapt_option,
    agent_option,
    game_argument,
    greedy_option,
    set_option,
    step_timeout_option,
    temperature_option,
)
from entity_env.cli.players import HUMAN, load_agents, seat_names
from entity_env.core.episode import Episode
from entity_env.games.azul import AzulGame


@click.command()
@game_argument
@agent_option
@greedy_option
@temperature_option
@adapt_option
@click.option("--render/--no-render", default=True, help="Draw the game; on unless turned off.")
@click.option(
    "--fps",
    type=FiniteRange(min=0.001),
    default=10,
    show_default=True,
    help="Frames a second.",
)
@click.option("--episodes", type=COUNT, default=1, show_default=True, help="How many to play.")
@click.option("--seed", type=SEED, help="Repeats a run; a fresh one if left out.")
@step_timeout_option
@set_option
def play(
    game: str,
    agents: Sequence[str],
    greedy: bool,
    temperature: float,
    adapt: bool,
    render: bool,
    fps: float,
    episodes: int,
    seed: int | None,
    step_timeout_s: float | None,
    settings: Sequence[str],
) -> None:
    """Play a game: watch agents, or play yourself with --agent human.

    azul is also played by greedy, rush, mcts and mcts:SECONDS.
    """
    chosen = find_game(game, settings)
    seed = secrets.randbelow(2**31) if seed is None else seed
    if isinstance(chosen, AzulGame):
        load = loading(greedy=greedy, temperature=temperature, adapt=adapt)
        play_azul(chosen, agents, load, seed=seed, episodes=episodes, fps=fps, render=render)
        return
    names = seat_names(chosen, agents)
    humans = tuple(i for i, name in enumerate(names) if name == HUMAN)
    chosen, view = viewed(chosen, Console(), fps=fps, humans=humans)
    with view:
        watch = view if render else None
        seats = load_agents(
            names, seed, greedy=greedy, temperature=temperature, adapt=adapt, view=watch
        )
        with failures_of(chosen):
            played = chosen.run(
                *seats, seed=seed, episodes=episodes, watch=watch, step_timeout_s=step_timeout_s
            )
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
