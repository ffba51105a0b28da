"""`play_in_browser`: people play a game in a page, or watch its agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from entity_env.agents import Agent
from entity_env.agents.human.prompt import HUMAN
from entity_env.authoring.game import Game
from entity_env.cli.browser.server import Download, Page, PageServer
from entity_env.cli.display.console import echo
from entity_env.cli.game_errors import game_errors
from entity_env.cli.options import PlayOptions
from entity_env.core.episode import Episode
from entity_env.page.live.game_page import LIVE_PAGE, BrowserAgent, GamePage
from entity_env.page.live.last_replay import LastReplay
from entity_env.replay import Replay
from entity_env.replay.file import SUFFIX
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
    served = ServedGame(game, names, look, fps=fps, episodes=episodes, ended=ended, thinks=thinks)
    page = served.page
    with served.server:
        served.server.announce(game.name, is_opened=is_opened)
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
                    start.play(game, agents, watch, episodes, names=names)
                is_interrupted = False
            is_left = page.seen.is_left(episodes)
            if is_left:
                echo("left before the end")
            echo(start.seeds)
            is_wanted = False
            with suppress(KeyboardInterrupt):
                is_wanted = not is_left and not is_interrupted and page.wants_more()
            start = replace(start, seed=start.seed + 1)


class ServedGame:
    """A game in a page of a `PageServer`; arguments as for `GamePage`.

    Routes of the server: "watch", the last episode as an animation; "save", its replay.
    """

    def __init__(
        self,
        game: Game,
        names: Sequence[str],
        look: Look,
        *,
        fps: float,
        episodes: int,
        ended: Callable[[Episode], None],
        thinks: bool = False,
    ) -> None:
        self._game, self._look = game, look
        self._live = Page.of(LIVE_PAGE)
        self._animation: tuple[Replay, Page] | None = None
        self.server = PageServer(self._get, lambda answer: self.page.answer(answer))
        self.page = GamePage(
            game, names, look, self.server, fps=fps, episodes=episodes, ended=ended, thinks=thinks
        )

    def _get(self, route: str) -> Page | Download | None:
        if not route:
            return self._live
        last = self.page.last
        if last is None or (replay := last.replay) is None:
            return None
        if route == "save":
            name = f"{self._game.name}-{replay.header.episode_seed}{SUFFIX}"
            return Download(name, replay.to_bytes())
        return self._page_of(last, replay) if route == "watch" else None

    def _page_of(self, last: LastReplay, replay: Replay) -> Page | None:
        """The animation of the last episode; made once."""
        if self._animation is None or self._animation[0] is not replay:
            animation = last.animation(self._game, self._look)
            if animation is None:
                return None
            self._animation = replay, Page.of_animation(animation.html())
        return self._animation[1]
