"""Observations and actions in words."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Entity, Observation, ObsSpace
from entity_env.authoring.entity_type import entity_type
from entity_env.core.observation import (
    Action,
    CategoricalAction,
    ContinuousAction,
    GlobalCategoricalAction,
    SelectEntityAction,
)
from entity_env.views.describe import (
    describe_actions,
    describe_entity,
    describe_features,
    describe_number,
    describe_observation,
    entity_tables,
    label_of,
    shown_names,
    words_of,
)
from entity_env.views.look import Look, Style
from entity_env.views.seen import is_part, presence_of, seen_entities
from tests.helpers.strategies import action_spaces, obs_spaces, observations

SPACE = ObsSpace(
    ["time", "wind.is_North", "wind.is_South"],
    {"Wall": Entity(["x"]), "Food": Entity(["x", "ripe"]), "Ghost": Entity([])},
)


def seen(reward: float = 0.0) -> Observation:
    """Two walls, one of them hidden, a fruit and a ghost."""
    return Observation(
        reward=reward,
        terminated=False,
        global_features=[2.5, 0.0, 1.0],
        features={
            "Wall": np.array([[1.0], [2.0]], np.float32),
            "Food": np.array([[3.0, 0.25]], np.float32),
            "Ghost": np.zeros((1, 0), np.float32),
        },
        ids={"Food": ["apple"]},
        visible={"Wall": np.array([True, False])},
    )


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (3.0, "3"),
        (-0.0, "0"),
        (-2.0, "-2"),
        (1e15, "1000000000000000"),
        (0.1, "0.1"),
        (1 / 3, "0.333"),
        (-123.456, "-123"),
        (999.4, "999"),
        (999.5, "999.5"),
        (-999.96, "-1000.0"),
        (1234.56, "1234.6"),
        (1e-7, "1e-07"),
        (float("inf"), "inf"),
    ],
)
def test_a_number_has_as_few_digits_as_it_needs(value: float, text: str) -> None:
    assert describe_number(value) == text


@given(st.floats(0.01, 1e6))
def test_a_number_in_words_is_near_it_and_written_plainly(value: float) -> None:
    text = describe_number(value)
    assert "e" not in text
    assert float(text) == pytest.approx(value, rel=0.006)


class Stance(Enum):
    CALM = 0
    ANGRY = 1


@dataclass
class Part:
    is_left: bool
    is_stance: Stance


@dataclass
class Body:
    x: float
    stance: Stance
    part: Part


@given(st.floats(-9, 9, width=16), st.sampled_from(Stance), st.sampled_from(Stance))
def test_the_member_of_an_enum_is_named_wherever_it_lies(
    x: float, own: Stance, in_: Stance
) -> None:
    body = entity_type(Body)
    row = body.featurize([Body(x, own, Part(True, in_))])[0]
    text = describe_features(body.features, row)
    assert text.startswith(f"x={describe_number(float(np.float32(x)))} stance={own.name} ")
    assert text.endswith(f" part.is_stance={in_.name}")


def test_a_part_whose_own_name_begins_with_is_stays_a_number() -> None:
    names = ["arms.is_left.x", "arms.is_left.pose.is_Up", "arms.is_left.pose.is_Down"]
    assert describe_features(names, [0.0, 0.0, 1.0]) == "arms.is_left.x=0 arms.is_left.pose=Down"
    assert describe_features(["is_alive"], [0.0]) == "is_alive=0"


def test_names_and_values_go_together() -> None:
    with pytest.raises(ValueError, match="shorter"):
        describe_features(["x", "y"], [1.0])


def test_what_can_be_seen_is_a_line_each() -> None:
    lines = describe_observation(seen(), SPACE).splitlines()
    assert lines == ["time=2.5 wind=South", "Wall x=1", "Food x=3 ripe=0.25", "Ghost"]


@pytest.mark.parametrize(("reward", "line"), [(1.5, "reward +1.5"), (-2.0, "reward -2")])
def test_a_reward_comes_last(reward: float, line: str) -> None:
    assert describe_observation(seen(reward), SPACE).splitlines()[-1] == line


@given(st.data())
def test_every_entity_is_seen_once_in_the_order_of_its_ids(data: st.DataObject) -> None:
    space = data.draw(obs_spaces())
    actions = data.draw(action_spaces())
    observation = data.draw(observations(space, actions))
    entities = list(seen_entities(observation, space))
    assert [entity.id for entity in entities] == list(observation.entity_ids(space))
    for name in space.entities:
        mine = [entity for entity in entities if entity.type == name]
        assert len(mine) == observation.num_entities(name)
        flags = observation.visible.get(name, [True] * len(mine))
        assert [entity.is_visible for entity in mine] == [bool(flag) for flag in flags]
        for entity, row in zip(mine, observation.features.get(name, ()), strict=True):
            assert entity.features.tolist() == np.asarray(row, np.float64).tolist()
            assert describe_entity(entity, space).split(" ")[0] == name
    shown = describe_observation(observation, space).splitlines()
    assert len(shown) <= len(entities) + 2


def test_a_global_choice_says_how_sure_an_agent_was() -> None:
    labels = ["UP", "DOWN"]
    sure = GlobalCategoricalAction(1, labels[1], np.array([0.1, 0.9], np.float32))
    unsure = GlobalCategoricalAction(0, labels[0])
    assert describe_actions({"move": sure}, seen(), SPACE) == "DOWN 90%"
    assert describe_actions({"move": unsure}, seen(), SPACE) == "UP"
    assert describe_actions({"a": sure, "b": unsure}, seen(), SPACE) == "a DOWN 90%; b UP"
    assert describe_actions({}, seen(), SPACE) == ""


def test_a_selected_entity_is_described_though_it_is_hidden() -> None:
    ids = seen().entity_ids(SPACE)
    action = SelectEntityAction(actors=[ids[3]], actees=["apple", ids[1]])
    assert (
        describe_actions({"eat": action}, seen(), SPACE) == "Food x=3 ripe=0.25, Wall x=2 (hidden)"
    )


def test_an_action_of_no_actor_is_not_named() -> None:
    actions: dict[str, Action] = {
        "Push": ContinuousAction([1], np.ones((1, 1), np.float32)),
        "Pick": SelectEntityAction([], []),
    }
    assert describe_actions(actions, seen(), SPACE) == "Push 1"


def test_numbers_of_an_actor_stand_together() -> None:
    action = ContinuousAction(actors=["a", "b"], values=np.array([[0.5, 2.0], [-1.0, 1 / 3]]))
    assert describe_actions({"push": action}, seen(), SPACE) == "0.5 2, -1 0.333"


def test_words_of_a_look_come_before_features() -> None:
    food = next(each for each in seen_entities(seen(), SPACE) if each.type == "Food")
    wall = next(each for each in seen_entities(seen(), SPACE) if each.type == "Wall")
    assert words_of(food) == words_of(food, Look()) == "Food x=3 ripe=0.25"
    assert words_of(food, Look(styles={"Food": Style(label="x")})) == "Food 3 ripe=0.25"
    look = Look(describe=lambda entity: "an apple" if entity.type == "Food" else "")
    assert words_of(food, look) == "an apple"
    assert words_of(wall, look) == words_of(wall)
    hidden = replace(food, is_visible=False)
    assert words_of(hidden, look) == "an apple (hidden)"
    assert len(words_of(food, Look(describe=lambda entity: "a\n" * 500))) == 160


def test_choices_are_named_by_the_look() -> None:
    look = Look(labels={"move": {"UP": "to the\nnorth"}})
    action = GlobalCategoricalAction(0, "UP")
    assert describe_actions({"move": action}, seen(), SPACE, look) == "to the north"
    several = CategoricalAction([1, 2], np.arange(2), ["UP", "DOWN"])
    assert describe_actions({"move": several}, seen(), SPACE, look) == "to the north, DOWN"
    assert label_of("turn", "UP", look) == "UP"


def test_names_of_agents_are_short_and_distinct() -> None:
    names = ["/home/me/a.agent", "C:\\runs\\a.agent", "human", "b\n"]
    assert shown_names(names, [2]) == ["a.agent 1", "a.agent 2", "you", "b"]
    assert shown_names(["treasure_hunt.agent", "pixel_maze.agent"]) == [
        "treasure_hunt",
        "pixel_maze.agent",
    ]


def test_a_picture_is_told_by_its_shape() -> None:
    pixels = Entity([f"pixel.{i}" for i in range(24)], shape=(2, 4, 3))
    space = ObsSpace([], {"Screen": pixels, "Dot": Entity(["x"])})
    rows = {"Screen": np.ones((1, 24)), "Dot": np.ones((1, 1))}
    observation = Observation(reward=0.0, features=rows)
    screen, dot = seen_entities(observation, space)
    assert words_of(screen) == "Screen picture 2x4x3"
    [row] = entity_tables([screen, dot])["Screen"]
    assert row.cells == {"picture": "2x4x3"}
    assert describe_observation(observation, space) == "Screen picture 2x4x3\nDot x=1"


def test_a_bot_has_the_name_of_its_class() -> None:
    bots = ["games/ohhell_bot.py:Counter", "games/ohhell_bot.py:Counter", "other.py:Careful"]
    assert shown_names(bots) == ["Counter 1", "Counter 2", "Careful"]
    assert shown_names(["a.py:Bot", "b.py:Bot", "c.py"]) == ["a.py:Bot", "b.py:Bot", "c.py"]
    labels = {"other.py:Careful": "Easy\n", "random": "Random moves"}
    assert shown_names(["random", "other.py:Careful", "human"], [2], labels) == [
        *("Random moves", "Easy", "you"),
    ]


@pytest.mark.parametrize("count", [1, 8, 9, 30])
def test_of_many_actors_the_first_eight_are_named(count: int) -> None:
    labels = [f"go{i}" for i in range(count)]
    action = CategoricalAction(list(range(count)), np.arange(count), labels)
    words = describe_actions({"move": action}, seen(), SPACE).split(", ")
    assert words[:8] == labels[:8]
    assert words[8:] == ([f"and {count - 8} more"] if count > 8 else [])


FEATURES = st.text(alphabet="ah_s.!b", max_size=8) | st.sampled_from(
    ["a", "has_a", "a.x", "a!", "b.has_a", "b.a.y", "b.a", "has_", "has_has_a"]
)


@given(st.lists(FEATURES, max_size=8, unique=True))
def test_the_presence_of_a_field_is_told_by_its_name(names: list[str]) -> None:
    expected = {}
    for name in names:
        prefix, dot, last = name.rpartition(".")
        field = f"{prefix}{dot}{last.removeprefix('has_')}"
        if last.startswith("has_") and any(is_part(other, field) for other in names):
            expected[name] = field
    assert presence_of(tuple(names)) == expected
