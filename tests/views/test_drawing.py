"""Looks, applied to observations: boards, styles, cards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Entity, Observation, ObsSpace, SchemaError, UsageError
from entity_env.core.observation import SelectEntityActionMask
from entity_env.views import Board, Look, Scene, SeenObservation, Style
from entity_env.views.describe import EntityRow
from entity_env.views.drawing import Drawing, _Table
from entity_env.views.look import COLOR_WORDS, PALETTE, member_colors
from entity_env.views.scene import Shape, rgba
from entity_env.views.seen import SeenEntity

SPACE = ObsSpace(
    ["x", "y"],
    {
        "Ship": Entity(["pos.x", "pos.y", "angle", "size", "kind.is_A", "kind.is_B", "seat"]),
        "Empty": Entity(["x", "y"]),
        "Card": Entity(["suit", "rank"]),
    },
)


@dataclass
class Ship:
    x: int


def seen(
    ships: object = (),
    empty: object = (),
    cards: object = (),
    at: object = (),
    **more: Any,  # noqa: ANN401
) -> SeenObservation:
    rows: dict[str, Any] = {"Ship": ships, "Empty": empty, "Card": cards}
    features = {name: np.array(row, np.float64) for name, row in rows.items() if len(row)}
    given: Any = at
    observation = Observation(reward=0.0, features=features, global_features=given, **more)
    return SeenObservation(observation, SPACE)


def ship(
    x: float, y: float, angle: float = 0.0, size: float = 1.0, kind: int = 0, seat: int = 0
) -> list[float]:
    return [x, y, angle, size, kind == 0, kind == 1, seat]


def drawn(look: Look, *seens: SeenObservation) -> tuple[Drawing, list[Shape]]:
    drawing = Drawing(look, SPACE)
    for each in seens:
        drawing.include(each)
    return drawing, drawing.draw(seens[-1]).shapes


PLACES = st.lists(
    st.tuples(st.floats(-1e5, 1e5), st.floats(-1e5, 1e5))
    | st.tuples(st.integers(-30, 30), st.integers(-30, 30)),
    min_size=1,
    max_size=6,
)


@given(st.lists(PLACES, min_size=1, max_size=3), st.none() | st.integers(1, 20))
def test_the_board_covers_every_place_of_the_episode(
    episode: list[list[tuple[float, float]]], size: int | None
) -> None:
    board = None if size is None else Board(size, size)
    seens = [seen([ship(x, y) for x, y in places]) for places in episode]
    drawing, _ = drawn(Look(board=board), *seens)
    width, height = drawing.size
    assert 1 <= width <= 66
    assert 1 <= height <= 66
    for places, each in zip(episode, seens, strict=True):
        shapes = drawing.draw(each).shapes
        if max(map(places.count, places)) <= 4:  # of more in one place, some are only counted
            assert sorted(shape.of for shape in shapes) == list(range(len(places)))
        # Entities in one place lie beside each other in its cell.
        slack = 1e-6 if len({*places}) == len(places) else 0.5
        for shape in shapes:
            x, y = shape.center
            assert -slack <= x - 0.5 <= width - 1 + slack
            assert -slack <= y - 0.5 <= height - 1 + slack
    # A larger x is farther right, a larger y is higher.
    everywhere = [(place, drawing.draw(seen([ship(*place)])).shapes[0]) for place in episode[0]]
    for (x, y), shape in everywhere:
        for (other_x, other_y), other in everywhere:
            assert (shape.center[0] - other.center[0]) * (x - other_x) >= 0
            assert (shape.center[1] - other.center[1]) * (y - other_y) <= 0


def test_cells_of_integers_are_units() -> None:
    drawing, [shape] = drawn(Look(board=Board(4, 3)), seen([ship(1, 0)]))
    assert drawing.size == (4.0, 3.0)
    assert shape.center == (1.5, 2.5)
    ground = drawing.ground().shapes
    assert len(ground) == 1 + 6
    assert all(shape.of == -1 for shape in ground)


def test_the_first_type_lies_on_top_and_the_ground_below() -> None:
    _, shapes = drawn(Look(), seen([ship(0, 0), ship(1, 1)], [[0, 0]], at=[1.0, 1.0]))
    assert [shape.of for shape in shapes] == [2, -1, 1, 0]  # global features are also an entity


def test_hidden_entities_are_fainter() -> None:
    visible = {"Ship": np.array([True, False])}
    _, shapes = drawn(Look(), seen([ship(0, 0), ship(1, 1)], visible=visible))
    alphas = {shape.of: rgba(shape.fill)[3] for shape in shapes}
    assert alphas[0] == 255
    assert 0 < alphas[1] < 128


def test_styles_by_features() -> None:
    style = Style("triangle", color="kind", size="size", rotate="angle", label="kind")
    ships = [ship(0, 0, 0.0, 2.0), ship(3, 0, math.pi / 2, 1.0, kind=1)]
    _, shapes = drawn(Look(styles={Ship: style}), seen(ships))
    right, _, up, label = (
        *[s for s in shapes if s.of == 0],
        *[s for s in shapes if s.of == -1][:1],
        *[s for s in shapes if s.of == 1],
        *[s for s in shapes if s.of == -1][:1],
    )
    assert (right.fill, up.fill) == PALETTE[:2]
    assert (right.rotate, up.rotate) == (90.0, 0.0)
    widths = [max(x for x, _ in s.points) - min(x for x, _ in s.points) for s in (right, up)]
    assert widths == pytest.approx([2.0, 1.0])
    assert label.text in "AB"


def test_a_board_for_each_value_of_a_feature() -> None:
    look = Look(board=Board(3, 3), group="seat")
    drawing, shapes = drawn(look, seen([ship(0, 0, seat=0), ship(0, 0, seat=1)], [[2, 2]]))
    assert drawing.size == (7.0, 4.0)
    centers = sorted((shape.of, *shape.center) for shape in shapes)
    assert centers == [(0, 0.5, 3.5), (1, 4.5, 3.5), (2, 2.5, 1.5), (2, 6.5, 1.5)]
    assert {s.text for s in drawing.ground().shapes if s.text} == {"seat 0", "seat 1"}


STACKED = st.lists(st.sampled_from([(0, 0), (2, 1), (1, 1)]), min_size=1, max_size=12)


@given(STACKED)
def test_entities_of_one_cell_lie_next_to_each_other_or_are_counted(
    places: list[tuple[int, int]],
) -> None:
    _, shapes = drawn(Look(board=Board(3, 2)), seen([ship(x, y) for x, y in places]))
    circles = [shape for shape in shapes if shape.kind == "circle"]
    for x, y in {*places}:
        center = (x + 0.5, 1.5 - y)
        here = [
            shape
            for shape in circles
            if max(abs(a - b) for a, b in zip(shape.center, center, strict=True)) < 0.5
        ]
        num = places.count((x, y))
        assert len(here) == (num if num <= 4 else 3)
        counts = [s.text for s in shapes if s.text and math.dist(s.center, center) < 0.7]
        assert counts == ([f"+{num - 3}"] if num > 4 else [])
        for i, one in enumerate(here):
            for a, b in zip(one.center, center, strict=True):
                assert abs(a - b) + one.size[0] <= 0.5
            for other in here[i + 1 :]:
                gap = math.dist(one.center, other.center) - one.size[0] - other.size[0]
                assert gap >= -0.065


def test_what_fills_a_cell_lies_below_and_not_next_to_others() -> None:
    look = Look(styles={"Card": Style("square", size=1.0)}, at=("suit", "rank"))
    space = ObsSpace([], {"Card": Entity(["suit", "rank"]), "Pawn": Entity(["suit", "rank"])})
    observation = Observation(reward=0.0, features={"Card": [[0, 0]], "Pawn": [[0, 0]]})
    drawing, each = Drawing(look, space), SeenObservation(observation, space)
    drawing.include(each)
    assert [shape.center for shape in drawing.draw(each).shapes] == [(0.5, 0.5), (0.5, 0.5)]


def bars_of(shapes: list[Shape]) -> dict[int, float]:
    """Share of each entity's bar that is full."""
    rects = [shape for shape in shapes if shape.kind == "rect"]
    return {
        track.of: next((s.size[0] for s in rects if s.of == track.of and not s.stroke), 0.0)
        / track.size[0]
        for track in rects
        if track.stroke
    }


def test_a_bar_is_full_at_the_largest_value_of_the_episode() -> None:
    look = Look(styles={Ship: Style(bar="size")})
    first = seen([ship(0, 0, size=8.0)])
    last = seen([ship(0, 0, size=4.0), ship(1, 0, size=2.0), ship(2, 0, size=-1.0)])
    _, shapes = drawn(look, first, last)
    assert bars_of(shapes) == {0: 0.5, 1: 0.25, 2: 0.0}
    _, shapes = drawn(Look(styles={Ship: Style(bar="size/seat")}), seen([ship(0, 0, 0, 2, seat=5)]))
    assert bars_of(shapes) == {0: pytest.approx(0.4)}
    _, shapes = drawn(Look(styles={Ship: Style(bar="size/seat")}), seen([ship(0, 0)]))
    assert bars_of(shapes) == {0: 0.0}
    with pytest.raises(SchemaError, match="the style of Ship reads the feature 'hull'"):
        drawn(Look(styles={Ship: Style(bar="size/hull")}), first)


def test_the_legend_names_what_was_drawn() -> None:
    drawing, _ = drawn(Look(flags={"Empty": ["x"]}), seen([ship(0, 0), ship(1, 0, kind=1)]))
    assert [name for name, _ in drawing.legend()] == ["Ship A", "Ship B"]
    drawing, _ = drawn(Look(flags={"Empty": ["x"]}), seen([], [[0, 0], [1, 0]]))
    assert [name for name, _ in drawing.legend()] == ["Empty", "x"]
    for _, shapes in drawing.legend():
        [shape] = shapes
        assert shape.center == (0.5, 0.5)
        assert max(shape.size) <= 1.0
    look = Look(styles={Ship: Style(color="seat")})
    drawing, _ = drawn(look, seen([ship(0, 0, seat=1), ship(1, 0, seat=2)], at=[1.0, 2.0]))
    assert {name for name, _ in drawing.legend()} == {"Ship seat 1", "Ship seat 2", "Global"}
    own = Look(size=(2, 2), draw=lambda seen, scene: None, legend=lambda: {"Sun\n": Scene(1, 1)})
    assert drawn(own, seen())[0].legend() == [("Sun", [])]


def test_other_names_of_coordinates() -> None:
    drawing, shapes = drawn(Look(at=("suit", "rank")), seen(cards=[[0, 0], [2, 1]]))
    assert drawing.size == (3.0, 2.0)
    assert [shape.center for shape in shapes] == [(2.5, 0.5), (0.5, 1.5)]


@given(st.integers(0, 60), st.booleans())
def test_entities_without_a_place_are_rows_of_a_table(num: int, has_board: bool) -> None:
    each = seen([ship(0, 0)] if has_board else [], cards=[[i, 0] for i in range(num)])
    drawing, shapes = drawn(Look(), each)
    table = [shape for shape in shapes if shape.of >= int(has_board)]
    assert len(table) == num
    texts = [shape.text for shape in shapes if shape.kind == "text"]
    assert {str(i) for i in range(num)} <= {*texts}
    assert ("Card" if num == 1 else f"Card x{num}") in texts or not num
    assert ("suit" in texts) == (num > 0)
    require_inside(drawing, shapes)
    boxes = [(s.center, s.size) for s in table]
    assert len({*boxes}) == len(boxes)


def require_inside(drawing: Drawing, shapes: list[Shape]) -> None:
    width, height = drawing.size
    for shape in shapes:
        half = [size / 2 for size in shape.size] if shape.kind == "rect" else [0, 0]
        assert half[0] <= shape.center[0] <= width - half[0] + 1e-9
        assert half[1] <= shape.center[1] <= height - half[1] + 1e-9


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=5),
    st.lists(st.integers(0, 30), min_size=5, max_size=5),
)
def test_tables_of_any_size_do_not_overlap(widths: list[int], counts: list[int]) -> None:
    space = ObsSpace(
        [], {f"T{i}": Entity([f"f{k}" for k in range(width)]) for i, width in enumerate(widths)}
    )
    rows = {
        f"T{i}": np.arange(num * width, dtype=np.float64).reshape(num, width)
        for i, (width, num) in enumerate(zip(widths, counts, strict=False))
        if num
    }
    each = SeenObservation(Observation(reward=0.0, features=rows), space)
    drawing = Drawing(Look(), space)
    drawing.include(each)
    shapes = drawing.draw(each).shapes
    require_inside(drawing, shapes)
    boxes = [(*s.center, *s.size) for s in shapes if s.of >= 0]
    for i, (x, y, width, height) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart = (abs(x - other[0]) - (width + other[2]) / 2, abs(y - other[1]) - height)
            assert max(apart) >= -1e-6
    texts = {s.text for s in shapes}
    assert {f"{value:g}" for each in rows.values() for value in each.flat} <= texts


def test_a_column_has_room_for_capitals() -> None:
    def room_of(name: str) -> float:
        space = ObsSpace([], {"Card": Entity([f"suit.is_{name}", "suit.is_A"])})
        each = SeenObservation(Observation(reward=0.0, features={"Card": [[1, 0]]}), space)
        drawing = Drawing(Look(), space)
        drawing.include(each)
        shapes = drawing.draw(each).shapes
        [cell] = [shape for shape in shapes if shape.text == name]
        [swatch] = [s for s in shapes if s.kind == "rect" and s.of < 0]
        left = swatch.center[0] + swatch.size[0] / 2
        return (cell.center[0] - left) / (len(name) * cell.size[0])

    assert room_of("diamonds") > 0.5
    assert room_of("DIAMONDS") > 0.7


def test_equal_entities_share_a_row() -> None:
    _, shapes = drawn(Look(), seen(cards=[[1, 2], [3, 4], [1, 2]]))
    assert [shape.of for shape in shapes if shape.of >= 0] == [0, 1]
    assert "x2" in {shape.text for shape in shapes}


def test_what_can_be_selected_is_never_left_out() -> None:
    actions = {"Pick": SelectEntityActionMask(actor_ids=[0], actee_ids=[89])}
    cards = [[i, 0] for i in range(89)] + [[70, 0]]  # the last equals another
    _, shapes = drawn(Look(), seen(cards=cards, ids={"Card": list(range(90))}, actions=actions))
    assert {0, 89} <= {shape.of for shape in shapes}
    assert "and 29 more" in {shape.text for shape in shapes}


def test_global_features_are_a_table_with_their_name() -> None:
    _, shapes = drawn(Look(global_name="Wind"), seen([ship(0, 0)], at=[math.nan, 7.0]))
    assert {"Wind", "y", "7"} <= {shape.text for shape in shapes}


def test_members_of_the_first_enum_have_colors_that_other_types_lack() -> None:
    ships = [ship(0, 0), ship(1, 0, kind=1)]
    _, shapes = drawn(Look(), seen(ships, cards=[[0, 0]]))
    fills = {shape.of: shape.fill for shape in shapes if shape.kind == "circle"}
    assert len({*fills.values()}) == 2
    swatch = [shape.fill for shape in shapes if shape.kind == "rect" and shape.of < 0]
    assert not {*swatch} & {*fills.values()}


def test_members_named_as_colors_have_them() -> None:
    words = ["red", "blue", "green", "grey", "unknown"]
    kinds = {"Ball": [f"color.is_{word.upper()}" for word in words]}
    *known, other = member_colors(kinds, {1}, COLOR_WORDS)["Ball"]
    light = [PALETTE[i].split()[0] for i in known]
    assert light == ["#d55e00", "#0072b2", "#009e73", "#555555"]
    assert other not in known


def test_members_of_more_colors_than_there_are_still_have_one() -> None:
    kinds = {"Ball": [f"color.is_{word}" for word in [*COLOR_WORDS, "other", "another"]]}
    assert len(member_colors(kinds, {1}, COLOR_WORDS)["Ball"]) == 10


def test_capitals_have_room_in_their_column() -> None:
    def width(text: str) -> float:
        table = _Table("Dice")
        table.include([EntityRow(SeenEntity(None, "Dice", np.zeros(1)), {"is": text})])
        return table.columns["is"]

    assert width("three") == 5
    assert width("THREE") == pytest.approx(5 * 1.35)


def test_a_style_chooses_the_color_of_all_members() -> None:
    _, shapes = drawn(Look(styles={Ship: Style()}), seen([ship(0, 0), ship(1, 0, kind=1)]))
    assert len({shape.fill for shape in shapes}) == 1


def test_a_flag_that_is_set_is_a_ring() -> None:
    look = Look(flags={"Ship": ["of_another_version", "seat"]})
    _, shapes = drawn(look, seen([ship(0, 0), ship(1, 0, seat=1)]))
    [ring] = [shape for shape in shapes if not shape.fill]
    [held] = [shape for shape in shapes if shape.of == 1]
    assert ring.center == held.center
    assert ring.stroke


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_has_no_finite_place_is_a_card(wrong: float) -> None:
    _, shapes = drawn(Look(), seen([ship(0, 0), ship(wrong, 0)]))
    assert {shape.of for shape in shapes} == {0, 1, -1}


def test_a_look_of_its_own() -> None:
    def draw(seen: SeenObservation, scene: Scene) -> None:
        scene.circle(scene.width, seen.entities[0]["pos.x"], 1, "#fff")  # type: ignore[arg-type]  # a float

    look = Look(draw=draw, ground=lambda scene: scene.rect(0, 0, 1, 1), size=lambda _: (9, 2))
    drawing, [shape] = drawn(look, seen([ship(1, 0)]))
    assert drawing.size == (9.0, 2.0)
    assert shape.center == (9.0, 1.0)
    assert len(drawing.ground().shapes) == 1
    with pytest.raises(UsageError, match="look look: size: expected a width and a height"):
        drawn(Look(draw=draw, size=lambda _: (0, 2)), seen([ship(1, 0)]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Style(shape="star"), "shape must be one of circle, square"),  # type: ignore[arg-type]  # wrong
        (lambda: Style(color="#12"), "color must be #rrggbb or the name"),
        (lambda: Style(size=0), "size must be above 0"),
        (lambda: Style(image="wall.png"), "image must be as data_uri"),
        (lambda: Board(0, 3), "columns must be 1 or more, or None: got 0"),
        (lambda: Look(size=(1, math.nan)), "size must be a width and a height above 0"),
        (lambda: Look(size=3), "size must be a width and a height above 0"),  # type: ignore[arg-type]  # wrong
        (lambda: Drawing(Look(styles={"Shop": Style()}), SPACE), "a style for 'Shop'; the types"),
        (
            lambda: Drawing(Look(styles={"Ship": Style(color="hue")}), SPACE),
            "the style of Ship reads the feature 'hue'; its features are pos.x.*; a color is #",
        ),
        (lambda: Look(styles={"Ship": "red"}), "styles must be a dict of Style"),  # type: ignore[dict-item]  # wrong
        (lambda: Look(styles=[Style()]), "styles must be a dict of Style"),  # type: ignore[arg-type]  # wrong
        (
            lambda: Look(board=(20, 12)),  # type: ignore[arg-type]  # wrong
            r"board must be a Board\(columns, rows\), or None, got \(20, 12\)",
        ),
        (lambda: Look(at="x"), "at must be the names of two features, got 'x'"),  # type: ignore[arg-type]  # wrong
        (lambda: Look(draw=5), "draw must be a function, or None, got 5"),  # type: ignore[arg-type]  # wrong
        (lambda: Drawing(Look(at=("a", "b")), SPACE), "no entity has the feature 'a' of at"),
        (lambda: Drawing(Look(group="team"), SPACE), "no entity has the feature 'team' of group"),
    ],
)
def test_mistakes_of_looks(make: Any, message: str) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=message):
        make()


def test_the_work_of_a_picture_grows_with_its_types_and_no_faster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sizes: list[int] = []
    measure = _Table.size

    def counted(table: _Table, most: float) -> tuple[float, float]:
        sizes.append(1)
        return measure(table, most)

    monkeypatch.setattr(_Table, "size", counted)
    counts = []
    for num_types in (10, 100):
        space = ObsSpace((), {f"T{i}": Entity(["hp"]) for i in range(num_types)})
        features = {name: np.zeros((1, 1)) for name in space.entities}
        one = SeenObservation(Observation(reward=0.0, features=features), space)
        drawing = Drawing(Look(), space)
        sizes.clear()
        for _ in range(3):
            drawing.include(one)
        for _ in range(3):
            assert len(drawing.draw(one).shapes) >= 4 * num_types
        counts.append(len(sizes))
    assert counts[1] <= 10 * counts[0]


def test_a_drawing_that_grows_after_a_picture_has_room_for_both() -> None:
    whole, grown = Drawing(Look(), SPACE), Drawing(Look(), SPACE)
    few, many = (
        seen(ships=[ship(i, i) for i in range(count)], cards=[[i, 1] for i in range(count)])
        for count in (1, 5)
    )
    for drawing in (whole, grown):
        drawing.include(few)
    assert grown.draw(few).shapes
    small = grown.size
    for drawing in (whole, grown):
        drawing.include(many)
    assert grown.size == whole.size > small
    assert grown.draw(few).shapes == whole.draw(few).shapes
    assert grown.ground().shapes == whole.ground().shapes


def test_legends_name_the_agents() -> None:
    samples = {"knight, agent 1": Scene(1, 1), "agent 10": Scene(1, 1), "agents": Scene(1, 1)}
    drawing = Drawing(Look(legend=lambda: samples), SPACE, ["you", "bob"])
    assert [name for name, _ in drawing.legend()] == ["knight, bob", "agent 10", "agents"]
