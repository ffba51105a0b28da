"""TerminalView and LiveDisplay: frames in place on a terminal, printed elsewhere."""

import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np
import pytest
from rich.console import Console
from rich.text import Text

from entity_env import (
    Categorical,
    Episode,
    Game,
    Obs,
    Observation,
    SelectEntity,
    Turn,
    UsageError,
)
from entity_env.agents import Agent, PolicyAgent, RandomAgent
from entity_env.agents.human.prompt import Asked
from entity_env.authoring.local_run import Thoughts
from entity_env.cli.display.console import LiveDisplay
from entity_env.cli.display.terminal_view import (
    Frames,
    Moment,
    TerminalView,
    _shortened,
)
from entity_env.cli.load_game import load_game
from entity_env.core.observation import Action, EntityID, GlobalCategoricalAction
from entity_env.views import Look, SeenObservation, find_look
from entity_env.views.describe import shown_names
from tests.helpers.batches import PLAIN_GAMES


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
    """Always moves right."""

    def decide(self, observation: Observation) -> Mapping[str, Action]:
        return {question.name: question.action([1]) for question in self.questions(observation)}


def plain(width: int = 80) -> Console:
    return Console(file=io.StringIO(), width=width, force_terminal=False)


def text_of(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def watched(game: Game, *agents: Agent, episodes: int = 1) -> str:
    """Output of a view of a game outside a terminal."""
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
    # The last observation has only a score: the board stays.
    assert "step 2  score 3  game over" in frames[2]
    assert "· · ● ·" in frames[2]
    assert "episode 2" in frames[3]
    assert "score 0 " in frames[3]


@pytest.mark.parametrize("name", list(PLAIN_GAMES))
def test_draws_every_game(name: str) -> None:
    game = PLAIN_GAMES[name]
    text = watched(game, *(RandomAgent(seed) for seed in range(game.num_agents)))
    assert f"{name}  episode 1" in text
    assert "game over" in text or "truncated" in text


def test_an_environment_that_draws_itself_as_text_is_drawn_so() -> None:
    shown = watched(load_game("gymnasium:FrozenLake-v1"), RandomAgent(seed=1))
    assert "SFFF" in shown
    assert "(" in shown  # the action, which is only in the environment's frame
    assert "SFFF" not in watched(load_game("gymnasium:CartPole-v1"), RandomAgent(seed=1))


def test_a_game_for_several_is_drawn_as_the_first_sees_it() -> None:
    text = watched(PLAIN_GAMES["tic_tac_toe"], RandomAgent(1), RandomAgent(2))
    last = text.split("╭")[-1]
    assert "agent 0  step" in last
    assert "agent 1  step" in last
    assert last.count("game over") == 2


def test_hidden_entities_are_marked_but_kept_from_people() -> None:
    game = PLAIN_GAMES["rock_paper_scissors"]
    open_text = watched(game, RandomAgent(1), RandomAgent(2))
    assert "(hidden)" in open_text
    console = plain()
    with TerminalView(game, console, humans=(1,)) as view:
        game.run(RandomAgent(1), RandomAgent(2), watch=view)
    assert "Player strength=" in text_of(console)
    assert "Opponent" not in text_of(console)


def turn(
    agent_id: int, step: int, label: str = "ROCK", *, is_last: bool = False, is_async: bool = True
) -> Turn:
    observation = Observation(reward=0, terminated=is_last, features={"Player": np.eye(3)[:1]})
    episode = Episode(0, step, True, False, 0, agent_id=agent_id) if is_last else None
    actions = {} if is_last else {"Throw": GlobalCategoricalAction(0, label)}
    return Turn(agent_id, step, 0.0, observation, actions, episode, is_async=is_async)


def test_a_person_sees_what_others_did_only_after_deciding() -> None:
    console = plain()
    with TerminalView(PLAIN_GAMES["rock_paper_scissors"], console, humans=(1,)) as view:
        view(turn(0, 0, "PAPER"))
        view.show(1, turn(1, 0).observation)
        assert "PAPER" not in text_of(console)
        view(turn(1, 0, "SCISSORS"))
        view.show(1, turn(1, 1).observation)
        assert "PAPER" in text_of(console)
        assert "SCISSORS" in text_of(console)


def test_a_person_sees_at_once_what_others_did_in_turn() -> None:
    console = plain()
    with TerminalView(PLAIN_GAMES["rock_paper_scissors"], console, humans=(1,)) as view:
        view(turn(0, 0, "ROCK", is_async=False))
        view(turn(0, 1, "PAPER", is_async=False))
        view.show(1, turn(1, 0).observation)
    assert "PAPER" in text_of(console)


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


# --------------------------------------------------------------------------- any turn, any size


def lines_of(frames: Frames, moment: Moment, width: int, height: int | None = None) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=100, force_terminal=False)
    console.print(frames.frame(moment, width, height))
    return [line.rstrip() for line in text_of(console).splitlines()]


def turns_of(game: Game, episodes: int = 1) -> list[Turn]:
    turns: list[Turn] = []
    agents = [RandomAgent(seed) for seed in range(game.num_agents)]
    game.run(*agents, watch=turns.append, episodes=episodes)
    return turns


def frames_of(game: Game, *, ascii_only: bool = False, agent_names: Sequence[str] = ()) -> Frames:
    return Frames(
        game.obs_space(),
        game.action_space(),
        find_look(game),
        name=game.name,
        num_agents=game.num_agents,
        agent_names=agent_names,
        ascii_only=ascii_only,
    )


def test_where_a_board_has_no_room_the_legend_makes_some() -> None:
    frames = frames_of(PLAIN_GAMES["snake"])
    moment = frames.moments(turns_of(PLAIN_GAMES["snake"]))[0]
    whole, cut = (lines_of(frames, moment, 40, height) for height in (30, 15))
    assert "● Head ×1" in "\n".join(whole)
    assert "● Head ×1" not in "\n".join(cut)
    assert sum("·" in line for line in whole) == sum("·" in line for line in cut) == 10


def test_a_look_whose_text_is_none_is_named() -> None:
    look = Look(draw_text=lambda seen, width: "plain", name="mine")  # type: ignore[arg-type,return-value]  # wrong
    frames = Frames(walk.obs_space(), walk.action_space(), look)
    moment = frames.after(frames.first(), turns_of(walk)[0])
    with pytest.raises(UsageError, match=r"look mine: draw_text: expected a Text .*, got 'plain'"):
        frames.frame(moment, 80)


@pytest.mark.parametrize("name", ["snake", "tic_tac_toe", "rock_paper_scissors", "cherry_pick"])
def test_every_turn_can_be_drawn_in_any_order(name: str) -> None:
    """Like a view that draws them during play, except for a growing board."""
    game = PLAIN_GAMES[name]
    turns = turns_of(game, episodes=2)
    frames = frames_of(game)
    moments = frames.moments(turns)
    drawn = {i: lines_of(frames, moments[i], 80) for i in reversed(range(len(turns)))}
    live = plain()
    with TerminalView(game, live) as view:
        for turn in turns:
            view(turn)
    shown = [line.rstrip() for line in text_of(live).splitlines()]
    label = game.schema.globals.name if game.schema.globals is not None else "Global"
    again = [
        line.replace("Global ", f"{label} ") for i in sorted(drawn) for line in [*drawn[i], ""]
    ]
    assert again == shown


WIDE = "turn left and then go on until something else comes into view, or the day ends"


def board_of_sixty(agent: Agent, *, seed: int, board_size: int = 60) -> None:
    walker = Walker(seed % board_size, 31)
    for step in range(3):
        if agent.act(Obs(step).actors([walker]).entities([Mood(0.5)]), LONG) is None:
            return
        walker.x = (walker.x + 1) % board_size
    agent.game_over(Obs(12345.5).entities([walker]))


Walk = Enum("Walk", {WIDE.upper().replace(" ", "_").replace(",", ""): 0})  # type: ignore[misc]
LONG = Categorical(Walk)
sixty = Game(board_of_sixty, entities=(Walker, Mood), actions=(LONG,), name="sixty")


@pytest.mark.parametrize(("width", "height"), [(40, 24), (80, 24), (80, 12), (200, 90), (20, 8)])
@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_board_of_sixty_fits_the_terminal(width: int, height: int, ascii_only: bool) -> None:
    frames = frames_of(sixty, ascii_only=ascii_only)
    for moment in frames.moments(turns_of(sixty)):
        drawn = lines_of(frames, moment, width, height - 2)
        text = "\n".join(drawn[: height - 2])
        assert all(len(line) <= width for line in drawn)
        assert re.search(r"step \d  score", text)
        if height > 8:
            assert re.search(r"[W●]( |$)", text, re.M), "the walker is on the board"
            assert width >= 128 or re.search(r"x \d+\.\.\d+ y \d+\.\.\d+", text)


@pytest.mark.parametrize("width", [30, 40, 80])
def test_a_long_label_is_cut_and_the_score_stays(width: int) -> None:
    for ascii_only, more in ((False, "…"), (True, "..")):
        frames = frames_of(sixty, ascii_only=ascii_only)
        moment = frames.moments(turns_of(sixty))[2]
        [line] = [line for line in lines_of(frames, moment, width) if "score" in line]
        assert "step 2  score 2  TURN" in line
        assert line.endswith(more)


def test_agents_have_names() -> None:
    game = PLAIN_GAMES["tic_tac_toe"]
    frames = frames_of(game, agent_names=["you", "runs"])
    drawn = "\n".join(lines_of(frames, frames.moments(turns_of(game))[3], 80))
    assert "you   step 1" in drawn
    assert "runs  step 1" in drawn


def test_shown_names() -> None:
    assert shown_names(["human", "random", "random"], [0]) == ["you", "random 1", "random 2"]
    assert shown_names(["human", "human"], [0, 1]) == ["you 1", "you 2"]
    assert shown_names(["runs/azul/", "a/b/azul"], []) == ["azul 1", "azul 2"]
    assert shown_names(["x" * 40], []) == ["x" * 15 + "…"]


def test_of_an_open_look_every_observation_is_drawn_and_nothing_is_held_back() -> None:
    def draw_text(seen: SeenObservation, width: int) -> Text:
        return Text(f"seen by {seen.agent_id} for {seen.viewer}, {seen.agent_names}")

    game, look = PLAIN_GAMES["rock_paper_scissors"], Look(draw_text=draw_text, is_open=True)
    console = plain()
    with TerminalView(game, console, humans=(1,), names=("a", "b"), look=look) as view:
        view(turn(0, 0, "PAPER"))
        assert "PAPER" in text_of(console)
        view.show(1, turn(1, 0).observation, "a note")
    assert "seen by 0 for 1, ['a', 'you']" in text_of(console)
    assert "seen by 1 for 1, ['a', 'you']" in text_of(console)
    assert text_of(console).rstrip().endswith("\na note")


@dataclass
class Tower:
    x: int
    y: int


@dataclass
class Card:
    rank: int


TAKE = SelectEntity(Card)


def take(agent: Agent, *, seed: int, width: int = 5, height: int = 1) -> None:
    cards = [Card(rank) for rank in range(30, 34)]
    towers = [Tower(0, 0), Tower(3, 0)]
    if agent.act(Obs().actors(towers).entities(cards), TAKE) is not None:
        agent.game_over()


cards = Game(take, entities=(Tower, Card), actions=(TAKE,), name="cards")


@dataclass
class Builder:
    gold: int


def one_tower(agent: Agent, *, seed: int, width: int = 5, height: int = 1) -> None:
    if agent.act(Obs().actors([Builder(3)]).actors([Tower(0, 0)]).entities([Card(1)]), TAKE):
        agent.game_over()


build = Game(one_tower, entities=(Builder, Tower, Card), actions=(TAKE,), name="build")


def shown_to_person(game: Game, asked: Asked, agent: Agent) -> str:
    """The screen at the first question to a person."""
    turns: list[Turn] = []
    game.run(agent, watch=turns.append)
    console = Console(file=io.StringIO(), width=100, height=30, force_terminal=True)
    with TerminalView(game, console, humans=(0,)) as view:
        view.show(0, turns[0].observation, asked=asked)
        assert {*view.places(0, turns[0].observation).values()} <= {(0, 0), (3, 0)}
    return Text.from_ansi(text_of(console)).plain


def test_what_the_menu_lists_is_not_drawn_a_second_time() -> None:
    ids = frozenset({2, 3, 5})
    shown = shown_to_person(cards, Asked(1, menu=ids, num_lines=4), RandomAgent(1))
    assert "Card rank=32" in shown
    assert not any(text in shown for text in ("30", "31", "33"))
    assert all(text in shown_to_person(cards, Asked(1), RandomAgent(1)) for text in ("30", "33"))


def test_the_actor_that_is_asked_is_marked_on_the_board() -> None:
    assert "● · · ●<·" in shown_to_person(cards, Asked(1), RandomAgent(1))
    keys: dict[EntityID, str] = {0: "a", 1: "b"}
    assert "●a· · ●b·" in shown_to_person(cards, Asked(None, keys, 0), RandomAgent(1))


def test_no_actor_is_marked_if_the_one_that_is_asked_is_not_on_the_board() -> None:
    assert "<" not in shown_to_person(build, Asked(0), RandomAgent(1))


def test_a_long_menu_leaves_the_frame_less_room() -> None:
    observation = turns_of(sixty)[0].observation
    heights = []
    for num_lines in (2, 12):
        console = Console(file=io.StringIO(), width=40, height=30, force_terminal=True)
        with TerminalView(sixty, console, humans=(0,)) as view:
            view.show(0, observation, asked=Asked(num_lines=num_lines))
        heights.append(text_of(console).count("\n"))
    assert heights[0] - heights[1] == 10


def test_outside_of_a_terminal_a_person_sees_each_observation_once() -> None:
    console = plain()
    observation = turns_of(walk)[0].observation
    with TerminalView(walk, console, humans=(0,)) as view:
        view.show(0, observation, asked=Asked(0))
        view.show(0, observation, asked=Asked(1))
    assert text_of(console).count("episode 1") == 1


def test_a_board_that_fits_is_whole_even_if_the_text_beside_it_is_narrow() -> None:
    def play(agent: Agent, *, seed: int, width: int = 24, height: int = 9) -> None:
        walkers = [Walker(2, 4), Walker(5, 4), Walker(8, 4), Walker(17.5, 3.2)]  # type: ignore[arg-type]  # floats
        if agent.act(Obs().entities(walkers), Move) is not None:
            agent.game_over()

    game = Game(play, entities=(Walker,), actions=(Move,), name="wide")
    drawn = lines_of(frames_of(game), frames_of(game).moments(turns_of(game))[0], 80)
    board = [line.split("│")[1] for line in drawn if "·" in line]
    assert len(board) == 9
    assert [i for i, cell in enumerate(board[4].split()) if cell == "●"] == [2, 5, 8]
    assert [i for i, cell in enumerate(board[5].split()) if cell == "●"] == [18]


def test_thoughts_are_drawn() -> None:
    frames = frames_of(walk)
    first = turns_of(walk)[0]
    thoughts = Thoughts({"Move": np.array([[0.25, 0.75]])}, 0.5)
    drawn = lines_of(frames, frames.moments([replace(first, thoughts=thoughts)])[0], 80)
    text = "\n".join(drawn)
    assert "value 0.5" in text
    assert " 75% ████████   RIGHT" in text


def test_a_person_is_asked_below_the_frame() -> None:
    console = plain()
    game = PLAIN_GAMES["rock_paper_scissors"]
    seen = turn(1, 0).observation
    typed = io.StringIO("paper\nQ\n")
    with TerminalView(game, console, humans=(1,), source=typed) as view:
        assert view.ask(1, seen, ["what?"]) == "paper"
        frame = text_of(console)
        assert view.ask(1, seen, ["what else?"]) is None
    assert frame.endswith("what?\n\nYour move: \n")
    assert text_of(console) == f"{frame}what else?\nYour move: \n"


def test_tables_without_room_say_how_much_is_missing() -> None:
    """The first lines, including the score, stay on the screen."""
    lines = [Text(str(i)) for i in range(9)]
    assert _shortened(lines, None) == _shortened(lines, 9) == lines
    assert [line.plain for line in _shortened(lines, 3)] == [
        "0",
        "1",
        "(7 more lines: enlarge the window)",
    ]
