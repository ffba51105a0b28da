"""Endings: episodes in columns, and objects when somebody looks."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env.core.episode import Episode
from entity_env.vec.episode_stats import (
    EARNED,
    NO_ENDINGS,
    NUM_METRICS,
    NUMBER,
    REWARD,
    ROW,
    Ended,
    EndedColumns,
    Endings,
    Episodes,
)
from tests.helpers.strategies import FEW, untyped

NUM_AGENTS = 2
NAMES = ["won", "size"]

rewards = st.floats(-100, 100)


@st.composite
def endings(draw: st.DrawFn) -> list[Ended]:
    """Episodes of rows of environments for two agents."""
    rows = sorted(draw(st.lists(st.integers(0, 9), max_size=5)))
    return [Ended(row, draw(rewards), draw(episodes(row))) for row in rows]


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


def reread(told: Endings) -> Endings:
    """The same, from arrays alone."""
    metrics = [(NAMES.index(k), x) for one in told.episodes for k, x in one.metrics.items()]
    pairs = np.array(metrics, dtype=np.float64).reshape(-1, 2)
    return Endings.read(told.ints, told.floats, pairs, NAMES, NUM_AGENTS)


@FEW
@given(endings())
def test_columns_say_what_the_list_says(ended: list[Ended]) -> None:
    told = Endings.of(ended)
    assert len(told) == len(ended)
    assert told.rows.tolist() == [one.row for one in ended]
    assert told.floats[:, EARNED].tolist() == [one.reward for one in ended]
    assert told.floats[:, REWARD].tolist() == [one.episode.reward for one in ended]
    assert told.ints[:, NUMBER].tolist() == [one.episode.number for one in ended]
    assert told.ints[:, NUM_METRICS].tolist() == [len(one.episode.metrics) for one in ended]


@FEW
@given(endings())
def test_episodes_are_made_of_arrays(ended: list[Ended]) -> None:
    made = reread(Endings.of(ended)).episodes
    assert len(made) == len(ended)
    assert made == [one.episode for one in ended]
    assert list(made) == [one.episode for one in ended]
    assert made[1:] == [one.episode for one in ended][1:]


@FEW
@given(endings(), endings(), st.integers(0, 9))
def test_those_of_two_workers(first: list[Ended], second: list[Ended], offset: int) -> None:
    both = reread(Endings.of(first)) + reread(Endings.of(second)).moved(offset)
    assert both.rows.tolist() == [e.row for e in first] + [e.row - offset for e in second]
    assert both.episodes == [one.episode for one in (*first, *second)]


@FEW
@given(st.lists(st.integers(0, 9), max_size=5), st.integers(0, 9), st.data())
def test_columns_gather_what_a_list_gathers(
    rows: list[int], first_env: int, data: st.DataObject
) -> None:
    columns, ended = EndedColumns(first_env), []
    columns.add(0, (1, True, False, 5, 0), (0.0, 0.0), {"won": 1.0})
    columns.clear()
    for row in sorted(rows):
        one = replace(data.draw(episodes(0)), env_id=first_env + row, agent_id=0)
        ended.append(Ended(row, data.draw(rewards), one))
        numbers = one.length, one.terminated, one.truncated, one.seed, one.number
        columns.add(row, numbers, (one.reward, ended[-1].reward), dict(one.metrics))
    assert len(columns) == len(ended)
    told, wanted = columns.endings(), Endings.of(ended)
    assert told.ints.tolist() == wanted.ints.tolist()
    assert told.floats.tolist() == wanted.floats.tolist()
    assert [columns.told(i) for i in range(len(ended))] == wanted.ints.tolist()
    columns.clear()  # the next step leaves the episodes of this one alone
    columns.add(0, (1, True, False, 5, 0), (0.0, 0.0), {"won": 1.0})
    assert told.episodes == wanted.episodes


def test_columns_without_anything() -> None:
    assert EndedColumns().endings() is NO_ENDINGS


def test_moving_leaves_the_original_alone() -> None:
    told = Endings.of([Ended(3, 1.0, Episode(1.0, 2, True, False, 5))])
    assert told.moved(2).rows.tolist() == [1]
    assert told.ints[:, ROW].tolist() == [3]


def test_nothing_has_ended() -> None:
    assert Endings.of([]) is NO_ENDINGS
    assert (NO_ENDINGS + NO_ENDINGS).episodes == []


class TestEpisodes:
    def test_are_made_once_and_only_when_somebody_looks(self) -> None:
        made: list[int] = []

        def make() -> list[Episode]:
            made.append(1)
            return [Episode(1.0, 2, True, False, 5)]

        told = Episodes(1, make)
        assert len(told) == 1
        assert made == []
        assert told[0].length == 2
        assert [one.seed for one in told] == [5]
        assert "length=2" in repr(told)
        assert made == [1]

    def test_are_compared_by_what_they_hold(self) -> None:
        one = Episode(1.0, 2, True, False, 5)
        assert Episodes(1, lambda: [one]) == [one]
        assert Episodes(1, lambda: [one]) == (one,)
        assert Episodes(1, lambda: [one]) != []
        assert Episodes(0, list) != 0

    def test_are_as_little_a_key_as_a_list_is(self) -> None:
        with pytest.raises(TypeError, match="unhashable"):
            {Episodes(0, list)}


@FEW
@given(endings())
def test_every_field_of_an_episode_is_set(ended: list[Ended]) -> None:
    for one, wanted in zip(reread(Endings.of(ended)).episodes, ended, strict=True):
        assert [type(getattr(one, each.name)) for each in fields(Episode)] == [
            type(getattr(wanted.episode, each.name)) for each in fields(Episode)
        ]
        assert hash(replace(one, metrics=untyped(()))) == hash(
            replace(wanted.episode, metrics=untyped(()))
        )
        with pytest.raises(FrozenInstanceError):
            one.reward = 1.0  # type: ignore[misc]
