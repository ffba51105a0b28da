"""TerminalView and LiveDisplay: frames in place on a terminal, one by one elsewhere."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from entity_env import Episode, Game, Obs, Observation, Schema, Turn
from entity_env.agents import Agent, PolicyAgent, RandomAgent
from entity_env.cli.display.console import LiveDisplay
from entity_env.cli.display.terminal_view import (
    MAX_COLUMNS,
    MAX_ROWS,
    EntityStyle,
    Grid,
    TerminalView,
    entity_styles,
)
from entity_env.cli.load_game import load_game
from entity_env.core.observation import Action, GlobalCategoricalAction
from entity_env.core.spaces import GLOBAL_ENTITY
from entity_env.games import GAMES
from entity_env.views.seen import SeenEntity


class Move(Enum):
    LEFT = -1
    RIGHT = 1


@dataclass
class Walker:
    x: int
    y: int


@dataclass
class Mood:
    joy: float


@dataclass
class Wind:
    speed: float


def play(agent: Agent, *, seed: int, board_size: int = 4) -> None:
    walker = Walker(1, 2)
    for step in range(2):
        obs = Obs(step * 1.5).entities([walker]).entities([Mood(0.25)]).globals(Wind(3))
        move = agent.act(obs, Move)
        if move is None:
            return
        walker.x += move.value
    agent.game_over(Obs(3))


walk = Game(play, entities=(Walker, Mood), actions=(Move,), global_features=Wind, name="walk")


class Always(PolicyAgent):
    """Always goes right."""

    def decide(self, observation: Observation) -> Mapping[str, Action]:
        return {question.name: question.action([1]) for question in self.questions(observation)}


def plain(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def watched(game: Game, *agents: Agent, episodes: int = 1) -> str:
    """What a view prints of a game when it is no terminal."""
    console = plain()
    with TerminalView(game, console) as view:
        game.run(*agents, watch=view, episodes=episodes)
    return text_of(console)


def frames_of_walk(episodes: int = 1) -> list[str]:
    return watched(walk, Always(), episodes=episodes).split("\n\n")[:-1]


def test_shows_the_grid_the_legend_and_what_happens() -> None:
    first = frames_of_walk()[0]
    lines = [line.rstrip() for line in first.split("\n")]
    assert "· · · ·" in lines[1]
    assert "· ● · ·" in lines[2]
    assert "walk  episode 1" in first
    assert "step 0  score 0  RIGHT" in first
    assert "● Walker ×1" in first
    assert "Wind speed=3" in first
    assert "Mood joy=0.25" in first


def test_shows_one_frame_a_step_and_one_at_the_end() -> None:
    frames = frames_of_walk(episodes=2)
    assert len(frames) == 6
    assert "step 1  score 1.5  RIGHT" in frames[1]
    assert "· · ● ·" in frames[1]
    # The last observation shows nothing but a score: the board stays.
    assert "step 2  score 3  game over" in frames[2]
    assert "· · ● ·" in frames[2]
    assert "episode 2" in frames[3]
    assert "score 0 " in frames[3]


@pytest.mark.parametrize("name", list(GAMES))
def test_draws_every_game(name: str) -> None:
    game = GAMES[name]
    text = watched(game, *(RandomAgent(seed) for seed in range(game.num_agents)))
    assert f"{name}  episode 1" in text
    assert "game over" in text or "cut short" in text


def test_an_environment_that_draws_itself_as_text_is_drawn_so() -> None:
    shown = watched(load_game("gymnasium:FrozenLake-v1"), RandomAgent(seed=1))
    assert "SFFF" in shown
    assert "(" in shown  # the action, which only the environment's own frame has
    assert "SFFF" not in watched(load_game("gymnasium:CartPole-v1"), RandomAgent(seed=1))


def test_a_game_for_several_is_drawn_as_the_first_sees_it() -> None:
    text = watched(GAMES["tic_tac_toe"], RandomAgent(1), RandomAgent(2))
    last = text.split("╭")[-1]
    assert "agent 0  step" in last
    assert "agent 1  step" in last
    assert last.count("game over") == 2


def test_hidden_entities_are_marked_but_kept_from_people() -> None:
    game = GAMES["rock_paper_scissors"]
    open_text = watched(game, RandomAgent(1), RandomAgent(2))
    assert "(hidden)" in open_text
    console = plain()
    with TerminalView(game, console, humans=(1,)) as view:
        game.run(RandomAgent(1), RandomAgent(2), watch=view)
    assert "Player strength=" in text_of(console)
    assert "Opponent" not in text_of(console)


def turn(agent_id: int, step: int, label: str = "ROCK", *, is_last: bool = False) -> Turn:
    observation = Observation(reward=0, terminated=is_last, features={"Player": np.eye(3)[:1]})
    episode = Episode(0, step, True, False, 0, agent_id=agent_id) if is_last else None
    actions = {} if is_last else {"Throw": GlobalCategoricalAction(0, label)}
    return Turn(agent_id, step, 0.0, observation, actions, episode)


def test_a_person_sees_what_others_did_only_after_deciding() -> None:
    console = plain()
    with TerminalView(GAMES["rock_paper_scissors"], console, humans=(1,)) as view:
        view(turn(0, 0, "PAPER"))
        view.show(1, turn(1, 0).observation)
        assert "PAPER" not in text_of(console)
        view(turn(1, 0, "SCISSORS"))
        view.show(1, turn(1, 1).observation)
        assert "PAPER" in text_of(console)
        assert "SCISSORS" in text_of(console)


def test_a_person_sees_the_score_before_deciding() -> None:
    console = plain()
    view = TerminalView(walk, console, humans=(0,))
    walk.run(Always(), watch=view)
    assert "score 3" in text_of(console)
    view.show(0, Observation(reward=2.0, terminated=False, features={"Walker": np.ones((1, 2))}))
    assert "episode 2" in text_of(console)
    assert text_of(console).rstrip().splitlines()[-1].count("score") <= 1
    assert "score 2" in text_of(console)


def terminal(height: int = 30) -> Console:
    return Console(file=io.StringIO(), width=40, height=height, force_terminal=True)


def test_frames_replace_each_other_on_a_terminal() -> None:
    console = terminal()
    display = LiveDisplay(console, fps=None)
    display.show(Text("one\ntwo"))
    display.show(Text("three"))
    assert "\r\x1b[2A" in text_of(console)
    assert text_of(console).endswith("three\x1b[K\n\x1b[J")
    display.close()
    display.close()
    assert text_of(console).endswith("\x1b[?25h")


def test_a_frame_never_exceeds_the_screen() -> None:
    console = terminal(height=6)
    LiveDisplay(console, fps=None).show(Text("\n".join("abcdefgh")))
    assert text_of(console).count("\n") == 4


def test_frames_keep_the_pace_on_a_terminal_only() -> None:
    waits: list[float] = []
    display = LiveDisplay(terminal(), fps=2, wait=waits.append)
    for _ in range(3):
        display.show(Text())
    display.show(Text(), is_paced=False)
    assert len(waits) == 2
    assert waits[0] == pytest.approx(0.5, abs=0.1)
    elsewhere = LiveDisplay(plain(), fps=2, wait=waits.append)
    elsewhere.show(Text())
    elsewhere.show(Text())
    assert len(waits) == 2


def test_a_person_is_not_kept_waiting() -> None:
    waits: list[float] = []
    with TerminalView(walk, terminal(), fps=1, humans=(0,), wait=waits.append) as view:
        view.show(0, turn(0, 0).observation)
        view.show(0, turn(0, 1).observation)
    assert waits == []


def test_needs_only_ascii_where_there_is_no_more() -> None:
    file = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    with TerminalView(walk, Console(file=file, width=80, force_terminal=False)) as view:
        walk.run(Always(), watch=view)
    file.flush()
    shown = file.buffer.getvalue().decode("ascii")
    assert "W Walker x1" in shown
    assert ". W . ." in shown


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
    found = entity_styles(Schema((Head, Cat, Snake, Clock), ()), ascii_only=True)
    assert [look.glyph for look in found.values() if look.has_place] == ["H", "C", "S"]
