"""`write_page`: a game as a folder of static files."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final, Literal, TypeAlias
from urllib.parse import urlsplit

from entity_env.errors import UsageError
from entity_env.page.live.worker import RANDOM
from entity_env.page.obstacles import PageContents
from entity_env.page.pyodide import Pyodide
from entity_env.views.page import content_policy, minified_script, player_sources, template

_WEB: Final = Path(__file__).with_name("web")
_PACKAGE: Final = Path(__file__).parents[1]
_NETWORK: Final = Path(__file__).with_name("network.mjs")
_WORKER: Final = _WEB / "worker.mjs"
_CONFIG: Final = "game.json"
_MEGABYTE: Final = 1e6

AgentKind: TypeAlias = Literal["network", "bot", "own"]


@dataclass(frozen=True)
class PageAgent:
    """An agent that visitors of a page can choose.

    Args:
        name: of the file in the page, or of the game's own agent.
        words: what visitors see.
        content: of an exported network or of the file of a bot; empty for the game's own agent.
    """

    name: str
    words: str
    kind: AgentKind
    content: bytes = b""


@dataclass(frozen=True, kw_only=True)
class PageOptions:
    """Texts and choices of a page.

    Args:
        title: headline.
        about: HTML below it.
        seats: who plays at first, a name per agent: "human", "random" or that of an agent.
        clock_s: time per decision of a person if a visitor wants it; None = not offered.
        greedy: networks take the most probable action.
        send: address to which finished games are sent if the visitor agrees; None = nowhere.
        editable: visitors can edit the file of the game, and play what they wrote.
    """

    title: str
    about: str = ""
    seats: Sequence[str] = ()
    clock_s: float | None = None
    greedy: bool = True
    send: str | None = None
    editable: bool = False


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

    Returns:
        Size in bytes of every file, by name.
    """
    own = {f"game/{name}": _content(contents, name) for name in contents.files}
    bots = {
        f"game/{each.name.partition(':')[0]}": each.content for each in agents if each.kind == "bot"
    }
    networks = {f"agents/{each.name}": each.content for each in agents if each.kind == "network"}
    files = {
        **own,
        **bots,
        **networks,
        "entity_env.zip": _library(contents.modules),
        "network.mjs": _script(_NETWORK),
        "worker.mjs": _script(_WORKER),
    }
    copied = (
        {}
        if pyodide.folder is None
        else {f"pyodide/{name}": pyodide.folder / name for name in pyodide.files}
    )
    size = sum(map(len, files.values())) + pyodide.size
    config = {
        "title": options.title,
        **contents.config,
        "agents": {each.name: each.kind for each in agents},
        "players": [*([each.name, each.words] for each in agents), [RANDOM, "Random moves"]],
        "seats": options.seats,
        "clock_s": options.clock_s,
        "start": {"greedy": options.greedy},
        "files": {name.removeprefix("game/"): name for name in (*own, *bots)},
        "pyodide": pyodide.url,
        "hashes": pyodide.hashes,
        "version": sha256(files["entity_env.zip"]).hexdigest()[:16],
        "packages": pyodide.packages_of(contents.packages),
        "mb": max(1, round(size / _MEGABYTE)),
        "send": options.send,
        "editable": contents.file if options.editable else "",
    }
    files[_CONFIG] = json.dumps(config).encode()
    files["index.html"] = _index(options, pyodide).encode()
    _write(out, files, copied)
    return {name: (out / name).stat().st_size for name in (*files, *copied)}


def _write(out: Path, files: Mapping[str, bytes], copied: Mapping[str, Path]) -> None:
    for name in (*files, *copied):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
    for name, source in copied.items():
        shutil.copyfile(source, out / name)
    for name, content in files.items():
        (out / name).write_bytes(content)


def require_page_folder(out: Path) -> None:
    """Raises `UsageError` unless a page can be written to a folder.

    It must be new or empty, or have a page, whose files are then replaced.
    """
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out} is a file: name a folder")
    if out.is_dir() and any(out.iterdir()) and not (out / _CONFIG).is_file():
        raise UsageError(f"--out {out} has other files, and no page: name a new folder")


def _script(path: Path) -> bytes:
    return minified_script(path.read_text(encoding="utf-8")).encode()


def _content(contents: PageContents, name: str) -> bytes:
    return b"" if contents.folder is None else (contents.folder / name).read_bytes()


def _library(modules: Iterable[str]) -> bytes:
    """The modules of this package and the files that they read, as a zip."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path in sorted({*map(_file_of, modules), *_read_files()}):
            if not path.is_file():  # compiled, and optional
                continue
            name = path.relative_to(_PACKAGE.parent).as_posix()
            info = zipfile.ZipInfo(name)  # its date is constant
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, path.read_bytes())
    return packed.getvalue()


def _file_of(module: str) -> Path:
    path = _PACKAGE.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _read_files() -> Iterable[Path]:
    return (path for path in _PACKAGE.joinpath("views").iterdir() if path.suffix in _WEB_FILES)


_WEB_FILES: Final = (".html", ".js", ".css")


def _index(options: PageOptions, pyodide: Pyodide) -> str:
    html = template(_WEB / "index.html")
    html = html.replace("@TITLE@", escape(options.title)).replace("@ABOUT@", options.about)
    elsewhere = [_origin(url) for url in (pyodide.url, options.send or "") if "://" in url]
    sources = " ".join(["'self'", *elsewhere])
    policy = content_policy(
        html + player_sources(),
        script=f"{sources} blob: 'wasm-unsafe-eval'",
        worker="'self' blob:",
        connect=sources,
    )
    return html.replace("@POLICY@", policy)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"
