"""Writes the source of the site to build/docs: the pages of docs/, and those made from the code.

    python -m tools.docs.stage
    python -m tools.docs.stage --serve COMMAND ...

`--serve` runs a command, and writes the source again whenever a page of docs/ changes. A page that
is not in `nav` in mkdocs.yml, or an entry of `nav` without a page, is an error.

The comments that name the results of figures are removed (`figures`). Plots are inlined (`curves`),
so their text has the color of the page, even after a reader switches to dark colors.

Links in our pages lead to files of the repository. Each link is changed to the place of its file on
the site. Linked pages outside of docs/ become pages of the site, and other linked files are copied.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from tools.docs import curves, figures, games, notebook, play, reference
from tools.docs.front_matter import with_front_matter

ROOT: Final = Path(__file__).resolve().parents[2]
DOCS: Final = ROOT / "docs"
OUT: Final = ROOT / "build" / "docs"
CONFIG: Final = ROOT / "mkdocs.yml"
ALWAYS: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")
"""Pages outside of docs/ that are part of the site whether or not a page links to them."""
_LINK: Final = re.compile(r"(?<=\]\()(?![a-z]+:|#)([^)#\s]+)")
_CODE: Final = re.compile(r"(^```.*?^```$|`[^`\n]+`)", re.MULTILINE | re.DOTALL)
_PICTURE: Final = re.compile(r"^!\[([^\]]*)\]\(([^)\s]+\.svg)\)$", re.MULTILINE)
_GAME: Final = re.compile(r"^\| `([\w:]+)` \|", re.MULTILINE)
_NAV_ENTRY: Final = re.compile(r"[\w./-]+\.md$", re.MULTILINE)


def pages() -> dict[str, str]:
    """All pages of the site as Markdown, by path."""
    found = {**reference.pages(), **games.pages(), notebook.PAGE: notebook.tour().text}
    for path in sources():
        text = figures.plain((ROOT / path).read_text("utf-8"))
        found[str(place(path))] = moved(inlined(text, path), path)
    found["games.md"] = _GAME.sub(_game_link, found["games.md"])
    return {name: play.with_buttons(text, name) for name, text in found.items()}


def sources() -> list[PurePosixPath]:
    """Pages of the repository on the site: `ALWAYS`, those of docs/, and pages they link to."""
    found = [*map(PurePosixPath, ALWAYS), *map(_from_root, sorted(DOCS.rglob("*.md")))]
    for path in found:  # grows
        for target in targets((ROOT / path).read_text("utf-8"), path):
            if target.suffix == ".md" and target not in found and (ROOT / target).exists():
                found.append(target)
    return found


def _from_root(path: Path) -> PurePosixPath:
    return PurePosixPath(path.relative_to(ROOT).as_posix())


def place(path: PurePosixPath) -> PurePosixPath:
    """Path of a file on the site, given its path in the repository."""
    if path.parts[0] == "docs":
        return path.relative_to("docs")
    if path.suffix != ".md":
        return "files" / path
    if path.name == "README.md":  # which would be the index of its folder
        path = path.parent.with_suffix(".md")
    return "project" / path


def targets(text: str, path: PurePosixPath) -> Iterator[PurePosixPath]:
    """Files that the links of a page lead to, from the root of the repository."""
    for part in _CODE.split(text)[::2]:  # the others are code
        yield from (_resolved(link, path) for link in _LINK.findall(part))


def moved(text: str, path: PurePosixPath) -> str:
    """A page whose links lead to where the files are on the site."""
    here = place(path).parent

    def link(match: re.Match[str]) -> str:
        target = _resolved(match[1], path)
        is_made = not (ROOT / target).exists()  # from the code: its link needs no change
        return match[1] if is_made else os.path.relpath(place(target), here)

    parts = _CODE.split(text)
    parts[::2] = [_LINK.sub(link, part) for part in parts[::2]]
    return "".join(parts)


def inlined(text: str, path: PurePosixPath) -> str:
    """A page with plots inlined instead of linked as pictures."""

    def plot(match: re.Match[str]) -> str:
        svg = (ROOT / _resolved(match[2], path)).read_text("utf-8")
        if curves.STYLE not in svg:
            return match[0]
        return notebook.inlined(svg.replace(f"{curves.STYLE}\n", ""), match[1])

    return _PICTURE.sub(plot, text)


def _resolved(link: str, path: PurePosixPath) -> PurePosixPath:
    return PurePosixPath(os.path.normpath(path.parent / link))


def _game_link(match: re.Match[str]) -> str:
    return f"| [`{match[1]}`](games/{games.slug(match[1])}.md) |"


def misplaced(found: Mapping[str, str], config: str) -> list[str]:
    """Errors for pages that are not in `nav`, and for entries of `nav` without a page."""
    listed = set(_NAV_ENTRY.findall(config[config.index("\nnav:") :]))
    orphans = sorted(found.keys() - listed)
    return [
        *(f"{page}: not in nav in {CONFIG.name}, add an entry" for page in orphans),
        *(
            f"{CONFIG.name}: nav lists {page}, which does not exist"
            for page in sorted(listed - found.keys())
        ),
    ]


def files(found: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
    """Path and content of all files of the site's source, except replays and pages of games."""
    yield from ((name, with_front_matter(name, text).encode()) for name, text in found.items())
    offered = {path for path in map(_from_root, DOCS.rglob("*.*")) if path.suffix != ".json"}
    for page in sources():
        offered |= set(targets((ROOT / page).read_text("utf-8"), page))
    for path in offered:
        if path.suffix != ".md" and (ROOT / path).is_file():
            yield str(place(path)), (ROOT / path).read_bytes()
    yield from notebook.replay_pages()


def stage(out: Path, *, with_replays: bool = True) -> None:
    """Writes files that are missing or have changed, and removes all others.

    Args:
        with_replays: also write replays and pages of games, which takes a few seconds.
    """
    found = pages()
    if problems := misplaced(found, CONFIG.read_text("utf-8")):
        sys.exit("\n".join(problems))
    wanted = dict(files(found))
    if with_replays:
        wanted |= {name: text.encode() for name, text in games.replay_pages()}
        wanted |= dict(play.files())
    for name, content in wanted.items():
        path = out / name
        if not path.exists() or path.read_bytes() != content:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for path in out.rglob("*"):
        name = path.relative_to(out).as_posix()
        if (
            path.is_file()
            and name not in wanted
            and (with_replays or not name.startswith(("replays/", "play/")))
        ):
            path.unlink()


def serve(command: list[str]) -> int:
    """Runs a command and, until it ends, writes the source again whenever a page changes."""

    def newest() -> float:
        return max((ROOT / path).stat().st_mtime for path in sources())

    seen = newest()
    with subprocess.Popen(command) as process:
        try:
            while process.poll() is None:
                time.sleep(0.5)
                if seen != (seen := newest()):
                    stage(OUT, with_replays=False)
        except KeyboardInterrupt:
            process.wait()
    return process.returncode


def main() -> None:
    stage(OUT)
    if sys.argv[1:2] == ["--serve"]:
        sys.exit(serve(sys.argv[2:]))


if __name__ == "__main__":
    main()
