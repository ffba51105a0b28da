"""Points that never arrive, and reads of the clock, are found in the frames of a game."""

from __future__ import annotations

import datetime
import logging
import os
import random
import re
import secrets
import sys
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from time import monotonic
from typing import Any

import numpy as np
import pytest

from entity_env import ContractError, Game, Obs, check_game
from entity_env.agents import Agent
from entity_env.check.game_frames import ClockWatch


@dataclass
class Dot:
    x: int


class Go(Enum):
    LEFT = -1
    RIGHT = 1


def warnings_of(play: Callable[..., None], caplog: pytest.LogCaptureFixture) -> list[str]:
    caplog.set_level(logging.WARNING)
    caplog.clear()
    check_game(Game(play, entities=(Dot,), actions=(Go,), name="dots"), new_process=False)
    return [record.getMessage() for record in caplog.records]


def ask(agent: Agent, score: float) -> Go | None:
    return agent.act(Obs(score).entities([Dot(1)]), Go)


def play_local(agent: Agent, *, seed: int) -> None:
    score = 0
    for _ in range(4):
        if ask(agent, score) is None:
            return
        score += 1
    score += 10
    agent.game_over()


class World:
    """A game as a class with its score in an attribute."""

    def __init__(self) -> None:
        self.points, self.turn = 0.0, 0

    def run(self, agent: Agent) -> None:
        while self.turn < 4:
            if ask(agent, self.points) is None:
                return
            self.turn += 1
            self.points += 0.5
        agent.game_over()


def play_object(agent: Agent, *, seed: int) -> None:
    world = World()
    world.run(agent)


def play_list(agent: Agent, *, seed: int) -> None:
    state = {"gold": [3, 0]}
    for _ in range(4):
        if ask(agent, state["gold"][1]) is None:
            return
        state["gold"][1] += 2
    agent.game_over(truncated=True)


LOSING: dict[str, tuple[Callable[..., None], str]] = {
    "variable": (play_local, "score is 14 at game_over, but the last observation had the score 3"),
    "attribute": (play_object, "world.points is 2.0 at game_over, but .* the score 1.5"),
    "item": (play_list, r"state\['gold'\]\[1\] is 8 at game_over, but .* the score 6"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("play", "words"), LOSING.values(), ids=LOSING)
def test_points_that_game_over_loses_are_named(
    play: Callable[..., None], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    [found] = [each for each in warnings_of(play, caplog) if "at game_over" in each]

    assert re.search(words, found)
    assert "test_game_frames.py" in found


def play_shown(agent: Agent, *, seed: int) -> None:
    score = 0
    for _ in range(4):
        if ask(agent, score) is None:
            return
        score += 1
    agent.game_over(Obs(score))


@pytest.mark.slow
def test_a_last_observation_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert warnings_of(play_shown, caplog) == []


@pytest.mark.slow
def test_points_that_random_moves_do_not_earn_at_the_end_may_be_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        score = 0
        for turn in range(4):
            if ask(agent, score) is None:
                return
            score += turn < 2
        agent.game_over()

    [found] = warnings_of(play, caplog)
    assert "game_over without an observation ends the episode with the score of the last" in found


@pytest.mark.slow
def test_an_obs_that_grows_is_found(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        obs = Obs()
        for score in range(4):
            obs.score = score
            if agent.act(obs.entities([Dot(score)]), Go) is None:
                return
        agent.game_over(Obs(4))

    [found] = warnings_of(play, caplog)
    assert "it grew from 1 to 2 groups; make a new Obs(score) for every act" in found


@pytest.mark.slow
def test_rewards_of_steps_are_found_also_if_they_are_rare(caplog: pytest.LogCaptureFixture) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        rng = random.Random(seed)
        reward = 0.0
        for _ in range(30):
            if ask(agent, reward) is None:
                return
            reward = float(rng.random() < 0.03)
        agent.game_over(Obs(reward))

    [found] = warnings_of(play, caplog)
    assert "the score looks like the reward of a step" in found


@pytest.mark.slow
def test_scores_that_fall_and_rise_by_chance_are_not_rewards_of_steps(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        rng, score = random.Random(seed), 0
        for _ in range(5):
            if ask(agent, score) is None:
                return
            score += rng.choice([0, 0, 1, -1])
        agent.game_over(Obs(score))

    assert warnings_of(play, caplog) == []


CLOCKS: dict[str, tuple[Callable[[], object], str]] = {
    "time.time": (time.time, "time.time"),
    "imported": (lambda: monotonic(), "time.monotonic"),
    "now": (datetime.datetime.now, "datetime.now"),
    "today": (datetime.date.today, "date.today"),
    "uuid4": (uuid.uuid4, "uuid.uuid4"),
    "urandom": (lambda: os.urandom(4), "os.urandom"),
    "secrets": (lambda: secrets.randbelow(9), "secrets.randbelow"),
    "generator": (np.random.default_rng, "the system's entropy"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("read", "words"), CLOCKS.values(), ids=CLOCKS)
def test_reads_of_the_clock_are_found(
    read: Callable[[], object], words: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Also if they change nothing that is observed."""

    def play(agent: Agent, *, seed: int) -> None:
        for score in range(3):
            str(read())
            if ask(agent, score) is None:
                return
        agent.game_over(Obs(3))

    [found] = warnings_of(play, caplog)

    assert re.search(rf"play reads ({words})", found), found
    assert "test_game_frames.py" in found
    assert "which no seed repeats" in found


@pytest.mark.slow
def test_sleeping_and_seeded_numbers_are_not_reads_of_the_clock(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        rng, other = random.Random(seed), np.random.default_rng(seed)
        for score in range(3):
            time.sleep(0)
            if ask(agent, score + 0 * (rng.random() + other.random())) is None:
                return
        agent.game_over(Obs(3))

    assert warnings_of(play, caplog) == []


def test_a_profiler_of_the_caller_is_left_alone() -> None:

    def own(*_: Any) -> None: ...  # noqa: ANN401

    def play(agent: Agent, *, seed: int) -> None:
        if ask(agent, 0) is not None:
            agent.game_over(Obs(1))

    sys.setprofile(own)
    try:
        clock = ClockWatch(Game(play, entities=(Dot,), actions=(Go,), name="dots"))
        clock.start()
        clock.stop()
        assert sys.getprofile() is own
    finally:
        sys.setprofile(None)


def test_a_prompt_has_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        input("your name? ")

    with pytest.raises(ContractError, match="play reads from the terminal"):
        check_game(Game(play, entities=[Dot], actions=[], name="asks"), episodes=1)
    assert {*capsys.readouterr().out.splitlines()} == {"your name? "}
