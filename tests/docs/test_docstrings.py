"""Docstrings of the site: griffe, which parses them, reports no problems."""

from __future__ import annotations

import logging
from functools import cache
from typing import Any

import pytest

from tests import ROOT
from tools.docs.reference import PACKAGE, public_packages

griffe = pytest.importorskip("griffe")


@cache
def package() -> Any:  # noqa: ANN401 - griffe is not installed everywhere
    from tools.docs.griffe_docstrings import OurDocstrings

    extensions = griffe.load_extensions(OurDocstrings())
    return griffe.load(
        PACKAGE, search_paths=[ROOT], docstring_parser="google", extensions=extensions
    )


@pytest.mark.slow
def test_every_section_is_understood(caplog: pytest.LogCaptureFixture) -> None:
    parts = [package()]
    with caplog.at_level(logging.WARNING, "griffe"):
        for part in parts:  # grows
            if not part.is_alias:
                if part.docstring:
                    part.docstring.parse("google")
                parts += part.members.values()
    assert len(parts) > 1000
    assert caplog.messages == []


def test_public_names_have_docstrings() -> None:
    missing = []
    for name, exported in public_packages().items():
        holder = package() if name == PACKAGE else package()[name.partition(".")[2]]
        for each in exported:
            found = holder.members[each]
            if found.is_alias and not found.target_path.startswith(PACKAGE):
                continue  # from another library
            if not (found.final_target if found.is_alias else found).docstring:
                missing.append(f"{name}.{each}")
    assert missing == []


def test_shared_lines_become_one_for_each_name() -> None:
    from tools.docs.griffe_docstrings import one_name_a_line

    text = """Adds.

Args:
    a, b: numbers, which
        may be negative.
    c: another one.

Returns:
    x, y: this is prose.
"""
    assert one_name_a_line(text.splitlines()) == [
        *("Adds.", "", "Args:"),
        *("    a: numbers, which", "        may be negative."),
        *("    b: numbers, which", "        may be negative."),
        *("    c: another one.", "", "Returns:", "    x, y: this is prose."),
    ]
