"""PixelView: draws the screen of a machine while it is played, and its distance from the goal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console, Group, RenderableType
from rich.text import Text

from entity_env.agents import Agent
from entity_env.authoring.game import Game
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.cli.load_game import is_batch
from entity_env.core.spaces import GLOBAL_ENTITY
from entity_env.games import BATCH_GAMES
from entity_env.games.pixel.play import open_rom, pixel_rom, play_env
from entity_env.games.pixel.viewer import GREENS, LIGHT_GREENS, draw_pixels

if TYPE_CHECKING:
    from entity_env.games.pixel.env import PixelGoalEnv
    from entity_env.games.pixel.worlds.world import World

_MAX_QUESTION_LINES: Final = 4
"""Lines of the prompt of a human agent, including the one with the cursor."""


class PixelView(TerminalView):
    """Draws the machine's own screen; play its attribute `game`, whose machine it can read."""

    def __init__(
        self, game: Game, console: Console, *, fps: float | None, humans: tuple[int, ...]
    ) -> None:
        super().__init__(game, console, fps=fps, humans=humans)
        self._console = console
        self._env: PixelGoalEnv | None = None
        self._has_goal = game.play is not pixel_rom.play or bool(game.settings.get("goal"))
        self.game = game.with_settings()
        # This copy is no batch game any more: it is for `Game.run`, not for many copies.
        self.game.play = self._play

    def _play(self, agent: Agent, *, seed: int, **settings: object) -> None:
        name = self._game.name
        opened: Callable[..., Any] = BATCH_GAMES[name].batch if name != pixel_rom.name else open_rom
        self._env = opened(1, **settings)
        play_env(agent, self._env, seed)

    def _frame(self) -> RenderableType:
        lines = list(self._lines())
        if self._env is None:
            return Group(*lines)
        rows = self._console.height - len(lines) - _MAX_QUESTION_LINES
        drawn = draw_pixels(
            self._env.pixels[0].cpu().numpy(),
            self._console.width,
            max(1, rows),
            colors=colors_of(self._env.world),
            has_colors=self._console.color_system is not None,
            ascii_only=self._ascii_only,
        )
        return Group(drawn, *lines)

    def _lines(self) -> Iterator[RenderableType]:
        yield Text.assemble((self._game.name, "bold"), (f"  episode {self._episode + 1}", "dim"))
        yield self._status_table()
        if self._has_goal:
            yield from (
                Text(self._describe(entity), no_wrap=True)
                for entity in self._entities()
                if entity.type == GLOBAL_ENTITY
            )


def viewed(
    game: Game, console: Console, *, fps: float, humans: tuple[int, ...]
) -> tuple[Game, TerminalView]:
    """The view of a game and the game to play with it; arguments as for `TerminalView`."""
    if not (is_batch(game) and game.action_space() == pixel_rom.action_space()):
        return game, TerminalView(game, console, fps=fps, humans=humans)
    view = PixelView(game, console, fps=fps, humans=humans)
    return view.game, view


def colors_of(world: World) -> tuple[str, ...]:
    """The colours of shades 0 to 3: a Game Boy's background is bright, others' are dark."""
    from entity_env.games.pixel.worlds.game_boy import PyBoyWorld  # here: it imports torch

    return LIGHT_GREENS if isinstance(world, PyBoyWorld) else GREENS
