"""PendingBatch: rows, environments that need a reset, and rows of lost episodes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from entity_env import ProtocolError, RaggedArray, VecObs
from entity_env.core.episode import Episode
from entity_env.core.episode_stats import FinishedEpisodes
from entity_env.core.vec_obs import VecCategoricalActionMask
from entity_env.vec.step import PendingBatch, lost_rows
from tests.helpers.batches import finished_of
from tests.helpers.strategies import FEW


def batch_of(env_ids: list[int], num_agents: int, salt: int = 0) -> VecObs:
    """One row per agent, with different numbers of entities and features in every row."""
    ids = np.repeat(np.array(env_ids, np.int64), num_agents)
    agents = np.tile(np.arange(num_agents), len(env_ids))
    lengths = (ids + agents + salt) % 3
    owners = np.repeat(ids * 100 + agents * 10 + salt, lengths)
    values = np.stack([owners, np.arange(len(owners))], axis=1).astype(np.float32)
    return VecObs(
        features={"A": RaggedArray(values, lengths)},
        visible={"A": RaggedArray(owners % 2 == 0, lengths)},
        action_masks={"go": VecCategoricalActionMask(RaggedArray(owners, lengths))},
        reward=(ids * 10 + agents).astype(np.float32),
        terminated=(ids + agents) % 2 == 0,
        truncated=(ids + agents) % 4 == 0,
        env_id=ids,
        agent_id=agents,
    )


@st.composite
def batches(draw: st.DrawFn) -> PendingBatch:
    """Some groups of environments, in any order."""
    widths = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    ends = np.cumsum(widths).tolist()
    groups = draw(st.permutations(range(len(widths))))
    groups = groups[: draw(st.integers(1, len(widths)))]
    envs = [range(ends[group] - widths[group], ends[group]) for group in groups]
    num_agents = draw(st.integers(1, 3))
    shown = [env_id for each in envs for env_id in each]
    return PendingBatch(list(groups), envs, batch_of(shown, num_agents), num_agents)


@FEW
@given(batches())
def test_bounds_are_those_of_the_rows_of_each_group(batch: PendingBatch) -> None:
    bounds = list(batch.bounds())
    assert [group for group, _, _ in bounds] == batch.groups
    behind = 0
    for (_, first, last), envs in zip(bounds, batch.envs, strict=True):
        assert first == behind
        rows = batch.obs.env_id[first:last].tolist()
        assert rows == [env_id for env_id in envs for _ in range(batch.num_agents)]
        behind = last
    assert behind == len(batch.obs)


@FEW
@given(batches())
def test_env_ids_are_those_of_its_rows(batch: PendingBatch) -> None:
    assert batch.env_ids() == set(batch.obs.env_id.tolist())


@FEW
@given(batches())
def test_a_row_is_named_by_its_agent_if_there_are_several(batch: PendingBatch) -> None:
    for row in range(len(batch.obs)):
        env_id, agent_id = divmod(int(batch.obs.reward[row]), 10)
        wanted = f"env {env_id}" + (f", agent {agent_id}" if batch.num_agents > 1 else "")
        assert batch.where(row) == wanted


@FEW
@given(batches())
def test_rows_that_are_kept_are_found_when_lengths_are_written_anew(batch: PendingBatch) -> None:
    obs = batch.obs
    wanted = [obs.select([row]) for row in range(len(obs))]
    features, visible = obs.features["A"], obs.visible["A"]
    expected = features.offsets.tolist()
    del features.offsets  # as if it had not been accessed
    visible.__dict__.pop("offsets", None)
    written = features.lengths, visible.lengths
    batch.keep()
    for lengths in written:
        lengths[:] = 1_000
    assert features.offsets.tolist() == expected
    assert visible.offsets.tolist() == expected
    for row, before in enumerate(wanted):
        assert_array_equal(features[row], before.features["A"].values)
        assert_array_equal(visible[row], before.visible["A"].values)


class TestRequireRunning:
    @FEW
    @given(batches(), st.data())
    def test_names_those_that_are_over_and_are_shown(
        self, batch: PendingBatch, data: st.DataObject
    ) -> None:
        num_envs = 20
        flags = data.draw(st.lists(st.booleans(), min_size=num_envs, max_size=num_envs))
        over = [env_id for envs in batch.envs for env_id in envs if flags[env_id]]
        if not over:
            batch.require_running(np.array(flags))
            return
        with pytest.raises(ProtocolError) as caught:
            batch.require_running(np.array(flags))
        assert str(caught.value) == (
            f"the episodes of environments {over} have ended: call reset_envs for them before act, "
            "for example reset_envs(vec.is_over)"
        )

    def test_names_20_at_most(self) -> None:
        batch = PendingBatch([0], [range(50)], batch_of(list(range(50)), 1), 1)
        with pytest.raises(ProtocolError) as caught:
            batch.require_running(np.ones(50, np.bool_))
        assert f"environments {list(range(20))} have ended" in str(caught.value)


def lost_in(rows: list[int]) -> FinishedEpisodes:
    return finished_of((row, 0.0, Episode(0.0, 1, False, True, 5)) for row in rows)


@FEW
@given(st.integers(1, 3), st.data())
def test_a_lost_episode_shows_what_its_group_showed_before(
    num_agents: int, data: st.DataObject
) -> None:
    """Groups were returned together or separately, at other positions than in the step."""
    groups = {0: range(2), 1: range(2, 5), 2: range(5, 6)}
    apart = data.draw(st.booleans())
    previous = {
        group: PendingBatch(
            [group], [envs], batch_of(list(envs), num_agents, salt=group), num_agents
        )
        for group, envs in groups.items()
    }
    if not apart:
        both = batch_of([*groups[2], *groups[0]], num_agents, salt=1)
        previous[0] = previous[2] = PendingBatch([2, 0], [groups[2], groups[0]], both, num_agents)
    shown = [env_id for envs in (groups[1], groups[2], groups[0]) for env_id in envs]
    now = batch_of(shown, num_agents)
    rows = data.draw(st.lists(st.integers(0, len(now) - 1), unique=True).map(sorted))
    found = lost_rows(lost_in(rows), now.env_id, now.agent_id, previous)
    assert len(found) == len(rows)
    for row, one in zip(rows, found, strict=True):
        env_id, agent_id = int(now.env_id[row]), int(now.agent_id[row])
        group = next(group for group, envs in groups.items() if env_id in envs)
        salt = group if apart or group == 1 else 1
        assert one.action_masks == {}
        owners = one.features["A"].values[:, 0].tolist()
        assert owners == [env_id * 100 + agent_id * 10 + salt] * ((env_id + agent_id + salt) % 3)


def test_nothing_was_lost() -> None:
    batch = PendingBatch([0], [range(2)], batch_of([0, 1], 1), 1)
    assert lost_rows(lost_in([]), batch.obs.env_id, batch.obs.agent_id, {0: batch}) == []
