"""Opens every page of the built site in Chromium, wide and narrow, light and dark, and checks it.

    python -m tools.docs.check_site [PAGE ...]

It checks the rules of axe-core, that no page or table is wider than a phone, that copied text has
no prompts, what the search lists first, that its index is not loaded with the home page, that the
search works in pages opened as files, and that a game begins in the home page. If Chromium or
axe-core is missing, nothing is checked, and a line says so. Runs in the environment of the site,
which has axe-core.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import Final

from tests.helpers.chromium import PROGRAM, Chromium, axe_core, serving

SITE: Final = Path(__file__).resolve().parents[2] / "build" / "site"
WIDE: Final = 1280
NARROW: Final = 390
MOST_BROWSERS: Final = 4
HOME: Final = "index.html"
WITH_NAVIGATION: Final = (HOME, "reference/index.html")
"""Pages whose navigation is checked; that of all other pages is equal."""
QUERIES: Final = ("reward", "truncated", "checkpoint")
"""Queries for which a written page must come first, although many API names contain them."""
SCRIPT: Final = Path(__file__).with_suffix(".js").read_text("utf-8")


class _Files(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Does nothing: requests are not logged."""


def pages() -> list[str]:
    """Paths of all pages of the site, from its root, except those of copied files."""
    found = (path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    return sorted(each for each in found if not each.startswith("files/"))


def check_page(browser: Chromium) -> Iterator[str]:
    """Problems of the page that is open, one line per problem."""
    browser.value("siteCheck.stopMotion()")
    for width in (WIDE, NARROW):
        for scheme in ("dark", "light"):
            look(browser, width, scheme)
            for rule, element in browser.value("siteCheck.contrast()"):
                yield f"{rule}, {width} px, {scheme}: {element}"
        for rule, element in browser.value("siteCheck.structure()"):
            yield f"{rule}, {width} px: {element}"
    yield from (f"wider than {NARROW} px: {what}" for what in browser.value("siteCheck.clipped()"))
    for text in browser.value("siteCheck.copied()"):
        if text.startswith(("$ ", ">>> ")) or "\n$ " in text:
            yield f"copied with its prompt: {text[:60]!r}"


def look(browser: Chromium, width: int, scheme: str) -> None:
    """Sets the width of the window, and the preferred color scheme: "light" or "dark"."""
    browser.emulate(width, 900, is_mobile=width == NARROW, prefers_color_scheme=scheme)
    browser.value("siteCheck.frames(2)")


def go(browser: Chromium, url: str) -> None:
    """Opens a page, and runs axe-core and `SCRIPT` in it."""
    browser.go(url)
    browser.value(f"{axe_core()};{SCRIPT};0")


def check_search(browser: Chromium, home: str) -> Iterator[str]:
    """Problems of the search, from the home page."""
    go(browser, home)
    look(browser, WIDE, "light")
    if home.startswith("http") and browser.value("siteCheck.isIndexFetched()"):
        yield "search: the index is fetched with the page"
    browser.value("siteCheck.openSearch()")
    browser.wait_for("!!siteCheck.search()?.querySelector('input')")
    for query in QUERIES:
        browser.value(f"siteCheck.type({query!r})")
        try:
            first = browser.wait_for(f"siteCheck.firstFound({query!r})")
        except AssertionError as error:
            yield f"search from {home}: {error}"
            return
        if "/reference/api/" in first:
            yield f"search: {query!r} lists a member of the API first: {first}"


def check_clipboard(browser: Chromium, home: str) -> Iterator[str]:
    """Problems of the first button that copies a session."""
    go(browser, home)
    look(browser, WIDE, "light")
    browser.call("Browser.grantPermissions", permissions=["clipboardReadWrite"])
    browser.call("Page.bringToFront")
    browser.click(*browser.value("siteCheck.copyButton()"))
    browser.wait_for("!!document.querySelector('.md-dialog').innerText")
    copied = browser.value("navigator.clipboard.readText()")
    if not copied.startswith("entity-env ") or "$" in copied:
        yield f"clipboard: {copied!r}"


def check_play(browser: Chromium, home: str) -> Iterator[str]:
    """Problems of the button that loads a game; none if the site has no games.

    The game must begin after the click, and no file of it may load before.
    """
    go(browser, home)
    if not (SITE / "play").exists():
        return
    if browser.value("siteCheck.isGameFetched()"):
        yield "play: the game is fetched with the page"
    browser.value("siteCheck.playHere()")
    try:
        browser.wait_for("siteCheck.isGameBegun()")
    except AssertionError:
        yield f"play: the game does not begin: {browser.value('siteCheck.gameText()')!r}"


def check(names: list[str]) -> list[str]:
    """Problems of some pages, sorted; see `check_pages`."""
    num = min(os.cpu_count() or 1, MOST_BROWSERS)
    with serving(SITE, _Files) as root, ThreadPoolExecutor(num) as pool:
        parts = pool.map(partial(check_pages, root), [names[i::num] for i in range(num)])
        return sorted(problem for part in parts for problem in part)


def check_pages(root: str, names: list[str]) -> list[str]:
    """Problems of some pages; if `HOME` is one of them, also of clipboard, search and game.

    Args:
        root: address of the site.
    """
    found: list[str] = []
    with (
        tempfile.TemporaryDirectory() as folder,
        Chromium(f"{root}/404.html", Path(folder)) as browser,
    ):
        for name in names:
            go(browser, f"{root}/{name}")
            if name not in WITH_NAVIGATION:
                browser.value("siteCheck.removeNavigation()")
            found += (f"{name}: {each}" for each in check_page(browser))
        if HOME in names:
            found += check_clipboard(browser, f"{root}/{HOME}")
            found += check_play(browser, f"{root}/{HOME}")
            for url in (f"{root}/{HOME}", (SITE / HOME).as_uri()):
                found += check_search(browser, url)
        # Replays are single files without an icon.
        found += (each for each in browser.problems if "/favicon.ico" not in each)
    return found


def main() -> None:
    missing = [name for name, has in (("Chromium", PROGRAM), ("axe-core", axe_core())) if not has]
    if missing:
        print(f"site: not checked in a browser, {' and '.join(missing)} not found")
        return
    started = time.monotonic()
    names = sys.argv[1:] or pages()
    found = check(names)
    seconds = time.monotonic() - started
    print(*found, sep="\n", end="\n" * bool(found))
    print(f"site: {len(names)} pages in Chromium, {len(found)} problems, {seconds:.0f} s")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
