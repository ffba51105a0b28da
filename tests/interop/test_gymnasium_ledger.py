"""What a vector environment of Gymnasium tells is counted for every environment by itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import Episode, SchemaError
from entity_env.interop.gymnasium.from_gymnasium import AllowedActions, GymnasiumEpisodeStats

NUM_ENVS = 3
Flags = list[bool]
FLAGS = st.lists(st.booleans(), min_size=NUM_ENVS, max_size=NUM_ENVS)


def flags(*values: bool) -> NDArray[np.bool_]:
    return np.array(values, np.bool_)


@given(
    st.lists(st.tuples(FLAGS, st.lists(st.integers(-3, 3), min_size=3, max_size=3)), max_size=12),
    st.integers(0, 2**70),
)
def test_episodes_are_those_that_are_counted_one_by_one(
    steps: list[tuple[Flags, list[int]]], seed: int
) -> None:
    ledger = GymnasiumEpisodeStats(NUM_ENVS)
    ledger.begin(np.ones(NUM_ENVS, np.bool_), seed)
    rewards, lengths, numbers = [0.0] * NUM_ENVS, [0] * NUM_ENVS, [0] * NUM_ENVS
    for ends, earned in steps:
        ledger.step(np.array(earned, np.float32), np.ones(NUM_ENVS, np.bool_))
        over = np.array(ends)
        episodes = ledger.end(over, flags(False, False, False))
        ledger.begin(over, None)
        expected = []
        for i in range(NUM_ENVS):
            rewards[i] += earned[i]
            lengths[i] += 1
            if ends[i]:
                expected.append(
                    Episode(rewards[i], lengths[i], True, False, seed + i, numbers[i], env_id=i)
                )
                rewards[i], lengths[i], numbers[i] = 0.0, 0, numbers[i] + 1
        assert episodes == expected


def test_a_seed_begins_a_run_of_those_that_get_it() -> None:
    ledger = GymnasiumEpisodeStats(NUM_ENVS)
    everyone = flags(True, True, True)
    ledger.begin(everyone, 10)
    ledger.begin(everyone, None)
    ledger.begin(flags(False, True, False), 100)
    told = ledger.end(everyone, everyone)
    assert [(episode.seed, episode.number) for episode in told] == [(10, 1), (101, 0), (12, 1)]
    assert all(episode.terminated and episode.truncated for episode in told)


def test_who_does_not_step_gets_no_longer() -> None:
    ledger = GymnasiumEpisodeStats(NUM_ENVS)
    ledger.begin(flags(True, True, True), 0)
    ledger.step(np.ones(NUM_ENVS, np.float32), flags(True, False, True))
    told = ledger.end(flags(False, False, False), flags(True, True, False))
    assert [(episode.env_id, episode.length) for episode in told] == [(0, 1), (1, 0)]
    assert not any(episode.terminated for episode in told)


def test_rewards_too_small_for_float32_sums_are_not_lost() -> None:
    ledger = GymnasiumEpisodeStats(1)
    ledger.begin(flags(True), 0)
    ledger.step(np.array([2.0**24], np.float32), flags(True))
    for _ in range(4):
        ledger.step(np.ones(1, np.float32), flags(True))
    assert ledger.end(flags(True), flags(False))[0].reward == 2.0**24 + 4


def test_nothing_is_forbidden_before_a_mask_is_told() -> None:
    allowed = AllowedActions(NUM_ENVS, 2, "source")
    allowed.read({})
    allowed.read({"action_mask": None})
    assert allowed.of(flags(True, True, True)) is None


@given(FLAGS, FLAGS)
def test_a_mask_lasts_until_the_next_one_of_that_environment(told: Flags, ready: Flags) -> None:
    allowed = AllowedActions(NUM_ENVS, 2, "source")
    first, second = np.tile([True, False], (NUM_ENVS, 1)), np.tile([False, True], (NUM_ENVS, 1))
    allowed.read({"action_mask": first.astype(np.int8)})
    allowed.read({"action_mask": second, "_action_mask": np.array(told)})
    allowed.read({"reward": 1})
    found = allowed.of(np.array(ready))
    assert found is not None
    assert found.dtype == np.bool_
    whose = [is_told for is_told, is_ready in zip(told, ready, strict=True) if is_ready]
    assert found.tolist() == [[not is_told, is_told] for is_told in whose]


def test_masks_of_actions_that_are_no_choice_are_not_read() -> None:
    allowed = AllowedActions(NUM_ENVS, 0, "source")
    allowed.read({"action_mask": np.zeros((9, 9))})
    assert allowed.of(flags(True, True, True)) is None


def test_masks_that_cannot_be_are_told_where_they_came_from() -> None:
    allowed = AllowedActions(NUM_ENVS, 2, "CartPole")
    for shape in ((3,), (2, 2), (3, 3)):
        with pytest.raises(SchemaError, match=r"CartPole: .* needs the shape \(3, 2\)"):
            allowed.read({"action_mask": np.ones(shape)})
    assert allowed.of(flags(True, True, True)) is None  # what was refused has changed nothing
    allowed.read({"action_mask": [[1, 0], [0, 0], [1, 1]]})
    with pytest.raises(SchemaError, match="of env 1 allows nothing"):
        allowed.of(flags(True, True, False))
    assert allowed.of(flags(True, False, True)) is not None  # nobody asks that one
