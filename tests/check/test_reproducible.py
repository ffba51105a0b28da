"""Episodes that cannot be repeated are found, with the feature that differs."""

from __future__ import annotations

import logging
import os
import random
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

import pytest

from entity_env import ContractError, Game, Obs, check_game
from entity_env.agents import Agent
from entity_env.check import reproducible
from tests.helpers.batches import PLAIN_GAMES


@dataclass
class Dot:
    x: int


class Go(Enum):
    LEFT = 0
    RIGHT = 1


class Colour(Enum):
    RED = 0
    BLUE = 1


def dots(name: str, fault: Callable[[random.Random, int], int] = lambda rng, episode: 0) -> Game:
    """A dot that moves right, and further if there is a fault."""
    episodes = [0]

    def play(agent: Agent, *, seed: int) -> None:
        rng, x = random.Random(seed), 0
        episodes[0] += 1
        for _ in range(20):
            move = agent.act(Obs(x).entities([Dot(x)]), Go)
            if move is None:
                return
            x += move.value + fault(rng, episodes[0])
        agent.game_over(Obs(x))

    return Game(play, entities=(Dot,), actions=(Go,), name=name)


def set_order(rng: random.Random, episode: int) -> int:
    return int(next(iter({f"{rng.random()}" for _ in range(9)}))[-1])


def slow_clock(rng: random.Random, episode: int) -> int:
    """Differs in another process, as a clock that rarely changes."""
    return int(time.time() * 0) + os.getpid() % 1000


def one_rng_for_all_episodes(agent: Agent, *, seed: int) -> None:
    rng = random.Random(seed)
    while True:
        x = 0
        for _ in range(5):
            if agent.act(Obs(x).entities([Dot(x)]), Go) is None:
                return
            x = rng.randrange(1000)
        agent.game_over(Obs(x))


TWICE = r"one seed gives different episodes: episode 0 \(seed \d+\), step \d+: the reward is first"
ALONE = (
    r"an episode alone differs from the same episode after others: "
    r"episode {0} \(seed \d+\), agent 0, "
    r"step 1: Dot 0: x was {1}, is {2} now; create new state for every episode, from its own seed"
)
PROCESS = (
    r"not reproducible in another process with another PYTHONHASHSEED: episode 0 \(seed \d+\), "
    r"agent 0, step \d+: Dot 0: x was \d+, is \d+ now; sort the items of sets, and let "
    r"only the seed decide"
)
COPIES = (
    r"two copies in turn, as in training: episode 0 \(seed \d+\), step \d+: they differ from one "
    r"copy alone: the reward is first \d+ and then \d+; shared by the copies: 'episodes' around "
    r"play, which play has changed: create it in play"
)
FAULTS = [
    (dots("global random", lambda rng, episode: random.randrange(1000)), TWICE),
    (dots("clock", lambda rng, episode: time.perf_counter_ns() % 1000), TWICE),
    (dots("module state", lambda rng, episode: episode), TWICE),
    # Equal in every run of three episodes, so no run reveals it.
    (dots("module state again", lambda rng, episode: 9 * (episode % 3 == 0)), COPIES),
    (dots("set order", set_order), PROCESS),
    (
        dots("slow clock", slow_clock),
        PROCESS.partition("sort the items")[0]
        + r"play reads time.time \(.*, which no seed repeats",
    ),
    (
        Game(one_rng_for_all_episodes, entities=(Dot,), actions=(Go,)),
        ALONE.format("1", r"\d+", r"\d+").replace(
            " now;", r" now; act after game_over .*:\d+ in .*, without agent.seed: return after .*;"
        ),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize(("game", "sentence"), FAULTS, ids=lambda each: getattr(each, "name", ""))
def test_faults_are_found(game: Game, sentence: str) -> None:
    with pytest.raises(ContractError) as caught:
        check_game(game)
    [problem] = caught.value.problems
    assert re.match(sentence, problem), problem


def test_another_process_can_be_left_out() -> None:
    check_game(dots("set order", set_order), new_process=False)


@pytest.mark.slow
def test_a_game_that_is_sound_passes() -> None:
    check_game(dots("sound", lambda rng, episode: rng.randrange(3)))


def test_a_game_that_cannot_be_sent_is_played_here_alone(caplog: pytest.LogCaptureFixture) -> None:
    lock = threading.Lock()

    def fault(rng: random.Random, episode: int) -> int:
        with lock:
            return 0

    with caplog.at_level(logging.WARNING, "entity_env.check"):
        check_game(dots("locked", fault))
    [record] = caplog.records
    assert "locked was not played in another process: locked cannot be sent" in record.getMessage()


@pytest.mark.slow
@pytest.mark.parametrize("steps", [(3,), (3, 9)])
def test_it_plays_with_the_settings_given(steps: tuple[int, ...]) -> None:
    """Also with settings that a replay cannot store."""

    def play(agent: Agent, *, seed: int, steps: tuple[int, ...]) -> None:
        for x in steps:
            shown = x if x == 3 else set_order(random.Random(seed), 0)
            if agent.act(Obs().entities([Dot(shown)]), Go) is None:
                return
        agent.game_over()

    game = Game(play, entities=(Dot,), actions=(Go,), name="tuples")
    game.settings = {"steps": steps}
    if steps == (3,):
        check_game(game)
    else:
        with pytest.raises(ContractError, match="not reproducible in another process"):
            check_game(game, episodes=5)


@pytest.mark.slow
def test_it_plays_with_them_in_the_other_process_too() -> None:
    """The other process imports the game by name, with a different default size."""
    check_game(PLAIN_GAMES["snake"].with_settings(board_size=6), episodes=2)


def test_agents_whose_episodes_overlap_are_no_fault() -> None:
    """The world continues when an agent dies, so its next episode depends on the previous one."""

    def play(agents: Sequence[Agent], *, seed: int) -> None:
        rng = random.Random(seed)
        ages = [0, 0]
        while True:
            for i, agent in enumerate(agents):
                if agent.act(Obs(ages[i]).entities([Dot(rng.randrange(99))]), Go) is None:
                    return
                ages[i] += 1
                if ages[i] == 2 + i:
                    agent.game_over()
                    ages[i] = 0

    game = Game(play, entities=(Dot,), actions=(Go,), num_agents=2, respawns=True)
    check_game(game, new_process=False)


@pytest.mark.slow
def test_what_random_actions_rarely_reach_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recorded episodes differ from those checked before."""

    def play(agent: Agent, *, seed: int) -> None:
        if not is_first_check[0]:
            raise ZeroDivisionError("rare")
        agent.act(Obs().entities([Dot(0)]), Go)
        agent.game_over()

    is_first_check = after_the_first_check(monkeypatch)
    with pytest.raises(ContractError, match="play raised ZeroDivisionError: rare"):
        check_game(Game(play, entities=(Dot,), actions=(Go,)), new_process=False)


def after_the_first_check(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Its item becomes False when recording starts."""
    is_first_check = [True]
    added = reproducible.add_irreproducible

    def later(*args: object, **kwargs: object) -> None:
        is_first_check[0] = False
        added(*args, **kwargs)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr("entity_env.check.game.add_irreproducible", later)
    return is_first_check


@pytest.mark.slow
def test_an_endless_episode_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends with the actions of the first check, but might never end with others."""

    def play(agent: Agent, *, seed: int) -> None:
        for x in range(10**6):
            if agent.act(Obs().entities([Dot(x)]), Go) is None:
                return
            if x > 5 and is_first_check[0]:
                break
        agent.game_over()

    is_first_check = after_the_first_check(monkeypatch)
    check_game(Game(play, entities=(Dot,), actions=(Go,)), max_steps=30, new_process=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["snake", "multi_snake", "cherry_pick"])
def test_games_of_the_package_pass(name: str) -> None:
    check_game(PLAIN_GAMES[name], episodes=2)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PLAIN_GAMES))
def test_all_games_of_the_package_pass(name: str) -> None:
    check_game(PLAIN_GAMES[name], episodes=2)
