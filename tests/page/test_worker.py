"""Games in the worker of a page, on this Python; `test_page` runs them in a browser."""

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import groupby, islice
from pathlib import Path
from textwrap import dedent
from typing import Any

import numpy as np
import pytest

from entity_env import games
from entity_env.agents import RandomAgent, load_agent
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.authoring.local_run import Turn
from entity_env.replay import Replay
from tests.page.session import Message, Session, config_of, start

ROOT = Path(__file__).parents[2]
WITHOUT_NUMPY = (
    *("snake", "multi_snake", "tic_tac_toe"),
    *("treasure_hunt", "cherry_pick", "rock_paper_scissors"),
)
GUESS = """
    from dataclasses import dataclass
    from enum import Enum

    from entity_env import Game, Obs


    class Guess(Enum):
        LOW = 0
        HIGH = 1


    @dataclass
    class Number:
        x: float


    def play(agent, *, seed, rounds: int = 3):
        score = 0
        for i in range(rounds):
            guess = agent.act(Obs(score).globals(Number(i)), Guess)
            if guess is None:
                return
            score += guess.value
        agent.game_over(Obs(score).globals(Number(rounds)))


    game = Game(play, entities=[], actions=[Guess], global_features=Number, name="guess")
"""


@pytest.fixture
def guess(tmp_path: Path) -> Path:
    (tmp_path / "guess_page_game.py").write_text(dedent(GUESS))
    return tmp_path


def guess_config(**more: object) -> dict[str, Any]:
    return config_of("guess_page_game.py", "game", **more)


def test_an_episode_is_played_watched_and_saved(guess: Path) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("human")
        yield from page.to_end()
        yield {"get": "save"}
        yield {"get": "watch"}

    page = Session(visitor).run(guess_config(), guess)
    assert page.frame["over"]["headline"] == "Score 0"
    assert page.frame["over"]["actions"] == ["again", "watch", "save"]
    assert [text for name, text in page.log if name == "answered"] == ["", "", ""]
    name, _ = page.events["save"]
    assert name.startswith("guess-")
    assert name.endswith(".replay")
    replay = Replay.from_bytes(page.replay)
    assert (replay.num_decisions, replay.is_whole) == (3, True)
    assert page.events["watch"].startswith("<!doctype html>")


def test_playing_again_has_the_next_seed(guess: Path) -> None:
    seeds = []

    def visitor(page: Session) -> Iterator[Message]:
        yield start("human", seed=5)
        for _ in range(2):
            yield from page.to_end()
            yield {"get": "save"}
            seeds.append(Replay.from_bytes(page.replay).header.episode_seed)
            yield page.answer(again=True)

    Session(visitor).run(guess_config(), guess)
    assert len({*seeds}) == 2


def test_the_page_knows_who_must_answer_in_time(guess: Path) -> None:
    """Nothing else can stop a game or an agent that hangs in a page."""
    (guess / "bot.py").write_text("def bot(obs, action):\n    return action.LOW\n")
    game, bot = ({"seconds": 7, "seat": seat} for seat in (None, 0))

    def limits(*seats: str) -> list[object]:
        def visitor(page: Session) -> Iterator[Message]:
            yield start(*seats, fps=20)
            while not page.frame["over"]:
                yield None if page.frame["asked"] is None else page.first_choice()

        config = guess_config(step_timeout_s=7, agents={"bot.py:bot": "bot"})
        log = Session(visitor).run(config, guess).log
        asked = [data for name, data in log if name == "limit"]
        return [each for each, _ in groupby(asked)]

    # What is loaded, or drawn, counts as the game; a person, and the next turn, are waited for.
    drawn, turn = [game, None], [game, bot]
    told = [*drawn * 2, *[*turn, None, *drawn] * 3, *turn, *drawn * 2]
    assert limits("human") == told
    assert limits("bot.py:bot") == [*drawn * 2, *[*turn, *drawn] * 4, *drawn]


def test_a_page_without_a_time_limit_asks_for_none(guess: Path) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("human")
        yield from page.to_end()

    page = Session(visitor).run(guess_config(step_timeout_s=None), guess)
    assert "limit" not in page.events


@pytest.mark.parametrize(
    "answer",
    [{"choice": 7}, {"choice": "0"}, {}, {"number": -1, "choice": 0}, {"values": [1]}],
    ids=str,
)
def test_a_wrong_answer_is_refused_and_the_question_stays(
    guess: Path, answer: dict[str, object]
) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("human")
        yield page.answer(**answer)
        assert page.events["answered"]
        yield page.answer(choice=1)
        assert page.events["answered"] == ""

    page = Session(visitor).run(guess_config(), guess)
    assert page.frame["seats"][0][1:3] == [1, "1"]


def test_another_start_ends_the_episode(guess: Path) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("human")
        yield page.first_choice()
        yield start("random", fps=5)
        for _ in range(4):
            yield None
        yield start("human")
        yield from page.to_end()

    page = Session(visitor).run(guess_config(), guess)
    assert page.frame["over"]["headline"] == "Score 0"
    assert [data["seats"][0][0] for name, data in page.log if name == "frame"][-1] == "you"


def test_spectators_choose_the_pace_and_may_pause(guess: Path) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("random", fps=20)
        assert page.waits[-1] == pytest.approx(50, abs=20)
        yield {"fps": 0}
        for _ in range(3):
            assert page.waits[-1] > 1e6
            yield None
        steps = page.frame["seats"][0][1]
        yield {"fps": 1000}
        assert page.frame["seats"][0][1] == steps + 1

    Session(visitor).run(guess_config(), guess)


def test_a_clock_answers_for_a_person(guess: Path) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("human", clock_s=0.02)
        yield page.answer(choice=1)
        while not page.frame["over"]:
            yield None

    page = Session(visitor).run(guess_config(), guess)
    assert page.frame["over"]["headline"] == "Score 3"


def test_an_edited_game_is_loaded_again(guess: Path) -> None:
    edited = dedent(GUESS).replace("score += guess.value", "score += 10")

    def visitor(page: Session) -> Iterator[Message]:
        for files in ({}, {"guess_page_game.py": edited}, {"guess_page_game.py": dedent(GUESS)}):
            yield start("human", files=files)
            yield from page.to_end()

    page = Session(visitor).run(guess_config(), guess)
    overs = [data["over"] for name, data in page.log if name == "frame" and data["over"]]
    assert [each["headline"] for each in overs if len(each["actions"]) == 3] == [
        "Score 0",
        "Score 30",
        "Score 0",
    ]


@pytest.mark.parametrize(
    ("before", "after", "line", "error"),
    [
        (
            "score += guess.value",
            "score += guess.valu",
            "guess_page_game.py:24 in play",
            "AttributeError",
        ),
        ("score = 0", "score = (", "", "SyntaxError"),
        ("name=", "nam=", "guess_page_game.py:28 in <module>", "TypeError"),
        ("game = ", "gam = ", "", "UsageError"),
    ],
)
def test_an_error_of_the_game_names_its_line_and_the_page_stays(
    guess: Path, before: str, after: str, line: str, error: str
) -> None:
    edited = dedent(GUESS).replace(before, after)

    def visitor(page: Session) -> Iterator[Message]:
        yield start("human", files={"guess_page_game.py": edited})
        while "failed" not in page.events:
            yield page.first_choice()
        yield start("human", files={"guess_page_game.py": dedent(GUESS)})
        yield from page.to_end()

    page = Session(visitor).run(guess_config(), guess)
    assert error in page.events["failed"]["error"]
    assert page.events["failed"]["line"] == line
    assert page.frame["over"]["headline"] == "Score 0"


def test_a_player_is_called_as_in_the_form(guess: Path) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("random")
        yield from page.to_end()

    page = Session(visitor).run(guess_config(players=[["random", "Random moves"]]), guess)
    assert page.frame["seats"][0][0] == "Random moves"


def test_an_unknown_player_is_named(guess: Path) -> None:
    def visitor(page: Session) -> Iterator[Message]:
        yield start("Nobody")

    page = Session(visitor).run(guess_config(agents={"snake.agent": "network"}), guess)
    assert page.events["failed"]["error"] == (
        "UsageError: no player 'Nobody': expected one of human, random, snake.agent"
    )


@pytest.mark.parametrize("name", WITHOUT_NUMPY)
def test_a_game_of_the_package_is_played_and_verified(name: str) -> None:
    game = games.GAMES[name]

    def visitor(page: Session) -> Iterator[Message]:
        yield start("human", *["random"] * (game.num_agents - 1))
        yield from islice(page.to_end(), 3000)
        yield {"get": "save"}
        yield {"get": "watch"}

    page = Session(visitor).run(config_of(f"entity_env.games.{name}", name), ROOT)
    assert "<svg" in page.events["watch"]
    replay = Replay.from_bytes(page.replay)
    assert replay.num_decisions
    assert replay.verify(game) is None


def test_a_network_decides_and_shows_what_it_thinks() -> None:
    """The network of this test is in numpy; `test_network` compares that with JavaScript."""
    agent = load_agent(ROOT / "examples/ship/snake.agent", greedy=True)
    assert isinstance(agent, TrainedAgent)

    def think(name: str, text: str) -> str:
        assert name == "snake.agent"
        given = json.loads(text)
        assert given["actions"] == {
            "Move": {
                "actors": [sum(map(len, given["features"].values()))],
                "actees": None,
                "mask": [[True] * 4],
            }
        }
        return json.dumps({"probabilities": {"Move": [[0.1, 0.2, 0.3, 0.4]]}, "value": 1.5})

    def visitor(page: Session) -> Iterator[Message]:
        yield start("snake.agent", think=True)
        yield None

    config = config_of("entity_env.games.snake", "snake", agents={"snake.agent": "network"})
    page = Session(visitor, think).run(config, ROOT)
    value, (_, bars, _) = page.frame["think"]
    assert value[0] == "value 1.5"
    assert [label for label, _, is_chosen in bars if is_chosen] == ["RIGHT"]


def test_an_advisor_remembers_what_the_person_observed_and_not_what_it_plays() -> None:
    """The state of this network is the list of all that it has remembered."""
    asked: list[list[Any]] = []

    def think(name: str, text: str) -> str:
        given = json.loads(text)
        choices = {"probabilities": {"Throw": [[0.5, 0.25, 0.25]]}, "means": {}, "value": 1.0}
        if "past" in given:
            return json.dumps({"without": [choices] * (2 + len(given["past"]))})
        state = [*(given["state"] or []), given["features"]["Player"]]
        if state not in asked:
            asked.append(state)
        return json.dumps({**choices, "state": state})

    num_weighed = []

    def visitor(page: Session) -> Iterator[Message]:
        yield start("human", "some.agent", think=True, seed=1)
        for is_first in (True, False):
            while not page.frame["over"]:
                *_, last = page.frame["think"]
                num_weighed.append(len(last[3][1]) if len(last) > 3 else 0)
                yield page.first_choice()
            if is_first:
                yield page.answer(again=True)

    config = config_of(
        "entity_env.games.rock_paper_scissors",
        "rock_paper_scissors",
        agents={"some.agent": "network"},
    )
    Session(visitor, think).run(config, ROOT)
    assert num_weighed == [0, 1, 2, 3, 4] * 2
    turns: list[Turn] = []
    game = games.rock_paper_scissors
    for seed in (1, 2):
        game.run(*(RandomAgent(seed=i) for i in range(2)), seed=seed, watch=turns.append)
    expected = []
    decisions = [turn for turn in turns if turn.episode is None]
    for seed in range(2):
        for agent_id in range(2):
            seen = [
                np.asarray(turn.observation.features["Player"]).tolist()
                for turn in decisions[10 * seed : 10 * seed + 10]
                if turn.agent_id == agent_id
            ]
            for i in range(1, 6):
                assert seen[:i] in asked
                expected.append(seen[:i])
    assert [each for each in asked if each not in expected] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", WITHOUT_NUMPY)
def test_a_session_needs_no_other_package(name: str) -> None:
    """Neither numpy and greenlet, nor what the command line needs."""
    code = f"""
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {{"numpy", "greenlet", "click", "rich", "numba", "PIL"}}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refuse())
from entity_env.page.trial import play_trial
config = {config_of(f"entity_env.games.{name}", name)!r}
play_trial({{}}, config, "")
print("played")
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("played\n", "")
