"""The notebook `examples/tour.ipynb` runs, shows replays and a curve, and is a page of the site."""

from __future__ import annotations

import ast
import math
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest

from entity_env.views.chart import Series, svg_chart
from tests import ROOT
from tools.docs import notebook

CELLS = notebook.cells_of(notebook.NOTEBOOK)
SOURCES = list(map(notebook.source_of, CELLS))


def test_it_is_kept_without_its_outputs() -> None:
    for cell in CELLS:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None


def test_its_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", "".join(SOURCES))
    assert len(links) > 1
    for link in links:
        assert (notebook.NOTEBOOK.parent / link).exists(), link


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_its_cells_run_and_show_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    (tmp_path / "ship").symlink_to(ROOT / "examples" / "ship")
    monkeypatch.chdir(tmp_path)
    script = ModuleType("tour")
    monkeypatch.setitem(sys.modules, "tour", script)
    codes = [s for s, cell in zip(SOURCES, CELLS, strict=True) if cell["cell_type"] == "code"]
    shown = [shown_by(source, script) for source in codes]
    assert sum("<iframe" in each and "srcdoc" in each for each in shown) == 3
    assert sum("<polyline" in each for each in shown if each.startswith("<svg")) == 1
    assert script.random_replay.num_decisions >= 10
    assert math.isfinite(script.result.progress.mean_reward)
    assert script.result.progress.mean_reward > script.episode.reward + 1


def shown_by(source: str, script: ModuleType) -> str:
    """Runs a cell; returns a notebook's display of its last expression."""
    *before, last = ast.parse(source).body
    if not isinstance(last, ast.Expr):
        exec(source, vars(script))  # noqa: S102 - our own
        return ""
    exec(compile(ast.Module(before, []), "cell", "exec"), vars(script))  # noqa: S102 - our own
    value = eval(compile(ast.Expression(last.value), "cell", "eval"), vars(script))
    for name in ("_repr_html_", "_repr_svg_"):
        if hasattr(value, name):
            return str(getattr(value, name)())
    return repr(value)


def test_its_page_has_the_outputs() -> None:
    frame = (
        '<iframe sandbox="allow-scripts" style="border:0" srcdoc="&lt;b&gt;a &amp;amp; b"></iframe>'
    )
    svg = svg_chart("A & B", [Series("a", [0, 1], [0, 1])], has_legend=False)
    outputs = [
        {"output_type": "stream", "name": "stdout", "text": ["one\n", "two\n"]},
        {
            "output_type": "execute_result",
            "data": {"text/html": [frame], "text/plain": ["Animation(<a>, 2 pictures)"]},
        },
        {
            "output_type": "display_data",
            "data": {"image/svg+xml": svg, "text/plain": ["Run()"]},
        },
        {"output_type": "execute_result", "data": {"text/plain": ["[1, 2]"]}},
    ]
    cells: list[notebook.Cell] = [
        {"cell_type": "markdown", "source": ["# A title"]},
        {"cell_type": "code", "source": ["f(\n", ")"], "outputs": outputs},
        {"cell_type": "markdown", "source": ["[a](../docs/how-to/ship.md)"]},
    ]
    page = notebook.rendered(cells)
    before, chart, after = re.split(r'(<div class="plot".*?</div>)', page.text, flags=re.DOTALL)
    assert before == (
        f"# A title\n\n{notebook.ABOUT}\n\n```python\nf(\n)\n```\n\n```text\none\ntwo\n```\n\n"
        '<iframe src="tour-1.html" title="Animation(&lt;a&gt;, 2 pictures)" loading="lazy" '
        'class="replay" sandbox="allow-scripts"></iframe>\n\n'
    )
    assert after == "\n\n```text\n[1, 2]\n```\n\n[a](../how-to/ship.md)\n"
    assert page.replays == {"tour-1.html": "<b>a &amp; b"}
    assert 'aria-label="A &amp; B"' in chart
    assert "<rect" not in chart
    assert chart.count("#") == 1  # the color of the line; all else has that of the page


def test_outputs_of_other_cells_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    executed = tmp_path / "tour.ipynb"
    monkeypatch.setattr(notebook, "EXECUTED", executed)
    alone = notebook.tour()
    assert not alone.replays
    text = notebook.NOTEBOOK.read_text()
    output = '"outputs": [{"output_type": "stream", "text": "hello"}]'
    executed.write_text(text.replace('"outputs": []', output))
    assert "```text\nhello\n```" in notebook.tour().text
    executed.write_text(executed.read_text().replace("A tour of", "Another tour of"))
    assert notebook.tour() == alone
