"""`entity-env page`: a game as a folder of static files, to be played in any browser."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from itertools import count
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

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
from entity_env.cli.options import (
    STEP_TIMEOUT_S,
    Clock,
    Folder,
    GameName,
    GameSettings,
    PageTimeout,
)
from entity_env.core.files import read_file
from entity_env.errors import CheckpointError, UsageError, shown
from entity_env.page.folder import PageAgent, PageOptions, require_page_folder, write_page
from entity_env.page.live.worker import RANDOM
from entity_env.page.obstacles import find_obstacles, trial_job
from entity_env.page.pyodide import Pyodide
from entity_env.page.trial import play_trial

_MAX_ABOUT: Final = 1 << 20
_FAILED: Final = 1
_ADDRESS: Final = re.compile(r"https?://[\w.:\[\]-]+(/[^\s\"'<>]*)?", re.ASCII)


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
    greedy: Annotated[
        bool | None,
        CliOption(
            "Trained agents take the most probable action, or sample.",
            name="--greedy/--sample",
            default="what plays better, as measured at the end of their training; else --greedy",
        ),
    ] = None
    clock_s: Clock = None
    pyodide: Annotated[
        str | None, CliOption(metavar="FOLDER|cdn", default="the folder in the cache, if it exists")
    ] = None
    """Where the page gets Python from: a folder with the files of `npm pack pyodide`, which are
    copied, or cdn, which loads them, and numpy if the game needs it, from cdn.jsdelivr.net and
    checks their hashes."""
    send: Annotated[str | None, CliOption(metavar="URL")] = None
    """Address to which finished games are sent if the visitor agrees, such as the one that
    `entity-env collect` prints."""
    edit: bool = False
    """Let visitors edit the game, and play what they wrote."""
    step_timeout_s: PageTimeout = STEP_TIMEOUT_S
    serve: bool = False
    """Then serve the page on this machine, until Ctrl-C."""
    settings: GameSettings

    def run(self) -> None:
        if self.send is not None and not _ADDRESS.fullmatch(self.send):
            raise UsageError(
                f"--send needs an address such as https://example.com/key, got {shown(self.send)}"
            )
        require_page_folder(self.out)
        pyodide = Pyodide.find(self.pyodide)
        about = "" if self.about is None else _html_of(self.about)
        game = load_game(self.game, self.settings.texts)
        agents, bots = _agents(game, Path(trial_job(game).folder), self.agents, self.greedy)
        # The trial plays the files of bots where they are.
        kinds = {
            f"{bots.get(each.file, '')}{each.name.removeprefix(each.file)}": each.kind
            for each in agents
            if each.kind != "network"
        }
        found = find_obstacles(
            game,
            available=pyodide.modules,
            bots=bots.values(),
            play=partial(play_trial, kinds),
        )
        if found.package is not None and self.out.resolve().is_relative_to(found.package):
            raise UsageError(
                f"--out {self.out} is in the package of the game, all of which a page contains: "
                "name a folder elsewhere"
            )
        if self.edit and not found.file:
            raise UsageError(
                f"--edit: {game.name} is part of this package; copy it to a file of yours, and "
                "name that"
            )
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
            send=self.send,
            editable=self.edit,
            step_timeout_s=self.step_timeout_s,
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


def _agents(
    game: Game, folder: Path, texts: Sequence[str], greedy: bool | None
) -> tuple[list[PageAgent], dict[str, Path]]:
    """The agents, with different names and labels; and the files of bots, by name in the page.

    Args:
        folder: of the game.
        greedy: as requested for all networks.
    """
    found: list[PageAgent] = []
    bots: dict[str, Path] = {}
    for text in texts:
        agent, file = _agent(game, text, greedy)
        if file is not None:
            place = _place(file, folder, bots)
            bots[place] = file
            agent = replace(agent, name=f"{place}{agent.name}", file=place)
        names, words = [each.name for each in found], [each.words for each in found]
        if agent.kind != "network" and agent.name in names:
            raise UsageError(f"--agent {text}: this agent is named twice")
        name, label = _free(agent.name, names, SUFFIX), _free(agent.words, words)
        found.append(replace(agent, name=name, words=label))
    return found, bots


def _agent(game: Game, text: str, greedy: bool | None) -> tuple[PageAgent, Path | None]:
    """An agent; for a bot its file, and as its name what follows that of the file."""
    is_whole = "=" not in text or _file(text).exists()
    label, _, source = ("", "", text) if is_whole else text.partition("=")
    if source in game_agents(game).names:
        return PageAgent(source, label or source, "own"), None
    if (place := split_file_name(source)) is not None:
        path, inner = place
        AgentLoader()(source, 0)  # an error for a bad file
        words, name = label or inner or path.stem, f":{inner}" if inner else ""
        return PageAgent(name, words, "bot", path.read_bytes()), path.resolve()
    if source in (HUMAN, RANDOM):
        raise UsageError(f"--agent {source}: visitors can always choose {source}")
    weights = read_network(Path(source))
    try:
        NumpyAgent(weights).require_game(game.schema)
    except CheckpointError as error:
        raise CheckpointError(f"--agent {source}: {error}") from error
    words = label or Path(source).resolve().stem
    name = re.sub(r"[^A-Za-z0-9_-]+", "_", Path(source).resolve().stem) or "agent"
    is_greedy = weights.plays_greedily(greedy, if_unknown=True)
    content = agent_bytes(weights)
    return PageAgent(f"{name}{SUFFIX}", words, "network", content, greedy=is_greedy), None


def _file(source: str) -> Path:
    place = split_file_name(source)
    return Path(source) if place is None else place[0]


def _place(file: Path, folder: Path, taken: Mapping[str, Path]) -> str:
    """The name in the page of a bot's file: as in the game's folder, or one that is free there."""
    if file.is_relative_to(folder):
        return file.relative_to(folder).as_posix()
    places = (f"bots/{i}/{file.name}" if i > 1 else file.name for i in count(1))
    return next(
        each for each in places if taken.get(each, file) == file and not (folder / each).exists()
    )


def _free(name: str, taken: Collection[str], suffix: str = "") -> str:
    """A name that is not taken: with a number, if needed."""
    stem = name.removesuffix(suffix)
    names = (name, *(f"{stem}-{i}{suffix}" for i in range(2, len(taken) + 2)))
    return next(each for each in names if each not in taken)


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

    timeout = 120

    def handle(self) -> None:
        with suppress(ConnectionError):  # the browser is gone
            super().handle()

    def send_head(self) -> BytesIO | BinaryIO | None:
        try:
            return super().send_head()
        except ValueError:  # a name that no file can have
            self.send_error(HTTPStatus.NOT_FOUND)
            return None

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
