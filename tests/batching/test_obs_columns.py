"""Many observations added at once: the same as one after the other, whatever they look like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import ActionType, Categorical, GlobalCategorical, Obs, Schema, SchemaError
from entity_env.batching.obs_batcher import ObsBatcher
from tests.helpers.batches import assert_same, finish
from tests.helpers.strategies import FEW, SCHEMA, Scene, scenes


@dataclass
class Head:
    x: int
    y: int


@dataclass
class Food:
    x: float


@dataclass
class Nothing:
    """Has no features."""


@dataclass
class Clock:
    step: int


class Move(Enum):
    LEFT = 0
    RIGHT = 1


class Call(Enum):
    YES = 0
    NO = 1


ACT: Any = Categorical(Move)
ASK: Any = GlobalCategorical(Call)
PLAIN = Schema((Head, Food, Nothing), (ACT, ASK))
TIMED = Schema((Head, Food, Nothing), (ACT,), global_features=Clock)


def of(*heads: int, food: Sequence[float] = ()) -> Obs:
    """What nearly all observations look like, without actors."""
    return Obs().entities([Head(x, -x) for x in heads]).entities([Food(x) for x in food])


def acting(*heads: int, food: Sequence[float] = ()) -> Obs:
    """One group of actors."""
    return Obs().actors([Head(x, -x) for x in heads]).entities([Food(x) for x in food])


Asked = tuple[ActionType[Any], ...]


def both(schema: Schema, shown: Sequence[Obs | None], asked: Sequence[Asked]) -> None:
    """Adds observations both ways, twice, and compares what comes of it."""
    fast, slow = ObsBatcher(schema), ObsBatcher(schema)
    for _ in range(2):
        fast.clear()
        slow.clear()
        fast.add_all(shown, asked)
        for obs, wanted in zip(shown, asked, strict=True):
            if obs is None:
                slow.end_row()
            else:
                slow.add(obs, wanted)
        assert fast.num_rows == slow.num_rows == len(shown)
        assert_same(finish(fast), finish(slow))


class TestEqualsTheLongWay:
    @FEW
    @given(st.lists(st.none() | scenes(), max_size=8))
    def test_whatever_is_shown(self, told: list[Scene | None]) -> None:
        both(
            SCHEMA,
            [None if scene is None else scene.obs() for scene in told],
            [() if scene is None else tuple(scene.asked) for scene in told],
        )

    @FEW
    @given(st.data())
    def test_long_runs_of_what_looks_alike(self, data: st.DataObject) -> None:
        numbers = st.lists(st.integers(-9, 9), max_size=3)
        shown: list[Obs | None] = []
        asked: list[Asked] = []
        for kind in data.draw(st.lists(st.sampled_from("aaaaagggni"), max_size=40)):
            heads = data.draw(numbers)
            food = data.draw(numbers)
            if kind == "n":
                shown.append(None)
                asked.append(())
            elif kind == "i":  # looks different: somebody is hidden
                shown.append(of(*heads, food=food).visible(Head, [False] * len(heads)))
                asked.append((ASK,))
            elif kind == "a":
                shown.append(acting(*heads, food=food).metric("size", len(heads)))
                asked.append((ACT,))
            else:
                shown.append(of(*heads, food=food).entities([Nothing()] * len(food)))
                asked.append((ASK,))
        both(PLAIN, shown, asked)

    def test_with_global_features(self) -> None:
        shown = [acting(i, i + 1, food=[0.5]).globals(Clock(i)) for i in range(5)]
        both(TIMED, shown, [(ACT,)] * 5)

    def test_actors_that_come_after_others_of_their_class(self) -> None:
        shown = [
            Obs().entities([Head(7, 7)]).entities([Food(1)]).actors([Head(i, i), Head(8, 8)])
            for i in range(4)
        ]
        both(PLAIN, shown, [(ACT,)] * 4)

    def test_two_questions_at_once(self) -> None:
        both(PLAIN, [acting(1), acting(2)], [(ACT, ASK)] * 2)

    def test_nothing_at_all(self) -> None:
        both(PLAIN, [], [])

    def test_frozen_observations_show_what_they_did_when_frozen(self) -> None:
        head = Head(1, 1)
        frozen = Obs().actors([head]).frozen()
        head.x = 5
        writer = ObsBatcher(PLAIN)
        writer.add_all([frozen, Obs().actors([head])], [(ACT,), (ACT,)])
        assert finish(writer).features["Head"].values.tolist() == [[1, 1], [5, 1]]


class TestWhatCannotBeAdded:
    """The long way says what is wrong, and `num_rows` where."""

    @pytest.mark.parametrize("first", [0, 3])
    def test_an_entity_of_another_class_in_the_middle_of_a_list(self, first: int) -> None:
        shown: list[Obs | None] = [of(1) for _ in range(6)]
        shown[first] = Obs().entities([Head(0, 0), Food(0)])
        self.refused(shown, first, "Head", ASK)

    def test_an_undeclared_class(self) -> None:
        shown: list[Obs | None] = [of(1), of(2), Obs().entities([Clock(1)])]
        self.refused(shown, 2, "Clock, which was not declared", ASK)

    def test_missing_global_features(self) -> None:
        shown = [acting(1).globals(Clock(1)), acting(2)]
        writer = ObsBatcher(TIMED)
        with pytest.raises(SchemaError, match="an observation has none"):
            writer.add_all(shown, [(ACT,)] * 2)
        assert writer.num_rows == 1

    def test_global_features_that_nobody_declared(self) -> None:
        self.refused([of(1), of(1).globals(Clock(1))], 1, "which were not declared", ASK)

    def test_a_question_for_actors_without_any(self) -> None:
        self.refused([acting(1), of(2)], 1, "marks none", ACT)

    def refused(
        self, shown: Sequence[Obs | None], row: int, message: str, asked: ActionType[Any]
    ) -> None:
        writer = ObsBatcher(PLAIN)
        with pytest.raises(SchemaError, match=message):
            writer.add_all(shown, [(asked,)] * len(shown))
        assert writer.num_rows == row

    def test_a_value_that_is_no_number_is_named_with_its_row(self) -> None:
        shown = [of(1, food=[0.5]), of(2, 3), of(4, food=[0.5, "x"])]  # type: ignore[list-item]
        writer = ObsBatcher(PLAIN, where="env {}".format)
        writer.add_all(shown, [(ASK,)] * 3)
        with pytest.raises(SchemaError, match=r"env 2: entity Food: feature 'x' of row 1"):
            finish(writer)

    def test_a_writer_goes_on_after_an_error(self) -> None:
        writer = ObsBatcher(PLAIN)
        with pytest.raises(SchemaError):
            writer.add_all([acting(1), acting(2, food=[1]), of(3)], [(ACT,)] * 3)
        writer.clear()
        writer.add_all([acting(4)], [(ACT,)])
        batch = finish(writer)
        assert batch.features["Head"].values.tolist() == [[4, -4]]
        assert batch.features["Head"].values.dtype == np.float32
