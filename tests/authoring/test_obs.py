"""Obs: the builder used in a game's loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from entity_env import Categorical, GlobalCategorical, Obs, SchemaError
from entity_env.authoring.obs import Rows, class_of_globals
from entity_env.authoring.relations.relations import class_of
from tests.helpers.strategies import MOVE, Food, Move, Point, Rock, Snake, Stance, World, untyped


def test_every_method_returns_the_same_object() -> None:
    obs = Obs(2.0)
    for same in (
        obs.entities([Food(1.0)]),
        obs.actors([Food(1.0)]),
        obs.globals(World(0.0, Stance.CALM)),
        obs.mask(Move, [True] * 4),
        obs.visible(Food, [True, False]),
        obs.metric("won", 1.0),
    ):
        assert same is obs
    assert obs.score == 2.0
    assert Obs().score == 0.0


def test_lists_and_tuples_are_kept_and_others_copied() -> None:
    foods = [Food(1.0), Food(2.0)]
    obs = Obs().entities(foods).entities(tuple(foods)).entities({0: foods[0]}.values())
    assert obs.groups[0] is foods
    assert obs.groups[1:] == [tuple(foods), (foods[0],)]
    assert obs.of_class(Food) == [*foods, *foods, foods[0]]


def test_arrays_become_rows_of_their_class() -> None:
    obs = Obs().entities(np.array([[1], [2]]), of=Food)
    [group] = obs.groups
    assert isinstance(group, Rows)
    assert group.values.dtype == np.float32
    assert (len(group), class_of(group)) == (2, Food)
    assert [row.tolist() for row in obs.of_class(Food)] == [[1.0], [2.0]]


def test_no_entities_have_no_class() -> None:
    assert class_of([]) is None
    assert class_of([Food(1.0)]) is Food
    assert class_of_globals(None) is None
    assert class_of_globals(World(0.0, Stance.CALM)) is World
    assert Obs().entities([]).of_class(Food) == []


def test_actors_remember_their_group_and_what_they_do() -> None:
    obs = Obs().entities([Food(1.0)]).actors([Rock()]).actors([Rock()], MOVE, Stance)
    assert obs.actor_groups == [(1, ()), (2, (MOVE, GlobalCategorical(Stance)))]
    obs.mask(Categorical(Stance), np.ones((2, 3), dtype=np.bool_))
    assert list(obs.actions_named) == [Categorical(Stance), MOVE, GlobalCategorical(Stance)]
    assert list(Obs().actions_named) == []


def test_the_last_mask_and_metric_count() -> None:
    obs = Obs().mask(Move, [True] * 4).mask(GlobalCategorical(Move), [False] * 4)
    assert obs.masks == {GlobalCategorical(Move): [False] * 4}
    assert obs.metric("won", 1).metric("won", 2).metrics == {"won": 2}


def test_blank_means_nothing_but_a_score() -> None:
    assert Obs(3).metric("won", 1).is_blank
    assert not Obs().entities([]).is_blank
    assert not Obs().globals(Rock()).is_blank


def test_a_frozen_copy_does_not_follow_the_game() -> None:
    world = World(1.0, Stance.CALM)
    snake = Snake(Point(1.0, 2), Stance.CALM, True, (1, 2.0))
    mask, seen, rows = np.ones(4, dtype=np.bool_), [True], np.zeros((1, 1), dtype=np.float32)
    obs = Obs(1).actors([snake]).entities(rows, of=Food).entities([]).globals(world)
    obs.mask(Move, mask).visible(Snake, seen).metric("won", 1)
    frozen = obs.frozen()
    snake.alive, world.time, rows[0, 0] = False, 9.0, 9.0
    mask[:], seen[0] = False, False
    obs.score = 5
    obs.metric("won", 2).actors([Rock()])
    assert frozen.score == 1
    assert [class_of(group) for group in frozen.groups] == [Snake, Food, None]
    assert untyped(frozen.groups[0]).values[0, 5] == 1.0
    assert untyped(frozen.groups[1]).values.tolist() == [[0.0]]
    assert untyped(frozen.global_features).values[0, 0] == 1.0
    assert class_of_globals(frozen.global_features) is World
    assert untyped(frozen.masks)[GlobalCategorical(Move)].all()
    assert untyped(frozen.hidden)[0][1].tolist() == [True]
    assert frozen.metrics == {"won": 1}
    assert frozen.actor_groups == [(0, ())]
    assert frozen.of_class(Snake) == [snake]


def test_a_frozen_copy_can_be_frozen_again() -> None:
    once = Obs(1.0).globals(World(2.0, Stance.CALM)).entities([Food(3.0)]).frozen()
    again = once.frozen()
    assert isinstance(once.global_features, Rows)
    assert isinstance(again.global_features, Rows)
    assert again.global_features.cls is World
    assert again.global_features.values.tolist() == once.global_features.values.tolist()


def test_a_frozen_copy_of_nothing_is_blank() -> None:
    assert Obs(1).frozen().is_blank


WRONG: list[tuple[Callable[[Obs], object], str]] = [
    (lambda obs: obs.entities(untyped(Food(1.0))), "got Food: a single entity goes into brackets"),
    (
        lambda obs: obs.entities(untyped(food for food in (Food(1.0),))),
        r"got generator.*into list\(\.\.\.\)",
    ),
    (lambda obs: obs.entities(untyped(iter([]))), "got list_iterator"),
    (lambda obs: obs.entities(untyped(None)), "got NoneType"),
    (lambda obs: obs.actors(untyped(Food(1.0))), "got Food: a single entity"),
    (lambda obs: obs.entities(np.zeros((1, 1))), r"needs its class: obs\.entities\(rows, of=Food"),
    (lambda obs: obs.entities(np.zeros((1, 2)), of=Food), r"\(num_entities, 1\).*got \(1, 2\)"),
    (lambda obs: obs.entities(np.zeros((1, 1)), of=Move), "must be a dataclass"),
    (lambda obs: obs.mask(untyped([Move]), [True]), "an action must be an Enum"),
    (lambda obs: obs.actors([Rock()], untyped("Move")), "an action must be an Enum"),
    (lambda obs: obs.entities([Food(untyped(None))]).frozen(), "'value' of row 0"),
    (lambda obs: obs.entities([Food(1.0), Rock()]).frozen(), "sequence of Food holds a Rock"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_is_no_observation_is_refused(call: Callable[[Obs], Any], message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        call(Obs())
