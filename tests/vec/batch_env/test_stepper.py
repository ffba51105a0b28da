"""BatchEpisodeStats counts the episodes of a batch; RowParts splits rows of observations."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.episode_stats import LAST_REWARD
from entity_env.core.vec_env_base import env_seeds
from entity_env.vec.batch_env.batch_env import StepResult
from entity_env.vec.batch_env.batch_spaces import RowParts
from entity_env.vec.batch_env.source import sequence_runs
from entity_env.vec.batch_env.statistics import BatchEpisodeStats, FinishedRows
from tests.helpers.strategies import FEW, FLOATS, float_rows

HAS_NUMBA = find_spec("numba") is not None
HOW = pytest.mark.parametrize(
    ("is_compiled", "has_gaps"),
    [
        (False, False),
        pytest.param(True, False, marks=pytest.mark.skipif(not HAS_NUMBA, reason="needs numba")),
        pytest.param(True, True, marks=pytest.mark.skipif(not HAS_NUMBA, reason="needs numba")),
    ],
)


@dataclass
class Model:
    """Episode statistics of one environment."""

    seed: int = 0
    number: int = -1
    reward: float = 0.0
    length: int = 0

    def begin(self) -> None:
        self.number += 1
        self.reward, self.length = 0.0, 0

    def step(self, reward: float) -> None:
        self.reward += reward
        self.length += 1

    def end(self, env_id: int, terminated: bool, truncated: bool) -> Episode:
        return Episode(
            self.reward, self.length, terminated, truncated, self.seed, self.number, env_id
        )


@dataclass
class Step:
    """Results of one step; `new_run` is the seed of the episodes that start after it, if any."""

    rewards: list[float]
    flags: list[tuple[bool, bool]]
    new_run: int | None
    is_late: bool


@st.composite
def plays(draw: st.DrawFn) -> tuple[int, list[Step]]:
    num_envs = draw(st.sampled_from([1, 2, 5, 70]))

    def of_each(one: st.SearchStrategy[bool]) -> list[bool]:
        return [bool(x) for x in draw(st.lists(one, min_size=num_envs, max_size=num_envs))]

    steps = []
    for _ in range(draw(st.integers(1, 6))):
        rng = np.random.default_rng(draw(st.integers(0, 2**16)))
        terminated, truncated = rng.random((2, num_envs)) < draw(st.sampled_from([0.0, 0.3, 1.0]))
        rewards = rng.normal(size=num_envs).astype(np.float32).tolist()
        rewards[0] = draw(FLOATS.filter(lambda x: abs(x) < 1e30))
        flags = list(zip(terminated.tolist(), truncated.tolist(), strict=True))
        seed = draw(st.none() | st.integers(0, 2**62))
        steps.append(Step(rewards, flags, seed, draw(st.booleans())))
    return num_envs, steps


def result_of(num_envs: int, has_gaps: bool) -> tuple[StepResult, NDArray[np.float32]]:
    """Arrays for the steps, interleaved if they have gaps, and the rewards."""
    stride = 3 if has_gaps else 1
    flags = [np.zeros(num_envs * stride, np.uint8)[::stride] for _ in range(2)]
    reward = np.zeros(num_envs * stride, np.float32)[::stride]
    return StepResult(np.zeros((num_envs, 1), np.float32), reward, flags[0], flags[1]), reward


def write(result: StepResult, step: Step) -> None:
    result.rewards[:] = step.rewards
    result.terminals[:] = [terminated for terminated, _ in step.flags]
    result.truncations[:] = [truncated for _, truncated in step.flags]


@HOW
@FEW
@given(plays(), st.booleans())
def test_episodes_are_those_counted_one_by_one(
    is_compiled: bool, has_gaps: bool, play: tuple[int, list[Step]], goes_on: bool
) -> None:
    """All finished episodes are read at the very end, after new runs have started."""
    num_envs, steps = play
    stats, models = BatchEpisodeStats(num_envs, is_compiled), [Model() for _ in range(num_envs)]
    result, reward = result_of(num_envs, has_gaps)
    kept: list[tuple[FinishedRows, list[Episode]]] = []
    begin(stats, models, list(range(num_envs)), seed=7, is_late=False)
    for step in steps:
        write(result, step)
        wanted: list[Episode] = []
        for env_id, (model, flags) in enumerate(zip(models, step.flags, strict=True)):
            model.step(step.rewards[env_id])
            if any(flags):
                wanted.append(model.end(env_id, *flags))
        mask = result.to_reset_mask()
        ended = stats.step(result, reward, mask, goes_on=goes_on)
        assert (ended is not None) is bool(wanted)
        assert [*zip(stats.terminated, stats.truncated, strict=True)] == step.flags
        over = mask.indices().tolist()
        if ended is not None:
            assert ended.reward.tolist() == [step.rewards[i] for i in over]
            kept.append((ended, wanted))
        if goes_on:
            for env_id in over:
                models[env_id].begin()
        elif over:
            begin(stats, models, over, step.new_run, is_late=step.is_late)
            if step.is_late:  # the step in which episodes start does not count for them
                pause(stats, models, result, reward, over)
    for ended, wanted in kept:
        assert list(ended.episodes()) == wanted
        assert list(ended.as_arrays().episodes) == wanted
        assert ended.as_arrays().floats[LAST_REWARD].tolist() == ended.reward.tolist()


def begin(
    stats: BatchEpisodeStats,
    models: list[Model],
    env_ids: list[int],
    seed: int | None,
    *,
    is_late: bool,
) -> None:
    """Starts episodes like a batch; of new runs if there is a seed."""
    stats.begin(np.array(env_ids, np.int64), is_late=is_late)
    stats.begin_runs(sequence_runs(env_ids, len(models), seed, None))
    for env_id in env_ids:
        model = models[env_id]
        model.begin()
        if seed is not None:
            model.seed, model.number = int(env_seeds(seed, np.array([env_id]))[0]), 0


def pause(
    stats: BatchEpisodeStats,
    models: list[Model],
    result: StepResult,
    reward: NDArray[np.float32],
    beginners: list[int],
) -> None:
    """A step without rewards, which does not count for episodes that start in it."""
    num_envs = len(models)
    write(result, Step([0.0] * num_envs, [(False, False)] * num_envs, None, is_late=False))
    assert stats.step(result, reward, result.to_reset_mask(), goes_on=False) is None
    for env_id in set(range(num_envs)) - set(beginners):
        models[env_id].step(0.0)


@HOW
def test_it_takes_other_arrays_in_the_middle(is_compiled: bool, has_gaps: bool) -> None:
    """A kernel is chosen for specific arrays; other arrays, with or without gaps, also work."""
    stats = BatchEpisodeStats(2, is_compiled)
    stats.begin(np.arange(2))
    for number, gaps in enumerate((has_gaps, not has_gaps, has_gaps), 1):
        result, reward = result_of(2, gaps)
        flags = [(number == 3, False), (False, False)]
        write(result, Step([1.0, 10.0], flags, None, is_late=False))
        ended = stats.step(result, reward, result.to_reset_mask(), goes_on=True)
    assert ended is not None
    assert list(ended.episodes()) == [Episode(3.0, 3, True, False, 0, 0, 0)]


def test_flags_can_be_taken_over_without_a_step() -> None:
    stats = BatchEpisodeStats(3, is_compiled=False)
    result, reward = result_of(3, has_gaps=False)
    stats.begin(np.arange(3))
    write(result, Step([0, 0, 0], [(True, False), (False, True), (False, False)], None, False))
    stats.copy_flags(result)
    assert stats.terminated.tolist() == [True, False, False]
    assert stats.truncated.tolist() == [False, True, False]
    ended = stats.step(result, reward, result.to_reset_mask(), goes_on=False)
    assert ended is not None
    assert [episode.length for episode in ended.episodes()] == [1, 1]  # the reset is not a step


PARTS = st.builds(RowParts, st.integers(1, 4), st.integers(0, 3), st.integers(0, 3))


class TestRowParts:
    @FEW
    @given(PARTS, st.integers(0, 5), st.data())
    def test_hold_every_number_of_a_row_once(
        self, parts: RowParts, num_rows: int, data: st.DataObject
    ) -> None:
        rows = data.draw(float_rows(num_rows, parts.obs_size))
        entities, shared = parts.entities(rows), parts.globals(rows)
        assert parts.obs_size == parts.num_entities * parts.num_features + parts.num_globals
        assert entities.shape == (num_rows * parts.num_entities, parts.num_features)
        assert shared.shape == (num_rows, parts.num_globals)
        assert entities.dtype == shared.dtype == np.float32
        assert shared.flags.c_contiguous
        for row in range(num_rows):
            own = entities[row * parts.num_entities : (row + 1) * parts.num_entities]
            assert [*own.ravel().tolist(), *shared[row].tolist()] == rows[row].tolist()

    @FEW
    @given(st.integers(1, 4), st.integers(1, 3), st.integers(1, 5))
    def test_are_views_where_they_say_so(self, entities: int, features: int, rows: int) -> None:
        parts = RowParts(entities, features, num_globals=0)
        array = np.zeros((rows, parts.obs_size), np.float32)
        assert parts.are_views
        shown = parts.entities(array)
        array[:] = np.arange(array.size).reshape(array.shape)
        assert_array_equal(shown.ravel(), np.arange(array.size))

    @FEW
    @given(st.integers(2, 4), st.integers(1, 3), st.integers(1, 3), st.integers(2, 5))
    def test_are_copies_beside_globals(
        self, entities: int, features: int, num_globals: int, rows: int
    ) -> None:
        parts = RowParts(entities, features, num_globals)
        array = np.zeros((rows, parts.obs_size), np.float32)
        assert not parts.are_views
        assert not np.shares_memory(parts.entities(array), array)
        assert not np.shares_memory(parts.globals(array), array)
