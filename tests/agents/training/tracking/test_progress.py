"""Speed is measured over the last seconds; the time left is shown only once it is known."""

from __future__ import annotations

import math
from collections.abc import Iterable

import pytest

from entity_env.agents.training.tracking.progress import SpeedMeter


class Meter(SpeedMeter):
    """A speed meter with its own clock, for updates of 100 steps."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(lambda: self.now)
        self.step = 0
        self.start(0)

    def updates(self, seconds: Iterable[float]) -> None:
        for each in seconds:
            self.now += each
            self.step += 100
            self.add(self.step)


def test_an_update_that_compiles_is_left_out_of_the_next_speed() -> None:
    meter = Meter()
    meter.updates([20.0])
    assert meter.steps_per_s == pytest.approx(5.0)
    meter.updates([0.1])
    assert meter.steps_per_s == pytest.approx(1000.0)


def test_the_speed_is_that_of_the_last_seconds() -> None:
    meter = Meter()
    meter.updates([1.0] * 40)
    assert meter.steps_per_s == pytest.approx(100.0)
    meter.updates([0.1] * 99)
    assert 900 < meter.steps_per_s < 1000
    meter.updates([0.1] * 2)
    assert meter.steps_per_s == pytest.approx(1000.0)


def test_an_update_that_takes_longer_than_that_has_a_speed() -> None:
    meter = Meter()
    meter.updates([30.0, 50.0, 25.0])
    assert meter.steps_per_s == pytest.approx(4.0)
    meter.updates([50.0])
    assert meter.steps_per_s == pytest.approx(2.0)
    assert meter.eta_s(400) == pytest.approx(200.0)


def test_the_time_that_is_left_is_known_after_some_updates() -> None:
    meter = Meter()
    assert meter.eta_s(1000) == math.inf
    left = []
    for _ in range(5):
        meter.updates([2.0])
        left.append(meter.eta_s(1000))
    assert left == [math.inf, math.inf, math.inf, 20.0, 20.0]
    assert meter.eta_s(0) == 0


def test_after_a_change_it_is_not_known_again() -> None:
    meter = Meter()
    meter.updates([2.0] * 5)
    meter.restart()
    meter.updates([4.0])
    assert (meter.steps_per_s, meter.eta_s(100)) == (25.0, math.inf)
    meter.updates([1.0] * 3)
    assert (meter.steps_per_s, meter.eta_s(100)) == (100.0, 1.0)
