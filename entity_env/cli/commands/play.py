"""`entity-env play`: watch agents, or play yourself."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Sequence
from typing import TextIO

import click
from rich.console import Console

from entity_env.agents import Agent
from entity_env.agents.human.prompt import UserQuit
from entity_env.authoring.game import Game
from entity_env.cli.display.azul_view import AzulPrompt, AzulView
from entity_env.cli.display.pixel_view import viewed
from entity_env.cli.load_game import (
    HUMAN,
    AgentLoader,
    azul_agent,
    azul_players,
    game_errors,
    load_game,
    load_players,
    max_rounds_of,
    player_names,
)
from entity_env.cli.options import (
    COUNT,
    SEED,
    FiniteRange,
    agent_options,
    game_argument,
    open_option,
    set_option,
    step_timeout_option,
)
from entity_env.core.episode import Episode
from entity_env.games.azul import AzulAgent, AzulGame, GameResult, describe_end, play_game
from entity_env.views import find_look
from entity_env.views.describe import describe_number


@click.command()
@game_argument
@agent_options
@click.option("--render/--no-render", default=True, help="Draw the game.")
@click.option(
    "--fps",
    type=FiniteRange(min=0.001),
    default=10,
    help="Frames per second.",
)
@click.option("--episodes", type=COUNT, default=1, help="Number of episodes to play.")
@click.option("--seed", type=SEED, help="Seed of the run.  [default: a random one]")
@click.option("--browser", is_flag=True, help="Play and watch in a page, not in the terminal.")
@open_option
@step_timeout_option
@set_option
def play(
    game: str,
    agents: Sequence[str],
    load: AgentLoader,
    render: bool,
    fps: float,
    episodes: int,
    seed: int | None,
    browser: bool,
    is_opened: bool,
    step_timeout_s: float | None,
    settings: Sequence[str],
) -> None:
    """Play a game: watch agents, or play yourself with --agent human.

    azul has four more agents: greedy, rush, mcts and mcts:SECONDS.
    """
    chosen = load_game(game, settings)
    seed = secrets.randbelow(2**31) if seed is None else seed
    if browser:
        from entity_env.cli.browser.play import play_in_browser

        names = player_names(chosen, agents)
        play_in_browser(
            chosen,
            names,
            lambda run_seed: load_players(names, run_seed, load),
            look=find_look(chosen),
            seed=seed,
            episodes=episodes,
            fps=fps,
            step_timeout_s=step_timeout_s,
            is_opened=is_opened,
            ended=lambda episode: click.echo(_describe(episode, chosen)),
        )
        return
    if isinstance(chosen, AzulGame):
        play_azul(chosen, agents, load, seed=seed, episodes=episodes, fps=fps, render=render)
        return
    names = player_names(chosen, agents)
    humans = tuple(i for i, name in enumerate(names) if name == HUMAN)
    chosen, view = viewed(chosen, Console(), fps=fps, humans=humans)
    with view:
        watch = view if render else None
        players = load_players(names, seed, load, watch)
        with game_errors(chosen):
            played = chosen.run(
                *players, seed=seed, episodes=episodes, watch=watch, step_timeout_s=step_timeout_s
            )
    for episode in sorted(played, key=lambda episode: episode.number):
        click.echo(_describe(episode, chosen))
    if len(played) < episodes * chosen.num_agents:
        click.echo("left before the end")
    click.echo(f"seed {seed}")


def _describe(episode: Episode, game: Game) -> str:
    agent = f", agent {episode.agent_id}" if game.num_agents > 1 else ""
    end = "cut short" if episode.truncated else "over"
    score = describe_number(episode.reward)
    return f"episode {episode.number + 1}{agent}: reward {score}, {episode.length} steps, {end}"


def play_azul(
    game: AzulGame,
    names: Sequence[str],
    load: Callable[[str, int], Agent],
    *,
    seed: int,
    episodes: int,
    fps: float,
    render: bool,
    console: Console | None = None,
    source: TextIO | None = None,
) -> None:
    """Plays games of Azul; game i has the seed `seed + i`, and player i of n begins.

    Human players read moves from `source`; without `render` only their decisions are drawn.
    """
    source = sys.stdin if source is None else source
    game, names = azul_players(game, names)
    max_rounds = max_rounds_of(game)
    view = AzulView(
        Console() if console is None else console,
        names,
        [seat for seat, name in enumerate(names) if name == HUMAN],
        fps=fps,
        is_drawn=render,
    )
    agents: list[AzulAgent] = [
        AzulPrompt(view, source) if name == HUMAN else azul_agent(name, (seed + seat) % 2**32, load)
        for seat, name in enumerate(names)
    ]
    try:
        for number in range(episodes):
            result = play_game(
                agents,
                seed=seed + number,
                names=view.names,
                starting_player=number % len(names),
                max_rounds=max_rounds,
                watch=view,
            )
            view.close()
            click.echo(f"game {number + 1}: {describe_result(result)}")
    except (UserQuit, KeyboardInterrupt):
        click.echo("left before the end")
    finally:
        view.close()
    click.echo(f"seed {seed}")


def describe_result(result: GameResult) -> str:
    """Scores, winners and the reason of the end, in one line."""
    scores = ", ".join(
        f"{name} {score}" for name, score in zip(result.names, result.scores, strict=True)
    )
    if result.end is None:
        return f"{scores}; cut after {result.num_rounds - 1} rounds"
    first = [name for name, share in zip(result.names, result.shares, strict=True) if share]
    won = "won by" if len(first) == 1 else "shared by"
    return (
        f"{scores}; {won} {' and '.join(first)} after {result.num_rounds} rounds "
        f"({describe_end(result.end)})"
    )
