"""Reports as SVG and CSV."""

import csv
import io
import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest

from entity_env.agents.training.tracking.runs import CURVES_FILE, REWARD, TrainingRun
from entity_env.cli.report.files import report_csv, report_svg, require_curves
from entity_env.errors import UsageError
from tests.cli.report.made_runs import EVIL, make, make_seeds, runs_of

SPACE = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def seeds(tmp_path: Path) -> Sequence[TrainingRun]:
    return make_seeds(tmp_path)


def test_runs_of_a_group_are_thin_lines_under_their_mean(seeds: Sequence[TrainingRun]) -> None:
    svg = ElementTree.fromstring(report_svg(seeds))
    widths = [each.get("stroke-width") for each in svg.iter(f"{SPACE}polyline")]
    assert sorted(map(str, widths)) == ["1", "1", "2", "2"]
    texts = {each.text for each in svg.iter(f"{SPACE}text")}
    assert {"mean of 2 seeds: gamma=0.99", "c: gamma=0.5"} <= texts


def test_a_useless_value_does_not_hide_the_rest(tmp_path: Path) -> None:
    """If all returns are equal, the explained variance may be arbitrarily negative."""
    name = "losses/explained_variance"
    folder = make(tmp_path / "a", [])
    with (folder / CURVES_FILE).open("a") as file:
        for step, value in ((1, 0.5), (2, -1e14)):
            file.write(json.dumps({"step": step, name: value}) + "\n")
    runs = runs_of(folder)
    labels = re.findall(r'text-anchor="end">([^<]*)<', report_svg(runs, [name]))
    assert min(map(float, labels)) == -1
    assert "-100000000000000.0" in report_csv(runs, [name])


def test_games_have_charts_of_their_own(tmp_path: Path) -> None:
    make(tmp_path / "a", [1, 2])
    make(tmp_path / "b", [1, 2], game="azul")
    svg = ElementTree.fromstring(report_svg(runs_of(tmp_path), (REWARD, "losses/entropy")))
    titles = [each.text for each in svg.iter(f"{SPACE}text") if each.get("font-weight")]
    entropy = "entropy of a decision, in nats (losses/entropy)"
    assert sorted(map(str, titles)) == [
        *(f"azul: {entropy}", "azul: mean episode reward"),
        *(f"snake: {entropy}", "snake: mean episode reward"),
    ]
    charts = [each for each in svg.iter(f"{SPACE}svg") if each is not svg]
    assert float(str(svg.get("height"))) == sum(float(str(each.get("height"))) for each in charts)


def test_a_curve_that_no_run_has_is_told(seeds: Sequence[TrainingRun]) -> None:
    with pytest.raises(UsageError, match=r"'losses/entrop'; did you mean losses/entropy\?"):
        require_curves(seeds, ["losses/entrop"])
    require_curves(seeds, [REWARD])


def test_csv_has_every_point(seeds: Sequence[TrainingRun]) -> None:
    rows = list(csv.DictReader(io.StringIO(report_csv(seeds))))
    assert len(rows) == 3 + 4 + 4
    for run in seeds:
        own = [row for row in rows if row["run"] == run.name]
        curve = run.curves[REWARD]
        assert [int(row["step"]) for row in own] == curve.steps.tolist()
        assert [float(row[REWARD]) for row in own] == curve.values.tolist()
        assert {row["gamma"] for row in own} == {str(run.settings()["gamma"])}
        assert {row["seed"] for row in own} == {str(run.seed)}
        assert [float(row["elapsed_s"]) for row in own] == run.clock.values.tolist()


def test_files_have_no_control_characters_and_no_local_paths(tmp_path: Path) -> None:
    about: dict[str, object] = {"settings": {EVIL: EVIL, "rom": "/home/me/roms/a.ch8"}}
    make(tmp_path / "<b>&", [1, 2], game=EVIL, about=about)
    make(tmp_path / "x", [1, 2], game=EVIL, about={"settings": {EVIL: 3, "rom": "b.ch8"}})
    runs = runs_of(tmp_path)
    for text in (report_svg(runs), report_csv(runs)):
        assert "\x1b" not in text
        assert "/home" not in text
        assert str(tmp_path) not in text
    ElementTree.fromstring(report_svg(runs))
