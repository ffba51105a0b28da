"""Games in a page, played with a browser's requests; the server enforces the rules."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any
from unittest import mock

import pytest
from hypothesis import assume, given, strategies as st

from entity_env import Categorical, Continuous, Game, Obs, SelectEntity
from entity_env.agents import Agent
from entity_env.agents.human.move_clock import MoveClock
from entity_env.games import cherry_pick, multi_snake, pendulum, rock_paper_scissors, snake
from entity_env.page.live import game_page as module
from entity_env.page.live.game_page import GamePage
from entity_env.views import find_look
from tests.cli.browser.page import WAIT_S, LivePage, Played, request
from tests.helpers.leaks import holdings, leaked_since

EVIL = "</script><script>alert(1)</script>"


@pytest.fixture(autouse=True)
def short_goodbye(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RELOAD_S", 0.1)
    monkeypatch.setattr(module, "_WAKE_S", 0.05)
    monkeypatch.setattr(module, "_END_S", 0.01)


@pytest.mark.slow
def test_snake_is_played_by_keys() -> None:
    before = holdings()
    game = Played(snake, ["human"], episodes=2)
    with game.page() as page:
        asked = page.question()
        assert asked["title"] == "Move"
        assert [choice[:3] for choice in asked["choices"]] == [
            [0, "UP", ["up", "w"]],
            [1, "DOWN", ["down", "s"]],
            [2, "LEFT", ["left", "a"]],
            [3, "RIGHT", ["right", "d"]],
        ]
        assert page.events["ground"]["size"] == [10, 10]
        for _ in range(2):
            while page.events["frame"]["turn"] is not None:
                page.press("up")
            assert page.events["frame"]["seats"][0][3] == "over"
            assert page.events["frame"]["moves"][-1] == "you: UP"
            page.question()
            action = page.events["frame"]["over"]["actions"][0]
            if action == "next":
                page.again()
                assert page.events["frame"]["episode"] == "episode 2 of 2"
        assert action == "again"
    assert [episode.number for episode in game.join()] == [0, 1]
    assert leaked_since(before) == []


@pytest.mark.slow
def test_with_a_clock_the_game_goes_on_without_an_answer() -> None:
    game = Played(snake, ["human"], clock_s=0.01, episodes=2)
    with game.page() as page:
        for _ in range(2):
            asked = page.question()
            assert (asked["title"], asked["left_s"]) == ("Move (no limit, then 0.01 s each)", None)
            page.press("up")
            frame = page.wait_for(lambda frame: frame["turn"] is None)
            assert set(frame["moves"]) == {"you: UP"}
            if "next" in frame["over"]["actions"]:
                assert frame["asked"].get("left_s") is None
                page.again()
    assert len(game.join()) == 2


def test_the_clock_stands_still_while_no_page_is_there() -> None:
    is_there = [True, True, False, False]
    browser = mock.Mock(changed=threading.Condition())
    browser.wait_for_page.side_effect = lambda _: is_there.pop()
    page = GamePage(
        snake, ["human"], find_look(snake), browser, fps=1, episodes=1, ended=lambda _: None
    )
    clock = MoveClock(0.01)
    clock.begin(0)
    clock.begin(1)
    asked: dict[str, object] = {"title": "", "choices": [], "values": []}
    with mock.patch.object(MoveClock, "restart", autospec=True) as restart:
        answer = page._wait_for_answer(asked, lambda answer: answer, clock)
    assert (answer, is_there) == (None, [])
    restart.assert_called_once_with(clock)


@pytest.mark.slow
def test_play_again_is_the_next_run(capsys: pytest.CaptureFixture[str]) -> None:
    game = Played(snake, ["human"])
    with game.page() as page:
        for _ in range(2):
            while page.question() and page.events["frame"]["turn"] is not None:
                page.press("left")
            assert page.events["frame"]["episode"] == "episode 1"
            page.question()
            assert page.events["frame"]["over"]["actions"] == ["again", "watch", "save"]
            if len(game.episodes) == 1:
                page.again()
    first, second = game.join()
    assert (first.number, second.number) == (0, 0)
    assert first.seed != second.seed
    assert capsys.readouterr().out.count("seed") == 2


@pytest.mark.slow
def test_a_throw_is_not_shown_before_the_other_one() -> None:
    game = Played(rock_paper_scissors, ["human", "human"])
    with game.page() as page:
        for i in range(5):
            frame = page.wait_for(lambda frame: frame["asked"])
            assert (frame["turn"], frame["whose"]) == (0, "you 1")
            assert len(frame["moves"]) == 2 * i
            assert len(frame["words"]) == 1  # the opponent is hidden
            assert "Opponent" not in str(frame)
            page.press("r")
            frame = page.wait_for(lambda frame: frame["turn"] == 1)
            assert len(frame["moves"]) == 2 * i  # not the rock
            assert "Opponent" not in str(frame)
            page.press("p")
            assert page.events["frame"]["moves"][-2:] == ["you 1: ROCK", "you 2: PAPER"]
    one, other = game.join()
    assert one.reward == -other.reward < 0


@pytest.mark.slow
def test_others_are_shown_when_a_person_has_decided() -> None:
    for human in (0, 1):
        names = ["random", "random"]
        names[human] = "human"
        game = Played(rock_paper_scissors, names)
        with game.page() as page:
            for i in range(5):
                frame = page.wait_for(lambda frame: frame["asked"])
                assert frame["turn"] == human
                assert len(frame["moves"]) == 2 * i
                assert "Opponent" not in str(frame)
                page.press("s")
            assert len(page.events["frame"]["moves"]) == 10
        game.join()


@pytest.mark.slow
def test_an_entity_is_selected() -> None:
    game = Played(cherry_pick, ["human"])
    with game.page() as page:
        asked = page.question()
        cherries = asked["choices"]
        assert len(cherries) == 16
        assert [keys for _, _, keys, *_ in cherries][8:11] == [["9"], ["a"], ["b"]]
        frame = page.events["frame"]
        assert frame["actors"] == [0]
        for _, label, _, index, _ in cherries:
            assert frame["words"][str(index)] == label
            assert index in {shape[7] for shape in frame["shapes"]}
        while page.events["frame"]["turn"] is not None:
            labels = {each[0]: re.split("[= ]", each[1])[-1] for each in page.question()["choices"]}
            page.answer(choice=max(labels, key=lambda choice: float(labels[choice])))
    [episode] = game.join()
    assert episode.reward == pytest.approx(1)


@pytest.mark.slow
def test_numbers_are_sent() -> None:
    game = Played(pendulum.with_settings(max_episode_steps=3), ["human"])
    with game.page() as page:
        asked = page.question()
        assert asked["values"] == [["torque", -2.0, 2.0]]
        number = asked["number"]
        for values in ([2.1], [], [0, 0], [None], ["1"], [True], [10**400], {"0": 1}, None, [[0]]):
            status, text = page.post({"number": number, "values": values})
            assert (status, text.count("\n")) == (409, 1), values
        for nonsense in (b"NaN", b'{"number": 1, "values": [NaN]}', b'{"number": 1e400}'):
            assert page.post(nonsense)[0] in (400, 409)
        for torque in (-2.0, 0.25, 2):
            page.answer(values=[torque])
        assert [move[5:] for move in page.events["frame"]["moves"]] == ["-2", "0.25", "2"]
    assert game.join()[0].length == 3


class Side(Enum):
    A = 0
    B = 1
    C = 2


@dataclass
class Unit:
    x: int


@dataclass(eq=False)
class Target:
    power: int


SIDE, AIM = Categorical(Side), SelectEntity(Target)
PUSH = Continuous("Push", low=(-1.0, 0.0), high=(1.0, 5.0), labels=("x", "y"))


def play_units(agent: Agent, *, seed: int, length: int = 1) -> None:
    """Two actors, three actions with masks, and a hidden target."""
    units, targets = [Unit(0), Unit(1)], [Target(7), Target(77_777), Target(9)]
    for _ in range(length):
        obs = Obs(5).actors(units).entities(targets).visible(Target, [True, False, True])
        obs.mask(SIDE, [[True, False, True], [False, True, True]])
        obs.mask(AIM, [[True, True, False], [True, True, True]])
        answers = agent.act(obs, SIDE, AIM, PUSH)
        if answers is None:
            return
        sides, aims, pushes = answers
        agent_saw.append((sides, [targets.index(each) for each in aims if each], pushes))
    agent.game_over(Obs(6))


agent_saw: list[Any] = []
units_game = Game(play_units, entities=(Unit, Target), actions=(SIDE, AIM, PUSH))


@pytest.mark.slow
def test_actors_are_asked_one_after_another() -> None:
    agent_saw.clear()
    game = Played(units_game, ["human"])
    with game.page() as page:
        for actor, last in enumerate((["A", "C"], ["B", "C"])):
            for number, title, labels in (
                (1, "Side", last),
                (2, "Select target", ["Target power=7", "hidden", *["Target power=9"] * actor]),
            ):
                asked, frame = page.question(), page.events["frame"]
                title = f"{title} {actor + 1} of 2: Unit x={actor}"
                assert (asked["title"], frame["actors"]) == (title, [actor])
                assert (asked["progress"], asked["can_undo"]) == (
                    [3 * actor + number, 6],
                    3 * actor + number > 1,
                )
                assert [each[1] for each in asked["choices"]] == labels
                assert frame["seats"][0][:4] == ["you", 0, "5", ""]
                assert "77777" not in str(page.events)
                page.answer(choice=asked["choices"][-1][0])
            assert page.question()["title"] == f"Push {actor + 1} of 2: Unit x={actor}"
            page.answer(values=[-1, 0] if actor == 0 else [0.5, 5])
        assert page.events["frame"]["seats"][0][:4] == ["you", 1, "6", "over"]
    game.join()
    assert agent_saw[0][0] == [Side.C, Side.C]
    assert agent_saw[0][1] == [1, 2]
    assert [list(map(float, each)) for each in agent_saw[0][2]] == [[-1, 0], [0.5, 5]]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@pytest.mark.slow
def test_only_legal_answers_are_taken() -> None:
    agent_saw.clear()
    game = Played(units_game, ["human"])
    with game.page() as page:
        asked = page.question()
        assert [each[0] for each in asked["choices"]] == [0, 2]

        own = {"number": st.just(1), "choice": JSON | st.just(1)}
        others = {"undo": JSON | st.just(True), "again": JSON | st.just(True)}

        @given(JSON | st.fixed_dictionaries(own, optional=others))
        def illegal(answer: object) -> None:
            choice = answer.get("choice") if isinstance(answer, dict) else None
            assume(type(choice) is not int or choice not in (0, 2))
            status, text = page.post(answer)
            assert status in (400, 409)
            assert text.count("\n") == 1

        illegal()
        for _ in range(2):
            page.answer(choice=page.question()["choices"][0][0])
            page.answer(choice=page.question()["choices"][0][0])
            page.answer(values=[0, 0])
    game.join()
    assert agent_saw[0][0] == [Side.A, Side.B]


@pytest.mark.slow
def test_answers_to_earlier_questions_are_ignored() -> None:
    game = Played(snake, ["human"])
    with game.page() as page, game.page() as other:
        old = page.question()["number"]
        page.press("down")
        new = other.wait_for(lambda frame: frame["asked"] and frame["asked"]["number"] > old)[
            "asked"
        ]["number"]
        for number in (old, new + 1, -1, 0):
            status, text = other.post({"number": number, "choice": 2})
            assert (status, text.partition(":")[0]) == (409, "the game has moved on")
        assert other.post({"number": new, "choice": 4})[0] == 409
        assert other.post({"number": new, "choice": 1})[0] == 204
        page.wait_for(lambda frame: frame["asked"] and frame["asked"]["number"] > new)
        while page.events["frame"]["turn"] is not None:
            page.press("down")
        assert {*page.events["frame"]["moves"]} == {"you: DOWN"}
    game.join()


@pytest.mark.slow
def test_a_page_that_is_opened_again_shows_where_the_game_is() -> None:
    game = Played(snake, ["human"])
    with game.page() as page:
        page.press("up")
        before = page.question(), page.events["frame"]["shapes"]
    with game.page() as page:
        assert (page.question(), page.events["frame"]["shapes"]) == before
        assert page.events["ground"]["size"] == [10, 10]
        while page.events["frame"]["turn"] is not None:
            page.press("up")
    game.join()


@pytest.mark.slow
def test_agents_are_watched() -> None:
    game = Played(multi_snake, ["random"] * multi_snake.num_agents, episodes=3)
    with game.page() as page:
        frame = page.wait_for(lambda frame: frame["asked"])
        assert frame["episode"] == "episode 3 of 3"
        assert all(end == "over" for _, _, _, end, _ in frame["seats"])
    assert len(game.join()) == 3 * multi_snake.num_agents


def play_race(agents: Sequence[Agent], *, seed: int) -> None:
    """The agents act in turn; agent i acts i + 1 times, and hides its own unit."""
    for step in range(3):
        for i, agent in enumerate(agents):
            obs = Obs(step).entities([Unit(10 * i + step)]).visible(Unit, [False])
            if step > i:
                continue
            if agent.act(obs.entities([Target(i)]), Side) is None:
                return
            if step == i:
                agent.game_over(Obs(10 + i))


race = Game(play_race, entities=(Unit, Target), actions=(Side,), num_agents=3)


@pytest.mark.slow
def test_others_are_watched_after_the_end_of_the_only_person() -> None:
    shown = []
    game = Played(race, ["human", "random", "random"], fps=20.0)
    with game.page() as page:
        assert page.question()["title"] == "Side"
        assert [seat[:4] for seat in page.events["frame"]["seats"]] == [
            ["you", 0, "0", ""],
            ["random 1", 0, "0", ""],
            ["random 2", 0, "0", ""],
        ]
        page.press("a")
        while not page.events["frame"]["asked"]:
            shown.append((page.events["frame"]["turn"], len(page.events["frame"]["moves"])))
            page.read()
        assert "Unit" not in str(page.events)
        assert [seat[:4] for seat in page.events["frame"]["seats"]] == [
            ["you", 1, "10", "over"],
            ["random 1", 2, "11", "over"],
            ["random 2", 3, "12", "over"],
        ]
        assert page.events["frame"]["words"] == {"1": "Target power=2"}
    assert [episode.length for episode in game.join()] == [1, 2, 3]
    assert (2, 6) in shown


@pytest.mark.slow
def test_strings_of_games_are_data() -> None:
    members = Enum("Evil", {EVIL: 0, "b": 1})  # type: ignore[misc]

    def play(agent: Agent, *, seed: int) -> None:
        if agent.act(Obs().entities([Unit(1)]), members) is not None:
            agent.game_over()

    game = Played(Game(play, entities=(Unit,), actions=(members,), name=EVIL), ["human"])
    assert EVIL not in request(game.url)[2]
    with game.page() as page:
        assert page.question()["choices"][0][1] == EVIL
        assert page.events["frame"]["title"] == EVIL
        page.answer(choice=0)
    game.join()


def test_an_error_of_the_game_ends_it() -> None:
    before = holdings()

    def play(agent: Agent, *, seed: int) -> None:
        agent.act(Obs().entities([Unit(1)]), Side)
        raise ZeroDivisionError("here")

    game = Played(Game(play, entities=(Unit,), actions=(Side,)), ["human"])
    with game.page() as page:
        number = page.question()["number"]
        page.post({"number": number, "choice": 0})
        while page.read():
            pass
        assert "bye" in page.events
    with pytest.raises(Exception, match="here"):
        game.join()
    assert leaked_since(before) == []


# ------------------------------------------------------------------ the command


@contextmanager
def command(*args: str) -> Iterator[tuple[str, "subprocess.Popen[str]"]]:
    """The address of a command's page, and its process."""
    process = subprocess.Popen(
        [sys.executable, "-u", "-m", "entity_env", *args, "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "DISPLAY": ":77"},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://\S+", line)
        assert found is not None, line + process.stdout.read()
        yield found[0], process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.slow
@pytest.mark.parametrize("at", ["before", "question", "end", "watch"])
def test_ctrl_c_ends_it_at_any_moment(at: str) -> None:
    agent = "random" if at == "watch" else "human"
    with command("play", "snake", "--browser", "--agent", agent, "--seed", "3") as (url, process):
        if at == "before":
            time.sleep(0.2)  # it waits for no page
        else:
            with LivePage(url) as page:
                page.wait_for(lambda frame: frame["asked"] or at == "watch")
                while at == "end" and page.events["frame"]["turn"] is not None:
                    page.press("up")
                if at == "end":
                    page.question()  # "play again?"
                process.send_signal(signal.SIGINT)
                while page.read():
                    pass
                assert "bye" in page.events
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=WAIT_S)
    if at != "before":  # a second Ctrl-C may come first
        assert ("left before the end" in out) == (at != "end")
        assert "seed 3" in out
    assert "Traceback" not in out
