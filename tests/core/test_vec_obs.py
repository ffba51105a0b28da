"""VecObs and Metric: who is done, who is asked, and running figures."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Metric, RaggedArray, VecObs
from entity_env.core.vec_obs import (
    VecActionMask,
    VecCategoricalActionMask,
    VecContinuousActionMask,
    VecSelectEntityActionMask,
)

NUMBERS = st.floats(-1e6, 1e6)
FLAGS = st.lists(st.tuples(st.booleans(), st.booleans()), max_size=6)


def batch(flags: list[tuple[bool, bool]], masks: dict[str, VecActionMask] | None = None) -> VecObs:
    """A batch whose episodes ended, and were cut, as the flags say."""
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
    obs.done[:] = True  # a new array each time: what ended does not change
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
