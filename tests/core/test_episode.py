"""Episode statistics: episodes as arrays, as lazily made objects, and running episodes."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace
from typing import TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.core.episode import Episode
from entity_env.core.episode_stats import (
    LAST_REWARD,
    NO_EPISODES,
    NUM_METRICS,
    NUMBER,
    REWARD,
    ROW,
    EpisodeCollector,
    EpisodeStats,
    FinishedEpisodes,
    LazyEpisodes,
)
from tests.helpers.batches import finished_of
from tests.helpers.strategies import FEW, untyped

Ended: TypeAlias = tuple[int, float, Episode]
"""Row, last reward and episode."""

NUM_AGENTS = 2
NAMES = ["won", "size"]

rewards = st.floats(-100, 100)


def test_the_only_episode_of_the_only_agent_has_number_0() -> None:
    episode = Episode(reward=1.0, length=2, terminated=True, truncated=False, seed=3)
    assert (episode.number, episode.env_id, episode.agent_id) == (0, 0, 0)


@st.composite
def endings(draw: st.DrawFn) -> list[Ended]:
    """Episodes of rows, for environments with two agents."""
    rows = sorted(draw(st.lists(st.integers(0, 9), max_size=5)))
    return [(row, draw(rewards), draw(episodes(row))) for row in rows]


@st.composite
def episodes(draw: st.DrawFn, row: int) -> Episode:
    return Episode(
        reward=draw(rewards),
        length=draw(st.integers(0, 99)),
        terminated=draw(st.booleans()),
        truncated=draw(st.booleans()),
        seed=draw(st.integers(0, 2**63 - 1)),
        number=draw(st.integers(0, 99)),
        env_id=row // NUM_AGENTS,
        agent_id=row % NUM_AGENTS,
        metrics=draw(st.dictionaries(st.sampled_from(NAMES), rewards)),
    )


def reread(told: FinishedEpisodes) -> FinishedEpisodes:
    """The episodes, rebuilt from arrays."""
    metrics = [(NAMES.index(k), x) for one in told.episodes for k, x in one.metrics.items()]
    pairs = np.array(metrics, dtype=np.float64).reshape(-1, 2)
    return FinishedEpisodes.from_arrays(told.ints, told.floats, pairs, NAMES, NUM_AGENTS)


@FEW
@given(endings())
def test_columns_say_what_the_list_says(ended: list[Ended]) -> None:
    told = finished_of(ended, NUM_AGENTS)
    assert len(told) == len(ended)
    assert told.rows.tolist() == [row for row, _, _ in ended]
    assert told.floats[LAST_REWARD].tolist() == [reward for _, reward, _ in ended]
    assert told.floats[REWARD].tolist() == [one[2].reward for one in ended]
    assert told.ints[NUMBER].tolist() == [one[2].number for one in ended]
    assert told.ints[NUM_METRICS].tolist() == [len(one[2].metrics) for one in ended]


@FEW
@given(endings())
def test_episodes_are_made_of_arrays(ended: list[Ended]) -> None:
    made = reread(finished_of(ended, NUM_AGENTS)).episodes
    assert len(made) == len(ended)
    assert made == [one[2] for one in ended]
    assert list(made) == [one[2] for one in ended]
    assert made[1:] == [one[2] for one in ended][1:]


@FEW
@given(endings(), endings(), st.integers(0, 9))
def test_those_of_two_workers(first: list[Ended], second: list[Ended], offset: int) -> None:
    both = reread(finished_of(first, NUM_AGENTS)) + reread(finished_of(second, NUM_AGENTS)).shifted(
        offset
    )
    assert both.rows.tolist() == [e[0] for e in first] + [e[0] - offset for e in second]
    assert both.episodes == [one[2] for one in (*first, *second)]


@FEW
@given(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 9), st.integers(1, 3), st.data())
def test_a_collector_keeps_what_is_added(
    rows: list[int], first_env: int, num_agents: int, data: st.DataObject
) -> None:
    collector, ended = EpisodeCollector(first_env, num_agents), []
    collector.add(0, (1, True, False, 5, 0), (0.0, 0.0), {"won": 1.0})
    collector.clear()
    for row in sorted(rows):
        env_id, agent_id = divmod(row, num_agents)
        one = replace(data.draw(episodes(0)), env_id=first_env + env_id, agent_id=agent_id)
        ended.append((row, data.draw(rewards), one))
        collector.add_episode(row, ended[-1][1], one)
    assert len(collector) == len(ended)
    told = collector.finished()
    assert told.rows.tolist() == [row for row, _, _ in ended]
    assert told.last_reward.tolist() == [np.float32(reward) for _, reward, _ in ended]
    assert told.terminated.tolist() == [one.terminated for _, _, one in ended]
    assert told.truncated.tolist() == [one.truncated for _, _, one in ended]
    assert [list(collector.ints(i)) for i in range(len(ended))] == told.ints.T.tolist()
    collector.clear()  # the episodes of the previous step stay
    collector.add(0, (1, True, False, 5, 0), (0.0, 0.0), {"won": 1.0})
    assert told.episodes == [one for _, _, one in ended]


def test_an_empty_collector() -> None:
    assert EpisodeCollector().finished() is NO_EPISODES


def test_moving_leaves_the_original_alone() -> None:
    told = finished_of([(3, 1.0, Episode(1.0, 2, True, False, 5))])
    assert told.shifted(2).rows.tolist() == [1]
    assert told.ints[ROW].tolist() == [3]


def test_nothing_has_ended() -> None:
    assert (NO_EPISODES + NO_EPISODES).episodes == []


class TestLazyEpisodes:
    def test_are_made_once_and_only_when_somebody_looks(self) -> None:
        made: list[int] = []

        def make() -> list[Episode]:
            made.append(1)
            return [Episode(1.0, 2, True, False, 5)]

        told = LazyEpisodes(1, make)
        assert len(told) == 1
        assert made == []
        assert told[0].length == 2
        assert [one.seed for one in told] == [5]
        assert "length=2" in repr(told)
        assert made == [1]

    def test_are_compared_by_what_they_hold(self) -> None:
        one = Episode(1.0, 2, True, False, 5)
        assert LazyEpisodes(1, lambda: [one]) == [one]
        assert LazyEpisodes(1, lambda: [one]) == (one,)
        assert LazyEpisodes(1, lambda: [one]) != []
        assert LazyEpisodes(0, list) != 0

    def test_are_as_little_a_key_as_a_list_is(self) -> None:
        with pytest.raises(TypeError, match="unhashable"):
            {LazyEpisodes(0, list)}


@FEW
@given(endings())
def test_every_field_of_an_episode_is_set(ended: list[Ended]) -> None:
    for one, wanted in zip(reread(finished_of(ended, NUM_AGENTS)).episodes, ended, strict=True):
        assert [type(getattr(one, each.name)) for each in fields(Episode)] == [
            type(getattr(wanted[2], each.name)) for each in fields(Episode)
        ]
        assert hash(replace(one, metrics=untyped(()))) == hash(
            replace(wanted[2], metrics=untyped(()))
        )
        with pytest.raises(FrozenInstanceError):
            one.reward = 1.0  # type: ignore[misc]


class TestEpisodeStats:
    @given(
        st.lists(
            st.tuples(
                st.lists(st.booleans(), min_size=3, max_size=3),
                st.lists(st.booleans(), min_size=3, max_size=3),
                st.lists(st.integers(-3, 3), min_size=3, max_size=3),
            ),
            max_size=12,
        ),
        st.integers(0, 2**70),
        st.booleans(),
    )
    def test_episodes_are_those_counted_one_by_one(
        self,
        steps: list[tuple[list[bool], list[bool], list[int]]],
        seed: int,
        uses_clock: bool,
    ) -> None:
        stats = EpisodeStats(3, seed_dtype=object)
        stats.begin(slice(None))
        stats.seed[:] = [seed + i for i in range(3)]
        totals, lengths, numbers = [0.0] * 3, [0] * 3, [0] * 3
        for ends, acts, earned in steps:
            acted = np.array(acts) | uses_clock
            stats.reward += np.array(earned, np.float32)
            stats.clock += uses_clock
            stats.length += acted & (not uses_clock)
            for i in range(3):
                totals[i] += earned[i]
                lengths[i] += int(acted[i])
                assert stats.place(i, 2) == f"episode {numbers[i]}, step {lengths[i] + 2}"
                if ends[i]:
                    expected = Episode(
                        totals[i], lengths[i], True, False, seed + i, numbers[i], env_id=i
                    )
                    assert stats.episode(i, True, False) == expected
                    totals[i], lengths[i], numbers[i] = 0.0, 0, numbers[i] + 1
            stats.begin(np.array(ends))

    def test_a_late_beginner_does_not_count_the_next_step(self) -> None:
        stats = EpisodeStats(2)
        stats.begin(np.array([0]), is_late=True)
        stats.begin(np.array([1]))
        stats.clock += 1
        assert [stats.length_of(row) for row in range(2)] == [0, 1]

    def test_rows_of_agents(self) -> None:
        episode = EpisodeStats(6, num_agents=3).episode(4, False, True, {"won": 1.0})
        assert (episode.env_id, episode.agent_id, episode.metrics) == (1, 1, {"won": 1.0})

    def test_rewards_too_small_for_float32_sums_are_not_lost(self) -> None:
        stats = EpisodeStats(1)
        stats.begin(slice(None))
        stats.reward += np.array([2.0**24], np.float32)
        for _ in range(4):
            stats.reward += np.ones(1, np.float32)
        assert stats.episode(0, True, False).reward == 2.0**24 + 4
