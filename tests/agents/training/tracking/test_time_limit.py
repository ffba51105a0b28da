"""Time limit of a run: time left, schedules that follow it, and time reserved for the end."""

from __future__ import annotations

import functools
import math

import pytest

from entity_env.agents.training.peers import Peers
from entity_env.agents.training.tracking.progress import TrainProgress
from entity_env.agents.training.tracking.time_limit import TimeLimit
from entity_env.errors import UsageError
from tests.agents.ppo.small_envs import Clock
from tests.agents.training.test_peers import on_ranks


def test_time_passes_until_it_is_over() -> None:
    clock = Clock(100.0)
    limit = TimeLimit(20.0, clock)
    assert (limit.fraction, limit.left_s, limit.is_over) == (0, 20, False)
    clock.now += 5
    assert (limit.fraction, limit.left_s, limit.elapsed_s) == (0.25, 15, 5)
    clock.now += 50
    assert (limit.fraction, limit.left_s, limit.is_over) == (1, 0, True)


@pytest.mark.parametrize(("seconds", "kept"), [(1.0, 1.0), (7.0, 2.0), (-1.0, 0.0)])
def test_a_tenth_at_most_is_kept_for_the_end(seconds: float, kept: float) -> None:
    clock = Clock()
    limit = TimeLimit(20.0, clock)
    limit.reserve(seconds)
    clock.now += (20 - kept) / 2
    assert limit.left_s == (20 - kept) / 2
    assert limit.fraction == 0.5


def test_without_a_limit_nothing_follows_the_time() -> None:
    clock = Clock()
    limit = TimeLimit(None, clock)
    limit.reserve(5)
    clock.now += 1e9
    assert (limit.fraction, limit.left_s, limit.is_set) == (0, math.inf, False)
    assert limit.start_update(lambda own: [own]) == 0
    assert TimeLimit(0.0).fraction == 1


def test_a_given_fraction_takes_the_place_of_the_clock() -> None:
    limit = TimeLimit(None)
    limit.set_fraction(0.5)
    assert limit.is_set
    assert limit.start_update(lambda own: [own]) == limit.update_fraction == 0.5
    with pytest.raises(UsageError, match=r"from 0 to 1, got 1\.5"):
        limit.set_fraction(1.5)


def test_all_ranks_follow_the_first_one() -> None:
    def work(peers: Peers) -> float:
        clock = Clock()
        limit = TimeLimit(10.0, clock)
        clock.now += 3 + peers.rank
        return limit.start_update(peers.gather_reports)

    assert on_ranks(2, work) == [0.3, 0.3]


def test_ranks_without_a_fraction_follow_the_first_one() -> None:
    def work(peers: Peers, setter: int) -> float:
        limit = TimeLimit(None)
        if peers.rank == setter:
            limit.set_fraction(0.5)
        return limit.start_update(peers.gather_reports)

    for setter, fraction in ((0, 0.5), (1, 0.0)):
        assert on_ranks(2, functools.partial(work, setter=setter)) == [fraction] * 2


def test_progress_is_that_of_steps_or_time() -> None:
    early = TrainProgress(step=10, total=100, time_fraction=0.05)
    assert (early.fraction, early.scheduled_step) == (0.1, 10)
    late = TrainProgress(step=10, total=100, time_fraction=0.5)
    assert (late.fraction, late.scheduled_step) == (0.5, 50)
