"""Pictures of the classic games: text and shapes that agree."""

import io
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st
from rich.console import Console

from entity_env import Game, Observation, Turn
from entity_env.agents import RandomAgent
from entity_env.cli.display.terminal_view import Frames
from entity_env.games.classic.look import Sheet
from entity_env.games.classic.play import cartpole, mountain_car, pendulum
from entity_env.views import Scene, SeenObservation, find_look

GAMES = {game.name: game for game in (cartpole, mountain_car, pendulum)}
each_game = pytest.mark.parametrize("name", GAMES)
NUMBERS = st.lists(st.floats(-0.5, 0.5, width=32), min_size=4, max_size=4)


def seen(game: Game, *features: float) -> SeenObservation:
    space = game.obs_space()
    [name] = space.entities
    row = np.array([features[: len(space.entities[name].features)]], np.float32)
    observation = Observation(reward=0, terminated=False, features={name: row})
    return SeenObservation(observation, space)


def picture(name: str, *features: float) -> str:
    look = find_look(GAMES[name])
    assert look.draw_text is not None
    drawn = look.draw_text(seen(GAMES[name], *features), 80)
    assert drawn is not None
    return drawn.plain.split("\n\n")[0]


def scene(name: str, *features: float) -> Scene:
    look, observation = find_look(GAMES[name]), seen(GAMES[name], *features)
    assert isinstance(look.size, tuple)
    assert look.draw is not None
    drawn = Scene(*look.size)
    if look.ground is not None:
        look.ground(drawn)
    look.draw(observation, drawn)
    return drawn


def test_a_pole_leans_and_a_cart_moves() -> None:
    upright = picture("cartpole", 0, 0, 0, 0)
    leaning = picture("cartpole", 0, 0, 0.2, 0)
    left = picture("cartpole", -2, 0, -0.2, 0)
    assert "|" in upright
    assert "/" not in upright
    assert "/" in leaning
    assert "\\" in left
    assert upright.splitlines()[-2].index("▟") > left.splitlines()[-2].index("▟")


def test_a_pendulum_points_where_it_stands() -> None:
    def place(cos: float, sin: float) -> tuple[int, int]:
        lines = picture("pendulum", cos, sin, 0).splitlines()
        [(row, line)] = [(i, line) for i, line in enumerate(lines) if "●" in line]
        return row, line.index("●")

    assert place(1, 0) == (0, 12)
    assert place(-1, 0) == (12, 12)
    assert place(0, 1) == (6, 0)
    assert place(0, -1) == (6, 24)


def test_a_car_stands_on_the_hill() -> None:
    bottom, top = (picture("mountain_car", x, 0) for x in (-0.5, 0.4))
    row = [next(i for i, line in enumerate(p.splitlines()) if "●" in line) for p in (bottom, top)]
    assert row[0] > row[1]
    assert "⚑" in bottom


def test_the_hill_goes_from_the_left_end_through_the_valley_to_the_flag() -> None:
    lines = [f"{line:33}" for line in picture("mountain_car", -0.5, 0).splitlines()]
    assert max(map(len, lines)) == 33
    heights = [max(i for i, line in enumerate(lines) if line[x] in "─●") for x in range(33)]
    valley = [x for x, height in enumerate(heights) if height == max(heights)]
    lowest = sum(valley) // len(valley)
    assert -1.2 + lowest / 32 * 1.8 == pytest.approx(-math.pi / 6, abs=0.06)  # sin(3 x) = -1
    assert heights == sorted(heights[:lowest]) + sorted(heights[lowest:], reverse=True)


def test_the_track_of_a_cart_is_as_wide_as_its_picture() -> None:
    assert picture("cartpole", 0, 0, 0, 0).splitlines()[-1] == "─" * 33


@each_game
def test_the_features_are_below(name: str) -> None:
    look = find_look(GAMES[name])
    assert look.draw_text is not None
    drawn = look.draw_text(seen(GAMES[name], 0.5, 0.25, 0.125, -1), 80)
    assert drawn is not None
    [entity] = GAMES[name].obs_space().entities
    assert drawn.plain.split("\n")[-1].startswith(f"{entity} ")
    assert "=0.5 " in drawn.plain
    nothing = Observation(reward=0, terminated=True, features={})
    assert look.draw_text(SeenObservation(nothing, GAMES[name].obs_space()), 80) is None


@each_game
def test_in_plain_characters(name: str) -> None:
    game, turns = GAMES[name], list[Turn]()
    game.run(RandomAgent(seed=1), watch=turns.append)
    frames = Frames(game.obs_space(), game.action_space(), find_look(game), ascii_only=True)
    console = Console(file=(file := io.TextIOWrapper(io.BytesIO(), "ascii")), width=60)
    console.print(frames.frame(frames.moments(turns)[3], 60))
    file.flush()
    buffer: Any = file.buffer
    assert b"step 3" in buffer.getvalue()


@pytest.mark.parametrize("far", [1e9, -1e9])
def test_what_is_outside_is_not_seen(far: float) -> None:
    assert "▟" not in picture("cartpole", far, 0, 0, 0)


@each_game
@given(numbers=NUMBERS)
def test_shapes_lie_in_the_picture(name: str, numbers: list[float]) -> None:
    drawn = scene(name, *numbers)
    assert any(shape.of == 0 for shape in drawn.shapes)
    for shape in drawn.shapes:
        for x, y in shape.points:
            assert -1e-6 <= x <= drawn.width + 1e-6
            assert -1e-6 <= y <= drawn.height + 1e-6


def test_shapes_move_as_the_text_does() -> None:
    cart, pole, *_ = (shape for shape in scene("cartpole", 1, 0, 0.3, 0).shapes if shape.of == 0)
    assert cart.center[0] == pytest.approx((2.4 + 1) * 4)
    assert pole.points[1][0] > cart.center[0], "a positive angle leans to the right"
    [left] = [
        shape.points[1]
        for shape in scene("pendulum", 0, 1, 0).shapes
        if shape.kind == "line" and shape.of == 0
    ]
    assert left == pytest.approx((1, 6))
    high, low = (scene("mountain_car", x, 0).shapes[-1].center for x in (0.5, -0.5))
    assert high[1] < low[1], "y grows downwards"
    assert high[0] > low[0]


def test_a_sheet() -> None:
    sheet = Sheet(3, 2)
    sheet.put(1, 0, "abcde")
    sheet.put(0, 1, "x")
    sheet.put(0, 7, "y")
    assert str(sheet) == "x  \nbcd"
