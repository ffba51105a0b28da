"""`write_page`: a game as a folder of static files."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import quote, urlsplit

from entity_env.core.files import parse_json, read_file, zip_of
from entity_env.errors import UsageError
from entity_env.page.live.worker import RANDOM
from entity_env.page.obstacles import PageContents
from entity_env.page.pyodide import FILES, Pyodide
from entity_env.views.page import content_policy, minified_script, player_sources, template

_WEB: Final = Path(__file__).with_name("web")
_PACKAGE: Final = Path(__file__).parents[1]
_NETWORK: Final = Path(__file__).with_name("network.mjs")
_WORKER: Final = _WEB / "worker.mjs"
_CONFIG: Final = "game.json"
_MAX_CONFIG: Final = 1 << 24
_NO_JEKYLL: Final = ".nojekyll"
"""Without this file, GitHub Pages leaves out files such as `__init__.py`."""
_COPIED: Final = "pyodide/"
"""Folder of the page with Python, unless it comes from a server."""
_MEGABYTE: Final = 1e6

AgentKind: TypeAlias = Literal["network", "bot", "own"]


@dataclass(frozen=True)
class PageAgent:
    """An agent that visitors of a page can choose.

    Args:
        name: of the file in the page, with the name in it for a bot; or of the game's own agent.
        words: what visitors see.
        content: of an exported network or of the file of a bot; empty for the game's own agent.
        file: of a bot, in the folder of the game.
        greedy: a network takes its most probable action.
    """

    name: str
    words: str
    kind: AgentKind
    content: bytes = b""
    file: str = ""
    greedy: bool = True


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Texts and choices of a page.

    Args:
        title: headline.
        about: HTML below it.
        seats: who plays at first, a name per agent: "human", "random" or that of an agent.
        clock_s: time per decision of a person if a visitor wants it; None = not offered.
        send: address to which finished games are sent if the visitor agrees; None = nowhere.
        editable: visitors can edit the file of the game, and play what they wrote.
        step_timeout_s: of a step of the game, and of a decision of an agent; None = no limit.
    """

    title: str
    about: str = ""
    seats: Sequence[str] = ()
    clock_s: float | None = None
    send: str | None = None
    editable: bool = False
    step_timeout_s: float | None = None


def write_page(
    out: Path,
    contents: PageContents,
    agents: Sequence[PageAgent],
    pyodide: Pyodide,
    options: PageOptions,
) -> dict[str, int]:
    """Writes the files of a page, for any web server.

    Args:
        out: see `require_page_folder`.
        contents: of the page, from `find_obstacles`.
        agents: with different names.
        pyodide: copied to the page, unless its `folder` is None.

    Files of an earlier page that this one lacks are deleted. After an error or Ctrl-C, the folder
    is as before.

    Returns:
        Size in bytes of every file, by name.

    Raises:
        UsageError: the file of a package is missing.
    """
    in_game, files = _own_files(contents, agents)
    packages = pyodide.packages_of(contents.packages)
    wheels = [wheel.file for wheel in packages.values()]
    copied = (
        {}
        if pyodide.folder is None
        else {f"{_COPIED}{name}": pyodide.folder / name for name in (*FILES, *wheels)}
    )
    size = sum(map(len, files.values())) + pyodide.size
    size += sum(wheel.size for wheel in packages.values())
    config = {
        "title": options.title,
        **contents.config,
        "agents": {each.name: each.kind for each in agents},
        "players": [*([each.name, each.words] for each in agents), [RANDOM, "Random moves"]],
        "seats": options.seats,
        "clock_s": options.clock_s,
        "step_timeout_s": options.step_timeout_s,
        "start": {"greedy": {each.name: each.greedy for each in agents if each.kind == "network"}},
        "files": {name.removeprefix("game/"): quote(name) for name in in_game},
        "pyodide": pyodide.url,
        "hashes": pyodide.hashes,
        "version": sha256(files["entity_env.zip"]).hexdigest()[:16],
        "packages": [*packages],
        "wheels": pyodide.wheels_url if packages else "",
        "mb": max(1, round(size / _MEGABYTE)),
        "send": options.send,
        "editable": contents.file if options.editable else "",
    }
    files[_CONFIG] = json.dumps(config).encode()
    elsewhere = [pyodide.url, str(config["wheels"]), options.send or ""]
    files["index.html"] = _index(options, elsewhere).encode()
    _write(out, files, copied)
    return {name: (out / name).stat().st_size for name in (*files, *copied)}


def _own_files(
    contents: PageContents, agents: Sequence[PageAgent]
) -> tuple[list[str], dict[str, bytes]]:
    """Names of the files in the game's folder, and all files but Python, configuration and page."""
    own = {f"game/{name}": _content(contents, name) for name in contents.files}
    bots = {f"game/{each.file}": each.content for each in agents if each.kind == "bot"}
    networks = {f"agents/{each.name}": each.content for each in agents if each.kind == "network"}
    in_game = {**own, **bots}
    files = {
        **in_game,
        **networks,
        "entity_env.zip": _library(contents.modules),
        "network.mjs": _script(_NETWORK),
        "worker.mjs": _script(_WORKER),
        _NO_JEKYLL: b"",
    }
    return [*in_game], files


def _write(out: Path, files: Mapping[str, bytes], copied: Mapping[str, Path]) -> None:
    old = (_page_files(out) or set()) - {*files, *copied}
    is_new = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    try:
        with TemporaryDirectory(prefix=".page-", dir=out) as folder:
            made = Path(folder)
            for name in (*files, *copied):
                (made / name).parent.mkdir(parents=True, exist_ok=True)
            for name, source in copied.items():
                shutil.copyfile(source, made / name)
            for name, content in files.items():
                (made / name).write_bytes(content)
            # First the file by which the folder is known to have a page.
            for name in (_CONFIG, *(each for each in (*files, *copied) if each != _CONFIG)):
                (out / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(made / name, out / name)
    except BaseException:
        if is_new:
            with suppress(OSError):  # has files
                out.rmdir()
        raise
    for name in old:
        (out / name).unlink(missing_ok=True)
        with suppress(OSError):  # has other files
            (out / name).parent.rmdir()


def _page_files(out: Path) -> set[str] | None:
    """Files of the page in a folder that another page may lack; None if there is no page."""
    try:
        config: Any = parse_json(read_file(out / _CONFIG, _MAX_CONFIG))
        networks = [name for name, kind in config["agents"].items() if kind == "network"]
        names = [f"game/{name}" for name in config["files"]]
        names += [f"agents/{name}" for name in networks]
        if config["pyodide"] == _COPIED:
            names += [f"{_COPIED}{each.name}" for each in (out / _COPIED).iterdir()]
        root = out.resolve()
        return {each for each in names if (root / each).resolve().is_relative_to(root)}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError):
        return None


def require_page_folder(out: Path) -> None:
    """Raises `UsageError` unless a page can be written to a folder.

    It must be new or empty, or have a page, whose files are then replaced.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file: name a folder")
    if out.is_dir() and any(out.iterdir()) and _page_files(out) is None:
        raise UsageError(f"--out {out} has other files, and no page: name a new folder")


def _script(path: Path) -> bytes:
    return minified_script(path.read_text(encoding="utf-8")).encode()


def _content(contents: PageContents, name: str) -> bytes:
    return b"" if contents.folder is None else (contents.folder / name).read_bytes()


def _library(modules: Iterable[str]) -> bytes:
    """The modules of this package and the files that they read, as a zip."""
    paths = sorted({*map(_file_of, modules), *_read_files()})
    # Those that are missing are compiled, and optional.
    return zip_of(
        {path.relative_to(_PACKAGE.parent).as_posix(): path for path in paths if path.is_file()}
    )


def _file_of(module: str) -> Path:
    path = _PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _read_files() -> Iterable[Path]:
    return (path for path in _PACKAGE.joinpath("views").iterdir() if path.suffix in _WEB_FILES)


_WEB_FILES: Final = (".html", ".js", ".css")


def _index(options: PageOptions, urls: Iterable[str]) -> str:
    """The page, which may use these addresses of other servers."""
    html = template(_WEB / "index.html")
    texts = {"TITLE": escape(options.title), "ABOUT": options.about}
    html = re.sub("@(TITLE|ABOUT)@", lambda found: texts[found[1]], html)
    elsewhere = [_source_of(url) for url in urls if "://" in url]
    policy = content_policy(
        html + player_sources(),
        script="'self' blob: 'wasm-unsafe-eval'",
        worker="blob:",
        connect=" ".join(["'self'", *elsewhere]),
    )
    return html.replace("@POLICY@", policy, 1)


def _source_of(url: str) -> str:
    """An address as a source of a Content-Security-Policy: with its path, without its query."""
    parts = urlsplit(url)
    path = quote(parts.path, safe="/%:@!$&()*+=~")
    return f"{parts.scheme}://{parts.netloc}{path}"
