"""Times of evaluations in a run, and their numbers of episodes."""

from __future__ import annotations

import math

import pytest

from entity_env.agents.ppo import TrainProgress
from entity_env.vec.evaluation.pace import Pace
from tests.agents.ppo.small_envs import Clock

TOTAL = 40_000


def at(step: int, time_fraction: float = 0.0) -> TrainProgress:
    """Training episodes take one second each."""
    return TrainProgress(step, TOTAL, steps_per_s=100, mean_length=100, time_fraction=time_fraction)


def evaluations(
    fixed_s: float, episode_s: float, run_s: float = 400.0, *, updates: int = 200
) -> list[tuple[float, int, float]]:
    """Evaluations of a run without an interval: fraction of the run, episodes and seconds."""
    clock, found = Clock(), []
    pace = Pace(20, None, clock)
    pace.start(at(0))
    for i in range(1, updates):
        clock.now += run_s / updates
        progress = at(TOTAL * i // updates)
        if num := pace.num_due(progress):
            seconds = fixed_s + num * episode_s
            clock.now += seconds
            pace.add(progress, num, round(100 * num * episode_s), seconds)
            found.append((progress.fraction, num, seconds))
    return found


def test_cheap_evaluations_take_place_twenty_times() -> None:
    found = evaluations(0.1, 0.01)
    assert [num for _, num, _ in found[1:]] == [20] * 17  # the first might be slow
    places = [i / 20 for i in range(3, 20)]
    assert [share for share, *_ in found[1:]] == pytest.approx(places, abs=0.01)


def test_slow_ones_take_place_in_every_tenth_with_fewer_episodes() -> None:
    """As in a tower defense, with episodes of one second in a run of 400 seconds."""
    found = evaluations(0.0, 1.0)
    assert {int(10 * share) for share, *_ in found} == set(range(1, 10))
    assert all(4 <= num < 20 for _, num, _ in found)
    assert sum(seconds for *_, seconds in found) < 0.1 * 440


def test_where_fewer_episodes_save_nothing_there_are_all_of_them_or_none() -> None:
    found = evaluations(10.0, 0.01)
    assert {num for _, num, _ in found[1:]} == {20}
    assert len(found) < 5


def test_what_is_too_expensive_waits() -> None:
    found = evaluations(0.0, 15.0)
    assert sum(seconds for *_, seconds in found) < 0.15 * 400 + 60


def test_an_interval_is_exact_however_long_it_takes() -> None:
    clock = Clock()
    pace = Pace(20, 100, clock)
    pace.start(at(150))
    due = []
    for step in (199, 200, 250, 399, 40_000):
        due.append(pace.num_due(at(step)))
        pace.add(at(step), 20, 1, 1e6)
    assert due == [0, 20, 0, 20, 20]


def test_moments_are_those_of_the_time_where_it_is_ahead() -> None:
    clock = Clock()
    pace = Pace(20, None, clock)
    pace.start(at(0))
    clock.now += 1000
    assert pace.num_due(at(10)) == 0
    assert pace.num_due(at(20, time_fraction=0.06)) == 20


def test_as_long_as_no_episode_has_ended_a_few_are_tried_once() -> None:
    clock = Clock()
    pace = Pace(20, None, clock)
    unknown = TrainProgress(TOTAL // 5, TOTAL, steps_per_s=100)
    pace.start(TrainProgress(0, TOTAL))
    clock.now += 10
    assert pace.num_due(unknown) == 4


def test_the_end_is_short() -> None:
    clock = Clock()
    pace = Pace(20, None, clock)
    pace.start(at(0))
    for seconds, end_s in ((1.0, 0.25), (100.0, 20.0), (1e6, 60.0)):
        clock.now = seconds
        assert pace.end_s(at(TOTAL)) == end_s
        assert pace.end_s(at(TOTAL), is_interrupted=True) == 1.5
    assert pace.num_in_round(3.0, 3, at(TOTAL)) == 0  # one second for an episode of both
    assert pace.num_in_round(15.0, 3, at(TOTAL)) == 5
    assert pace.num_in_round(math.inf, 3, at(TOTAL)) == 20
    assert pace.num_last(at(TOTAL)) == 20
    assert pace.reserve_s(at(TOTAL)) == 60.0
