"""The notebook `examples/tour.ipynb` runs and shows replays."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests import ROOT

NOTEBOOK = ROOT / "examples" / "tour.ipynb"


def cells() -> list[dict[str, Any]]:
    content: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text())["cells"]
    return content


def test_it_is_kept_without_its_outputs() -> None:
    for cell in cells():
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


@pytest.mark.slow
def test_its_cells_run_and_show_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (tmp_path / "ship").symlink_to(ROOT / "examples" / "ship")
    monkeypatch.chdir(tmp_path)
    script = ModuleType("tour")
    monkeypatch.setitem(sys.modules, "tour", script)
    sources = ("".join(cell["source"]) for cell in cells() if cell["cell_type"] == "code")
    shown = [shown_by(source, script) for source in sources]
    assert sum("<iframe" in each and "srcdoc" in each for each in shown) == 3


def shown_by(source: str, script: ModuleType) -> str:
    """Runs a cell, and returns what a notebook shows of its last expression."""
    *before, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        exec(source, vars(script))  # noqa: S102 - our own
        return ""
    exec(compile(ast.Module(before, []), "cell", "exec"), vars(script))  # noqa: S102 - our own
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), vars(script))
    return str(value._repr_html_()) if hasattr(value, "_repr_html_") else repr(value)
