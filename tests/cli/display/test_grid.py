"""The grid: symbols by type, where entities are, how large the board is."""

from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
from rich.text import Text

from entity_env import Schema
from entity_env.agents.human.describe import SeenEntity
from entity_env.cli.display.terminal_view import (
    MAX_COLUMNS,
    MAX_ROWS,
    EntityStyle,
    Grid,
    entity_styles,
)
from entity_env.core.spaces import GLOBAL_ENTITY


class Mood(Enum):
    CALM = 0
    CROSS = 1


@dataclass
class Place:
    x: float
    y: float


@dataclass
class Head:
    x: int
    y: int


@dataclass
class Snake:
    color: int
    pos: Place


@dataclass
class Cat:
    x: int
    y: int
    mood: Mood


@dataclass
class Empty:
    x: int
    y: int


@dataclass
class Clock:
    step: int


@dataclass
class Explorer:
    steps_left: int
    x: int
    y: int


def styles_of(*classes: type, global_features: type | None = None) -> dict[str, EntityStyle]:
    return entity_styles(Schema(classes, (), global_features))


def head(x: float, y: float) -> SeenEntity:
    return SeenEntity(None, "Head", np.array([x, y]), True)


def rows(text: Text) -> list[str]:
    return [line.rstrip() for line in text.plain.split("\n")]


HEAD = styles_of(Head)


def test_y_grows_upwards() -> None:
    assert rows(Grid(3, 2).draw([head(0, 0), head(2, 1)], HEAD)) == ["· · ●", "● · ·"]


def test_without_a_size_the_board_is_what_was_seen() -> None:
    grid = Grid()
    assert rows(grid.draw([head(2, 5)], HEAD)) == ["●"]
    assert rows(grid.draw([head(4, 5)], HEAD)) == ["· · ●"]
    assert rows(grid.draw([head(3, 5)], HEAD)) == ["· ● ·"]


def test_a_board_grows_when_something_is_beyond_it() -> None:
    assert rows(Grid(2, 2).draw([head(-1, 0), head(1, 2)], HEAD)) == ["· · ●", "· · ·", "● · ·"]


def test_one_size_may_be_known() -> None:
    assert rows(Grid(columns=3).draw([head(1, 4)], HEAD)) == ["· ● ·"]


def test_nothing_was_ever_seen() -> None:
    assert rows(Grid().draw([], HEAD)) == ["nothing visible"]


@pytest.mark.parametrize("far", [1000.0, 0.5])
def test_wide_and_fractional_places_are_scaled(far: float) -> None:
    drawn = rows(Grid().draw([head(0, 0), head(far, far)], HEAD))
    assert 1 < len(drawn) <= MAX_ROWS
    assert 1 < len(drawn[0].split()) <= MAX_COLUMNS
    assert drawn[0].endswith("●")
    assert drawn[-1].startswith("●")


def test_a_place_that_is_not_finite_does_no_harm() -> None:
    assert rows(Grid(2, 1).draw([head(float("nan"), 0), head(1, 0)], HEAD)) == ["● ●"]


def test_the_first_of_several_in_a_cell_is_drawn() -> None:
    both = styles_of(Head, Cat)
    cat = SeenEntity(None, "Cat", np.array([0.0, 0, 1, 0]), True)
    assert rows(Grid(1, 1).draw([cat, head(0, 0)], both)) == ["C"]
    assert rows(Grid(1, 1).draw([head(0, 0), cat], both)) == ["●"]


def test_types_differ_in_glyph_and_color() -> None:
    found = styles_of(Head, Snake, Cat)
    assert [look.glyph for look in found.values()] == ["●", "■", "◆"]
    assert len({look.color for look in found.values()}) == 3


def test_a_color_feature_tints() -> None:
    look = styles_of(Snake)["Snake"]
    styles = {
        str(look.symbol(SeenEntity(None, "Snake", np.array([color, 0.0, 0.0]), True)).style)
        for color in range(3)
    }
    assert len(styles) == 3


def test_nested_coordinates_are_found() -> None:
    look = styles_of(Snake)["Snake"]
    assert look.place(SeenEntity(None, "Snake", np.array([7.0, 1, 2]), True)) == (1, 2)


def test_members_of_an_enum_are_letters() -> None:
    look = styles_of(Cat)["Cat"]
    letters = [
        look.symbol(SeenEntity(None, "Cat", np.array([0.0, 0, *mood]), True)).plain
        for mood in ((1, 0), (0, 1), (0, 0))
    ]
    assert letters == ["C", "R", "●"]


def test_the_first_one_hot_feature_is_found_in_a_part_whose_name_begins_with_is() -> None:
    @dataclass
    class Side:
        weight: float
        is_mood: Mood

    @dataclass
    class Pair:
        x: int
        y: int
        is_left: Side

    @dataclass
    class Scales:
        x: int
        y: int
        pair: Pair
        second: Mood

    look = styles_of(Scales)["Scales"]
    assert look.members == {5: "C", 6: "R"}  # pair.is_left.is_mood alone


def test_an_empty_place_looks_empty() -> None:
    found = styles_of(Empty, Head)
    assert (found["Empty"].glyph, found["Head"].glyph) == ("·", "●")


def test_types_without_a_place_are_not_drawn() -> None:
    found = styles_of(Head, Clock)
    assert (found["Head"].has_place, found["Clock"].has_place) == (True, False)


def test_global_features_may_have_a_place() -> None:
    look = styles_of(Head, global_features=Explorer)[GLOBAL_ENTITY]
    assert (look.label, look.x, look.y) == ("Explorer", 1, 2)


def test_letters_stand_in_where_glyphs_cannot_be_shown() -> None:
    found = entity_styles(Schema((Head, Cat, Snake, Clock), ()), ascii_only=True)
    assert [look.glyph for look in found.values() if look.has_place] == ["H", "C", "S"]
