"""A browser for the pages that are drawn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.helpers.chromium import PROGRAM, Chromium


@pytest.fixture(scope="module")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    if PROGRAM is None:
        pytest.skip("chromium is not installed")
    with Chromium("about:blank", tmp_path_factory.mktemp("profile")) as found:
        yield found


@pytest.fixture
def browser(one_browser: Chromium) -> Chromium:
    """Chromium with the settings of a new one; tests of a file share it."""
    one_browser.emulate(1000, 640, prefers_color_scheme="light")
    one_browser.problems.clear()
    return one_browser
