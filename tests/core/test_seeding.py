"""EpisodeSeeds: every episode has its own seed, whatever happened before."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import UsageError
from entity_env.core.seeding import GAMMA, SEEDS_PER_BLOCK, EpisodeSeeds, splitmix64_int
from entity_env.core.vec_env_base import env_seeds, splitmix64
from tests.helpers.strategies import untyped


@given(st.integers(0, 2**70), st.integers(0, 5), st.lists(st.integers(0, 300), min_size=1))
def test_a_seed_depends_on_run_environment_and_number_alone(
    seed: int, env_id: int, numbers: list[int]
) -> None:
    seeds = EpisodeSeeds(seed, env_id)
    given = [seeds[number] for number in numbers]
    assert given == [EpisodeSeeds(seed, env_id)[number] for number in numbers]
    assert {type(one) for one in given} == {int}
    assert all(0 <= one < 2**63 for one in given)


@given(
    st.integers(0, 2**200) | st.sampled_from([0, 1, 2**32 - 1, 2**32, 2**64 - 1, 2**128]),
    st.integers(0, 2**40),
    st.integers(0, 2**30),
)
def test_they_are_those_of_a_seed_sequence_of_numpy(seed: int, env_id: int, number: int) -> None:
    block, index = divmod(number, SEEDS_PER_BLOCK)
    sequence = np.random.SeedSequence(seed, spawn_key=(env_id, block))
    words = sequence.generate_state(SEEDS_PER_BLOCK, np.uint64)
    assert EpisodeSeeds(seed, env_id)[number] == int(words[index] >> np.uint64(1))


def test_all_seeds_differ() -> None:
    seeds = [
        EpisodeSeeds(run, env_id)[episode]
        for run in range(4)
        for env_id in range(4)
        for episode in range(130)
    ]
    assert len(set(seeds)) == len(seeds)


def test_a_numpy_integer_is_a_seed() -> None:
    assert EpisodeSeeds(untyped(np.int64(3)))[0] == EpisodeSeeds(3)[0]


@pytest.mark.parametrize("seed", [-1, 0.5, None, "3", True])
def test_what_is_no_seed_is_refused(seed: object) -> None:
    with pytest.raises(UsageError, match="a seed must be an integer, 0 or more: got"):
        EpisodeSeeds(untyped(seed))


@given(st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=50))
def test_splitmix64_of_integers_and_of_arrays_is_the_same(states: list[int]) -> None:
    mixed = splitmix64(np.array(states, np.uint64)).tolist()
    assert mixed == [splitmix64_int(state) for state in states]
    assert mixed == [splitmix64_int(state + 2**64) for state in states]


def test_splitmix64_as_printed_with_its_reference_implementation() -> None:
    """The first outputs of the sequence starting at 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [splitmix64_int(1234567 + k * GAMMA) for k in (1, 2, 3)] == expected


@given(st.integers(0, 2**64 - 1), st.integers(2, 100))
def test_environment_0_has_the_seed_itself_and_the_others_follow_each_other(
    seed: int, num_envs: int
) -> None:
    first, second, *_ = seeds = env_seeds(seed, np.arange(num_envs)).tolist()
    assert first == seed
    assert seeds[1:] == list(range(second, second + num_envs - 1))
    assert max(seeds[1:]) < 2**63


@given(st.integers(0, 2**64 - 200))
def test_batches_with_neighbouring_seeds_share_no_seed(seed: int) -> None:
    seeds = [env_seeds(seed + k, np.arange(100)) for k in range(100)]
    assert len(np.unique(seeds)) == 100 * 100
