"""Pages in headless Chromium, as PNG."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.helpers.chromium import PROGRAM, Chromium
from tools.pictures.workshop import Workshop

_ADDRESS = re.compile(r"http://\S+")


def screenshot(url: str, ready: str, size: tuple[int, int], shop: Workshop) -> Path:
    """A page as a PNG of the given width and height.

    Args:
        ready: a JavaScript expression that becomes true once the page shows everything.
    """
    if PROGRAM is None:
        sys.exit("pictures of pages need Chromium, which is not on the path: install chromium")
    path = shop.folder / "page.png"
    with Chromium(url, shop.folder / "profile", size) as page:
        page.emulate(*size, prefers_color_scheme="light", prefers_reduced_motion="reduce")
        page.wait_for(ready)
        page.value("document.documentElement.style.overflow = 'hidden'")  # no scroll bar
        page.screenshot(path)
    return path


@contextmanager
def served(command: str, shop: Workshop) -> Iterator[str]:
    """The address of the page that a command serves, until the block ends."""
    with shop.start(command) as process:
        try:
            yield _address(process)
        finally:
            process.terminate()


def _address(process: subprocess.Popen[str]) -> str:
    output = process.stdout
    for line in output or ():
        if found := _ADDRESS.search(line):
            return found[0]
    raise RuntimeError(f"no address is printed: {process.stderr and process.stderr.read()}")
