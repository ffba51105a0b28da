"""Turns of several questions, ends of episodes, replays and thoughts in a page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from entity_env import Categorical, Continuous, ContinuousActionSpace, Game, Obs, SelectEntity
from entity_env.agents import Agent, RandomAgent
from entity_env.authoring.local_run import Thoughts, Turn
from entity_env.cli.app import main
from entity_env.cli.load_game import load_game
from entity_env.core.episode import Episode
from entity_env.core.observation import Observation
from entity_env.games import rock_paper_scissors, snake, tic_tac_toe
from entity_env.interop.gymnasium import from_gymnasium
from entity_env.page.live import game_page, last_replay
from entity_env.page.live.outcome import outcome, rules_of
from entity_env.replay import Replay
from entity_env.views import Look
from tests.cli.browser.page import LivePage, Played, request

SKIRMISH = str(Path(__file__).parents[3] / "examples" / "skirmish.py")


@pytest.fixture(autouse=True)
def short_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_page, "_RELOAD_S", 0.1)
    monkeypatch.setattr(game_page, "_WAKE_S", 0.05)
    monkeypatch.setattr(game_page, "_END_S", 0.01)


class Side(Enum):
    UP = (0, 1)
    LEFT = (-1, 0)


@dataclass
class Unit:
    x: int
    y: int


@dataclass(eq=False)
class Target:
    power: int


SIDE, AIM = Categorical(Side), SelectEntity(Target)
PUSH = Continuous("Push", low=(-1.0,), high=(1.0,), labels=("x",))
given: list[Any] = []


def play_pair(agent: Agent, *, seed: int, length: int = 1) -> None:
    """Two units with three actions each; the second target is hidden.

    Args:
        length: number of turns.

    Goal:
        Push, and
        aim.

        $ entity-env play pair.py

    Example:
        >>> 1
    """
    units, targets = [Unit(0, 0), Unit(2, 1)], [Target(7), Target(77_777)]
    for _ in range(length):
        obs = Obs().actors(units).entities(targets).visible(Target, [True, False])
        answers = agent.act(obs, SIDE, AIM, PUSH)
        if answers is None:
            return
        given.append((answers[0], [targets.index(each) for each in answers[1] if each]))
    agent.game_over(Obs(1).metric("found", 2))


pair = Game(play_pair, entities=(Unit, Target), actions=(SIDE, AIM, PUSH))


def answer_all(page: LivePage) -> None:
    """Takes the last choice of every question of a turn, and 0 for numbers."""
    number = page.question()["progress"][1]
    for _ in range(number):
        asked = page.question()
        if asked["values"]:
            page.answer(values=[0] * len(asked["values"]))
        else:
            page.answer(choice=asked["choices"][-1][0])


# ------------------------------------------------------------------ turns of several questions


@pytest.mark.slow
def test_answers_of_a_turn_can_be_undone_until_it_is_sent() -> None:
    given.clear()
    game = Played(pair, ["human"])
    with game.page() as page:
        first = page.question()
        assert (first["progress"], first["can_undo"]) == ([1, 6], False)
        assert page.post({"number": first["number"], "undo": True})[0] == 409
        page.answer(choice=0)
        assert page.question()["title"] == "Select target 1 of 2: Unit x=0 y=0"
        page.answer(undo=True)
        again = page.question()
        assert (again["title"], again["choices"]) == (first["title"], first["choices"])
        assert again["can_undo"] is False
        page.answer(choice=1)
        for nonsense in ({"undo": 1}, {"undo": "true"}, {"undo": None}, {"again": True}, {}):
            status, text = page.post({"number": page.question()["number"], **nonsense})
            assert (status, text.count("\n")) == (409, 1), nonsense
        page.answer(choice=1)
        page.answer(values=[1])
        page.answer(choice=0)
        page.answer(choice=0)
        last = page.question()
        assert (last["progress"], last["can_undo"]) == ([6, 6], True)
        page.answer(undo=True)
        page.answer(choice=1)
        page.answer(values=[0.5])
        assert page.events["frame"]["over"] is not None
    game.join()
    assert given == [([Side.LEFT, Side.UP], [1, 1])]


@pytest.mark.slow
def test_choices_point_to_places_and_picks_of_the_turn_are_marked() -> None:
    game = Played(pair, ["human"])
    with game.page() as page:
        asked, frame = page.question(), page.events["frame"]
        at = {
            shape[7]: shape[1:3] for shape in frame["shapes"] if shape[7] in (0, 1)
        }  # a unit's place
        paths = [[spot[:2] for spot in each[4]] for each in asked["choices"]]
        (x, y) = at[0]
        assert paths == [[[x, y], [x, y - 1]], [[x, y], [x - 1, y]]]
        assert frame["marks"] == []
        page.answer(choice=0)
        assert page.events["frame"]["marks"] == [[0, [[x, y], [x, y - 1]]]]
        hidden = page.question()["choices"][1]
        assert (hidden[1], hidden[4]) == ("hidden", [])
        assert "77777" not in str(page.events)
        page.answer(undo=True)
        assert page.events["frame"]["marks"] == []
        answer_all(page)
    game.join()


@pytest.mark.slow
def test_when_time_is_up_the_defaults_answer_the_rest_of_the_turn() -> None:
    given.clear()
    game = Played(pair.with_settings(length=2), ["human"], clock_s=0.05)
    with game.page() as page:
        answer_all(page)
        page.wait_for(lambda frame: frame["over"])
    game.join()
    # Of a target without a place, nothing says which one was selected before.
    assert given == [([Side.LEFT, Side.LEFT], [1, 1]), ([Side.LEFT, Side.LEFT], [0, 0])]


@dataclass(eq=False)
class Rock:
    x: int
    y: int


def play_near(agent: Agent, *, seed: int) -> None:
    """The rocks stay where they are, but are observed in another order."""
    for places in ([2, 8, 5], [5, 2, 8]):
        rocks = [Rock(each, each) for each in places]
        answer = agent.act(Obs().actors([Unit(1, 1)]).entities(rocks), SelectEntity(Rock))
        if answer is None or answer[0] is None:
            return
        given.append(answer[0].x)
    agent.game_over(Obs())


@pytest.mark.slow
def test_when_time_is_up_the_entity_next_to_the_last_one_is_selected() -> None:
    given.clear()
    near = Game(play_near, entities=(Unit, Rock), actions=(SelectEntity(Rock),))
    game = Played(near, ["human"], clock_s=0.05)
    with game.page() as page:
        page.question()
        page.answer(choice=1)
        page.wait_for(lambda frame: frame["over"])
    game.join()
    assert given == [8, 8]


# ------------------------------------------------------------------ the end


def open_look(*, is_open: bool) -> Look:
    """A look for tic-tac-toe whose choices point to their squares."""
    return Look(
        is_open=is_open,
        spots=lambda seen, action, actor, choice: [(ord(str(choice)[0]) - 65, int(str(choice)[1]))],
    )


@pytest.mark.slow
def test_the_end_says_who_won_and_why_and_shows_the_final_position() -> None:
    game = Played(tic_tac_toe, ["human", "random"], look=open_look(is_open=True))
    with game.page() as page:
        while not (frame := page.wait_for(lambda frame: frame["asked"]))["over"]:
            page.answer(choice=frame["asked"]["choices"][0][0])
        over = frame["over"]
        words = [*frame["words"].values()]
        assert re.fullmatch(
            r"(you won, 1 : -1|random won, -1 : 1|No winner, 0 : 0)", over["headline"]
        )
        assert over["reasons"][0].startswith("ended by the rules (terminated) after ")
        assert over["actions"] == ["again", "watch", "save"]
        assert len(words) == 9
        assert sum(word.startswith("Empty") for word in words) == 9 - len(frame["moves"])
        assert sorted({agent for agent, _ in frame["marks"]}) == [0, 1]  # the last moves
        assert frame["asked"]["number"] > 0
        assert page.post({"number": frame["asked"]["number"], "choice": 0})[0] == 409
    game.join()


@pytest.mark.slow
def test_moves_of_others_are_marked_only_if_all_is_open() -> None:
    for is_open in (False, True):
        game = Played(tic_tac_toe, ["human", "random"], look=open_look(is_open=is_open))
        with game.page() as page:
            marked = set()
            while not (frame := page.wait_for(lambda frame: frame["asked"]))["over"]:
                marked |= {agent for agent, _ in frame["marks"]}
                page.answer(choice=frame["asked"]["choices"][0][0])
            assert marked == ({1} if is_open else set())
        game.join()


def ended(agent_id: int, reward: float, *, truncated: bool = False, **metrics: float) -> Turn:
    episode = Episode(reward, 3, not truncated, truncated, 1, agent_id=agent_id, metrics=metrics)
    return Turn(
        agent_id, 3, reward, Observation(features={}, reward=0.0, done=True), episode=episode
    )


@pytest.mark.parametrize(
    ("ends", "headline", "reasons"),
    [
        (
            [ended(0, 2, left=0.5)],
            "Score 2",
            ["ended by the rules (terminated) after 3 steps", "left 0.5"],
        ),
        (
            [ended(0, 2, truncated=True)],
            "Score 2",
            ["cut off by a limit (truncated) after 3 steps"],
        ),
        (
            [ended(0, -1), ended(1, 1)],
            "other won, -1 : 1",
            ["ended by the rules (terminated) after 3 steps"],
        ),
        (
            [ended(0, 1), ended(1, 1, truncated=True, hits=3)],
            "No winner, 1 : 1",
            [
                "you: ended by the rules (terminated) after 3 steps",
                "other: cut off by a limit (truncated) after 3 steps",
                "other: hits 3",
            ],
        ),
        (
            [ended(0, 1), ended(1, 0), ended(2, 1)],
            "you and last share the lead, 1 : 0 : 1",
            ["ended by the rules (terminated) after 3 steps"],
        ),
    ],
)
def test_an_outcome_in_words(ends: Sequence[Turn], headline: str, reasons: list[str]) -> None:
    found = outcome(snake, ["you", "other", "last"], {turn.agent_id: turn for turn in ends})
    assert (found.headline, found.reasons) == (headline, reasons)


def test_the_rules_are_those_of_the_docstring() -> None:
    assert rules_of(pair) == [
        "Two units with three actions each; the second target is hidden.",
        "Goal:",
        "Push, and aim.",
    ]
    rules = rules_of(snake)
    assert rules[0].startswith("Snake: ")
    ends = [rules.index(f"{end} when:") for end in ("Terminated", "Truncated")]
    assert rules.index("Reward:") < ends[0] < ends[1] < rules.index("Entities and features:")
    assert not any("entity-env" in line for line in rules_of(load_game(SKIRMISH)))


def test_environments_of_other_libraries_have_no_rules() -> None:
    pytest.importorskip("gymnasium")
    assert rules_of(from_gymnasium("CartPole-v1")) == []


# ------------------------------------------------------------------ the replay


@pytest.mark.slow
def test_the_last_episode_can_be_watched_and_saved(tmp_path: Path) -> None:
    skirmish = load_game(SKIRMISH, ["max_turns=1"])
    game = Played(skirmish, ["human", "random"])
    with game.page() as page:
        page.question()
        for route in ("watch", "save"):
            assert request(game.url + route)[0] == 404  # not yet
        answer_all(page)
        page.question()
        assert page.events["frame"]["over"]["actions"][1:] == ["watch", "save"]
        status, headers, text = request(game.url + "watch")
        assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
        policy = headers["content-security-policy"]
        assert "sandbox allow-scripts" in policy
        assert "connect-src" not in policy
        assert "skirmish" in text
        for route in ("watch", "save"):
            keyless = game.url.replace(game.url.split("/")[3], "x" * 32) + route
            assert request(keyless)[0] == 403
            assert request(game.url + route, Origin="http://evil.example")[0] == 403
            assert (
                request(game.url + route, "POST", "", b"{}", Content_Type="application/json")[0]
                == 404
            )
        for route in ("watch/", "save/x", "save?x=1", "../save", "Save"):
            assert request(game.url + route)[0] == 404
        status, headers, content = page.get("save")
        assert status == 200
        name = re.fullmatch(
            r'attachment; filename="(skirmish-\d+\.replay)"', headers["content-disposition"]
        )
        assert name is not None
        assert headers["content-type"] == "application/octet-stream"
        assert "sandbox" in headers["content-security-policy"]
    [first, _] = game.join()
    replay = Replay.from_bytes(content)
    assert replay.is_whole
    assert replay.header.episode_seed == first.seed
    assert [agent["name"] for agent in replay.header.agents] == ["human", "random"]
    assert replay.verify(skirmish) is None
    file = tmp_path / name[1]
    file.write_bytes(content)
    result = CliRunner().invoke(main, ["verify", str(file), "--game", SKIRMISH])
    assert (result.exit_code, result.exception) == (0, None), result.output


@pytest.mark.slow
def test_episodes_that_are_too_long_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_replay, "_MAX_TURNS", 12)
    lengths = iter([20, 3, 20])

    def play(agent: Agent, *, seed: int) -> None:
        for x in range(next(lengths)):
            if agent.act(Obs().entities([Unit(x, 0)]), Side) is None:
                return
        agent.game_over()

    game = Played(Game(play, entities=(Unit,), actions=(Side,)), ["human"], episodes=3)
    kept = []
    with game.page() as page:
        for _ in range(3):
            while not (frame := page.wait_for(lambda frame: frame["asked"]))["over"]:
                page.answer(choice=0)
            kept.append(frame["over"]["actions"])
            assert page.get("save")[0] == (200 if "save" in frame["over"]["actions"] else 404)
            if len(kept) < 3:
                page.again()
    assert kept == [["next"], ["next", "watch", "save"], ["again"]]
    game.join()


# ------------------------------------------------------------------ thoughts


class Thinker(RandomAgent):
    """Thinks that the first choices are twice as good."""

    def think(self, observation: Observation) -> Thoughts:
        shares = {
            each.name: np.array([[2 / 3, *[1 / 3] * (len(row) - 1)] for row in each.allowed])
            for each in self.questions(observation)
            if not isinstance(each.space, ContinuousActionSpace)
        }
        return Thoughts(shares, 0.25)


@pytest.mark.slow
@pytest.mark.parametrize("thinks", [False, True])
def test_a_person_sees_thoughts_of_the_agents_on_request(thinks: bool) -> None:
    game = Played(
        rock_paper_scissors,
        ["human", "thinker"],
        load=lambda name, seed: Thinker(seed=seed),
        thinks=thinks,
    )
    with game.page() as page:
        page.question()
        found = page.events["frame"]["think"]
        assert (found is None) == (not thinks)
        if thinks:
            value, throw = found
            assert value == ["value 0.25", [], 0]
            assert throw[0] == "Throw"
            assert throw[1][0] == ["ROCK", 0.6667, 1]
            assert "Opponent" not in str(found)
        for _ in range(5):
            page.press("r")
    game.join()


@pytest.mark.slow
def test_spectators_see_the_thoughts_of_every_decision() -> None:
    game = Played(
        Game(play_pair, entities=(Unit, Target), actions=(SIDE, AIM, PUSH)),
        ["thinker"],
        load=lambda name, seed: Thinker(seed=seed),
        thinks=True,
        fps=20.0,
    )
    with game.page() as page:
        bars = page.wait_for(lambda frame: frame["think"])["think"]
        assert any("77777" in str(each) for each in bars)  # spectators may see what is hidden
        assert all(sum(bar[2] for bar in each[1]) == 1 for each in bars[1:])
        page.wait_for(lambda frame: frame["over"])
    game.join()


class Typewriter:
    """A game that also renders text, as environments of Gymnasium do."""

    def __call__(self, agent: Agent, *, seed: int) -> None:
        if agent.act(Obs().entities([Unit(0, 0)]), Side) is not None:
            agent.game_over()

    def text(self, columns: int, rows: int, *, has_colors: bool, ascii_only: bool) -> str:
        return f"\x1b[31m{columns}\x1b[0m x {rows}"


@pytest.mark.slow
@pytest.mark.parametrize("look", [Look(), Look(size=(1, 1), draw=lambda seen, scene: None)])
def test_text_of_the_game_is_shown_unless_the_look_draws_it(look: Look) -> None:
    writer = Game(Typewriter(), entities=(Unit,), actions=(Side,), name="typewriter")
    game = Played(writer, ["human"], look=look)
    with game.page() as page:
        page.question()
        assert page.events["frame"]["text"] == ("80 x 24" if look.draw is None else "")
    game.finish()


def test_a_page_without_pictures_is_refused() -> None:
    result = CliRunner().invoke(main, ["play", "snake", "--browser", "--no-render"])
    assert result.exit_code == 2
    assert "leave out --no-render" in result.output
    assert result.output.count("\n") <= 2
