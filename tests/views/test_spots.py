"""Where the choices of agents point, and their marks."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Entity, Observation, ObsSpace, SchemaError, UsageError
from entity_env.views import Board, Look, Scene, SeenObservation, Spot
from entity_env.views.drawing import Drawing
from entity_env.views.parts.spots import Pointer, box_at, draw_mark

SPACE = ObsSpace(
    [],
    {
        "Empty": Entity(["x", "y"]),
        "Foe": Entity(["x", "y"]),
        "Hero": Entity(["x", "y", "side"]),
        "Card": Entity(["suit"]),
    },
)


def pointer_of(look: Look, **rows: Any) -> Pointer:  # noqa: ANN401
    features = {name: np.array(each, np.float64) for name, each in rows.items()}
    seen = SeenObservation(Observation(reward=0.0, features=features), SPACE)
    drawing = Drawing(look, SPACE)
    drawing.include(seen)
    return Pointer(drawing, seen, drawing.draw(seen).shapes)


def points(path: tuple[Spot, ...]) -> list[tuple[float, float]]:
    return [(spot.x, spot.y) for spot in path]


BOARD = Look(board=Board(4, 3))


@pytest.mark.parametrize(
    ("label", "step"),
    [
        *(("UP", (0, -1)), ("down", (0, 1)), ("Left", (-1, 0)), ("RIGHT", (1, 0))),
        *(("North", (0, -1)), ("S", (0, 1)), ("w", (-1, 0)), ("east", (1, 0))),
        *(("NE", (1, -1)), ("UP_LEFT", (-1, -1)), ("down-right", (1, 1)), ("SouthWest", (-1, 1))),
        *(("MOVE_UP", (0, -1)), ("go left", (-1, 0)), ("STAY", (0, 0)), ("NO_OP", (0, 0))),
    ],
)
def test_a_choice_named_like_a_direction_points_there(label: str, step: tuple[int, int]) -> None:
    pointer = pointer_of(BOARD, Hero=[[1, 1, 0]])
    expected = [(1.5, 1.5), (1.5 + step[0], 1.5 + step[1])]
    assert points(pointer.path("Move", None, label)) == expected
    [hero] = pointer.seen.entities
    assert points(pointer.path("Move", hero, label)) == expected


@pytest.mark.parametrize("label", ["FORWARD", "TURN_LEFT", "fire", "", "up=1,down=2"])
def test_other_choices_point_nowhere(label: str) -> None:
    assert pointer_of(BOARD, Hero=[[1, 1, 0]]).path("Move", None, label) == ()


def test_a_global_choice_is_of_the_first_type_on_the_board_if_it_has_one_entity() -> None:
    many = [[0, 0], [3, 2]]
    path = pointer_of(BOARD, Empty=many, Hero=[[1, 1, 0]]).path("Move", None, "UP")
    assert points(path) == [(1.5, 1.5), (1.5, 0.5)]
    path = pointer_of(BOARD, Foe=[[2, 0]], Hero=[[1, 1, 0]]).path("Move", None, "UP")
    assert points(path)[0] == (2.5, 2.5)
    for more in ({"Hero": [[1, 1, 0]]}, {"Card": [[1]]}):
        assert pointer_of(BOARD, Foe=many, **more).path("Move", None, "UP") == ()


@pytest.mark.parametrize("hero", ["Hero", "Hero.side"])
def test_a_look_names_what_a_global_choice_moves(hero: str) -> None:
    look, foes = Look(board=Board(4, 3), hero=hero), [[0, 0], [3, 2]]
    rows = [[1, 1, 1]] if hero == "Hero" else [[2, 2, 0], [1, 1, 1]]
    path = pointer_of(look, Foe=foes, Hero=rows).path("Move", None, "UP")
    assert points(path) == [(1.5, 1.5), (1.5, 0.5)]
    assert pointer_of(look, Foe=[[1, 1]], Hero=rows * 2).path("Move", None, "UP") == ()


@pytest.mark.parametrize("hero", ["Dragon", "Hero.wings", ".side"])
def test_an_unknown_hero_is_refused(hero: str) -> None:
    with pytest.raises(SchemaError, match="hero must be the name of a type"):
        pointer_of(Look(hero=hero), Hero=[[1, 1, 0]])


def test_moves_of_the_look_come_first() -> None:
    look = Look(board=Board(4, 3), moves={"Move": {"JUMP": (2, 0), "UP": (0, -1)}})
    pointer = pointer_of(look, Hero=[[1, 1, 0]])
    assert points(pointer.path("Move", None, "JUMP")) == [(1.5, 1.5), (3.5, 1.5)]
    assert points(pointer.path("Move", None, "UP")) == [(1.5, 1.5), (1.5, 2.5)]
    assert points(pointer.path("Turn", None, "UP")) == [(1.5, 1.5), (1.5, 0.5)]


def test_a_selected_entity_is_where_it_is_drawn() -> None:
    pointer = pointer_of(BOARD, Foe=[[0, 0], [3, 2]], Hero=[[1, 1, 0]], Card=[[1]])
    foe, other, hero, card = pointer.seen.entities
    assert points(pointer.path("Pick", None, foe)) == [(0.5, 2.5)]
    assert points(pointer.path("Pick", hero, other)) == [(1.5, 1.5), (3.5, 0.5)]
    [row] = points(pointer.path("Pick", None, card))
    assert row[1] > 3
    assert len(points(pointer.path("Pick", card, foe))) == 2
    # Some are only counted.
    pointer = pointer_of(BOARD, Foe=[[0, 0]] * 6, Hero=[[1, 1, 0]])
    *_, last, hero = pointer.seen.entities
    assert pointer.path("Pick", hero, last) == ()


def test_several_boards_and_scaled_places() -> None:
    look = Look(board=Board(2, 2), group="side")
    pointer = pointer_of(look, Hero=[[0, 0, 0], [0, 0, 1]])
    paths = [points(pointer.path("Move", hero, "UP")) for hero in pointer.seen.entities]
    assert paths == [[(0.5, 2.5), (0.5, 1.5)], [(3.5, 2.5), (3.5, 1.5)]]
    pointer = pointer_of(Look(hero="Hero"), Hero=[[0.25, 0, 0]], Foe=[[4, 8], [0, 0]])
    (x, y), (u, v) = points(pointer.path("Move", None, "UP"))
    assert u == x
    assert y - v == pytest.approx(2.0)  # 16 cells for 8 units


def test_spots_of_a_look() -> None:
    asked = []

    def spots(seen: Any, action: Any, actor: Any, choice: Any) -> Any:  # noqa: ANN401
        asked.append((action, actor, choice))
        return [Spot(1, 0, "from here"), (2, 2), seen["Hero"][0]]

    rows = {"Hero": [[1, 1, 0]]}
    expected = [Spot(1.5, 2.5, "from here"), Spot(2.5, 0.5), Spot(1.5, 1.5)]
    look = Look(board=Board(4, 3), spots=spots)
    assert [*pointer_of(look, **rows).path("Move", None, "UP")] == expected
    assert [*pointer_of(look, **rows).path("Push", None, [0.5])] == expected
    assert asked == [("Move", None, "UP"), ("Push", None, [0.5])]

    def draw(seen: SeenObservation, scene: Scene) -> None:
        for hero in seen["Hero"]:
            scene.circle(3, 4, 1, "#000", of=hero)

    drawn = Look(size=(9, 9), draw=draw, spots=spots)
    expected = [Spot(1, 0, "from here"), Spot(2, 2), Spot(3, 4)]
    assert [*pointer_of(drawn, **rows).path("Move", None, "UP")] == expected
    in_cells = Look(board=Board(4, 3), draw=draw)
    assert points(pointer_of(in_cells, **rows).path("Move", None, "UP")) == [(3, 4), (1.5, 0.5)]
    assert pointer_of(Look(size=(9, 9), draw=draw), **rows).path("Move", None, "UP") == ()
    assert pointer_of(BOARD, **rows).path("Push", None, [0.5]) == ()


@pytest.mark.parametrize("spots", [7, "ab", [7], [(1,)], [(1, 2, "a", "b")], [("a", 1)], [None]])
def test_what_is_no_spot(spots: object) -> None:
    look = Look(board=Board(4, 3), spots=lambda *asked: spots)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(UsageError, match=r"look look: spots: expected a list of Spot.*, got"):
        pointer_of(look, Hero=[[1, 1, 0]]).path("Move", None, "UP")


def test_an_error_of_spots_is_named() -> None:
    look = Look(board=Board(4, 3), spots=lambda *asked: [1 / 0])
    with pytest.raises(UsageError, match="spots: ZeroDivisionError"):
        pointer_of(look, Hero=[[1, 1, 0]]).path("Move", None, "UP")


POINTS = st.tuples(st.integers(-5, 5), st.integers(-5, 5))


@given(st.lists(POINTS, max_size=3))
def test_a_mark_ends_at_its_last_place(path: list[tuple[int, int]]) -> None:
    scene = Scene(5, 5)
    draw_mark(scene, path)
    if not path:
        assert scene.shapes == []
    elif len(path) == 1 or path[-1] == path[-2]:
        assert {(shape.kind, shape.center) for shape in scene.shapes} == {("circle", path[-1])}
    else:
        tips = [shape for shape in scene.shapes if shape.kind == "polygon"]
        assert all(path[-1] in shape.points for shape in tips)
        lines = [shape for shape in scene.shapes if shape.kind == "line"]
        assert all(shape.points[: len(path) - 1] == tuple(path[:-1]) for shape in lines)
        assert math.dist(lines[0].points[-1], path[-1]) <= 0.5


def test_the_mark_of_a_row_of_a_table_is_a_frame_that_leaves_all_rows_readable() -> None:
    pointer = pointer_of(Look(), Card=[[3], [5], [4]])
    shapes = pointer.drawing.draw(pointer.seen).shapes
    [card] = [e for e in pointer.seen.entities if e["suit"] == 5]
    [spot] = pointer.path("Pick", None, card)
    row = box_at(shapes, spot[:2])
    assert row is not None
    assert row.of == card.index
    scene = pointer.drawing.scene()
    draw_mark(scene, [spot[:2]], shapes)
    assert {(s.kind, s.center, s.size) for s in scene.shapes} == {("rect", spot[:2], row.size)}
    texts = [s for s in shapes if s.kind == "text" and s.text in "345"]
    assert len(texts) == 3
    for frame in scene.shapes:
        edges = [spot[1] + k * row.size[1] / 2 for k in (-1, 1)]
        for text in texts:
            middle = text.center[1]
            away = min(abs(middle - edge) for edge in edges) - frame.width / 2
            assert away > 0.3 * text.size[0]
