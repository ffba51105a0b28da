"""TerminalView and LiveDisplay: frames in place on a terminal, one by one elsewhere."""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from entity_env import Episode, Game, Obs, Observation, Turn
from entity_env.agents import Agent, PolicyAgent, RandomAgent
from entity_env.cli.display.console import LiveDisplay
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.core.observation import Action, GlobalCategoricalAction
from entity_env.games import GAMES


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
