"""`play_in_browser`: people play a game in a page, or watch its agents."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from entity_env.agents import Agent, PolicyAgent
from entity_env.agents.human.move_clock import MoveClock
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.cli.browser.game_page import GamePage
from entity_env.cli.display.console import echo
from entity_env.cli.game_errors import game_errors
from entity_env.cli.load_game import HUMAN
from entity_env.cli.options import PlayOptions
from entity_env.core.episode import Episode
from entity_env.core.observation import Action, Observation
from entity_env.core.spaces import ActionName
from entity_env.views.look import Look


def play_in_browser(
    game: Game,
    names: Sequence[str],
    load: Callable[[int], Sequence[Agent]],
    *,
    look: Look,
    start: PlayOptions,
    episodes: int,
    fps: float,
    is_opened: bool,
    ended: Callable[[Episode], None],
    thinks: bool = False,
    source: str = "",
) -> None:
    """Plays a game in a page until its last episode has ended and the page is closed.

    The game waits while the page is closed. "Play again" starts the next run, with the next seed.
    Ctrl-C ends the game.

    Args:
        names: of the agents; "human" is a person in the browser.
        load: the agents for a seed; people replace those called "human".
        start: of the first run. If a person's time runs out while no page is open, the clock
            restarts when a page is opened.
        episodes: per run.
        fps: turns per second for spectators.
        is_opened: open the browser, if there is a screen.
        ended: called with every episode.
        thinks: show what the networks of the agents would choose.
        source: as for `ReplayWriter`.
    """
    page = GamePage(game, names, look, fps=fps, episodes=episodes, ended=ended, thinks=thinks)
    with page.server:
        page.server.announce(game.name, is_opened=is_opened)
        is_wanted = True
        while is_wanted:
            is_interrupted = True
            with suppress(KeyboardInterrupt):
                agents = [
                    BrowserAgent(page, start.clock_s) if name == HUMAN else agent
                    for name, agent in zip(names, load(start.seed), strict=True)
                ]
                watch = page.begin_run(names, agents, source)
                with game_errors(game):
                    start.play(game, agents, watch, episodes)
                is_interrupted = False
            is_left = page.seen.is_left(episodes)
            if is_left:
                echo("left before the end")
            echo(start.seeds)
            is_wanted = False
            with suppress(KeyboardInterrupt):
                is_wanted = not is_left and not is_interrupted and page.wants_more()
            start = replace(start, seed=start.seed + 1)


class BrowserAgent(PolicyAgent):
    """A person at a page; accepts only legal actions, and asks actor by actor.

    Args:
        page: may be shared with other people.
        clock_s: time per decision; None = no limit.
    """

    def __init__(self, page: GamePage, clock_s: float | None = None) -> None:
        super().__init__()
        self._clock = None if clock_s is None else MoveClock(clock_s)
        self._page = page

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        run = self._run
        turn = Turn(run.agent_id, run.num_steps, run.last_score, observation)
        if self._clock is not None:
            self._clock.begin(run.num_steps)
        try:
            asked = self.questions(observation)
            actions = self._page.ask(turn, asked, is_at_once=run.is_async, clock=self._clock)
            if self._clock is not None:
                time.sleep(self._clock.rest_s)
            return actions
        except KeyboardInterrupt:
            return None
