"""MoveClock: time limit of a decision, and the default action after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import (
    CategoricalActionSpace,
    ContinuousActionSpace,
    SelectEntityActionSpace,
    UsageError,
)
from entity_env.agents.human.move_clock import MoveClock, Place
from entity_env.core.action_request import Question
from entity_env.core.observation import EntityID

MASKS = st.lists(st.booleans(), min_size=3, max_size=3).filter(any)


class Now:
    """A clock that stands still."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def move(*labels: str, allowed: Sequence[bool] = (True,) * 3, actor: object = "me") -> Question:
    mask = np.array([allowed])
    return Question("Move", CategoricalActionSpace(list(labels)), [actor], (), mask)


def select(*actees: EntityID) -> Question:
    mask = np.ones((1, len(actees)), np.bool_)
    return Question("Pick", SelectEntityActionSpace(), ["me"], actees, mask)


def push(low: float, high: float) -> Question:
    space = ContinuousActionSpace([low], [high], ["force"])
    return Question("Push", space, ["me"], (), np.ones((1, 1), np.bool_))


@pytest.fixture
def now() -> Now:
    return Now()


@pytest.mark.parametrize("seconds", [0, -1, float("nan"), True, "1"])
def test_the_time_is_a_number_above_0(seconds: float) -> None:
    with pytest.raises(UsageError, match="clock_s must be a number of seconds above 0"):
        MoveClock(seconds)


def test_the_first_decision_of_an_episode_has_no_limit(now: Now) -> None:
    clock = MoveClock(0.2, now)
    for _ in range(2):
        clock.begin(0)
        assert (clock.left_s, clock.rest_s) == (None, 0)
        assert clock.describe("UP") == "no limit, then 0.2 s each"
        clock.begin(1)
        assert clock.left_s == pytest.approx(0.2)
        assert clock.describe("UP") == "0.2 s, then UP"


def test_real_time_keeps_a_steady_pace(now: Now) -> None:
    clock = MoveClock(0.2, now)
    clock.begin(0)
    clock.begin(1)
    now.seconds += 0.15
    assert clock.rest_s == pytest.approx(0.05)
    now.seconds += 0.1  # 0.05 s for drawing
    assert clock.left_s == 0
    clock.begin(2)
    assert clock.left_s == pytest.approx(0.15)
    now.seconds += 3  # other agents decide
    clock.begin(3)
    assert clock.left_s == pytest.approx(0.1)
    clock.restart()
    assert clock.left_s == pytest.approx(0.2)


def test_a_longer_time_is_a_limit_and_no_pace(now: Now) -> None:
    clock = MoveClock(5, now)
    clock.begin(0)
    clock.begin(1)
    now.seconds += 2
    assert (clock.left_s, clock.rest_s) == (3, 0)
    clock.begin(2)
    assert clock.left_s == 5


def test_nothing_is_done_where_there_is_a_choice_for_that() -> None:
    clock = MoveClock(1)
    for idle in ("STAY", "no-op", "Do Nothing", "WAIT", "none"):
        question = move("LEFT", idle, "RIGHT")
        assert clock.default(question, 0) == 1
        clock.last.keep(question, 0, 2)
        assert clock.default(question, 0) == 1
    assert clock.default(move("LEFT", "STAY", "RIGHT", allowed=[True, False, True]), 0) == 2


def test_else_the_last_choice_is_repeated_and_else_the_first_is_taken() -> None:
    clock, question = MoveClock(1), move("UP", "LEFT", "RIGHT")
    assert clock.default(question, 0) == 0
    clock.last.keep(question, 0, 2)
    assert clock.default(question, 0) == 2
    assert clock.default(move("UP", "LEFT", "RIGHT", actor="other"), 0) == 0
    assert clock.default(move("UP", "LEFT", "RIGHT", allowed=[False, True, False]), 0) == 1
    clock.begin(0)  # another episode
    assert clock.default(question, 0) == 0


def test_else_the_entity_next_to_the_last_one_is_selected_at_first_next_to_the_actor() -> None:
    last, question = MoveClock(1).last, select("a", "b", "c")
    actor = question.actors[0]
    places: dict[EntityID, Place] = {"a": (9.0, 0.0), "b": (0.0, 0.0), "c": (5.0, 0.0)}
    assert last.nearest(question, 0, {**places, actor: (4.0, 0.0)}) == 2
    assert last.nearest(question, 0, places) == 0
    assert last.nearest(question, 0, {}) is None
    assert last.nearest(move("UP"), 0, places) is None
    last.keep(question, 0, 0, places)
    moved: dict[EntityID, Place] = {"a": (0.0, 0.0), "c": (8.0, 0.0), actor: (0.0, 0.0)}
    assert last.nearest(question, 0, moved) == 2
    last.clear()
    assert last.nearest(question, 0, moved) == 0


def test_the_same_entity_is_selected_wherever_it_stands() -> None:
    clock = MoveClock(1)
    clock.last.keep(select("a", "b"), 0, 1)
    assert clock.default(select("b", "c"), 0) == 0
    assert clock.default(select("c", "d", "b"), 0) == 2
    assert clock.default(select("c", "d"), 0) == 0


@pytest.mark.parametrize("kind", [int, np.int64])
def test_positions_in_an_observation_do_not_say_which_entity_was_selected(kind: type) -> None:
    clock = MoveClock(1)
    before, after = select(*map(kind, range(3))), select(*map(kind, range(1, 4)))
    clock.last.keep(before, 0, 2)  # the third is gone, and the fourth is third now
    assert clock.default(after, 0) == 0
    assert clock.default(after, 0, nearest=2) == 2


def test_numbers_stay_as_they_were() -> None:
    clock = MoveClock(1)
    assert clock.default(push(-1, 1), 0) == [0]
    assert clock.default(push(0.5, 1), 0) == [0.5]
    clock.last.keep(push(-1, 1), 0, [0.25])
    assert clock.default(push(-1, 1), 0) == [0.25]


@given(st.lists(st.sampled_from(["A", "B", "C"]), min_size=3, max_size=3), MASKS, MASKS)
def test_what_is_done_is_allowed(labels: list[str], before: list[bool], after: list[bool]) -> None:
    names = [f"{label}{i}" for i, label in enumerate(labels)]
    clock, question = MoveClock(1), move(*names, allowed=before)
    for chosen in np.flatnonzero(before).tolist():
        clock.last.keep(question, 0, chosen)
        assert after[clock.default(move(*names, allowed=after), 0)]
