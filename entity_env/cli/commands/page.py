"""`entity-env page`: a game as a folder of static files, to be played in any browser."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

from markdown_it import MarkdownIt

from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX, agent_bytes
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.authoring.game import Game
from entity_env.authoring.load_module import split_file_name
from entity_env.cli.command import CliOption
from entity_env.cli.display.console import echo
from entity_env.cli.load_game import AgentLoader, load_game
from entity_env.cli.options import Clock, Folder, GameName, GameSettings
from entity_env.core.files import read_file
from entity_env.errors import CheckpointError, UsageError
from entity_env.page.folder import PageAgent, PageOptions, require_page_folder, write_page
from entity_env.page.live.worker import RANDOM
from entity_env.page.obstacles import find_obstacles, trial_job
from entity_env.page.pyodide import Pyodide
from entity_env.page.trial import play_trial

_MAX_ABOUT: Final = 1 << 20
_FAILED: Final = 1


@dataclass(frozen=True, kw_only=True)
class WritePage:
    """Write a game as a web page that anyone can play.

    The folder has only static files: the game's own unchanged files, this package, Python for
    browsers (Pyodide), and the agents. Any web server can serve it. First, one episode is played
    with only what a page has; if the game needs more, its lines are listed and nothing is written.
    """

    game: GameName
    out: Annotated[Folder, CliOption("Folder to write.", metavar="FOLDER")]
    agents: Annotated[tuple[str, ...], CliOption(name="--agent", metavar="[LABEL=]AGENT")] = ()
    """An agent that visitors can choose: an exported *.agent file, the folder of a checkpoint or
    training run, a bot FILE.py:CLASS, or an agent of the game. LABEL is what visitors read. May be
    repeated, for example for levels of difficulty."""
    title: Annotated[str | None, CliOption(metavar="TEXT", default="the name of the game")] = None
    """Headline."""
    about: Annotated[Path | None, CliOption(metavar="FILE.md")] = None
    """Text below the headline, in Markdown."""
    sample: bool = False
    """Trained agents sample their actions instead of taking the most probable ones."""
    clock_s: Clock = None
    pyodide: Annotated[
        str | None, CliOption(metavar="FOLDER|cdn", default="the folder in the cache, if it exists")
    ] = None
    """Where the page gets Python from: a folder with the files of `npm pack pyodide`, which are
    copied, or cdn, which loads them from cdn.jsdelivr.net and checks their hashes."""
    send: Annotated[str | None, CliOption(metavar="URL")] = None
    """Address to which finished games are sent if the visitor agrees, such as the one that
    `entity-env collect` prints."""
    edit: bool = False
    """Let visitors edit the game, and play what they wrote."""
    serve: bool = False
    """Then serve the page on this machine, until Ctrl-C."""
    settings: GameSettings

    def run(self) -> None:
        if self.send is not None and urlsplit(self.send).scheme not in ("http", "https"):
            raise UsageError(f"--send needs an address that begins with https://, got {self.send}")
        require_page_folder(self.out)
        pyodide = Pyodide.find(self.pyodide)
        about = "" if self.about is None else _html_of(self.about)
        game = load_game(self.game, self.settings.texts)
        folder = Path(trial_job(game).folder)
        agents = _named([_agent(game, folder, text) for text in self.agents])
        bots = [each.name for each in agents if each.kind == "bot"]
        inside = [name for name in bots if (folder / name.partition(":")[0]).is_file()]
        available = [module for modules in pyodide.packages.values() for module in modules]
        found = find_obstacles(game, available=available, play=partial(play_trial, inside))
        if found.obstacles:
            echo(f"{game.name} cannot run in a page:", err=True)
            for obstacle in found.obstacles:
                echo(f"  {obstacle}", err=True)
            raise SystemExit(_FAILED)
        options = PageOptions(
            title=self.title or game.name,
            about=about,
            seats=_seats(game, agents),
            clock_s=self.clock_s,
            greedy=not self.sample,
            send=self.send,
            editable=self.edit,
        )
        sizes = write_page(self.out, found, agents, pyodide, options)
        own = sum(size for name, size in sizes.items() if not name.startswith("pyodide/"))
        echo(f"{self.out}: {len(sizes)} files, {own / 1e6:.1f} MB without Python")
        if self.serve:
            _serve(self.out)
        else:
            echo(f"try it: entity-env page ... --serve, or python -m http.server -d {self.out}")


def _seats(game: Game, agents: Sequence[PageAgent]) -> list[str]:
    """A person in the first seat; in the others the first agent, or random moves."""
    opponent = agents[0].name if agents else RANDOM
    return [HUMAN, *[opponent] * (game.num_agents - 1)]


def _agent(game: Game, folder: Path, text: str) -> PageAgent:
    label, _, source = text.rpartition("=")
    if source in game_agents(game).names:
        return PageAgent(source, label or source, "own")
    if (file := split_file_name(source)) is not None:
        path, inner = file
        AgentLoader()(source, 0)  # an error for a bad file
        whole = path.resolve()
        own = whole.relative_to(folder).as_posix() if whole.is_relative_to(folder) else path.name
        name = f"{own}:{inner}" if inner else own
        return PageAgent(name, label or inner or path.stem, "bot", path.read_bytes())
    if source in (HUMAN, RANDOM):
        raise UsageError(f"--agent {source}: visitors can always choose {source}")
    weights = read_network(Path(source))
    try:
        NumpyAgent(weights).require_game(game.schema)
    except CheckpointError as error:
        raise CheckpointError(f"--agent {source}: {error}") from error
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", Path(source).stem) or "agent"
    return PageAgent(f"{name}{SUFFIX}", label or Path(source).stem, "network", agent_bytes(weights))


def _named(agents: Sequence[PageAgent]) -> list[PageAgent]:
    """The agents under different names; equal ones have numbers."""
    taken: set[str] = set()
    found = []
    for agent in agents:
        stem, number, name = agent.name.removesuffix(SUFFIX), 1, agent.name
        while name in taken:
            number += 1
            name = f"{stem}-{number}{SUFFIX}"
        taken.add(name)
        found.append(PageAgent(name, agent.words, agent.kind, agent.content))
    return found


def _html_of(path: Path) -> str:
    try:
        text = read_file(path, _MAX_ABOUT).decode()
    except (OSError, ValueError) as error:
        raise UsageError(f"--about {path}: {error}") from error
    return str(MarkdownIt("commonmark", {"html": False}).render(text))


class PageFiles(SimpleHTTPRequestHandler):
    """Serves the files of a page; browsers ask again whether they have changed."""

    extensions_map: Any = {  # noqa: RUF012 - as in the base class
        **SimpleHTTPRequestHandler.extensions_map,
        ".mjs": "text/javascript",
        ".wasm": "application/wasm",
        ".agent": "application/octet-stream",
    }

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-cache")
        super().end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


def _serve(folder: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(PageFiles, directory=str(folder)))
    server.daemon_threads = True
    with server, suppress(KeyboardInterrupt):
        echo(f"serving on http://127.0.0.1:{server.server_port}/ until Ctrl-C")
        server.serve_forever()
