"""Entities as text: styles, boards that are scrolled or scaled, legends, bars of probabilities."""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.text import Text

from entity_env import Entity, Observation, ObsSpace, Schema, Turn
from entity_env.authoring.local_run import PastStep, Thoughts
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
from entity_env.views.seen import seen_entities
from entity_env.views.text import (
    MAX_COLUMNS,
    MAX_ROWS,
    Grid,
    legend,
    listed,
    thoughts_of,
)
from entity_env.views.text_style import EntityStyle, entity_styles


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
    name = schema.globals.name if schema.globals is not None else "Global"
    return entity_styles(schema.obs_space(), Look(global_name=name))


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
    assert look.members == {5: "C", 6: "R"}  # only pair.is_left.is_mood


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


NAMES = st.lists(
    st.from_regex(r"[A-Z][A-Z_0-9]{0,5}", fullmatch=True), min_size=1, max_size=6, unique=True
)


@given(st.lists(NAMES, min_size=1, max_size=8), st.booleans())
def test_no_two_types_or_members_share_a_glyph(enums: list[list[str]], ascii_only: bool) -> None:
    types = {
        f"Type{i}": Entity(["x", "y", *(f"kind.is_{name}" for name in names)])
        for i, names in enumerate(enums)
    }
    space = ObsSpace((), types)
    styles = entity_styles(space, ascii_only=ascii_only)
    glyphs = [style.glyph for style in styles.values()]
    letters = [letter for style in styles.values() for letter in style.members.values()]
    assert len({*glyphs, *letters}) == len(glyphs) + len(letters)
    assert all(len(glyph) == 1 for glyph in [*glyphs, *letters])
    assert not ascii_only or "".join([*glyphs, *letters]).isascii()
    assert entity_styles(space, ascii_only=ascii_only) == styles


def test_the_same_member_of_a_second_type_has_its_letter_in_lower_case() -> None:
    names = ("x", "y", "kind.is_KNIGHT", "kind.is_ARCHER")
    foes = ("x", "y", "kind.is_ARCHER", "kind.is_KING")
    styles = entity_styles(ObsSpace((), {"Unit": Entity(names), "Foe": Entity(foes)}))
    assert list(styles["Unit"].members.values()) == ["K", "A"]
    assert list(styles["Foe"].members.values()) == ["a", "I"]


def test_a_hole_is_hollow() -> None:
    space = ObsSpace((), {"Peg": Entity(("x", "y")), "Hole": Entity(("x", "y"))})
    assert [style.glyph for style in entity_styles(space).values()] == ["●", "○"]


def test_members_have_colors_that_no_other_type_has() -> None:
    names = ("x", "y", *(f"kind.is_{kind}" for kind in "ABC"))
    space = ObsSpace((), {"Wall": Entity(("x", "y")), "Enemy": Entity(names)})
    styles = entity_styles(space)
    rows = [[0.0, 0, *row] for row in np.eye(3)]
    colors = {
        str(styles["Enemy"].symbol(SeenEntity(None, "Enemy", np.array(row))).style) for row in rows
    }
    wall = SeenEntity(None, "Wall", np.zeros(2))
    assert len({*colors, str(styles["Wall"].symbol(wall).style)}) == 4


def test_an_enum_of_several_types_has_the_same_colors() -> None:
    names = ("x", "y", "side.is_RED", "side.is_BLUE")
    styles = entity_styles(ObsSpace((), {"Ship": Entity(names), "Base": Entity(names)}))
    assert styles["Ship"].colors == styles["Base"].colors


@pytest.mark.parametrize("field", ["side", "color"])
def test_a_member_named_as_a_color_has_it(field: str) -> None:
    members = ("RED", "NEUTRAL", "Blue", "GOLD")
    names = ("x", "y", *(f"{field}.is_{member}" for member in members))
    styles = entity_styles(ObsSpace((), {"Ship": Entity(names)}))
    red, neutral, blue, gold = styles["Ship"].colors
    assert (red, blue, gold) == ("bright_red", "bright_blue", "bright_yellow")
    assert neutral not in (red, blue, gold)


# --------------------------------------------------------------------------- boards from settings


@given(st.lists(st.tuples(st.floats(0, 23.9), st.floats(0, 8.9)), min_size=1, max_size=5))
def test_a_board_of_known_size_has_its_cells_wherever_things_are(
    places: list[tuple[float, float]],
) -> None:
    drawn = rows(Grid(24, 9).draw([head(x, y) for x, y in [*places, (5, 2)]], HEAD))
    assert len(drawn) == 9
    assert {len(line) for line in drawn} == {47}
    assert drawn[8 - 2][2 * 5] == "●"


def test_fractional_places_are_in_the_nearest_cell() -> None:
    drawn = rows(Grid(4, 2).draw([head(0.4, 0.2), head(1.6, 0), head(3.9, 1.9)], HEAD))
    assert drawn == ["· · · ●", "● · ● ·"]


# --------------------------------------------------------------------------- marks


@dataclass
class Peg:
    x: int
    y: int
    held: bool


PEG = entity_styles(Schema((Peg,), ()).obs_space(), Look(flags={"Peg": ["held"]}))


def peg(x: int, *, held: bool = False, index: int = -1) -> SeenEntity:
    return SeenEntity(index, "Peg", np.array([x, 0.0, held]), index=index)


def test_a_flag_marks_an_entity_and_the_column_keeps_its_room() -> None:
    grid = Grid(3, 1)
    assert grid.draw([peg(0), peg(1, held=True)], PEG).plain == "● ●*·"
    assert grid.draw([peg(2, held=True)], PEG).plain == "· · ●*"
    assert grid.draw([peg(2)], PEG).plain == "· · ● "
    assert [line.plain for line in legend([], PEG)] == ["● Peg ×0  * held"]


def test_keys_of_what_can_be_selected_are_on_the_board() -> None:
    pegs = [peg(i, held=True, index=i) for i in range(3)]
    drawn = Grid(3, 1).draw(pegs, PEG, acting=pegs[:1], keys={1: "a", 2: "b"}, focus=2)
    assert drawn.plain == "●<●a●b"
    assert [str(span.style) for span in drawn.spans if "reverse" in str(span.style)] == [
        "bold reverse"
    ]


def test_without_a_focus_nothing_is_reversed() -> None:
    drawn = Grid(2, 1).draw([peg(0)], PEG, keys={})  # with the index of global features
    assert not any("reverse" in str(span.style) for span in drawn.spans)


def test_a_large_board_is_scrolled_to_the_focus() -> None:
    pegs = [peg(i, index=i) for i in (0, 50)]
    drawn = Grid(60, 1).draw(pegs, PEG, (9, 1), pegs[:1], {50: "a"}, 50).plain
    assert "●a" in drawn


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


# --------------------------------------------------------------------------- next to the board


def test_a_legend_counts_what_has_a_place() -> None:
    styles = styles_of(Head, Cat, Clock)
    cat = SeenEntity(None, "Cat", np.array([0.0, 0, 1, 0]))
    lines = [line.plain for line in legend([head(0, 0), head(1, 0), cat], styles)]
    assert lines == ["● Head ×2", "Cat ×1  C CALM  R CROSS"]
    assert next(legend([], styles, ascii_only=True)).plain == "● Head x0"


def test_the_legend_shows_the_colors_of_the_members() -> None:
    styles = styles_of(Head, Cat)
    cats = [SeenEntity(None, "Cat", np.array([0.0, 0, *mood])) for mood in ((1, 0), (0, 1))]
    colors = [str(styles["Cat"].symbol(cat).style) for cat in cats]
    [head_line, cat_line] = legend([], styles)
    assert [str(span.style) for span in cat_line.spans if span.style != "dim"] == colors
    assert len({*colors, str(head_line.spans[0].style)}) == 3


def test_what_is_hidden_is_dim() -> None:
    [style] = styles_of(Cat).values()
    features = np.array([0.0, 0, 1, 0])
    seen, hidden = (style.symbol(SeenEntity(None, "Cat", features, is_)) for is_ in (True, False))
    assert (seen.plain, seen.style) == (hidden.plain, f"bold {style.color}")
    assert hidden.style == f"dim {style.color}"


def clock(step: float, *, is_visible: bool = True) -> SeenEntity:
    return SeenEntity(None, "Clock", np.array([step]), is_visible, ["step"])


def test_what_has_no_place_is_a_table_and_a_line_if_it_is_alone() -> None:
    styles = styles_of(Head, Clock, global_features=Explorer)
    names = ["steps_left", "x", "y"]
    everything = SeenEntity(None, GLOBAL_ENTITY, np.array([7.0, 1, 2]), True, names)
    one = [everything, head(0, 0), clock(3)]
    assert [line.plain for line in listed(one, styles)] == [
        "Explorer steps_left=7 x=1 y=2",
        "Clock step=3",
    ]
    many = [clock(0, is_visible=False), clock(1), clock(12), clock(1)]
    assert [line.plain for line in listed(many, styles)] == [
        "Clock ×4",
        "step",
        "   0  (hidden)",
        "   1  ×2",
        "  12",
    ]


@given(steps=st.lists(st.integers(0, 99), max_size=60), width=st.integers(20, 120))
def test_no_row_is_left_out_and_rows_fit(steps: list[int], width: int) -> None:
    lines = [line.plain for line in listed([*map(clock, steps)], styles_of(Clock), width)]
    text = re.sub("Clock ×[0-9]+|step=?|Clock", "", "\n".join(lines))
    found = re.findall(r"([0-9]+)(?:  ×([0-9]+))?", text)
    assert sorted((int(step), int(count or 1)) for step, count in found) == sorted(
        Counter(steps).items()
    )
    assert all(len(line) <= width for line in lines)


def test_a_table_that_is_too_wide_is_a_line_for_each_entity() -> None:
    names = [f"feature_{i}" for i in range(9)]
    space = ObsSpace((), {"Card": Entity(names)})
    cards = [SeenEntity(i, "Card", np.full(9, float(i)), True, names) for i in range(2)]
    lines = [line.plain for line in listed(cards, entity_styles(space), 60)]
    assert [line.split()[:2] for line in lines] == [
        ["Card", "feature_0=0"],
        ["Card", "feature_0=1"],
    ]


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


def past_of(changes: list[float], ascii_only: bool) -> list[str]:
    past = [PastStep(i, i, change) for i, change in enumerate(changes)]
    turn = replace(thinking({}, None), thoughts=Thoughts({}, past=past))
    return [text.plain for text in thoughts_of(turn, SPACE, ACTIONS, ascii_only=ascii_only)]


def test_the_most_important_earlier_steps_are_named() -> None:
    assert past_of([0.1, 0.8, 0.0, 0.004, 0.4], ascii_only=False) == [
        "past ▂█▁▁▅",
        " 80% ████████   moves without step 1",
        " 40% ████       moves without step 4",
    ]
    assert past_of([0.1, 0.8], ascii_only=True) == [
        "past .#",
        " 80% ########   moves without step 1",
        " 10% #          moves without step 0",
    ]
    assert past_of([0.002, 0.0], ascii_only=False) == ["past ▁▁ no step matters"]


@given(st.lists(st.floats(0, 1), max_size=65), st.booleans())
def test_the_line_of_the_past_fits_beside_a_board(changes: list[float], ascii_only: bool) -> None:
    lines = past_of(changes, ascii_only)
    assert bool(lines) == bool(changes)
    for line in lines:
        assert len(line) <= 52
    if max(changes, default=0.0) >= 0.05:
        assert ("#" if ascii_only else "█") in lines[0]


def test_steps_before_those_that_are_kept_are_named_together() -> None:
    past = [PastStep(0, 9, 0.5), PastStep(10, 10, 0.1)]
    turn = replace(thinking({}, None), thoughts=Thoughts({}, past=past))
    assert [text.plain for text in thoughts_of(turn, SPACE, ACTIONS)] == [
        "past █▂",
        " 50% █████      moves without steps 0 to 9",
        " 10% █          moves without step 10",
    ]


def test_without_thoughts_there_are_no_bars() -> None:
    turn = Turn(0, 0, 0.0, Observation(reward=0, terminated=False, features={}))
    assert list(thoughts_of(turn, SPACE, ACTIONS)) == []


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (40, ["Mine ×2   Theirs ×2", "card      seat", "   3         1", "   5         2"]),
        (12, ["Mine ×2", "card", "   3", "   5", "Theirs ×2", "seat", "   1", "   2"]),
    ],
)
def test_tables_stand_side_by_side_where_they_fit(width: int, expected: list[str]) -> None:
    space = ObsSpace(entities={"Mine": Entity(["card"]), "Theirs": Entity(["seat"])})
    rows = [("Mine", "card", 3), ("Mine", "card", 5), ("Theirs", "seat", 1), ("Theirs", "seat", 2)]
    shown = [
        SeenEntity(i, name, np.array([value]), True, (feature,), i)
        for i, (name, feature, value) in enumerate(rows)
    ]
    assert [line.plain for line in listed(shown, entity_styles(space), width)] == expected


def test_the_legend_looks_once_at_each_entity() -> None:
    space = ObsSpace((), {f"T{i}": Entity(["x", "y"]) for i in range(50)})
    features = {name: np.zeros((2, 2)) for name in space.entities}
    entities = list(seen_entities(Observation(reward=0.0, features=features), space))
    looks = []

    class Watched(list[SeenEntity]):
        def __iter__(self) -> Iterator[SeenEntity]:
            looks.append(1)
            return super().__iter__()

    lines = [line.plain for line in legend(Watched(entities), entity_styles(space))]
    assert len(lines) == 50
    assert all("×2" in line for line in lines)
    assert len(looks) == 1
