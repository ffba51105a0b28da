"""Entities as text: styles, boards that are scrolled or scaled, legends, bars of probabilities."""

import re
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.text import Text

from entity_env import Entity, Observation, ObsSpace, Schema, Turn
from entity_env.authoring.local_run import Thoughts
from entity_env.core.observation import (
    Action,
    ActionMask,
    CategoricalActionMask,
    GlobalCategoricalAction,
    GlobalCategoricalActionMask,
    SelectEntityAction,
    SelectEntityActionMask,
)
from entity_env.core.spaces import (
    GLOBAL_ENTITY,
    ActionSpace,
    CategoricalActionSpace,
    GlobalCategoricalActionSpace,
    SelectEntityActionSpace,
)
from entity_env.views import Look, SeenEntity, Style
from entity_env.views.look import StyleShape
from entity_env.views.text import (
    MAX_COLUMNS,
    MAX_ROWS,
    EntityStyle,
    Grid,
    entity_styles,
    legend,
    listed,
    thoughts_of,
)


class Temper(Enum):
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
    mood: Temper


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
    schema = Schema(classes, (), global_features)
    label = schema.globals.name if schema.globals is not None else ""
    return entity_styles(schema.obs_space(), label=label)


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
    assert (far < 1) or drawn.pop() == "1001 x 1001, scaled"
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
        is_mood: Temper

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
        second: Temper

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
    found = entity_styles(Schema((Head, Cat, Snake, Clock), ()).obs_space(), ascii_only=True)
    assert [look.glyph for look in found.values() if look.has_place] == ["H", "C", "S"]


# --------------------------------------------------------------------------- looks


PLACED = ObsSpace((), {"Ship": Entity(("row", "column", "angle", "color", "rank"))})


def ship(row: float, column: float, color: float = 0, rank: float = 0) -> SeenEntity:
    return SeenEntity(None, "Ship", np.array([row, column, 0, color, rank]), True)


def test_a_look_names_coordinates_glyph_and_colour() -> None:
    look = Look(at=("column", "row"), styles={"Ship": Style(glyph="@", color="#ff0000")})
    style = entity_styles(PLACED, look)["Ship"]
    assert style.place(ship(1, 2)) == (2, 1)
    assert (style.symbol(ship(0, 0)).plain, style.symbol(ship(0, 0)).style) == ("@", "bold #ff0000")
    assert not entity_styles(PLACED)["Ship"].has_place


def test_a_look_names_the_feature_that_colours_and_the_one_that_is_written() -> None:
    look = Look(styles={"Ship": Style(color="rank", label="color")}, at=("column", "row"))
    style = entity_styles(PLACED, look)["Ship"]
    symbols = [style.symbol(ship(0, 0, color=7, rank=rank)) for rank in range(3)]
    assert {symbol.plain for symbol in symbols} == {"7"}
    assert len({str(symbol.style) for symbol in symbols}) == 3
    assert style.symbol(ship(0, 0, color=12)).plain == "●"


def test_a_member_of_an_enum_colours() -> None:
    space = ObsSpace((), {"Cat": Entity(("x", "y", "mood.is_CALM", "mood.is_CROSS"))})
    style = entity_styles(space, Look(styles={"Cat": Style(color="mood", glyph="c")}))["Cat"]
    cats = [SeenEntity(None, "Cat", np.array([0.0, 0, *mood])) for mood in ((1, 0), (0, 1))]
    assert len({str(style.symbol(cat).style) for cat in cats}) == 2


def test_shapes_differ_and_ground_is_empty() -> None:
    names: tuple[StyleShape, ...] = ("square", "diamond", "triangle", "ground")
    space = ObsSpace((), {name: Entity(("x", "y")) for name in names})
    found = entity_styles(space, Look(styles={name: Style(shape=name) for name in names}))
    assert [style.glyph for style in found.values()] == ["■", "◆", "▲", "·"]


# --------------------------------------------------------------------------- large boards


def cells(text: Text) -> list[list[str]]:
    return [line.split(" ") for line in text.plain.split("\n")]


def test_a_large_board_is_scrolled_to_what_acts() -> None:
    grid, actor = Grid(60, 60), head(30, 40)
    drawn = cells(grid.draw([actor, head(30, 41), head(0, 0)], HEAD, (11, 9), [actor]))
    assert drawn.pop() == ["x", "25..35", "y", "36..44"]
    assert [len(line) for line in drawn] == [11] * 9
    assert drawn[4][5] == "●"
    assert drawn[3][5] == "●"
    assert sum(line.count("●") for line in drawn) == 2


@given(
    x=st.integers(0, 59), y=st.integers(0, 59), columns=st.integers(1, 70), rows=st.integers(1, 70)
)
def test_what_acts_is_always_on_the_board(x: int, y: int, columns: int, rows: int) -> None:
    actor = head(x, y)
    drawn = Grid(60, 60).draw([actor], HEAD, (columns, rows), [actor]).plain
    board = [line for line in drawn.split("\n") if not line.startswith("x ")]
    assert drawn.count("●") == 1
    assert len(board) == min(rows, 60)
    assert all(len(line) == 2 * min(columns, 60) - 1 for line in board)
    if found := re.search(r"x (\d+)\.\.(\d+) y (\d+)\.\.(\d+)", drawn):
        left, right, low, high = map(int, found.groups())
        assert left <= x <= right
        assert low <= y <= high
        [row] = [i for i, line in enumerate(board) if "●" in line]
        assert (board[row].index("●") // 2 + left, high - row) == (x, y)
    else:
        assert min(columns, rows) >= 60


def test_a_large_board_on_which_nothing_acts_is_scaled() -> None:
    drawn = cells(Grid(60, 60).draw([head(0, 0), head(59, 59)], HEAD, (11, 9)))
    assert drawn.pop() == ["60", "x", "60,", "scaled"]
    assert drawn[0][-1] == drawn[-1][0] == "●"


# --------------------------------------------------------------------------- beside the board


def test_a_legend_counts_what_has_a_place() -> None:
    styles = styles_of(Head, Cat, Clock)
    cat = SeenEntity(None, "Cat", np.array([0.0, 0, 1, 0]))
    lines = [line.plain for line in legend([head(0, 0), head(1, 0), cat], styles)]
    assert lines == ["● Head ×2", "C R Cat ×1"]
    assert next(legend([], styles, ascii_only=True)).plain == "● Head x0"


def test_types_with_the_same_letters_differ_in_the_colour_of_the_legend() -> None:
    styles = styles_of(Head, Cat)
    [_, cat] = legend([], styles)
    assert [str(span.style) for span in cat.spans][:1] == [f"bold {styles['Cat'].color}"]


def test_what_is_hidden_is_dim() -> None:
    [style] = styles_of(Cat).values()
    features = np.array([0.0, 0, 1, 0])
    seen, hidden = (style.symbol(SeenEntity(None, "Cat", features, is_)) for is_ in (True, False))
    assert (seen.plain, seen.style) == (hidden.plain, f"bold {style.color}")
    assert hidden.style == f"dim {style.color}"


def test_what_has_no_place_is_listed_and_the_rest_counted() -> None:
    styles = styles_of(Head, Clock, global_features=Explorer)
    space = Schema((Head, Clock), (), Explorer).obs_space()
    clocks = [SeenEntity(i, "Clock", np.array([float(i)]), i > 0) for i in range(25)]
    everything = SeenEntity(None, GLOBAL_ENTITY, np.array([7.0, 1, 2]))
    lines = [line.plain for line in listed([everything, head(0, 0), *clocks], styles, space)]
    assert lines[:3] == ["Explorer steps_left=7 x=1 y=2", "Clock step=0  (hidden)", "Clock step=1"]
    assert lines[-1] == "and 6 more"


# --------------------------------------------------------------------------- thoughts


SPACE = ObsSpace((), {"Cat": Entity(("x", "y"))})
ACTIONS: dict[str, ActionSpace] = {
    "Go": GlobalCategoricalActionSpace(("UP", "DOWN")),
    "Say": CategoricalActionSpace(("YES", "NO")),
    "Eat": SelectEntityActionSpace(),
}


def thinking(probabilities: dict[str, list[list[float]]], value: float | None) -> Turn:
    masks: dict[str, ActionMask] = {
        "Go": GlobalCategoricalActionMask(),
        "Say": CategoricalActionMask(None, None, None),
        "Eat": SelectEntityActionMask(),
    }
    observation = Observation(
        reward=0,
        terminated=False,
        features={"Cat": np.arange(6.0).reshape(3, 2)},
        ids={"Cat": ["a", "b", "c"]},
        actions={name: masks[name] for name in probabilities},
    )
    thoughts = Thoughts({name: np.array(rows) for name, rows in probabilities.items()}, value)
    chosen: dict[str, Action] = {
        "Go": GlobalCategoricalAction(1, "DOWN"),
        "Eat": SelectEntityAction(["a", "b", "c"], ["c", "a", "b"]),
    }
    actions = {name: action for name, action in chosen.items() if name in probabilities}
    return Turn(0, 0, 0.0, observation, actions, thoughts=thoughts)


def test_bars_show_the_most_probable_choices_first() -> None:
    turn = thinking({"Go": [[0.2, 0.8]]}, value=1.25)
    value, down, up = thoughts_of(turn, SPACE, ACTIONS)
    assert value.plain == "value 1.25"
    assert down.plain == " 80% ████████   DOWN"
    assert up.plain == " 20% ██         UP"
    assert down.style == "bold cyan"
    assert up.style == ""


def test_only_the_first_actors_are_shown() -> None:
    lines = [
        line.plain for line in thoughts_of(thinking({"Say": [[1, 0]] * 3}, None), SPACE, ACTIONS)
    ]
    assert lines == [
        *("Say 1 of 3", "100% ██████████ YES", "  0%            NO"),
        *("Say 2 of 3", "100% ██████████ YES", "  0%            NO"),
    ]


def test_selected_entities_have_the_words_of_the_look() -> None:
    turn = thinking({"Eat": [[0.1, 0.2, 0.7]] * 3}, None)
    lines = [line.plain for line in thoughts_of(turn, SPACE, ACTIONS, ascii_only=True)]
    assert lines[1] == " 70% #######    Cat x=4 y=5"
    look = Look(describe=lambda entity: f"cat {entity['x']:g}")
    lines = [line.plain for line in thoughts_of(turn, SPACE, ACTIONS, look)]
    assert lines[1] == " 70% ███████    cat 4"


def test_without_thoughts_there_are_no_bars() -> None:
    turn = Turn(0, 0, 0.0, Observation(reward=0, terminated=False, features={}))
    assert list(thoughts_of(turn, SPACE, ACTIONS)) == []
