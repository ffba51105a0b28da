"""Tests of the picture of the layout in CONTRIBUTING.md."""

from __future__ import annotations

from collections import Counter

import pytest

from tests import ROOT
from tests.project.layout import FLOORS
from tools.draw_layout import OUT, count_imports, svg


@pytest.mark.slow
def test_imports_are_counted_from_higher_floors_to_lower_ones() -> None:
    links, lines = count_imports()
    assert links["vec", "core"] > 5
    assert all(lines[floor] > 0 for floor in FLOORS)
    assert ("core", "vec") not in links


def test_a_mark_lies_in_the_row_of_the_folder_that_imports() -> None:
    picture = svg(Counter({("core", "errors"): 7}), Counter(core=1200))
    assert ">core, 1,200 lines</text>" in picture
    assert ">7</text>" in picture


def test_the_page_shows_the_picture_that_there_is() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text()
    assert f"({OUT.relative_to(ROOT).as_posix()})" in page
    assert "python tools/draw_layout.py" in page
    assert OUT.exists()
