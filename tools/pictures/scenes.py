"""Scenes of the pictures in the docs: each is a command, as a reader types it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from PIL import Image

from entity_env.page.pyodide import cache_folder
from tools.docs import gallery
from tools.pictures.browser import screenshot, served
from tools.pictures.games import png_of
from tools.pictures.terminal import screen_of, svg_of
from tools.pictures.workshop import Workshop

_FIRST: Final = "entity-env train robots.py --steps 20000 --out runs/first"
# staggered_steps is set: by default it depends on a trial of the game, short on a busy machine.
_SAME: Final = "--set board_size=6 --steps 20000 --seeds 1..3 --set-train staggered_steps=10"
_STUDY: Final = (
    f"entity-env train snake {_SAME} --out runs/study/plain",
    f"entity-env train snake {_SAME} --learning-rate 0.001 --out runs/study/small",
)
_KEY: Final = "entity-env train hidden_key.py --steps 60000 --num-workers 0"
_ROBOTS: Final = "entity-env record robots.py --agent random --seed 2"
_TOWERS: Final = "entity-env record towers.py --seed 1 --agent random"
_SQUADS: Final = "entity-env record squads.py --seed 1 --agent random --agent random"
_SNAKE_AGENT: Final = gallery.TRAINED["snake"]
_SNAKE: Final = f"entity-env record snake --agent {_SNAKE_AGENT} --seed 7"


class Scene(Protocol):
    """A picture."""

    def draw(self, shop: Workshop) -> bytes:
        """The content of its file."""


@dataclass(frozen=True)
class Terminal:
    """The screen of a command.

    Args:
        command: as it is typed.
        shows: a regular expression. The first screen that matches is drawn, and the command is
            ended; "" = the screen at its end.
        needs: commands to run before it.
        rows, columns: size of the terminal.
    """

    command: str
    shows: str = ""
    needs: tuple[str, ...] = ()
    rows: int = 26
    columns: int = 84

    def draw(self, shop: Workshop) -> bytes:
        shop.need(self.needs)
        screen = screen_of(
            shop.words(self.command),
            shop.folder,
            shop.variables,
            shows=self.shows,
            size=(self.columns, self.rows),
        )
        screen = screen.replace(f"{shop.folder}/", "")  # differs every time
        return svg_of(screen, f"$ {self.command}").encode()


@dataclass(frozen=True)
class Served:
    """The page that a command serves.

    Args:
        command, needs: as for `Terminal`.
        ready: a JavaScript expression that is true once the page shows everything.
        size: width and height in pixels.
    """

    command: str
    ready: str
    size: tuple[int, int]
    needs: tuple[str, ...] = ()

    def draw(self, shop: Workshop) -> bytes:
        shop.need(self.needs)
        with served(self.command, shop) as url:
            return _small(screenshot(url, self.ready, self.size, shop))


@dataclass(frozen=True)
class Written:
    """The page that a command writes to `out.html`.

    Args:
        command, needs, ready, size: as for `Served`.
        place: what follows the address of the file.
    """

    command: str
    ready: str
    size: tuple[int, int]
    needs: tuple[str, ...] = ()
    place: str = ""

    def draw(self, shop: Workshop) -> bytes:
        shop.need((*self.needs, self.command))
        url = (shop.folder / "out.html").as_uri() + self.place
        return _small(screenshot(url, self.ready, self.size, shop))


@dataclass(frozen=True)
class Drawn:
    """The picture that a command writes to `out.png`.

    Args:
        command, needs: as for `Terminal`.
        width: maximum width in pixels.
    """

    command: str
    needs: tuple[str, ...] = ()
    width: int = 480

    def draw(self, shop: Workshop) -> bytes:
        shop.need(self.needs)
        path = shop.folder / "out.png"
        path.unlink(missing_ok=True)
        shop.run(self.command)
        return _small(path, self.width)


def _small(path: Path, width: int = 2000) -> bytes:
    with Image.open(path) as image:
        if image.width > width:
            size = (width, round(image.height * width / image.width))
            return png_of(image.convert("RGB").resize(size, Image.Resampling.LANCZOS))
        return png_of(image)


_WINDOW: Final = """\
import pygame, window
from entity_env.agents import RandomAgent
num_left = 60
def flip():
    global num_left
    num_left -= 1
    if not num_left:
        pygame.image.save(pygame.display.get_surface(), "out.png")
        raise SystemExit
pygame.display.flip = flip
window.main(RandomAgent(seed=1))
"""
SCENES: Final[Mapping[str, Scene]] = {
    "play_human.svg": Terminal("entity-env play robots.py --agent human --seed 1", "q quit"),
    "train.svg": Terminal("entity-env train robots.py --steps 50000 --out runs/shown", r" 6\d%"),
    "think.svg": Terminal(
        f"entity-env play snake --agent {_SNAKE_AGENT} --think --seed 2", r"step 30 .*\n(.*\n)+.*╯"
    ),
    "check.svg": Terminal("entity-env check forgetful.py"),
    "games.svg": Terminal("entity-env games", columns=110, rows=40),
    "runs.svg": Terminal("entity-env runs runs/study", needs=_STUDY, columns=110, rows=40),
    "league.svg": Terminal(
        "entity-env eval tic_tac_toe --agents random,careful.py:Centre,examples/bot.py:Careful"
        " --games 200",
        columns=100,
    ),
    "take_over.svg": Terminal(
        "entity-env replay robots.replay --take-over 10 --agent human", "q quit", (_ROBOTS,)
    ),
    "liar.svg": Terminal(
        "entity-env play liar.py --agent random --agent human --agent random --seed 1", "q quit"
    ),
    "pegs.svg": Terminal("entity-env play pegs.py --agent human --seed 1", "q quit"),
    "play_browser.png": Served(
        "entity-env play robots.py --agent human --browser --no-open --seed 1",
        "document.querySelectorAll('#choices button').length",
        (1000, 500),
    ),
    "web_page.png": Served(
        f"entity-env page snake --agent Trained={_SNAKE_AGENT} --out page --serve",
        "config && (worker || (config.start.seed = 2, setup.requestSubmit())) && frame?.asked",
        (1000, 560),
    ),
    "watch.png": Served(
        "entity-env watch runs/first --no-open",
        "document.querySelectorAll('#report svg').length",
        (1000, 720),
        (_FIRST,),
    ),
    "report.png": Written(
        "entity-env report runs/study --out out.html",
        "document.querySelectorAll('svg').length",
        (1000, 760),
        _STUDY,
    ),
    "remembers.png": Written(
        "entity-env report runs/forgets runs/remembers --out out.html",
        "document.querySelectorAll('svg').length",
        (1000, 620),
        (
            f"{_KEY} --out runs/forgets",
            f"{_KEY} --set-train net.memory=32 --out runs/remembers",
        ),
    ),
    "replay_page.png": Written(
        f"entity-env draw snake.replay --agent {_SNAKE_AGENT} --out out.html",
        "document.body.dataset.ready",
        (1100, 520),
        (_SNAKE,),
        "#40",
    ),
    "squads.png": Drawn("entity-env draw squads.replay --out out.png --at 12", (_SQUADS,)),
    "towers.png": Drawn("entity-env draw towers.replay --out out.png --at 14", (_TOWERS,)),
    "look_default.png": Drawn(
        "entity-env draw robots.replay --out out.png --at 4", (_ROBOTS,), 240
    ),
    "look_robots.png": Drawn(
        "entity-env draw robots.replay --look looks/robots_look.py --out out.png --at 4",
        (_ROBOTS,),
        240,
    ),
    "look_bars.png": Drawn(
        "entity-env draw robots.replay --look looks/bars_look.py --out out.png --at 4",
        (_ROBOTS,),
        240,
    ),
    "look_towers.png": Drawn(
        "entity-env draw towers.replay --look looks/towers_look.py --out out.png --at 14",
        (_TOWERS,),
    ),
    "attention.png": Drawn(
        f"entity-env draw snake.replay --agent {_SNAKE_AGENT} --out out.png --at 40",
        (_SNAKE,),
        560,
    ),
    "window.png": Drawn("python show_window.py"),
}
"""By file name."""


def prepare(shop: Workshop) -> None:
    """Writes the files that the scenes need and no page contains."""
    game = (shop.folder / "crystals.py").read_text()
    # Beginners forget the answer None.
    forgetful = game.replace("        if move is None:\n            return\n", "")
    (shop.folder / "forgetful.py").write_text(forgetful)
    (shop.folder / "show_window.py").write_text(_WINDOW)
    shop.variables["XDG_CACHE_HOME"] = str(cache_folder().parents[1])  # for pages of games
