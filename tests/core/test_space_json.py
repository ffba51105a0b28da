"""Spaces survive a round trip through JSON; differences are described in words."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies as st

from entity_env.core.spaces import (
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
    SelectEntityActionSpace,
    Spaces,
    differences,
    spaces_from_json,
    spaces_to_json,
)
from entity_env.errors import SchemaError

OBS = ObsSpace(
    global_features=("step",), entities={"Head": Entity(("x", "y")), "Food": Entity(("x",))}
)
ACTIONS: dict[str, ActionSpace] = {
    "move": CategoricalActionSpace(("up", "down")),
    "mode": GlobalCategoricalActionSpace(("a", "b")),
    "pick": SelectEntityActionSpace(),
    "push": ContinuousActionSpace((-1.0,), (1.0,), ("torque",)),
}
SPACES: Spaces = (OBS, ACTIONS)

names_of_members = st.text(
    st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=5
)
texts = st.lists(names_of_members, min_size=1, max_size=4, unique=True).map(tuple)
actions = st.one_of(
    texts.map(CategoricalActionSpace),
    texts.map(GlobalCategoricalActionSpace),
    st.just(SelectEntityActionSpace()),
    texts.map(lambda labels: ContinuousActionSpace((0.0,) * len(labels), (1.5,) * len(labels))),
)


@given(
    features=texts,
    names=texts.filter(lambda names: "__global__" not in names),
    action_space=st.dictionaries(names_of_members, actions),
)
def test_spaces_survive_json(
    features: tuple[str, ...], names: tuple[str, ...], action_space: dict[str, ActionSpace]
) -> None:
    obs_space = ObsSpace(features, {name: Entity(features) for name in names})
    text = json.dumps(spaces_to_json(obs_space, action_space))
    again = spaces_from_json(json.loads(text))
    assert again == (obs_space, action_space)
    assert list(again[0].entities) == list(names)
    assert differences((obs_space, action_space), again) == []


def test_references_of_a_relation_survive_json() -> None:
    route = Entity(("source", "target", "eta"), references=("Planet", "Base"))
    entities = {"Planet": Entity(("x",)), "Base": Entity(()), "Route": route}
    obs_space = ObsSpace((), entities)
    assert spaces_from_json(json.loads(json.dumps(spaces_to_json(obs_space, {}))))[0] == obs_space
    assert obs_space.relations == {"Route": route}
    back = ObsSpace((), {**entities, "Route": Entity(route.features, references=("Base",) * 2)})
    assert differences((obs_space, {}), (back, {})) == [
        "relation 'Route': the checkpoint has the reference to 'Planet', the game does not"
    ]


def test_a_picture_survives_json() -> None:
    obs_space = ObsSpace((), {"Screen": Entity((*"abcdef",), is_single=True, shape=(1, 3, 2))})
    data = json.loads(json.dumps(spaces_to_json(obs_space, {})))
    assert spaces_from_json(data)[0].entities["Screen"].shape == (1, 3, 2)
    for shape in ([1, 3], [1, 3, 3], "abc", [1.0, 3, 2], [-1, -3, 2], True):
        data["entities"][0]["shape"] = shape
        with pytest.raises(SchemaError, match=r"shape of a picture must be \(height, width, ch"):
            spaces_from_json(data)


def _differences(obs_space: ObsSpace, action_space: dict[str, ActionSpace]) -> str:
    (sentence,) = differences(SPACES, (obs_space, action_space))
    return sentence


def test_features_that_one_side_has_not() -> None:
    more = ObsSpace(("step",), {"Head": Entity(("x", "y")), "Food": Entity(("x", "y"))})
    assert (
        _differences(more, ACTIONS)
        == "entity 'Food': the game has the feature 'y', the checkpoint does not"
    )
    less = ObsSpace(("step",), {"Head": Entity(("x",)), "Food": Entity(("x",))})
    assert (
        _differences(less, ACTIONS)
        == "entity 'Head': the checkpoint has the feature 'y', the game does not"
    )


def test_order_counts() -> None:
    turned = ObsSpace(("step",), {"Head": Entity(("y", "x")), "Food": Entity(("x",))})
    assert _differences(turned, ACTIONS) == (
        "entity 'Head': feature order differs: the checkpoint has x, y; the game has y, x"
    )
    swapped = ObsSpace(("step",), dict(reversed(list(OBS.entities.items()))))
    assert "entity order differs" in _differences(swapped, ACTIONS)


def test_globals_entities_and_actions() -> None:
    sentences = differences(
        SPACES, (ObsSpace((), {"Head": Entity(("x", "y")), "Wall": Entity(())}), {})
    )
    assert "the checkpoint has the global feature 'step', the game does not" in sentences
    assert "the checkpoint has the entity 'Food', the game does not" in sentences
    assert "the game has the entity 'Wall', the checkpoint does not" in sentences
    assert sum("the checkpoint has the action" in sentence for sentence in sentences) == 4


def test_labels_kinds_and_bounds() -> None:
    labels = ACTIONS | {"move": CategoricalActionSpace(("down", "up"))}
    assert "action 'move': label order differs" in _differences(OBS, labels)
    kind = ACTIONS | {"move": SelectEntityActionSpace()}
    assert _differences(OBS, kind) == (
        "action 'move': the checkpoint has the kind categorical, the game has select_entity"
    )
    bounds = ACTIONS | {"push": ContinuousActionSpace((-2.0,), (1.0,), ("torque",))}
    assert "bounds [-1.0] to [1.0], the game has [-2.0] to [1.0]" in _differences(OBS, bounds)
