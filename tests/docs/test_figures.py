"""Figures of performance in pages: each is that of a result, and a result says where it is from."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from benchmarks.common import Median, report
from tests import ROOT
from tools.docs import figures, plots
from tools.docs.figures import Result, rendered, unmarked, value_of

NAMES = [path.relative_to(ROOT).as_posix() for path in figures.pages()]
RESULT = Result(
    "benchmarks/vec.py",
    date(2026, 11, 23),
    "a machine",
    {"a": 6.2461, "big": 1097.3, "low": -0.04, "ratio_x": 2.0, "ratio_y": 3.0},
)
KNOWN = {"vec": RESULT}


@pytest.mark.parametrize("name", NAMES)
def test_figures_of_a_page_are_those_of_the_results(name: str) -> None:
    text = (ROOT / name).read_text()
    assert rendered(text, figures.results()) == text, "python -m tools.docs.figures"


@pytest.mark.parametrize("name", [name for name in NAMES if name not in figures.LOGS])
def test_figures_of_performance_name_a_result(name: str) -> None:
    help_text = "name the result in a comment behind the figure: see tools/docs/figures.py"
    assert list(unmarked((ROOT / name).read_text())) == [], help_text


def test_every_result_is_shown() -> None:
    text = "".join(path.read_text() for path in figures.pages())
    for name in figures.results():
        assert f"{name}." in text or name in plots.PLOTS, name


def test_every_exception_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    phrases = dict(figures.ALLOWED)
    monkeypatch.setattr(figures, "ALLOWED", {})
    for phrase, reason in phrases.items():
        [page] = [name for name in NAMES if name.endswith(reason.partition(":")[0])]
        assert phrase in figures.joined((ROOT / page).read_text()), page
        assert list(unmarked(f"| | |\n|---|---|\n{phrase}" if phrase[0] == "|" else phrase))
    assert figures.LOGS.keys() <= {*NAMES}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.0<!--vec.a--> times", "6.2<!--vec.a--> times"),
        ("9<!--vec.a-->", "6<!--vec.a-->"),
        ("1<!--vec.big-->", "1,097<!--vec.big-->"),
        ("9,999.99<!--vec.big/1000-->", "1.10<!--vec.big/1000-->"),
        ("1<!--vec.a/1e-3-->", "6,246<!--vec.a/1e-3-->"),
        ("-1.00<!--vec.low-->", "−0.04<!--vec.low-->"),
        ("1<!--min vec.ratio_*--> to 1<!--max vec.ratio_*-->", None),
        ("a number 7 <!-- and a comment -->", "a number 7 <!-- and a comment -->"),
    ],
)
def test_a_number_keeps_its_decimals(text: str, expected: str | None) -> None:
    expected = expected or "2<!--min vec.ratio_*--> to 3<!--max vec.ratio_*-->"
    assert rendered(text, KNOWN) == expected
    assert rendered(expected, KNOWN) == expected
    assert "<!--vec" not in figures.plain(expected)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("vec.none", "names 0 figures of docs/results/vec.json"),
        ("none.a", "no docs/results/none.json; there are vec"),
        ("vec.ratio_*", "names 2 figures"),
        ("vec", "expected RESULT.FIGURE"),
        ("vec.a + 1", "expected RESULT.FIGURE"),
    ],
)
def test_an_unknown_figure_is_refused(source: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        value_of(source, KNOWN)


@pytest.mark.parametrize(
    "text",
    [
        "It takes 5 µs.",
        "It takes 0.3 to 0.4 ms with ten entities.",
        "It makes 2.8 to 3.7 times as\nmany steps per second as enn-trainer.",
        "It is 3 times faster.",
        "It costs 1.5 to 6 times as much processor time as playing.",
        "It is 5 % slower.",
        "It needs a third of the processor time.",
        "CartPole makes 400 million steps per second.",
        "Gymnasium makes 15 million.",
        "A worker takes about 21 MB.",
        "| step | microseconds |\n|---|---|\n| suspending | 1.5 to 2 |",
        "| | measured |\n|---|---|\n| a decision | 63 µs |",
    ],
)
def test_figures_of_performance_are_found(text: str) -> None:
    assert len(list(unmarked(text))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "It takes 6.2<!--vec.a--> µs, or 2<!--vec.a--> to 3<!--vec.a--> times as long.",
        "A board of 8 × 8 cells, 10 million entities, 200,000 steps, 3 times in a row.",
        "`5 ms`\n\n```\n5 ms\n```\n",
        "| | aim | measured |\n|---|---|---|\n| a decision | 63 µs | 6.2<!--vec.a--> µs |",
        "The file is 137 kB. Wait 30 seconds.",
    ],
)
def test_other_numbers_are_no_figures_of_performance(text: str) -> None:
    assert list(unmarked(text)) == []


def test_a_result_is_what_a_benchmark_prints(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "vec.json"
    report("t", {"a": Median.of([3.0, 1.0, 2.0]), "b": 4.0}, ["numpy"], as_json=True)
    path.write_text(capsys.readouterr().out)
    found = figures.read(path)
    assert found.script == "benchmarks/vec.py"
    assert found.figures == {"a": 2.0, "b": 4.0}
    assert found.spread == {"a": (1.0, 3.0)}


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("vec", {"date": None}),
        ("vec", {"date": "yesterday"}),
        ("vec", {"machine": None}),
        ("vec", {"machine": {"processor": "x"}}),
        ("vec", {"figures": {"a": "fast"}}),
        ("vec", {"figures": {"a": float("nan")}}),
        ("vec", {"script": "benchmarks/none.py"}),
        ("none", {}),
    ],
)
def test_a_result_without_its_origin_is_refused(
    tmp_path: Path, name: str, change: dict[str, object]
) -> None:
    whole = {"date": "2026-11-23", "machine": {"processor": "x", "cores": 2}, "figures": {"a": 1}}
    raw = {key: value for key, value in {**whole, **change}.items() if value is not None}
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(raw))
    with pytest.raises(ValueError, match=f"{name}.json is not a result: expected script, date"):
        figures.read(path)


def test_the_command_writes_figures_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("0.0<!--vec.a-->")
    monkeypatch.setattr(figures, "ROOT", tmp_path)
    monkeypatch.setattr(figures, "pages", lambda: [page])
    monkeypatch.setattr(figures, "results", lambda: KNOWN)
    figures.main()
    assert page.read_text() == "6.2<!--vec.a-->"
    assert capsys.readouterr().out == "page.md: figures changed\n"
    page.write_text("0.0<!--vec.none-->")
    with pytest.raises(SystemExit, match=r"page\.md: 'vec.none' names 0 figures"):
        figures.main()
