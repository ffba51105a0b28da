"""Timing statistics of a `VecEnv`."""

from time import perf_counter

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.vec import VecEnv, VecStatistics, WorkerStatistics, statistics
from entity_env.vec.statistics import Stopwatch
from tests.helpers.tiny_games import count

STAY = {"Move": np.ones(3, np.int64)}


def test_times_add_up() -> None:
    with VecEnv(count, 3) as vec:
        begin = perf_counter()
        vec.reset()
        for _ in range(20):
            vec.act(STAY)
        elapsed = perf_counter() - begin
        told = vec.statistics()
        assert told.games_s > 0
        assert told.packing_s > 0
        assert told.games_s + told.packing_s <= elapsed
        parts = told.transport_s, told.waiting_s, told.caller_s
        assert all(part > 0 for part in parts)
        assert sum(parts) <= elapsed


def worker(num_restarts: int = 0) -> WorkerStatistics:
    return WorkerStatistics(
        num_envs=32,
        num_steps=1000,
        games_s=1.5,
        packing_s=0.25,
        waiting_s=0.5,
        num_restarts=num_restarts,
        num_bytes=4096,
    )


def test_what_workers_spend_adds_up() -> None:
    told = VecStatistics(1000, 64000, 1200, 0.5, 3.0, 1.5, [worker(1), worker(2)])
    assert (told.games_s, told.packing_s, told.num_restarts) == (3.0, 0.5, 3)


def test_in_words() -> None:
    told = VecStatistics(
        num_steps=1000,
        num_env_steps=64000,
        num_episodes=1200,
        transport_s=0.5,
        waiting_s=3.0,
        caller_s=1.5,
        workers=[WorkerStatistics(32, 1000, 2.5, 0.1, 1.0, num, 65536) for num in (0, 2)],
    )
    shares = "waiting for games 60 %, transport 10 %, caller 30 %"
    assert str(told) == f"64,000 env steps, 1,200 episodes: {shares}, 2 restarts"
    assert (told.games_s, told.packing_s) == (5.0, 0.2)
    assert "learning 30 %" in told.describe(caller="learning")
    assert str(VecStatistics(0, 0, 0, 0, 0, 0, [])).startswith("0 env steps, 0 episodes")


def test_a_worker_and_the_one_that_replaced_it_are_one() -> None:
    first = WorkerStatistics(3, 10, 1.0, 2.0, 3.0, 1, 400)
    later = WorkerStatistics(2, 5, 0.5, 0.25, 4.0, 2, 100)
    # Times and counts are cumulative; environments and memory are current values.
    assert first.plus(later) == WorkerStatistics(2, 15, 1.5, 2.25, 7.0, 3, 100)


PHASES = st.lists(st.tuples(*[st.integers(0, 9)] * 4), max_size=5)


@given(PHASES)
def test_every_moment_belongs_to_one_of_three(phases: list[tuple[int, int, int, int]]) -> None:
    now = 100.0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statistics, "perf_counter", lambda: now)
        watch = Stopwatch()
        now += 50
        watch.skip()  # time that is not counted
        for caller, before, wait, after in phases:
            now += caller
            watch.begin_call()
            now += before
            watch.begin_wait()
            now += wait
            watch.end_wait()
            now += after
            watch.end_call()
    sums = [sum(column) for column in zip(*phases, strict=True)] or [0] * 4
    assert watch.caller_s == sums[0]
    assert watch.waiting_s == sums[2]
    assert watch.transport_s == sums[1] + sums[3]
