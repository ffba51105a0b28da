"""Question: actions requested by an observation, and legality of answers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from numpy.testing import assert_array_equal

from entity_env import (
    Action,
    ActionMask,
    ActionSpace,
    CategoricalAction,
    CategoricalActionMask,
    CategoricalActionSpace,
    ContinuousAction,
    ContinuousActionMask,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    GlobalCategoricalActionSpace,
    Observation,
    ObsSpace,
    Question,
    SchemaError,
    SelectEntityAction,
    SelectEntityActionMask,
    SelectEntityActionSpace,
    questions,
)
from entity_env.core.action_request import Asked, actions_of, random_action, require_in_bounds
from tests.helpers.strategies import action_spaces, obs_spaces, observations, untyped

SPACE = ObsSpace([], {"A": Entity(["x"]), "B": Entity(["x"])})
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(["up", "down"]),
    "call": GlobalCategoricalActionSpace(["yes", "no"]),
    "pick": SelectEntityActionSpace(),
    "turn": ContinuousActionSpace([0, -1], [1, 1], ["left", "right"]),
}


def ask(name: str, mask: ActionMask) -> Question:
    """The question of an observation of entities a, b and c with this mask."""
    shown = Observation(reward=0.0, entities={"A": ([[1], [2]], ["a", "b"]), "B": ([[3]], ["c"])})
    shown.actions = {name: mask}
    [question] = questions(shown, SPACE, ACTIONS)
    return question


MOVE = ask("move", CategoricalActionMask(actor_ids=["c", "a"], mask=[[True, True], [False, True]]))
CALL = ask("call", GlobalCategoricalActionMask([False, True]))
PICK_MASK = np.array([[1, 0, 1]])
PICK = ask("pick", SelectEntityActionMask(actor_ids=["a"], actee_types=["B", "A"], mask=PICK_MASK))
TURN = ask("turn", ContinuousActionMask(actor_types=["A"]))


def test_says_who_is_asked_and_what_is_allowed() -> None:
    assert (MOVE.actors, MOVE.actees, MOVE.choices) == (["c", "a"], [], ["up", "down"])
    assert MOVE.allowed.tolist() == [[True, True], [False, True]]
    assert (CALL.actors, CALL.choices) == ([None], ["yes", "no"])
    assert CALL.allowed.tolist() == [[False, True]]
    assert (PICK.actors, PICK.actees, PICK.choices) == (["a"], ["c", "a", "b"], ["c", "a", "b"])
    assert (TURN.actors, TURN.choices) == (["a", "b"], ["left", "right"])
    assert TURN.allowed.all()


def test_only_what_is_asked_in_the_order_of_the_space() -> None:
    shown = Observation(reward=0.0, features={"A": [[1]]})
    assert questions(shown, SPACE, ACTIONS) == []
    shown.actions = {"pick": SelectEntityActionMask(), "move": CategoricalActionMask()}
    assert [question.name for question in questions(shown, SPACE, ACTIONS)] == ["move", "pick"]


@settings(max_examples=40)
@given(st.data())
def test_a_random_answer_is_legal_and_comes_back(data: st.DataObject) -> None:
    obs_space, action_space = data.draw(obs_spaces()), data.draw(action_spaces())
    shown = data.draw(observations(obs_space, action_space))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    for question in questions(shown, obs_space, action_space):
        action = random_action(question, rng)
        chosen = question.chosen(action)
        assert len(chosen) == len(question.actors)
        if not isinstance(question.space, ContinuousActionSpace):
            assert all(question.allowed[i, choice] for i, choice in enumerate(chosen))
        again = question.action(chosen)
        assert type(again) is type(action)
        assert_array_equal(question.chosen(again), chosen)


def test_actions_say_what_was_chosen() -> None:
    move = MOVE.action([0, 1])
    assert isinstance(move, CategoricalAction)
    assert (move.actors, move.labels) == (["c", "a"], ["up", "down"])
    assert CALL.action(np.array([1])) == GlobalCategoricalAction(1, "no")
    assert PICK.action([2]) == SelectEntityAction(["a"], ["b"])
    turn = TURN.action(np.array([[0.5, 0], [1, -1]]))
    assert isinstance(turn, ContinuousAction)
    assert turn.values.dtype == np.float32
    nobody = ask("turn", ContinuousActionMask(actor_ids=[])).action([])
    assert isinstance(nobody, ContinuousAction)
    assert nobody.values.shape == (0, 2)


ROWS: list[Asked] = [(0, ["a"], ["x", "y"]), (2, [], []), (3, ["b", "c"], ["z"])]


@pytest.mark.parametrize("chosen", [[1, 0, 0], np.array([1, 0, 0]), np.array([1, 0, 0], np.uint8)])
def test_values_of_many_rows_are_dealt_out(chosen: Any) -> None:  # noqa: ANN401
    moves = list(actions_of("move", ACTIONS["move"], ROWS, chosen))
    assert [(m.actors, m.labels) for m in moves if isinstance(m, CategoricalAction)] == [
        (["a"], ["down"]),
        ([], []),
        (["b", "c"], ["up", "up"]),
    ]
    assert list(actions_of("pick", ACTIONS["pick"], ROWS, chosen)) == [
        SelectEntityAction(["a"], ["y"]),
        SelectEntityAction([], []),
        SelectEntityAction(["b", "c"], ["z", "z"]),
    ]
    turns = list(actions_of("turn", ACTIONS["turn"], ROWS, np.repeat(chosen, 2).reshape(3, 2)))
    assert [t.values.tolist() for t in turns if isinstance(t, ContinuousAction)] == [
        [[1, 1]],
        [],
        [[0, 0], [0, 0]],
    ]
    calls = actions_of("call", ACTIONS["call"], [(i, [None], ()) for i in range(3)], chosen)
    assert [c.index for c in calls if isinstance(c, GlobalCategoricalAction)] == [1, 0, 0]


@pytest.mark.parametrize("name", list(ACTIONS))
def test_another_number_of_values_than_of_actors_is_refused_at_once(name: str) -> None:
    with pytest.raises(SchemaError, match=f"'{name}' needs 3 values, one per actor: got 2"):
        actions_of(name, ACTIONS[name], ROWS, [0, 0])


@pytest.mark.parametrize(
    ("question", "chosen", "message"),
    [
        (MOVE, [0], "'move' needs 2 values, one per actor: got 1"),
        (MOVE, [2, 1], "actor 0 chose 2, expected an integer from 0 to 1"),
        (MOVE, [-1, 1], "actor 0 chose -1"),
        (MOVE, [0.0, 1], "actor 0 chose 0.0, expected an integer"),
        (MOVE, np.array([0.0, 1.0]), "actor 0 chose .*0.0"),
        (MOVE, np.array([0.0, 1.0], dtype=np.float32), "expected an integer"),
        (MOVE, [True, 1], "actor 0 chose True"),
        (MOVE, [None, 1], "actor 0 chose None"),
        (MOVE, ["up", 1], "actor 0 chose 'up'"),
        (MOVE, [[0], [1]], r"actor 0 chose \[0\]"),
        (MOVE, [0, 0], "actor 1 chose 'up', which its mask forbids; allowed are down"),
        (CALL, [0], "'call': got 'yes', which its mask forbids; allowed are no"),
        (PICK, [1], "'pick': actor 0 chose 'a', which its mask forbids; allowed are c, b"),
        (TURN, [[0, 0]], "needs 2 values, one per actor: got 1"),
        (TURN, [[0, 0], [0, 2]], "actor 1 chose 2.0 for 'right', expected -1 to 1"),
        (TURN, [[0, 0], [np.nan, 0]], "actor 1 chose nan for 'left'"),
        (TURN, [[0], [0]], r"needs the shape \(num_actors, 2\), got \(2, 1\)"),
        (TURN, [0, 0], r"needs the shape \(num_actors, 2\), got \(2,\)"),
        (TURN, [[], []], r"got \(2, 0\)"),
        (TURN, [["a", "b"], [0, 0]], "needs numbers"),
        (TURN, [[0, 0], [0]], "needs numbers"),
    ],
)
def test_illegal_choices_are_named(question: Question, chosen: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=message):
        question.action(chosen)


def move(actors: list[str], indices: object) -> Action:
    return CategoricalAction(actors, untyped(indices), ["up", "down"])


@pytest.mark.parametrize(
    ("question", "action", "message"),
    [
        (MOVE, None, "'move' needs a CategoricalAction, got none"),
        (MOVE, GlobalCategoricalAction(0, "up"), "got GlobalCategoricalAction"),
        (CALL, move(["a"], [0]), "needs a GlobalCategoricalAction, got CategoricalAction"),
        (PICK, move(["a"], [0]), "needs a SelectEntityAction"),
        (TURN, move(["a"], [0]), "needs a ContinuousAction"),
        (
            MOVE,
            move(["a", "c"], np.array([1, 1])),
            r"'move' needs the actors \['c', 'a'\], in this order: got \['a', 'c'\]",
        ),
        (MOVE, move(["c", "a"], np.array([[0], [1]])), r"actor 0 chose \[0\]"),
        (MOVE, move(["c", "a"], 1), "needs 2 values, one per actor: got 1"),
        (CALL, GlobalCategoricalAction(0, "yes"), "which its mask forbids"),
        (PICK, SelectEntityAction(["a"], ["z"]), r"selects 'z', .* \['c', 'a', 'b'\]"),
        (PICK, SelectEntityAction(["b"], ["c"]), r"needs the actors \['a'\], .*: got \['b'\]"),
        (TURN, ContinuousAction(["a", "b"], np.zeros(2, np.float32)), r"got \(2,\)"),
        (TURN, ContinuousAction(["a", "b"], np.full((2, 2), 5, np.float32)), "chose 5.0"),
    ],
)
def test_illegal_actions_are_named(question: Question, action: Action | None, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        question.chosen(action)


@pytest.mark.parametrize(
    ("name", "mask", "message"),
    [
        ("fly", CategoricalActionMask(), "'fly' is not in the action space, which has move, call"),
        ("move", GlobalCategoricalActionMask(), "needs a CategoricalActionMask, got a Global"),
        ("call", CategoricalActionMask(), "needs a GlobalCategoricalActionMask"),
        ("pick", CategoricalActionMask(), "needs a SelectEntityActionMask"),
        ("turn", SelectEntityActionMask(), "needs a ContinuousActionMask"),
        ("move", CategoricalActionMask(actor_ids=["z"]), "actor 'z' is not among"),
        ("pick", SelectEntityActionMask(actee_ids=[]), "3 actors have no legal choice"),
        ("move", CategoricalActionMask(mask=[[True, True]]), r"= \(3, 2\): got \(1, 2\)"),
        ("call", GlobalCategoricalActionMask([False, False]), "no legal choice"),
    ],
)
def test_questions_that_cannot_be_answered_are_refused(
    name: str, mask: ActionMask, message: str
) -> None:
    with pytest.raises(SchemaError, match=message):
        ask(name, mask)


def test_bounds_may_be_reached_in_float32() -> None:
    space = ContinuousActionSpace([-0.1], [0.3])
    require_in_bounds("turn", space, np.array([[0.3], [-0.1]], dtype=np.float32))
    require_in_bounds("turn", space, [[0.3], [-0.1]])
    require_in_bounds("turn", space, [])
    with pytest.raises(SchemaError, match=r"expected -0\.1 to 0\.3"):
        require_in_bounds("turn", space, [[0.3001]])
