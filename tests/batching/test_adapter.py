"""Adapter: environments of another package are stepped directly, with equal results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.testing import assert_array_equal

from entity_env import (
    Action,
    ActionSpace,
    CategoricalActionMask,
    CategoricalActionSpace,
    Entity,
    Environment,
    Observation,
    ObsSpace,
    SchemaError,
    WorkerError,
)
from entity_env.batching.adapter import OURS, AdaptedEnvironment, Adapter, unwrap_all
from entity_env.core.action_request import Asked, actions_of
from entity_env.vec import VecEnv
from tests.helpers.executors import choose, plain_batch
from tests.helpers.strategies import FEW

OBS_SPACE = ObsSpace(["t"], {"A": Entity(["x"]), "B": Entity([])})


class TheirMask(SimpleNamespace):
    """Actors in the form of another package."""


class Counter:
    """An environment of another package: counts to the length of its episodes."""

    def __init__(self, lengths: Sequence[int], fails_at: int = -1) -> None:
        self._lengths = lengths
        self._fails_at = fails_at
        self._number = -1
        self._step = 0
        self.told: list[Any] = []

    def reset(self) -> SimpleNamespace:
        self._number += 1
        self._step = 0
        return self._show()

    def act(self, actions: Mapping[str, Any]) -> SimpleNamespace:
        self.told.append(actions)
        if len(self.told) == self._fails_at:
            raise RuntimeError("stumbled")
        self._step += 1
        return self._show()

    def _show(self) -> SimpleNamespace:
        length = self._lengths[self._number % len(self._lengths)]
        count = self._step % 3
        return SimpleNamespace(
            done=self._step == length,
            reward=float(self._step),
            global_features=[self._step],
            features={"A": [[i] for i in range(count)], "B": [[]]},
            ids={"A": [f"a{i}" for i in range(count)]},
            actions={"go": TheirMask(actor_ids=None, actor_types=["A", "B"], mask=None)},
            visible={},
            metrics={"step": float(self._step)},
        )


def as_ours(shown: Any) -> Observation:  # noqa: ANN401 - from another package
    masks = {
        name: CategoricalActionMask(mask.actor_ids, mask.actor_types, mask.mask)
        for name, mask in shown.actions.items()
    }
    fields = {name: value for name, value in vars(shown).items() if name != "actions"}
    return Observation(**fields, actions=masks)


def their_actions(
    name: str, space: ActionSpace, asked: Sequence[Asked], values: Sequence[Any]
) -> Iterator[Any]:
    for action in actions_of(name, space, asked, values):
        yield ("theirs", list(action.actors), action.indices.tolist())  # type: ignore[union-attr]


THEIRS = Adapter(
    observation=as_ours,
    flags=lambda shown: (bool(shown.done), False),
    masks={TheirMask: CategoricalActionMask},
    actions=their_actions,
    type_named=lambda asked, ids: None,
)


class Foreign(AdaptedEnvironment):
    """Represents a counter."""

    labels = ("up", "down")

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    @property
    def adapter(self) -> Adapter:
        return THEIRS

    @property
    def game(self) -> Counter:
        return self._counter

    def obs_space(self) -> ObsSpace:
        return OBS_SPACE

    def action_space(self) -> Mapping[str, ActionSpace]:
        return {"go": CategoricalActionSpace(self.labels)}

    def reset(self) -> Observation:  # type: ignore[override]  # without a seed, as in that package
        return as_ours(self._counter.reset())

    def act(self, actions: Mapping[str, Action]) -> Observation:
        go: Any = actions["go"]
        told = {"go": ("theirs", list(go.actors), go.indices.tolist())}
        return as_ours(self._counter.act(told))


class OtherLabels(Foreign):
    labels = ("down", "up")


class Ordinary(Foreign):
    """The counter without an adapter, stepped one by one."""

    @property
    def adapter(self) -> Adapter:
        return OURS


def test_games_are_stepped_as_they_are_if_all_speak_alike() -> None:
    counters = [Counter([1]), Counter([1])]
    envs: list[Environment] = [Foreign(each) for each in counters]
    assert unwrap_all(envs) == (counters, THEIRS)
    for other in (OtherLabels(Counter([1])), Ordinary(Counter([1]))):
        mixed = [*envs, other]
        assert unwrap_all(mixed) == (mixed, OURS)
    ordinary: list[Environment] = [Ordinary(each) for each in counters]
    assert unwrap_all(ordinary) == (ordinary, OURS)


lengths = st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=3), min_size=1, max_size=4)


@FEW
@given(lengths, st.integers(0, 99), st.sampled_from(["same_step", "next_step"]))
def test_they_show_and_are_told_what_they_would_be_one_by_one(
    written: list[list[int]],
    seed: int,
    autoreset: Any,  # noqa: ANN401
) -> None:
    mine, others = [Counter(each) for each in written], [Counter(each) for each in written]
    left, right = iter(mine), iter(others)
    rng = np.random.default_rng(seed)
    with (
        VecEnv(lambda: Foreign(next(left)), len(mine), autoreset=autoreset) as vec,
        VecEnv(lambda: Ordinary(next(right)), len(mine), autoreset=autoreset) as plain,
    ):
        spaces = vec.obs_space(), vec.action_space()
        batch = plain_batch(vec.reset(), spaces)
        assert batch == plain_batch(plain.reset(), spaces)
        for _ in range(8):
            choices = choose(batch, spaces, rng)
            batch = plain_batch(vec.act(choices), spaces)
            assert batch == plain_batch(plain.act(choices), spaces)
    assert [each.told for each in mine] == [each.told for each in others]


@pytest.mark.parametrize("failing", range(3))
def test_who_fails_is_named(failing: int) -> None:
    counters = [Counter([4], fails_at=2 if i == failing else -1) for i in range(3)]
    left = iter(counters)
    with VecEnv(lambda: Foreign(next(left)), 3) as vec:
        vec.reset()
        vec.act({"go": np.array([0, 1, 0])})
        with pytest.raises(WorkerError, match="stumbled") as caught:
            vec.act({"go": np.zeros(6, dtype=np.int64)})
        assert (caught.value.env_id, caught.value.episode, caught.value.step) == (failing, 0, 1)
        batch = vec.reset()
        assert_array_equal(batch.features["__global__"].values, [[0]] * 3)
        assert len(counters[-1].told) == 2 - (failing < 2)


def test_what_cannot_be_shown_is_named() -> None:
    class Odd(Counter):
        def _show(self) -> SimpleNamespace:
            shown = super()._show()
            shown.features = {"C": [[1]]} if self._step else shown.features
            return shown

    left = iter([Counter([4]), Odd([4]), Counter([4])])
    with VecEnv(lambda: Foreign(next(left)), 3) as vec:
        vec.reset()
        with pytest.raises(SchemaError, match="env 1: entity 'C' is not in the observation space"):
            vec.act({"go": np.zeros(3, dtype=np.int64)})


def test_one_that_fails_is_begun_anew() -> None:
    left = iter([Counter([4]), Counter([4], fails_at=1), Counter([4])])
    with VecEnv(lambda: Foreign(next(left)), 3, on_error="restart") as vec:
        vec.reset()
        batch = vec.act({"go": np.zeros(3, dtype=np.int64)})
        assert batch.truncated.tolist() == [False, True, False]
        assert_array_equal(batch.features["__global__"].values, [[1], [0], [1]])
