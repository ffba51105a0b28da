"""TrainDisplay: dashes for unknown figures, the last line is always shown, correct curves."""

from __future__ import annotations

import io
import itertools
import math
import re
from dataclasses import replace

import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from entity_env.agents.ppo import Losses, RandomPlay, TrainProgress
from entity_env.cli.display.train_dashboard import TrainDisplay, sparkline

BARS = "▁▂▃▄▅▆▇█"
EARLY = TrainProgress(
    step=500,
    total=2_000,
    steps_per_s=1_234.0,
    mean_reward=math.nan,
    mean_length=math.nan,
    num_episodes=0,
    losses=Losses(policy_loss=-0.25, value_loss=150.0, entropy=1.5),
    eta_s=math.inf,
)
VALUES = st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=80)


def plain() -> Console:
    return Console(file=io.StringIO(), width=100, force_terminal=False)


def shown_on(console: Console) -> str:
    file = console.file
    assert isinstance(file, io.StringIO)
    return re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", file.getvalue())


@given(values=VALUES, width=st.integers(1, 60))
def test_a_curve_reaches_from_the_lowest_to_the_highest_bar(
    values: list[float], width: int
) -> None:
    curve = sparkline(values, width)
    assert len(curve) == min(width, len(values))
    assert set(curve) <= set(BARS)
    assert BARS[0] in curve
    if len(values) <= width and max(values) > min(values):
        assert curve[values.index(max(values))] == BARS[-1]
        assert curve[values.index(min(values))] == BARS[0]


@given(values=VALUES, scale=st.sampled_from([0.5, 2.0, 64.0]))
def test_a_curve_does_not_depend_on_the_unit(values: list[float], scale: float) -> None:
    exact = [round(value) * 1.0 for value in values]
    assert sparkline([value * scale for value in exact], 80) == sparkline(exact, 80)


@given(values=st.lists(st.integers(-50, 50).map(float), min_size=1, max_size=50))
def test_a_rising_curve_never_falls(values: list[float]) -> None:
    bars = [BARS.index(bar) for bar in sparkline(sorted(values), 10)]
    assert bars == sorted(bars)


def test_what_is_not_known_yet_is_a_dash() -> None:
    console = plain()
    with TrainDisplay("run", console) as display:
        display(EARLY)
    assert shown_on(console) == (
        "step 500 of 2,000  1,234 steps/s  reward -  length -  policy loss -0.250  "
        "value loss 150.0  entropy 1.500  - left\n"
    )


def test_what_is_compiled_is_said_in_place_of_the_time_left() -> None:
    for is_terminal in (False, True):
        console = Console(file=io.StringIO(), width=120, force_terminal=is_terminal)
        with TrainDisplay("run", console) as display:
            display(replace(EARLY, is_compiling=True))
        text = shown_on(console)
        assert "compiling" in text
        assert (" left" in text) is is_terminal  # the name of the row
        assert "half a minute" not in text
        with TrainDisplay("run", console) as display:
            display(replace(EARLY, is_compiling=True, eta_s=75.0))
        assert "compiling, at most 1:15" in shown_on(console)


@pytest.mark.parametrize("is_terminal", [False, True])
def test_rewards_are_shown_with_random_play_where_it_compares(is_terminal: bool) -> None:
    def shown(is_like_training: bool, unfinished: float = 0.0) -> str:
        console = Console(file=io.StringIO(), width=200, force_terminal=is_terminal)
        with TrainDisplay("run", console) as display:
            found = RandomPlay(76.2, 50.0, 30.0, 40, is_like_training)
            metrics = {"evaluation/mean_reward": 331.0}
            figures = replace(EARLY, mean_reward=77.0, metrics=metrics, unfinished=unfinished)
            display(replace(figures, random_play=found))
        return shown_on(console)

    begin = "episode reward: " if is_terminal else "reward 77.000 ("
    assert f"{begin}random 76.200" in shown(True)
    assert "evaluation 331.0 (greedy, at 25%)" in shown(True)
    assert "evaluation 331.0 (greedy, at 25%; random 76.200)" in shown(False)
    assert shown(False).count("random") == shown(True).count("random")
    assert f"{begin}random 76.200; of short episodes so far" in shown(True, 0.5)
    assert f"{begin}of short episodes so far" in shown(False, 0.5)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0:00"),
        (59.4, "0:59"),
        (59.6, "1:00"),
        (3_599.6, "1:00:00"),
        (360_061.0, "100:01:01"),
        (math.nan, "-"),
    ],
)
def test_time_left_is_rounded_once(seconds: float, text: str) -> None:
    console = plain()
    with TrainDisplay("run", console) as display:
        display(replace(EARLY, eta_s=seconds))
    assert shown_on(console).endswith(f"  {text} left\n")


def test_the_first_and_the_last_line_are_shown_at_any_pace() -> None:
    console = plain()
    with TrainDisplay("run", console, clock=lambda: 7.0) as display:
        for step in (500, 1_000, 1_500, 2_000):
            display(replace(EARLY, step=step))
    lines = shown_on(console).splitlines()
    assert [line.split(" of ")[0] for line in lines] == ["step 500", "step 2,000"]


def test_a_terminal_shows_where_the_time_goes_and_the_rewards_so_far() -> None:
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    with TrainDisplay("run", console) as display:
        display.statistics = lambda: "half of it in games"
        for reward in (0.0, math.nan, 7.0, math.inf, 3.0):
            display(replace(EARLY, mean_reward=reward))
    last = shown_on(console).rpartition("half of it in games")[2]
    assert "reward  ▁█▄" in last  # without non-finite values


def test_nothing_is_shown_before_the_first_update_where_no_terminal_is() -> None:
    console = plain()
    with TrainDisplay("run", console):
        assert shown_on(console) == ""


def test_a_slow_start_is_explained() -> None:
    now = 0.0
    console = Console(file=io.StringIO(), width=100, force_terminal=True)
    display = TrainDisplay("training snake", console, clock=lambda: now)
    with display:
        pass
    assert "training snake: starting" in shown_on(console)
    assert "half a minute" not in shown_on(console)
    with display:
        now = 4.0
    assert "functions are compiled: half a minute" in shown_on(console)


def test_a_rating_is_shown_with_its_change_over_the_last_tenth() -> None:
    for is_terminal in (False, True):
        console = Console(file=io.StringIO(), width=120, force_terminal=is_terminal)
        with TrainDisplay("training", console, clock=itertools.count(step=10).__next__) as display:
            for step, rating in ((1000, 100.0), (1800, 377.0), (2000, 412.4)):
                metrics = {"rating": rating, "wins_self": 0.55, "wins_random": 0.934}
                display(replace(EARLY, step=step, metrics=metrics))
        text = shown_on(console)
        assert "rating 412 (+35)" in text
        assert "rating 100 (+0)" in text or is_terminal
        assert ("wins against self 55%, random 93%" in text) == is_terminal
    console = plain()
    TrainDisplay("training", console)(EARLY)
    assert "rating" not in shown_on(console)
