"""observe: converts a game's `Obs` to an Observation that owns its memory."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import (
    ActionType,
    Categorical,
    CategoricalActionMask,
    GlobalCategoricalActionMask,
    Obs,
    Observation,
    Schema,
    SchemaError,
    SelectEntity,
    SelectEntityActionMask,
)
from entity_env.authoring.to_observation import to_observation
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.core.action_request import questions, random_action
from entity_env.core.observation import PlainObservation
from entity_env.replay.encoding import actions_to_json, checksum, observation_to_json
from tests.helpers.batches import CLASSES
from tests.helpers.strategies import (
    CALL,
    EAT,
    FEW,
    MOVE,
    SCHEMA,
    STEER,
    Food,
    Move,
    Rock,
    Scene,
    Stance,
    World,
    features_of,
    scenes,
    untyped,
)

WORLD = World(0.5, Stance.CALM)


@FEW
@given(scenes())
def test_an_observation_shows_what_the_game_showed(scene: Scene) -> None:
    observation = to_observation(scene.obs(), scene.asked, SCHEMA, reward=0.25)
    assert observation.reward == 0.25
    assert not observation.done
    assert untyped(observation.global_features).tolist() == features_of(scene.world)
    for cls in CLASSES:
        rows = observation.features.get(cls.__name__, np.zeros((0, 0)))
        assert untyped(rows).tolist() == [features_of(e) for e in scene.entities_of(cls)]
    assert list(observation.actions) == [action.name for action in scene.asked]
    assert {cls.__name__: flags for cls, flags in scene.visible.items()} == {
        name: untyped(flags).tolist() for name, flags in observation.visible.items()
    }
    assert observation.metrics == scene.metrics


@FEW
@given(scenes())
def test_ids_count_entities_in_the_order_they_were_shown(scene: Scene) -> None:
    observation = to_observation(scene.obs(), scene.asked, SCHEMA, reward=0.0)
    shown = [entity for group in scene.groups for entity in group.entities]
    for cls in CLASSES:
        ids = observation.ids.get(cls.__name__, [])
        assert [features_of(shown[untyped(i)]) for i in ids] == [
            features_of(entity) for entity in scene.entities_of(cls)
        ]


def test_it_is_a_copy() -> None:
    rows = np.zeros((1, 1), dtype=np.float32)
    observation = to_observation(Obs().entities(rows, of=Food), (), Schema((Food,), ()), reward=0.0)
    rows[0, 0] = 9.0
    assert untyped(observation.features["Food"]).tolist() == [[0.0]]


@pytest.mark.parametrize(("terminated", "truncated"), [(True, False), (False, True)])
def test_the_end_is_told(terminated: bool, truncated: bool) -> None:
    observation = to_observation(
        Obs(3), (), SCHEMA, reward=1.0, terminated=terminated, truncated=truncated
    )
    assert (observation.terminated, observation.truncated) == (terminated, truncated)
    assert observation.is_blank


def test_each_action_has_its_mask() -> None:
    obs = Obs().actors([Rock()]).entities([Food(1.0)]).globals(WORLD)
    actions = to_observation(obs, [MOVE, CALL, EAT, STEER], SCHEMA, reward=0.0).actions
    assert isinstance(actions["call"], GlobalCategoricalActionMask)
    assert isinstance(actions["move"], CategoricalActionMask)
    assert actions["move"].actor_ids == [0]
    assert isinstance(actions["eat"], SelectEntityActionMask)
    assert actions["eat"].actee_types == ["Food"]
    assert actions["eat"].mask is None


@pytest.mark.parametrize(
    ("obs", "actions", "message"),
    [
        (Obs().entities([WORLD]), [CALL], "shows a World, which was not declared"),
        (Obs().entities([Food(float("nan"))]), [CALL], "'value' of row 0 must be finite, got nan"),
        (Obs().entities(np.array([[np.inf]]), of=Food), [CALL], "must be finite, got inf"),
        (Obs().entities([Food(untyped(None))]), [CALL], "must be a number"),
        (Obs().entities([Food(1.0), Rock()]), [CALL], "holds a Rock"),
        (Obs().entities([Rock()]), [MOVE], "asks every actor, but the observation marks none"),
        (Obs().actors([Rock()]).mask(STEER, [[True]]), [STEER], "takes no mask"),
        (Obs().mask(Move, [True] * 4), [CALL], "not declared"),
        (Obs().actors([Rock()], Categorical(Move)), [MOVE], "not declared"),
        (Obs().visible(World, [True]), [CALL], "World, which was not declared"),
        (Obs().globals(Rock()), [CALL], "global features Rock, expected World"),
        (Obs().globals(World(float("inf"), Stance.CALM)), [CALL], "'time' of row 0 must be finite"),
        (Obs().globals(Rock()).frozen(), [CALL], "global features Rock, expected World"),
        (Obs().globals(World(float("nan"), Stance.CALM)).frozen(), [CALL], "must be finite"),
    ],
)
def test_what_does_not_fit_is_refused(
    obs: Obs, actions: list[ActionType[Any]], message: str
) -> None:
    if obs.global_features is None:
        obs.globals(WORLD)
    with pytest.raises(SchemaError, match=message):
        to_observation(obs, actions, SCHEMA, reward=0.0)


def test_global_features_are_declared_and_shown() -> None:
    with pytest.raises(SchemaError, match="has none"):
        to_observation(Obs(), [CALL], SCHEMA, reward=0.0)
    with pytest.raises(SchemaError, match="not declared"):
        to_observation(Obs().globals(WORLD), (), Schema((), ()), reward=0.0)


@dataclass
class Tower:
    x: int


@dataclass
class Builder:
    x: int


@dataclass
class Enemy:
    x: int


class Build(Enum):
    WAIT = 0
    DIG = 1


AIM, BUILD = SelectEntity(Enemy), Categorical(Build)
UNITS = Schema((Tower, Builder, Enemy), (AIM, BUILD))
TOWERS, BUILDERS, ENEMIES = [Tower(0), Tower(1)], [Builder(0)], [Enemy(0)]


@pytest.mark.parametrize(
    ("obs", "kind", "hint"),
    [
        (
            Obs().actors(BUILDERS).actors(TOWERS).entities(ENEMIES).mask(AIM, [[True]] * 2),
            AIM,
            "; its actors are 1 Builder and 2 Tower: if only Tower performs it, say "
            "obs.actors([Tower(...), ...], SelectEntity(Enemy))",
        ),
        (
            Obs().actors(TOWERS).actors(BUILDERS).mask(BUILD, [[True, False]]),
            BUILD,
            "; its actors are 2 Tower and 1 Builder: if only Builder performs it, say "
            "obs.actors([Builder(...), ...], Categorical(Build))",
        ),
        (
            Obs().actors(TOWERS, BUILD).actors(TOWERS, BUILD).mask(BUILD, [[True, False]] * 2),
            BUILD,
            "; obs.actors was called twice with the same entities: call it once, with all of "
            "their actions",
        ),
        (
            Obs().actors(TOWERS, AIM).entities(ENEMIES).mask(BUILD, [[True, False]] * 2),
            BUILD,
            "; no actor performs it: show those that do with obs.actors([...], Categorical(Build))",
        ),
        (
            Obs().actors(TOWERS, AIM).mask(AIM, [[True]] * 2),
            AIM,
            "; the observation shows no Enemy: add obs.entities([Enemy(...), ...])",
        ),
        (Obs().actors(TOWERS, BUILD).mask(BUILD, [[True, False]]), BUILD, ""),
        (Obs().actors(TOWERS).entities(ENEMIES).mask(AIM, [[True, True]] * 2), AIM, ""),
    ],
)
def test_a_mask_for_other_actors_names_those_that_there_are(
    obs: Obs, kind: ActionType[Any], hint: str
) -> None:
    def observe() -> None:
        observation = to_observation(obs, (kind,), UNITS, reward=0.0)
        questions(observation, UNITS.obs_space(), UNITS.action_space())

    for read in (observe, lambda: obs.allowed(kind), lambda: ObsBatcher(UNITS).add(obs, (kind,))):
        with pytest.raises(SchemaError, match="needs the shape") as error:
            read()
        shape = np.shape((obs.masks or {})[kind])
        assert str(error.value).endswith(f"got {shape}{hint}")


def test_a_mask_of_other_values_says_nothing_of_actors() -> None:
    for mask in (
        [[True, True], [False, False], [True, True]],
        [[1, 2]] * 3,
        [[True], [True, True]],
    ):
        obs = Obs().actors(TOWERS).actors(BUILDERS).mask(BUILD, untyped(mask))
        with pytest.raises(SchemaError, match="the mask of action 'Build'") as error:
            obs.allowed(BUILD)
        assert "its actors are" not in str(error.value)


@FEW
@given(scenes(), st.integers(0, 99))
def test_a_plain_observation_shows_and_asks_the_same(scene: Scene, seed: int) -> None:
    spaces = SCHEMA.obs_space(), SCHEMA.action_space()
    array, plain = (
        to_observation(scene.obs(), scene.asked, SCHEMA, reward=0.25, plain=is_plain)
        for is_plain in (False, True)
    )
    assert (type(array), type(plain)) == (Observation, PlainObservation)
    assert checksum(plain, spaces[0]) == checksum(array, spaces[0])
    data = observation_to_json(plain, spaces[0])
    assert data == observation_to_json(array, spaces[0])
    assert json.dumps(data)  # has no numpy types
    rng = np.random.default_rng(seed)
    for mine, theirs in zip(questions(plain, *spaces), questions(array, *spaces), strict=True):
        num_actors = len(theirs.actors)
        assert list(mine.actors) == list(theirs.actors)
        assert list(map(mine.legal, range(num_actors))) == list(
            map(theirs.legal, range(num_actors))
        )
        action = random_action(theirs, rng)
        again = mine.action(theirs.chosen(action))
        assert mine.chosen(again) == theirs.chosen(action)
        assert actions_to_json({mine.name: again}, plain, spaces[0]) == actions_to_json(
            {mine.name: action}, array, spaces[0]
        )


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 1e39, None, "1", 10**400])
def test_a_plain_observation_refuses_the_same_numbers(value: object) -> None:
    obs = Obs().globals(WORLD).entities([Food(1), Food(untyped(value))])
    messages = []
    for plain in (False, True):
        with pytest.raises(SchemaError) as caught:
            to_observation(obs, [], SCHEMA, reward=0, plain=plain)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]
