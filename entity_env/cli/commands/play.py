"""`entity-env play`: watch agents, or play yourself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import click

from entity_env.agents import Agent
from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.move_clock import REAL_TIME_S
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn, Watch
from entity_env.cli.display.console import Console, echo
from entity_env.cli.display.terminal_view import TerminalView, shown_names
from entity_env.cli.game_errors import game_errors
from entity_env.cli.load_game import (
    HUMAN,
    AgentLoader,
    EpisodesSeen,
    load_game,
    load_players,
    player_names,
    require_person,
    run_or_episode,
    seeds_played,
    single_keys,
)
from entity_env.cli.options import (
    COUNT,
    SEED,
    FiniteRange,
    agent_options,
    clock_option,
    game_argument,
    look_option,
    open_option,
    run_seed_option,
    set_option,
    step_timeout_option,
)
from entity_env.core.episode import Episode
from entity_env.errors import UsageError
from entity_env.views import find_look
from entity_env.views.describe import describe_number


@click.command()
@game_argument
@agent_options
@click.option("--render/--no-render", default=True, help="Draw the game.")
@look_option
@click.option("--think", is_flag=True, help="Show the probabilities and the value of the agents.")
@click.option("--fps", type=FiniteRange(min=0.001), default=10, help="Frames per second.")
@click.option("--episodes", type=COUNT, default=1, help="Number of episodes to play.")
@run_seed_option
@click.option("--episode-seed", type=SEED, help="Play the episode of this seed, as errors name it.")
@clock_option
@click.option("--browser", is_flag=True, help="Play and watch in a page, not in the terminal.")
@open_option
@step_timeout_option
@set_option
def play(
    game: str,
    agents: Sequence[str],
    load: AgentLoader,
    render: bool,
    look: str | None,
    think: bool,
    fps: float,
    episodes: int,
    seed: int,
    episode_seed: int | None,
    clock_s: float | None,
    browser: bool,
    is_opened: bool,
    step_timeout_s: float | None,
    settings: Sequence[str],
) -> None:
    """Play a game: watch agents, or play yourself with --agent human.

    azul has four more agents: greedy, rush, mcts and mcts:SECONDS.
    """
    if episode_seed is not None and episodes > 1:
        raise UsageError(f"--episode-seed is of one episode, --episodes {episodes} is more")
    own = game_agents(chosen := load_game(game, settings))
    chosen = own.seated(chosen, len(agents))
    names = player_names(chosen, agents)
    drawn_by = find_look(chosen, look)
    require_person(names, clock_s)
    if browser:
        _play_in_browser(
            chosen,
            names,
            load,
            look=drawn_by,
            seed=seed,
            episodes=episodes,
            fps=fps,
            episode_seed=episode_seed,
            clock_s=clock_s,
            step_timeout_s=step_timeout_s,
            is_opened=is_opened,
        )
        return
    humans = tuple(i for i, name in enumerate(names) if name == HUMAN)
    called, seen = shown_names(names, humans), EpisodesSeen()
    pace = _pace(fps, clock_s)
    with TerminalView(
        chosen, Console(), fps=pace, humans=humans, names=called, look=drawn_by
    ) as view:
        players = load_players(chosen, names, seed, load, view, clock_s)
        draw = _thinking(players, view) if think else view
        with game_errors(chosen), single_keys(clock_s):
            watch = partial(_watch, draw if render else None, seen)
            start = run_or_episode(chosen, seed, episodes, episode_seed)
            played = start(*players, watch=watch, step_timeout_s=step_timeout_s)
    _report(played, seen.ends, called, chosen)
    if seen.is_left(episodes):
        echo("left before the end")
    echo(seeds_played(seed, episode_seed))


def _pace(fps: float, clock_s: float | None) -> float | None:
    """Frames a second; in real time the clock alone sets the pace."""
    return None if clock_s is not None and clock_s <= REAL_TIME_S else fps


def _play_in_browser(
    game: Game,
    names: Sequence[str],
    load: AgentLoader,
    **options: Any,  # noqa: ANN401 - those of `play_in_browser`
) -> None:
    from entity_env.cli.browser.play import play_in_browser

    play_in_browser(
        game,
        names,
        lambda run_seed: load_players(game, names, run_seed, load),
        ended=lambda episode: echo(_describe(episode, game)),
        **options,
    )


def _report(
    played: Sequence[Episode], ends: Sequence[Turn], names: Sequence[str], game: Game
) -> None:
    """Prints how the episodes went."""
    for episode in sorted(played, key=lambda episode: episode.number):
        last = [turn for turn in ends if turn.episode and turn.episode.number == episode.number]
        words = game_agents(game).summary(names, last) if len(last) == game.num_agents else None
        if words is None:
            echo(_describe(episode, game))
        elif not episode.agent_id:
            echo(f"episode {episode.number + 1}: {words}{_again(episode)}")


def _watch(draw: Watch | None, seen: EpisodesSeen, turn: Turn) -> None:
    """Draws every turn."""
    seen(turn)
    if draw is not None:
        draw(turn)


def _thinking(players: Sequence[Agent], draw: Watch) -> Watch:
    """Draws every decision with what its agent thinks, if it thinks."""

    def watch(turn: Turn) -> None:
        think = getattr(players[turn.agent_id], "think", None)
        if think is not None and turn.episode is None:
            turn = replace(turn, thoughts=think(turn.observation))
        draw(turn)

    return watch


def _describe(episode: Episode, game: Game) -> str:
    agent = f", agent {episode.agent_id}" if game.num_agents > 1 else ""
    end = "cut short" if episode.truncated else "over"
    score = describe_number(episode.reward)
    result = f"reward {score}, {episode.length} steps, {end}{_again(episode)}"
    return f"episode {episode.number + 1}{agent}: {result}"


def _again(episode: Episode) -> str:
    """What plays an episode again, in the line of its first agent."""
    return "" if episode.agent_id else f" (--episode-seed {episode.seed})"
