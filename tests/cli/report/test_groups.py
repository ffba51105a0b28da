"""Lines of groups: mean, thin runs, and Student's band; dots with intervals; random play."""

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env.agents.intervals import mean_interval, mean_of
from entity_env.agents.training.tracking.runs import (
    CURVES_FILE,
    EVALUATED,
    REWARD,
    Curve,
    TrainingRun,
)
from entity_env.cli.report.files import report_svg
from entity_env.cli.report.groups import RunGroup, curve_lines, run_groups
from entity_env.views.chart import Series
from tests.cli.report.made_runs import evaluated, make, make_seeds, random_play, runs_of

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=8)


def group_of(folder: Path) -> RunGroup:
    [group] = run_groups(runs_of(folder))
    return group


def add(folder: Path, *points: Mapping[str, object]) -> None:
    with (folder / CURVES_FILE).open("a") as file:
        file.writelines(json.dumps(point) + "\n" for point in points)


def plain_interpolation(curve: Curve, step: float) -> float:
    """A value between two points, without numpy."""
    points = list(zip(curve.steps.tolist(), curve.values.tolist(), strict=True))
    for (x0, y0), (x1, y1) in pairwise(points):
        if x0 <= step <= x1:
            return float(y0 + (y1 - y0) * (step - x0) / (x1 - x0))
    return float(dict(points)[int(step)])


def check_band(line: Series, curves: Sequence[Curve]) -> None:
    """Compares mean and band with a plain reference at every step."""
    begin = max(curve.steps[0] for curve in curves)
    end = min(curve.steps[-1] for curve in curves)
    steps = sorted({step for curve in curves for step in curve.steps if begin <= step <= end})
    assert line.x.tolist() == steps
    assert line.has_band == (len(curves) >= 3)
    for i, step in enumerate(steps):
        wanted = mean_of([plain_interpolation(curve, step) for curve in curves])
        near = 1e-6 * (1 + abs(wanted.value) + wanted.half)
        assert line.y[i] == pytest.approx(wanted.value, abs=near)
        if line.has_band:
            assert line.low[i] == pytest.approx(wanted.low, abs=near)
            assert line.high[i] == pytest.approx(wanted.high, abs=near)


@given(st.lists(VALUES, min_size=2, max_size=5))
@settings(deadline=None)
def test_a_band_is_students_interval_of_the_mean(found: list[list[float]]) -> None:
    curves = [
        Curve(np.arange(1, len(values) + 1) * (64 + 3 * i), np.array(values))
        for i, values in enumerate(found)
    ]
    first = max(curve.steps[0] for curve in curves)
    last = min(curve.steps[-1] for curve in curves)
    run = RunGroup((), "a", {})
    assert run.line("x").is_empty
    lines = _group(curves).line("losses/entropy")
    if first <= last:
        check_band(lines, curves)
    else:
        assert not len(lines.x)
    assert [each.y.tolist() for each in lines.members] == [each.values.tolist() for each in curves]


def _group(curves: Sequence[Curve]) -> RunGroup:
    runs = [TrainingRun(Path(f"r{i}"), {}, {"losses/entropy": c}) for i, c in enumerate(curves)]
    return RunGroup(tuple(runs), "a", {})


def test_two_runs_have_a_mean_without_a_band(tmp_path: Path) -> None:
    make_seeds(tmp_path)
    first, other = run_groups(runs_of(tmp_path))
    assert [first.settings, other.settings] == [{"gamma": "0.99"}, {"gamma": "0.5"}]
    line = first.line(REWARD)
    assert line.name == f"{tmp_path}, mean of 2 seeds: gamma=0.99"
    assert line.x.tolist() == [100, 200, 300]  # as far as both have come
    assert line.y.tolist() == [0, 3, 6]
    assert not line.has_band
    assert [each.y.tolist() for each in line.members] == [[0, 4, 8, 9], [0, 2, 4]]


def test_one_run_has_the_interval_of_its_mean(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [1, 2])
    add(folder, {"step": 300, REWARD: 4})  # no deviation is recorded
    more = {"episode/std_reward": 1.0, "episode/window": 101, "episode/unfinished": 0.5}
    add(folder, {"step": 400, REWARD: 5, **more})  # biased, so without an interval
    line = group_of(tmp_path).line(REWARD)
    half = mean_interval(0, math.sqrt(101 / 100), 101).half
    assert line.low[:2] == pytest.approx([1 - half, 2 - half])
    assert line.high[:2] == pytest.approx([1 + half, 2 + half])
    assert np.isnan([*line.low[2:], *line.high[2:]]).all()
    assert line.members == ()
    assert not group_of(tmp_path).line("losses/entropy").has_band


def test_a_run_without_deviations_has_no_band(tmp_path: Path) -> None:
    folder = make(tmp_path / "a", [])
    add(folder, {"step": 1, REWARD: 4}, {"step": 2, REWARD: 5})
    assert not group_of(tmp_path).line(REWARD).has_band


def test_evaluations_are_dots_with_their_intervals(tmp_path: Path) -> None:
    folder = evaluated(tmp_path / "a", 7)
    add(folder, {"step": 300, EVALUATED: 9})  # no deviation is recorded
    line = group_of(tmp_path).line(EVALUATED)
    assert not len(line.x)
    assert line.dots is not None
    assert (line.dots.x.tolist(), line.dots.y.tolist()) == ([200, 300], [7, 9])
    half = mean_interval(0, math.sqrt(20 / 19), 20).half
    assert line.dots.low[0] == pytest.approx(7 - half)
    assert line.dots.high[0] == pytest.approx(7 + half)
    assert math.isnan(line.dots.low[1])
    joint = group_of(tmp_path).line(REWARD, dots=EVALUATED)
    assert joint.dots is not None
    assert len(joint.x) == len(joint.dots.x) == 2
    svg = report_svg(runs_of(tmp_path), (EVALUATED,))
    assert svg.count('stroke-linecap="round"') == 2
    assert "polyline" not in svg


def test_dots_of_several_runs_are_means_over_them(tmp_path: Path) -> None:
    rewards = 7.0, 9.0, 14.0
    for i, reward in enumerate(rewards):
        add(evaluated(tmp_path / str(i), reward, seed=i), {"step": 300 + i, EVALUATED: 1})
    dots = group_of(tmp_path).line(EVALUATED).dots
    assert dots is not None
    assert dots.x.tolist() == [200]  # the step of all of them
    wanted = mean_of(rewards)
    assert dots.y.tolist() == [pytest.approx(statistics.fmean(rewards))]
    assert [dots.low[0], dots.high[0]] == pytest.approx([wanted.low, wanted.high])


def test_dots_of_two_runs_have_no_interval(tmp_path: Path) -> None:
    for i in range(2):
        evaluated(tmp_path / str(i), i, seed=i)
    dots = group_of(tmp_path).line(EVALUATED).dots
    assert dots is not None
    assert dots.y.tolist() == [0.5]
    assert np.isnan([*dots.low, *dots.high]).all()


def test_dots_at_different_steps_are_those_of_each_run(tmp_path: Path) -> None:
    for i in range(2):
        folder = make(tmp_path / str(i), [], seed=i)
        add(folder, {"step": 10 + i, EVALUATED: i}, {"step": 20 + i, EVALUATED: 2 + i})
    dots = group_of(tmp_path).line(EVALUATED).dots
    assert dots is not None
    assert dots.x.tolist() == [10, 11, 20, 21]
    assert dots.y.tolist() == [0, 1, 2, 3]


def test_random_play_is_a_dashed_line_where_it_compares(tmp_path: Path) -> None:
    make(tmp_path / "a", [1, 3], about=random_play(2.0))
    evaluated(tmp_path / "b", 5, about=random_play(1.0, is_like_training=False), gamma=0.5)
    trained, of_evaluation = (
        curve_lines(run_groups(runs_of(tmp_path)), name) for name in (REWARD, EVALUATED)
    )
    [line] = [each for each in trained if each.is_dashed]
    assert (line.name, line.x.tolist(), line.y.tolist()) == ("random play", [100, 200], [2, 2])
    [line] = [each for each in of_evaluation if each.is_dashed]
    assert line.y.tolist() == [1.5, 1.5]
    assert "stroke-dasharray" in report_svg(runs_of(tmp_path))
    about = {**random_play(8.0), "settings": {"board_size": 9}}
    make(tmp_path / "c", [1, 3], about=about)
    names = [
        each.name for each in curve_lines(run_groups(runs_of(tmp_path)), REWARD) if each.is_dashed
    ]
    assert sorted(names) == ["random play (board_size=6)", "random play (board_size=9)"]
    assert not any(
        each.is_dashed for each in curve_lines(run_groups(runs_of(tmp_path)), "losses/entropy")
    )


def test_groups_have_different_names(tmp_path: Path) -> None:
    for gamma in (0.9, 0.99):
        for seed in (1, 2):
            about: dict[str, object] = {"settings": {f"vf_coef_{i}": 9 for i in range(5)}}
            make(tmp_path / f"{gamma}-{seed}", [1, 2], seed=seed, gamma=gamma, about=about)
    many = {f"vf_coef_{i}": i for i in range(5)}
    make(tmp_path / "many", [1, 2], about={"settings": many})
    titles = [group.title for group in run_groups(runs_of(tmp_path))]
    assert len(set(titles)) == 3
    assert str(tmp_path / "many") in titles  # more settings than a title holds
