"""Pages of games on the site: a button loads each into the text, where readers play it.

A comment `<!--play: NAME-->` stands for the button of a game. Without Pyodide in the cache (see
`pyodide`), there are no buttons and no pages of games.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from entity_env import Game
from entity_env.agents.rogue_net.checkpoints.agent_file import agent_bytes
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.authoring.load_module import load_module
from entity_env.page.folder import PageAgent, PageOptions, write_page
from entity_env.page.live.worker import RANDOM
from entity_env.page.obstacles import PageContents, find_obstacles
from entity_env.page.pyodide import FILES, Pyodide
from entity_env.page.trial import play_trial
from tools.docs.gallery import TRAINED
from tools.docs.pyodide import is_there
from tools.golden_replays import GAMES_BY_NAME, ROOT

GAMES: Final = (
    "snake",
    "multi_snake",
    "treasure_hunt",
    "cherry_pick",
    "rock_paper_scissors",
    "tic_tac_toe",
)
"""Games of the package that run in a page; all others need numpy."""
EXAMPLES: Final = ("skirmish",)
"""Games of the folder `examples`."""
TUTORIAL: Final = "crystals"
"""The game that readers edit, see `_TUTORIAL_PAGE`."""
_TUTORIAL_PAGE: Final = ROOT / "docs" / "tutorials" / "first_game.md"
_TUTORIAL_FILE: Final = re.compile(rf"^```python\n(# {TUTORIAL}\.py\n.*?)^```$", re.M | re.S)
_MARK: Final = re.compile(r"^<!--play: (\w+)-->$", re.MULTILINE)
_FOLDER: Final = "play"
_PYODIDE: Final = f"{_FOLDER}/pyodide"


def mark(name: str) -> str:
    """The comment that stands for the button of a game; "" for a game without a page."""
    return f"<!--play: {name}-->" if name in GAMES else ""


def with_buttons(text: str, page: str) -> str:
    """A page of the site with buttons instead of comments.

    Args:
        page: path of the page from the root of the site.
    """
    up = "../" * page.count("/")

    def button(match: re.Match[str]) -> str:
        name = match[1]
        if not is_there():
            return ""
        query, words = ("?edit", "Edit and play") if name == TUTORIAL else ("?play", "Play")
        return (
            f'<p><button type="button" class="play-here" data-title="{name}"'
            f' data-src="{up}{_FOLDER}/{name}/index.html{query}">'
            f"{words} here ({megabytes()} MB)</button></p>"
        )

    return _MARK.sub(button, text)


def megabytes() -> int:
    """Size of what the first game of a reader loads, which is almost only Pyodide."""
    return round(Pyodide.find(None).size / 1e6)


def files() -> Iterator[tuple[str, bytes]]:
    """Path and content of the files of all games, and of the Pyodide that they share."""
    if not is_there():
        return
    found = Pyodide.find(None)
    if found.folder is None:
        raise FileNotFoundError("the cache has a folder")
    for name in FILES:
        yield f"{_PYODIDE}/{name}", (found.folder / name).read_bytes()
    shared = replace(found, folder=None, url="../pyodide/")
    with TemporaryDirectory() as folder:
        pages = dict(_contents(Path(folder)))
        # The memory that browsers keep is found by the content of the package: one for all games.
        modules = tuple(sorted({name for each in pages.values() for name in each.modules}))
        for name, contents in pages.items():
            out = Path(folder, _FOLDER, name)
            write_page(
                out, replace(contents, modules=modules), _agents(name), shared, _options(name)
            )
            for path in out.rglob("*.*"):
                yield path.relative_to(folder).as_posix(), path.read_bytes()


def _contents(folder: Path) -> Iterator[tuple[str, PageContents]]:
    for name, game in {**_games(), TUTORIAL: _tutorial(folder)}.items():
        contents = find_obstacles(game, available=(), play=partial(play_trial, {}))
        if contents.obstacles:
            raise ValueError(f"{name} cannot run in a page: {contents.obstacles[0]}")
        yield name, contents


def _games() -> Mapping[str, Game]:
    found = {name: GAMES_BY_NAME[name] for name in GAMES}
    return found | {name: _game_of(ROOT / "examples" / f"{name}.py") for name in EXAMPLES}


@cache
def tutorial_game() -> str:
    """The file of the first tutorial's game."""
    found = _TUTORIAL_FILE.search(_TUTORIAL_PAGE.read_text("utf-8"))
    if found is None:
        raise ValueError(f"{_TUTORIAL_PAGE} does not contain {TUTORIAL}.py")
    return found[1]


def _tutorial(folder: Path) -> Game:
    path = folder / f"{TUTORIAL}.py"
    path.write_text(tutorial_game(), "utf-8")
    return _game_of(path)


def _game_of(path: Path) -> Game:
    game = getattr(load_module(path), path.stem)
    if not isinstance(game, Game):
        raise TypeError(f"{path} defines no game {path.stem}")
    return game


def _agents(name: str) -> list[PageAgent]:
    if name not in TRAINED:
        return []
    weights = agent_bytes(read_network(ROOT / TRAINED[name]))
    # Against a person, the most probable action every time would be easy to learn.
    greedy = _games()[name].num_agents == 1
    return [PageAgent(f"{name}.agent", "Trained agent", "network", weights, greedy=greedy)]


def _options(name: str) -> PageOptions:
    if name == TUTORIAL:
        return PageOptions(title=name, seats=["human"], editable=True)
    num_agents = _games()[name].num_agents
    opponent = f"{name}.agent" if name in TRAINED else RANDOM
    return PageOptions(title=name, seats=["human", *[opponent] * (num_agents - 1)])
