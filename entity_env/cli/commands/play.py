"""`entity-env play`: watch agents, or play yourself."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial

from entity_env.agents import Agent
from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.move_clock import REAL_TIME_S
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.policy_agent import thoughts_to_show
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import EpisodesSeen, Turn, Watch
from entity_env.cli.display.console import Console, ProgressBar, cut_words, echo
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.cli.load_game import (
    ENVIRONMENTS,
    load_game,
    load_players,
    player_names,
)
from entity_env.cli.options import (
    AgentOptions,
    Count,
    FrameRate,
    GameName,
    GameSettings,
    IsOpened,
    LookName,
    PlayOptions,
    step_limit,
)
from entity_env.core.episode import Episode
from entity_env.errors import UsageError
from entity_env.views import Look, find_look
from entity_env.views.describe import describe_number, shown_names


@dataclass(frozen=True, kw_only=True)
class Play:
    """Play a game yourself, or watch agents play it.

    --agent human lets you play. `entity-env games` lists the agents that come with a game.
    """

    game: GameName
    agents: AgentOptions
    render: bool = True
    """Draw the game."""
    look: LookName = None
    think: bool = False
    """Show the probabilities and the value that agents compute, and which earlier steps matter to
    agents with memory. In a page, a person also sees what the first trained agent would choose in
    their place."""
    fps: FrameRate = 10
    """Frames per second."""
    episodes: Count = 1
    """Number of episodes to play."""
    start: PlayOptions
    browser: bool = False
    """Play and watch in a browser page instead of the terminal."""
    is_opened: IsOpened = True
    settings: GameSettings

    def run(self) -> None:
        if self.start.episode_seed is not None and self.episodes > 1:
            raise UsageError(
                f"--episode-seed plays one episode: leave out --episodes {self.episodes}"
            )
        if self.browser and not self.render:
            raise UsageError(
                "--browser shows the game in a page: leave out --no-render, or --browser to play "
                "in the terminal"
            )
        chosen, given = load_game(self.game, self.settings.texts), self.agents.agents
        chosen = game_agents(chosen).seated(chosen, len(given))
        names = player_names(chosen, given)
        look = find_look(chosen, self.look, step_timeout_s=self.start.step_timeout_s)
        self.start.require(names)
        if self.browser:
            self._play_in_browser(chosen, names, look)
        else:
            self._play_in_terminal(chosen, names, look)

    def _play_in_terminal(self, game: Game, names: Sequence[str], look: Look) -> None:
        humans = tuple(i for i, name in enumerate(names) if name == HUMAN)
        called, seen = shown_names(names, humans), EpisodesSeen()
        # In real time the clock alone sets the pace.
        start, limit = self.start, step_limit(self.start.max_steps, names)
        is_real_time = start.clock_s is not None and start.clock_s <= REAL_TIME_S
        fps = None if is_real_time else self.fps
        console = Console()
        is_drawn = self.render and console.is_terminal
        bar = nullcontext() if is_drawn or humans else ProgressBar(self.episodes, max_steps=limit)
        with (
            bar as progress,
            TerminalView(game, console, fps=fps, humans=humans, names=called, look=look) as view,
        ):
            players = load_players(game, names, start.seed, self.agents.load, view, start.clock_s)
            draw = _thinking(players, view) if self.think else view
            watches: list[Watch] = [seen]
            if self.render:
                watches.append(draw)
            if progress is not None:
                watches.append(progress.watch)
            watch = partial(_watch, watches)
            played = start.play_in_terminal(game, players, watch, self.episodes, names=names)
        _report(played, seen.ends, called, game)
        if seen.num_cut:
            echo(cut_words(seen.num_cut, self.episodes, limit))
        if seen.is_left(self.episodes):
            echo("left before the end")
        echo(start.seeds)

    def _play_in_browser(self, game: Game, names: Sequence[str], look: Look) -> None:
        from entity_env.cli.browser.play import play_in_browser

        play_in_browser(
            game,
            names,
            lambda run_seed: load_players(game, names, run_seed, self.agents.load),
            ended=lambda episode: echo(_describe(episode, game)),
            look=look,
            start=self.start,
            episodes=self.episodes,
            fps=self.fps,
            is_opened=self.is_opened,
            thinks=self.think,
            source=self.game if self.game.partition(":")[0] in ENVIRONMENTS else "",
        )


def _report(
    played: Sequence[Episode], ends: Sequence[Turn], names: Sequence[str], game: Game
) -> None:
    for episode in sorted(played, key=lambda episode: episode.number):
        last = [turn for turn in ends if turn.episode and turn.episode.number == episode.number]
        words = game_agents(game).summary(names, last) if len(last) == game.num_agents else None
        if words is None:
            echo(_describe(episode, game))
        elif not episode.agent_id:
            echo(f"episode {episode.number + 1}: {words}{_again(episode)}")


def _watch(watches: Sequence[Watch], turn: Turn) -> None:
    for each in watches:
        each(turn)


def _thinking(players: Sequence[Agent], draw: Watch) -> Watch:
    """Draws every decision with its agent's thoughts, if any."""

    def watch(turn: Turn) -> None:
        if turn.episode is None:
            thoughts = thoughts_to_show(players[turn.agent_id], turn.observation)
            turn = replace(turn, thoughts=thoughts)
        draw(turn)

    return watch


def _describe(episode: Episode, game: Game) -> str:
    agent = f", agent {episode.agent_id}" if game.num_agents > 1 else ""
    end = "truncated" if episode.truncated else "over"
    score = describe_number(episode.reward)
    result = f"reward {score}, {episode.length} steps, {end}{_again(episode)}"
    return f"episode {episode.number + 1}{agent}: {result}"


def _again(episode: Episode) -> str:
    """Option that repeats an episode, for the line of its first agent; "" for other agents."""
    return "" if episode.agent_id else f" (--episode-seed {episode.seed})"
