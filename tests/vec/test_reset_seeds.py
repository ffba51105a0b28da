"""Environments to reset, and the runs of their episodes: by run and number, or by seeds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import SchemaError, UsageError
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.validation import checked_mask
from entity_env.core.vec_env_base import env_seeds, reset_runs
from entity_env.vec.batch_env.source import SequenceSeeds, sequence_runs
from tests.helpers.strategies import FEW, untyped

SEEDS = st.integers(0, 2**62)
NUM_ENVS = 3
INTEGERS = (np.int8, np.uint8, np.int64, np.uint64)


@st.composite
def resets(draw: st.DrawFn) -> tuple[list[int], int, list[int]]:
    """Environments to reset, their total number, and their starts."""
    num_envs = draw(st.integers(1, 6))
    chosen = draw(st.lists(st.booleans(), min_size=num_envs, max_size=num_envs))
    starts = draw(st.lists(st.integers(0, 100), min_size=num_envs, max_size=num_envs))
    return [i for i in range(num_envs) if chosen[i]], num_envs, starts


class TestNewRuns:
    @FEW
    @given(resets(), SEEDS)
    def test_a_run_of_its_own_from_its_beginning(
        self, reset: tuple[list[int], int, list[int]], seed: int
    ) -> None:
        env_ids, num_envs, _ = reset
        runs = reset_runs(env_ids, num_envs, seed, None)
        assert list(runs) == env_ids
        for env_id, (seeds, number) in runs.items():
            assert number == 0
            assert seeds[0] == EpisodeSeeds(seed, env_id)[0]
            assert seeds[70] == EpisodeSeeds(seed, env_id)[70]

    @FEW
    @given(resets(), SEEDS, st.sampled_from(INTEGERS))
    def test_starts_are_episodes_of_environment_0(
        self, reset: tuple[list[int], int, list[int]], seed: int, dtype: type[np.integer[Any]]
    ) -> None:
        env_ids, num_envs, starts = reset
        runs = reset_runs(env_ids, num_envs, seed, np.array(starts, dtype))
        assert list(runs) == env_ids
        for env_id, (seeds, number) in runs.items():
            assert type(number) is int
            assert number == starts[env_id]
            assert seeds[number] == EpisodeSeeds(seed)[starts[env_id]]

    def test_without_a_seed_all_go_on(self) -> None:
        assert reset_runs(range(NUM_ENVS), NUM_ENVS, None, None) == {}

    def test_env_ids_may_be_read_once(self) -> None:
        assert list(reset_runs(iter([2, 0]), NUM_ENVS, 1, None)) == [2, 0]
        assert list(sequence_runs(iter([2, 0]), NUM_ENVS, 1, None)) == [2, 0]


BAD_STARTS: list[tuple[Any, str]] = [
    ([0, 1], r"got \(2,\) int64"),
    ([[0, 1, 2]], r"got \(1, 3\) int64"),
    (0, r"got \(\) int64"),
    ([0, 1, -1], r"got \(3,\) int64, -1$"),
    (np.array([0, -7, -2], np.int8), r"got \(3,\) int8, -7$"),
    ([0.0, 1.0, 2.0], r"got \(3,\) float64$"),
    ([True, False, True], r"got \(3,\) bool$"),
    ([0, None, 2], r"got \(3,\) object$"),
    ([0, 2**70, 2], r"got \(3,\) object$"),
    (np.zeros(2, np.uint8), r"got \(2,\) uint8$"),
]
BAD_SEEDS: list[Any] = [-1, np.int64(-5), 0.0, "1", True, [1]]
BEGIN = pytest.mark.parametrize("begin", [reset_runs, sequence_runs])


@BEGIN
@pytest.mark.parametrize(("starts", "told"), BAD_STARTS)
@pytest.mark.parametrize("env_ids", [[], [0, 2]])
def test_starts_that_make_no_sense_are_refused_whoever_is_reset(
    begin: Any,  # noqa: ANN401
    starts: Any,  # noqa: ANN401
    told: str,
    env_ids: list[int],
) -> None:
    with pytest.raises(SchemaError, match=r"starts needs the shape \(3,\) and integers, 0 or more"):
        begin(env_ids, NUM_ENVS, 1, starts)
    with pytest.raises(SchemaError, match=told):
        begin(env_ids, NUM_ENVS, 1, starts)


@BEGIN
def test_starts_need_a_seed(begin: Any) -> None:  # noqa: ANN401
    with pytest.raises(UsageError, match="starts need a seed: pass the seed, too"):
        begin([0], NUM_ENVS, None, [0, 0, 0])


@BEGIN
@pytest.mark.parametrize("seed", BAD_SEEDS)
@pytest.mark.parametrize("env_ids", [[], [1]])
def test_bad_seeds_are_refused_whoever_is_reset(
    begin: Any,  # noqa: ANN401
    seed: Any,  # noqa: ANN401
    env_ids: list[int],
) -> None:
    for starts in (None, [0, 0, 0]):
        with pytest.raises(UsageError, match="a seed must be an integer, 0 or more: got"):
            begin(env_ids, NUM_ENVS, seed, starts)


class TestSequences:
    @FEW
    @given(resets(), SEEDS)
    def test_environments_have_seeds_of_their_own(
        self, reset: tuple[list[int], int, list[int]], seed: int
    ) -> None:
        env_ids, num_envs, starts = reset
        runs = sequence_runs(env_ids, num_envs, seed, None)
        assert {i: (run[run_from], run_from) for i, (run, run_from) in runs.items()} == {
            i: (int(env_seeds(seed, np.array([i]))[0]), 0) for i in env_ids
        }
        runs = sequence_runs(env_ids, num_envs, np.uint64(seed), np.array(starts))  # type: ignore[arg-type]
        assert {i: (run[run_from], run_from) for i, (run, run_from) in runs.items()} == {
            i: (int(env_seeds(seed, np.array([starts[i]]))[0]), 0) for i in env_ids
        }

    def test_without_a_seed_all_go_on(self) -> None:
        assert sequence_runs(range(NUM_ENVS), NUM_ENVS, None, None) == {}

    @FEW
    @given(SEEDS, st.integers(1, 200))
    def test_an_episode_further_on_has_a_seed_of_its_own(self, seed: int, number: int) -> None:
        seeds = SequenceSeeds(seed)
        assert seeds[0] == seeds.seed == seed
        assert seeds[number] == EpisodeSeeds(seed)[number]
        assert len({seeds[i] for i in range(number)}) == number

    @FEW
    @given(SEEDS, st.integers(0, 200))
    def test_workers_get_the_same(self, seed: int, number: int) -> None:
        seeds = SequenceSeeds(seed)
        before = seeds[number]
        sent = pickle.loads(pickle.dumps(seeds))
        assert type(sent) is SequenceSeeds
        assert sent.seed == seed
        assert [sent[0], sent[number]] == [seed, before]

    def test_a_seed_is_a_plain_integer_afterwards(self) -> None:
        assert type(SequenceSeeds(np.int64(5)).seed) is int  # type: ignore[arg-type]

    @pytest.mark.parametrize("seed", BAD_SEEDS)
    def test_a_sequence_needs_a_seed(self, seed: Any) -> None:  # noqa: ANN401
        with pytest.raises(UsageError, match="a seed must be an integer, 0 or more: got"):
            SequenceSeeds(seed)


class TestTheLargestSeed:
    @FEW
    @given(st.integers(2**63, 2**70), st.none() | st.just([0, 1, 2]))
    def test_has_63_bits(self, seed: int, starts: list[int] | None) -> None:
        with pytest.raises(UsageError, match=r"from 0 to 2\*\*63 - 1: got"):
            sequence_runs([0], NUM_ENVS, seed, starts)

    @FEW
    @given(st.integers(0, 2**63 - 1), st.sampled_from([0, 1, 2**63 - 1, 2**64 - 1]))
    def test_no_seed_of_an_environment_is_larger(self, seed: int, start: int) -> None:
        runs = sequence_runs([2], NUM_ENVS, seed, np.array([0, 0, start], np.uint64))
        assert 0 <= runs[2][0][0] < 2**63


def test_lists_of_uneven_lengths_are_refused_in_words() -> None:
    with pytest.raises(SchemaError, match="mask needs one bool per environment"):
        checked_mask(untyped([[True], [True, False]]), 2)
    with pytest.raises(SchemaError, match="starts needs one value per environment"):
        reset_runs([0], 2, 1, untyped([[1], [1, 2]]))
