"""The pictures of the docs: each is shown, made by a script, small, and self-contained."""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path

import pytest

from tests import ROOT
from tests.helpers.chromium import PROGRAM
from tools.docs import plots, stage
from tools.docs.games import pages as game_pages
from tools.pictures import browser, games
from tools.pictures.__main__ import MAX_BYTES, MAX_TOTAL_BYTES, OUT, PICTURES
from tools.pictures.scenes import SCENES
from tools.pictures.terminal import Screen, screen_of, svg_of
from tools.pictures.workshop import Workshop

pytest.importorskip("PIL")
OTHERS = {"layout.svg", *(path.name for path in plots.pictures() if path.parent == OUT)}
"""Pictures that other scripts draw."""
_SHOWN = re.compile(r"pictures/([\w.]+\.(?:png|gif|svg))")


@cache
def shown() -> dict[str, list[str]]:
    """The pages that show each picture."""
    paths = [*map(str, stage.sources()), "README.md"]
    texts = {path: (ROOT / path).read_text("utf-8") for path in paths} | game_pages()
    found: dict[str, list[str]] = {}
    for page, text in texts.items():
        for name in _SHOWN.findall(text):
            found.setdefault(name, []).append(page)
    return found


def test_every_picture_is_made_and_none_is_left_over() -> None:
    there = {path.name for path in OUT.iterdir()}
    assert there == {*PICTURES, *OTHERS}, "make pictures"


def test_every_picture_is_shown_and_every_shown_picture_is_there() -> None:
    assert shown().keys() == {*PICTURES, *OTHERS}


def test_pictures_of_pages_are_described() -> None:
    for path in stage.sources():
        text = (ROOT / path).read_text("utf-8")
        for alt, name in re.findall(r"!\[([^\]]*)\]\([^)]*pictures/([^)]*)", text):
            assert name not in SCENES or len(alt.split()) >= 6, (path, name)


def test_pictures_are_small_and_load_nothing() -> None:
    sizes = {name: (OUT / name).stat().st_size for name in PICTURES}
    assert max(sizes.values()) <= MAX_BYTES
    assert sum(sizes.values()) <= MAX_TOTAL_BYTES
    for path in OUT.glob("*.svg"):
        text = path.read_text("utf-8").replace("http://www.w3.org/", "")
        assert not re.search(r"https?:|@import|@font-face|url\((?!#)", text), path


@pytest.mark.parametrize("name", [name for name in SCENES if name.endswith(".svg")])
def test_a_terminal_shows_no_folder_of_the_machine(name: str) -> None:
    text = (OUT / name).read_text("utf-8")
    assert "/tmp/" not in text
    assert str(ROOT) not in text


# ------------------------------------------------------------------ a terminal


@pytest.mark.parametrize(
    ("output", "plain"),
    [
        ("one\r\ntwo\r\n", "one\ntwo"),
        ("old\rnew\x1b[K\n", "new"),
        ("1\n2\n\x1b[?25l\r\x1b[2Aone\x1b[K\ntwo\x1b[K\n\x1b[J", "one\ntwo"),
        ("1\n2\n3\n\r\x1b[3Aone\x1b[K\n\x1b[J", "one"),
        ("1\n2\r\x1b[2K\x1b[1A\x1b[2Kone", "one"),
        ("\x1b[1mbold\x1b[0m\x1b]0;title\x07 text", "bold text"),
    ],
)
def test_a_screen_is_what_a_terminal_shows(output: str, plain: str) -> None:
    screen = Screen()
    screen.feed(output)
    assert screen.plain == plain


def test_styles_are_kept() -> None:
    screen = Screen()
    screen.feed("a \x1b[31mred\x1b[0m word\r\n")
    svg = svg_of(screen.styled, "$ command <&>")
    assert re.search(r">red</text>", svg)
    assert "$&#160;command&#160;&lt;&amp;&gt;" in svg
    assert "clip-path" not in svg


@pytest.mark.skipif(sys.platform == "win32", reason="pseudo-terminals are of POSIX")
def test_a_command_is_ended_once_it_shows_what_is_wanted(tmp_path: Path) -> None:
    script = "for i in range(3): print('line', i, flush=True)\ninput('> ')"
    size, variables = (80, 24), {"PATH": ""}
    words = [sys.executable, "-c", script]
    assert "line 2" in screen_of(words, tmp_path, variables, shows="line 2\n>", size=size)
    with pytest.raises(RuntimeError, match="never showed 'this'"):
        screen_of([*words[:2], "print('that')"], tmp_path, variables, shows="this", size=size)
    assert (
        screen_of([*words[:2], "print('end')"], tmp_path, variables, shows="", size=size) == "end"
    )


# ------------------------------------------------------------------ what runs


def test_a_workshop_has_the_files_of_the_pages(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    assert {"crystals.py", "robots.py", "towers.py", "liar.py", "looks"} <= {
        path.name for path in tmp_path.iterdir()
    }
    shop.run('python -c \'open("made", "a").write("x")\'')
    command = 'python -c \'open("made", "a").write("y")\''
    shop.need([command])
    shop.need([command])
    assert (tmp_path / "made").read_text() == "xy"
    with pytest.raises(RuntimeError, match="ValueError"):
        shop.run("python -c 'raise ValueError'")


def test_without_a_browser_there_is_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(browser, "PROGRAM", None)
    with pytest.raises(SystemExit, match=r"^pictures of pages need Chromium.*install chromium$"):
        browser.screenshot("about:blank", "true", (10, 10), Workshop(tmp_path))


@pytest.mark.slow
@pytest.mark.skipif(PROGRAM is None, reason="chromium is not installed")
def test_a_page_is_drawn(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<body style='background:#123456'>")
    path = browser.screenshot(page.as_uri(), "true", (40, 30), Workshop(tmp_path / "shop"))
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cherry_pick.png", "cherry_pick.gif"])
def test_a_film_is_drawn_again_as_it_is(name: str, tmp_path: Path) -> None:
    assert games.draw(name, tmp_path) == (OUT / name).read_bytes()


def test_names_of_pictures_differ() -> None:
    assert len({*PICTURES, *OTHERS}) == len(PICTURES) + len(OTHERS)
