"""VecObs and Metric: done rows, asked rows, and running statistics."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from entity_env import Metric, ProtocolError, RaggedArray, SchemaError, UsageError, VecObs
from entity_env.core.episode import Episode
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)
from tests.agents.ppo.small_envs import spoil
from tests.helpers.batches import facts, random_obs

NUMBERS = st.floats(-1e6, 1e6)
FLAGS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6)


def batch(flags: list[tuple[bool, bool]], masks: dict[str, VecActionMask] | None = None) -> VecObs:
    """A batch whose episodes are terminated and truncated according to the flags."""
    count = len(flags)
    return VecObs(
        features={},
        visible={},
        action_masks=masks or {},
        reward=np.zeros(count, dtype=np.float32),
        terminated=np.array([ended for ended, _ in flags], dtype=np.bool_),
        truncated=np.array([cut for _, cut in flags], dtype=np.bool_),
        env_id=np.arange(count),
        agent_id=np.zeros(count, dtype=np.int64),
    )


def actors(lengths: list[int]) -> RaggedArray[np.int64]:
    return RaggedArray(np.zeros(sum(lengths), dtype=np.int64), np.array(lengths, dtype=np.int64))


@given(flags=FLAGS)
def test_done_is_by_the_rules_or_by_a_cut(flags: list[tuple[bool, bool]]) -> None:
    obs = batch(flags)
    assert len(obs) == len(flags)
    assert obs.done.tolist() == [ended or cut for ended, cut in flags]
    assert obs.done.dtype == np.bool_
    obs.done[:] = True  # a new array each time, so the batch does not change
    assert obs.done.tolist() == [ended or cut for ended, cut in flags]


@given(counts=st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=6))
def test_a_row_is_ready_when_any_action_has_an_actor(counts: list[tuple[int, int, int]]) -> None:
    moves, picks, pushes = ([row[i] for row in counts] for i in range(3))
    masks: dict[str, VecActionMask] = {
        "move": VecCategoricalActionMask(actors(moves)),
        "pick": VecSelectEntityActionMask(actors(picks), actors([4] * len(counts))),
        "push": VecContinuousActionMask(actors(pushes)),
    }
    obs = batch([(False, False)] * len(counts), masks)
    assert obs.is_ready.tolist() == [any(row) for row in counts]
    assert obs.is_ready.dtype == np.bool_


def test_nobody_is_ready_without_actions_or_with_actees_alone() -> None:
    assert batch([(False, False)] * 2).is_ready.tolist() == [False, False]
    alone = {"pick": VecSelectEntityActionMask(actors([0, 0]), actors([3, 3]))}
    assert batch([(False, False)] * 2, {**alone}).is_ready.tolist() == [False, False]


def test_defaults_are_of_each_batch() -> None:
    first, second = batch([]), batch([])
    first.metrics["x"] = Metric()
    assert second.metrics == {}
    assert second.final is None
    assert len(second.episodes) == 0


@given(values=st.lists(NUMBERS, max_size=20))
def test_a_metric_has_the_figures_of_what_was_pushed(values: list[float]) -> None:
    metric = Metric()
    for value in values:
        metric.push(value)
    assert metric.count == len(values)
    assert metric.sum == pytest.approx(sum(values))
    assert metric.mean == pytest.approx(sum(values) / len(values) if values else 0.0)
    assert metric.min == min(values, default=float("inf"))
    assert metric.max == max(values, default=float("-inf"))


SEEDS = st.integers(0, 2**32)


def step(seed: int, num_rows: int | None = None) -> VecObs:
    """The batch of a step with autoreset "same_step", with two agents per environment."""
    rng = np.random.default_rng(seed)
    obs, _ = random_obs(rng, num_rows or int(rng.integers(0, 7)))
    obs.env_id, obs.agent_id = np.divmod(np.arange(len(obs)), 2)
    order = rng.permutation(np.flatnonzero(obs.done))
    obs.episodes = [
        Episode(0.0, 1, True, False, 0, env_id=row // 2, agent_id=row % 2) for row in order.tolist()
    ]
    obs.metrics = {"x": Metric(1, 2.0, 2.0, 2.0)}
    if seed % 4:
        obs.final, _ = random_obs(rng, len(order))
        obs.final.env_id, obs.final.agent_id = obs.env_id[order], obs.agent_id[order]
        obs.final.terminated, obs.final.truncated = obs.terminated[order], obs.truncated[order]
    return obs


def rows_of(obs: VecObs) -> list[dict[str, Any]]:
    """Every row with its final observation, if it has one."""
    rows = [facts(obs, {}, row) for row in range(len(obs))]
    if obs.final is not None:
        for row, last in zip(obs.final_rows().tolist(), rows_of(obs.final), strict=True):
            rows[row]["final"] = last
    return rows


@given(SEEDS)
def test_a_copy_is_equal_and_stays_valid(seed: int) -> None:
    obs = step(seed)
    before, count = rows_of(obs), len(obs.episodes)
    copy = obs.copy()
    obs.metrics["x"].push(1.0)
    obs.env_id[:] = obs.agent_id[:] = -1
    obs.truncated[:] = False
    for flags in obs.visible.values():
        flags.values[:] = False
    if obs.final is not None:
        obs.final.env_id[:] = -1
    spoil(obs)
    assert rows_of(copy) == before
    assert len(copy.episodes) == count
    assert copy.metrics == {"x": Metric(1, 2.0, 2.0, 2.0)}


@given(SEEDS, st.data())
def test_a_selection_is_that_of_a_list(seed: int, data: st.DataObject) -> None:
    obs = step(seed)
    rows, n = rows_of(obs), len(obs)
    if data.draw(st.booleans()):
        flags = data.draw(st.lists(st.booleans(), min_size=n, max_size=n))
        chosen, given_rows = np.flatnonzero(flags).tolist(), np.array(flags, dtype=np.bool_)
        selected = obs.select(given_rows)
    else:
        chosen = data.draw(st.lists(st.integers(-n, n - 1))) if n else []
        selected = obs.select(chosen)
    assert rows_of(selected) == [rows[i] for i in chosen]
    assert len(selected) == len(chosen)
    wanted = {(int(obs.env_id[i]), int(obs.agent_id[i])) for i in chosen}
    assert [(e.env_id, e.agent_id) for e in selected.episodes] == [
        (e.env_id, e.agent_id) for e in obs.episodes if (e.env_id, e.agent_id) in wanted
    ]
    spoil(obs)
    assert rows_of(selected) == [rows[i] for i in chosen]


@given(st.lists(SEEDS, min_size=1, max_size=4))
def test_concatenation_is_that_of_lists(seeds: list[int]) -> None:
    """Also for consecutive steps of the same environments."""
    seeds = [4 * seed + 1 for seed in seeds]
    parts = [step(seed) for seed in seeds]
    expected = [row for part in parts for row in rows_of(part)]
    joined = VecObs.concat(parts)
    assert joined.metrics == {"x": Metric(len(parts), 2.0 * len(parts), 2.0, 2.0)}
    assert len(joined.episodes) == sum(len(part.episodes) for part in parts)
    for part in parts:
        spoil(part)
    assert rows_of(joined) == expected
    backwards = np.arange(len(joined))[::-1]
    assert rows_of(joined.select(backwards)) == expected[::-1]


def test_batches_of_other_spaces_are_not_joined() -> None:
    first, other = step(1, 2), step(2, 2)
    other.features["A"] = RaggedArray(np.zeros((2, 3), np.float32), [1, 1])
    with pytest.raises(SchemaError, match=r"batch 1 .* entity A with 2 .* got .*A with 3 features"):
        VecObs.concat([first, other])
    other = step(2, 2)
    other.action_masks["go"] = other.action_masks["push"]
    with pytest.raises(SchemaError, match=r"batch 2 .* got .* go with a VecContinuousActionMask"):
        VecObs.concat([first, first, other])
    with pytest.raises(SchemaError, match="at least one batch, got none"):
        VecObs.concat([])


def test_rows_that_do_not_exist_are_refused() -> None:
    obs = step(1, 3)
    for rows in ([3], 1, None, [[0, 1]], [0.0]):
        with pytest.raises(UsageError, match="rows are chosen by a list of integers below 3"):
            obs.select(rows)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="mask of 3 bools"):
        obs.select(np.ones(2, dtype=np.bool_))


def test_no_rows_have_none_to_find() -> None:
    obs = step(1, 3)
    assert obs.select([]).find_rows(obs).tolist() == [-1, -1, -1]
    assert obs.find_rows(obs.select([])).tolist() == []


@given(SEEDS)
def test_with_final_observations_every_row_shows_what_the_step_led_to(seed: int) -> None:
    obs = step(seed)
    shown = obs.with_final()
    assert (shown is obs) == (obs.final is None)
    assert shown.final is None or obs.final is None
    kept = ("reward", "terminated", "truncated", "env_id", "agent_id")
    for row, (got, before) in enumerate(zip(rows_of(shown), rows_of(obs), strict=True)):
        last = before.pop("final", before)
        got.pop("final", None)
        assert got == {**last, **{name: before[name] for name in kept}}, row


def test_final_observations_of_other_rows_are_refused() -> None:
    obs = batch([(True, False), (False, False)])
    with pytest.raises(ProtocolError, match="`final` is None"):
        obs.final_rows()
    obs.final = batch([])
    with pytest.raises(ProtocolError, match=r"each of the 1 rows .* got 0"):
        obs.with_final()
    obs.final = batch([(True, False)])
    obs.final.env_id[:] = 1
    with pytest.raises(ProtocolError, match=r"got 1, of the environments \[1\]"):
        obs.with_final()


@given(SEEDS, st.integers(0, 2))
def test_padding_is_that_of_each_entity_type(seed: int, more: int) -> None:
    obs = step(seed)
    size = {name: int(each.lengths.max(initial=0)) + more for name, each in obs.features.items()}
    padded = obs.pad({"A": size["A"]})
    for name, (values, present) in padded.items():
        expected, mask = obs.features[name].pad(size["A"] if name == "A" else None)
        np.testing.assert_array_equal(values, expected)
        np.testing.assert_array_equal(present, mask)
    largest = max(size.values())
    assert {values.shape[1] for values, _ in obs.pad(largest).values()} == {largest}


def test_padding_names_the_type_that_does_not_fit() -> None:
    obs = step(1, 4)
    obs.features["B"] = RaggedArray(np.zeros((7, 2), np.float32), [1, 3, 2, 1])
    with pytest.raises(UsageError, match="type 'B': sequence 1 has 3 rows, but max_rows is 2"):
        obs.pad({"B": 2})
    with pytest.raises(UsageError, match="max_rows names 'C', expected A, B"):
        obs.pad({"C": 2})


@given(SEEDS)
def test_tensors_hold_what_the_batch_holds(seed: int) -> None:
    obs = step(seed)
    tensors = obs.to_torch()
    assert list(tensors.features) == list(obs.features)
    assert set(tensors.visible) == set(obs.visible)
    for name, mask in obs.action_masks.items():
        got = tensors.action_masks[name]
        for part in ("actors", "actees", "mask"):
            one, other = getattr(mask, part, None), getattr(got, part)
            assert (one is None) == (other is None)
            if one is not None:
                assert other.values.tolist() == one.values.tolist()
                assert other.row_index.tolist() == one.row_index.tolist()
    allowed = tensors.action_masks["go"].mask
    assert allowed is None or allowed.values.dtype == torch.bool
    # Code unpacks three fields; `per_actor` stays in the batch.
    names = {each.name for each in fields(VecSelectEntityActionMask)}
    assert names == {*got._fields, "per_actor"}
