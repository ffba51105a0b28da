"""Looks of the games: inside their pictures, readable, and true to what agents observed."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from entity_env import Game, Observation, Turn
from entity_env.core.action_request import questions
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.games import (
    GAMES,
    multi_snake,
    rock_paper_scissors,
    snake,
    tic_tac_toe,
    treasure_hunt,
)
from entity_env.games.multi_snake_look import body_of
from entity_env.games.tic_tac_toe import Square
from entity_env.games.tic_tac_toe_look import winning_line
from entity_env.replay import Replay
from entity_env.views import Look, SeenObservation, Spot, find_look
from entity_env.views.animation import Animation
from entity_env.views.drawing import Drawing
from entity_env.views.parts.spots import Pointer
from entity_env.views.scene import Shape
from tests import DATA

NAMES = [name for name in GAMES if name != "pixel"]
each_game = pytest.mark.parametrize("name", NAMES)


@cache
def episode(name: str) -> tuple[Game, Look, list[Turn]]:
    """A recorded episode, up to 8 turns."""
    replay = Replay.load(DATA / "replays" / f"{name.replace(':', '_')}.replay")
    game = replay.with_settings_of(GAMES[name])
    turns = [turn for turn in replay.turns(game) if not turn.observation.is_blank]
    return game, find_look(game), [*turns[:4], *turns[4:][-4:]]


def drawn(name: str) -> Iterator[tuple[Drawing, SeenObservation, list[Shape]]]:
    """The picture of every turn."""
    game, look, turns = episode(name)
    space = game.obs_space()
    drawing = Drawing(look, space)
    for turn in turns:
        drawing.include(SeenObservation(turn.observation, space, turn.agent_id))
    for turn in turns:
        seen = SeenObservation(turn.observation, space, turn.agent_id)
        yield drawing, seen, drawing.draw(seen).shapes


def paths(name: str) -> Iterator[tuple[Drawing, dict[object, tuple[Spot, ...]]]]:
    """Where the allowed choices of each question of every turn point, by actor and choice."""
    game = GAMES[name]
    space, action_space = game.obs_space(), game.action_space()
    for drawing, seen, shapes in drawn(name):
        pointer = Pointer(drawing, seen, shapes)
        by_id = {entity.id: entity for entity in seen.entities}
        asked = [] if seen.observation.done else questions(seen.observation, space, action_space)
        for question in asked:
            choices = [by_id[i] for i in question.actees] or [*getattr(question, "choices", ())]
            if isinstance(question.space, ContinuousActionSpace):
                continue
            for actor, allowed in zip(question.actors, question.allowed, strict=True):
                yield (
                    drawing,
                    {
                        getattr(choice, "index", choice): pointer.path(
                            question.name, by_id.get(actor), choice
                        )
                        for choice, is_allowed in zip(choices, allowed, strict=True)
                        if is_allowed
                    },
                )


@each_game
def test_shapes_lie_in_the_picture(name: str) -> None:
    for drawing, _, shapes in drawn(name):
        width, height = drawing.size
        for shape in [*drawing.ground().shapes, *shapes]:
            x, y = shape.center
            assert -0.1 <= x <= width + 0.1, shape
            assert -0.1 <= y <= height + 0.1, shape


@each_game
def test_choices_point_into_the_picture(name: str) -> None:
    """A step past the edge of a board, which a game may allow, is half a cell outside."""
    found = list(paths(name))
    assert found or name == "pendulum"
    for drawing, choices in found:
        width, height = drawing.size
        for words, path in choices.items():
            assert path, words
            for spot in path:
                assert -0.5 <= spot.x <= width + 0.5, (words, spot)
                assert -0.5 <= spot.y <= height + 0.5, (words, spot)
        assert len({*choices.values()}) == len(choices), choices


# ------------------------------------------------------------------ tic_tac_toe


def board(agent: int, mine: str, theirs: str) -> SeenObservation:
    """A board as an agent sees it; `mine` and `theirs` are names of squares."""
    space = tic_tac_toe.obs_space()
    taken = {"Mine": mine.split(), "Theirs": theirs.split()}
    free = [each.name for each in Square if each.name not in [*taken["Mine"], *taken["Theirs"]]]
    features = {
        kind: np.array([Square[name].value for name in names], np.float32).reshape(-1, 2)
        for kind, names in {"Empty": free, **taken}.items()
    }
    observation = Observation(reward=0, terminated=False, features=features)
    return SeenObservation(observation, space, agent)


def scene_of(game: Game, seen: SeenObservation) -> list[Shape]:
    drawing = Drawing(find_look(game), game.obs_space())
    drawing.include(seen)
    return drawing.draw(seen).shapes


def test_x_and_o_stay_with_their_agents_whoever_observes() -> None:
    one = scene_of(tic_tac_toe, board(0, "A1 B2", "C3"))
    other = scene_of(tic_tac_toe, board(1, "C3", "A1 B2"))
    kinds = [sorted((s.kind, s.points, s.stroke) for s in shapes) for shapes in (one, other)]
    assert kinds[0] == kinds[1]
    assert [kind for kind, *_ in kinds[0] if kind != "rect"] == ["circle", *["line"] * 4]


@pytest.mark.parametrize("agent", [0, 1])
def test_the_text_has_x_and_o(agent: int) -> None:
    look = find_look(tic_tac_toe)
    assert look.draw_text is not None
    squares = ("A1 B2", "C3")
    drawn = look.draw_text(board(agent, *(squares if agent == 0 else squares[::-1])), 80)
    assert drawn is not None
    lines = [line.split() for line in drawn.plain.splitlines()[:4]]
    assert lines == [["3", ".", ".", "O"], ["2", ".", "X", "."], ["1", "X", ".", "."], [*"ABC"]]


@pytest.mark.parametrize(
    ("mine", "theirs", "line"),
    [
        ("A1 B2 C3", "A2 A3", "A1 B2 C3"),
        ("A2 A3", "C1 C2 C3", "C1 C2 C3"),
        ("A1 B1", "C1 A2", ""),
    ],
)
def test_the_winning_line(mine: str, theirs: str, line: str) -> None:
    seen = board(0, mine, theirs)
    assert [square.name for square in winning_line(seen)] == line.split()
    lines = [s for s in scene_of(tic_tac_toe, seen) if s.kind == "line" and s.of < 0]
    assert len(lines) == bool(line)


# ------------------------------------------------------------------ others


def test_a_hidden_strength_says_from_whom_it_is_hidden() -> None:
    for _, seen, shapes in drawn("rock_paper_scissors"):
        words = [shape.text for shape in shapes if shape.kind == "text"]
        assert "wins 2 instead of 1" in words
        assert f"hidden from agent {seen.agent_id}" in words
        assert [each for each in words if each.startswith("agent")] == [
            f"agent {seen.agent_id}",
            f"agent {1 - seen.agent_id}",
        ]


def test_long_names_fit_their_cards() -> None:
    game, _, [turn, *_] = episode("rock_paper_scissors")
    names = ["an agent with a very long name", "W" * 40]
    seen = SeenObservation(turn.observation, game.obs_space(), agent_names=names)
    texts = [shape for shape in scene_of(game, seen) if shape.kind == "text"]
    assert any("hidden from an agent with" in shape.text for shape in texts)
    for shape in texts:
        assert shape.size[0] * 0.55 * len(shape.text) <= 4.05


def test_what_a_person_cannot_see_is_not_drawn() -> None:
    game, _, [turn, *_] = episode("rock_paper_scissors")
    seen = SeenObservation(turn.observation, game.obs_space(), hidden=False)
    words = [shape.text for shape in scene_of(game, seen) if shape.kind == "text"]
    assert words.count("?") == 1
    assert len([each for each in words if each in ("ROCK", "PAPER", "SCISSORS")]) == 1


def test_a_snake_is_joined_from_head_to_tail() -> None:
    for _, seen, shapes in drawn("snake"):
        body = [shape for shape in shapes if shape.kind == "rect"]
        assert len(body) == len(seen["Segment"])
        for shape in body:  # from one cell to the next
            assert sorted(shape.size) == pytest.approx([0.66, 1.66])


def heads_and_segments(*cells: tuple[int, int]) -> SeenObservation:
    rows = np.array([(*cell, 0) for cell in cells], np.float32)
    features = {"Head": rows[:1], "Segment": rows[1:]}
    observation = Observation(reward=0, terminated=False, features=features)
    return SeenObservation(observation, multi_snake.obs_space())


@pytest.mark.parametrize(
    ("cells", "order"),
    [
        ([(0, 0), (2, 0), (1, 0), (2, 1)], [(1, 0), (2, 0), (2, 1)]),
        ([(0, 0)], []),
        ([(0, 0), (0, 1), (1, 1), (1, 0)], []),  # around the block, one way or the other
    ],
)
def test_the_order_of_a_body_if_there_is_only_one(
    cells: list[tuple[int, int]], order: list[tuple[int, int]]
) -> None:
    seen = heads_and_segments(*cells)
    found = body_of(seen["Head"][0], seen["Segment"])
    assert [tuple(segment.features[:2]) for segment in found] == order


def test_a_long_coil_is_given_up() -> None:
    """Not every order is tried: their number grows exponentially."""
    cells = [(x, y) for x in range(9) for y in range(9)]
    seen = heads_and_segments(*cells)
    assert body_of(seen["Head"][0], seen["Segment"]) == []


def test_the_explorer_points_to_its_next_cell() -> None:
    game, _, _ = episode("treasure_hunt")
    for drawing, seen, shapes in drawn("treasure_hunt"):
        pointer = Pointer(drawing, seen, shapes)
        start, end = pointer.path("Move", None, "UP")
        x, y = seen.globals.features[:2].tolist()
        size = int(str(game.settings.get("board_size", 8)))
        assert (start.x, start.y) == (x + 0.5, size - y - 0.5)
        assert (end.x, end.y) == (start.x, start.y - 1)


@pytest.mark.parametrize("game", [snake, rock_paper_scissors, treasure_hunt])
def test_only_open_games_show_all_observations(game: Game) -> None:
    assert not find_look(game).is_open
    assert find_look(tic_tac_toe).is_open


@each_game
def test_the_legend_explains_the_shapes(name: str) -> None:
    game, look, turns = episode(name)
    shown = Animation.of(turns, game.obs_space(), game.action_space(), look, num_agents=2)
    assert len(shown.legend) > 1
    for words, shapes in shown.legend:
        assert words
        assert shapes
        for shape in shapes:
            assert all(0 <= part <= 1 for part in shape.center), (words, shape)


def test_a_torque_is_an_arrow() -> None:
    """Along the circle of the free end: positive torques turn it to the left when it is up."""
    game = GAMES["pendulum"]
    space = game.obs_space()
    row = np.array([[1, 0, 0]], np.float32)  # upright
    observation = Observation(reward=0, terminated=False, features={"Pendulum": row})
    seen = SeenObservation(observation, space)
    drawing = Drawing(find_look(game), space)
    drawing.include(seen)
    pointer = Pointer(drawing, seen, drawing.draw(seen).shapes)
    start, end = pointer.path("Torque", seen.entities[0], [2.0])
    assert end.x < start.x < 6
    assert end.y == start.y == 1
    assert len(pointer.path("Torque", seen.entities[0], [0.0])) == 1


def test_pictures_of_a_replay_have_the_names_of_its_agents() -> None:
    for name in ("rock_paper_scissors", "azul"):
        replay = Replay.load(DATA / "replays" / f"{name}.replay")
        shown = replay.animation(GAMES[name])
        words = [shape.text for shape in shown.shapes_of(0) if shape.kind == "text"]
        assert {*shown.names} <= {*words}
