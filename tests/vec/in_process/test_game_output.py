"""Output of the copies of a game: stdout of one copy, with a hint; stderr of all."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from entity_env import Game, Obs
from entity_env.agents import Agent, random_actions
from entity_env.agents.channels.channel import Transport
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import VecEnv
from entity_env.vec.in_process.game_output import GameOutput
from tests.helpers.tiny_games import Dot, Move

HINT = "of 4 environments, only the first one that prints is shown"
SEEDS = [EpisodeSeeds(1, env_id)[0] for env_id in range(4)]


def game_of(say: Callable[[int, int], None]) -> Game:
    """A game that prints in every step and when it is closed."""

    def play(agent: Agent, *, seed: int) -> None:
        try:
            for step in range(9):
                say(seed, step)
                if agent.act(Obs(0).entities([Dot(step)]), Move) is None:
                    return
        finally:
            say(seed, -1)

    return Game(play, entities=(Dot,), actions=(Move,), name="talks")


def run(game: Game, num_envs: int, num_workers: int = 0, **options: Any) -> None:  # noqa: ANN401
    """Runs two steps."""
    rng = np.random.default_rng(1)
    with VecEnv(game, num_envs, num_workers, seed=1, **options) as vec:
        obs = vec.reset()
        for _ in range(2):
            obs = vec.act(random_actions(obs, vec.action_space(), rng))


def say_all(seed: int, step: int) -> None:
    print(seed, step)
    print(seed, step, file=sys.stderr)


def said(*seeds: int) -> list[str]:
    """Output of games with these seeds, sorted."""
    return sorted(f"{seed} {step}" for seed in seeds for step in (0, 1, 2, -1))


@pytest.mark.parametrize("transport", ["greenlet", "thread"])
def test_one_copy_is_shown_and_the_errors_of_all(
    transport: Transport, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    out = sys.stdout
    run(game_of(say_all), 4, transport=transport)
    shown, errors = capsys.readouterr()
    assert sorted(shown.splitlines()) == said(SEEDS[0])
    assert sorted(line for line in errors.splitlines() if HINT not in line) == said(*SEEDS)
    assert [HINT in record.message for record in caplog.records] == [True]
    assert sys.stdout is out


def test_the_copy_that_prints_is_shown_whichever_it_is(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """For example, a copy with a rare event."""

    def rarely(seed: int, step: int) -> None:
        if seed == SEEDS[2]:
            print(seed, step)

    run(game_of(rarely), 4)
    assert sorted(capsys.readouterr().out.splitlines()) == said(SEEDS[2])
    assert not caplog.records


def test_a_single_copy_is_not_touched(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run(game_of(say_all), 1)
    assert sorted(capsys.readouterr().out.splitlines()) == said(SEEDS[0])
    assert not caplog.records


@pytest.mark.slow
def test_a_copy_of_each_worker_is_shown_with_one_hint(capfd: pytest.CaptureFixture[str]) -> None:
    run(game_of(say_all), 4, 2, start_method="spawn")  # its workers have this test's streams
    shown, errors = capfd.readouterr()
    # Two processes write parts of lines at once: output is compared letter by letter.
    assert sorted(shown) == sorted("".join(f"{line}\n" for line in said(SEEDS[0], SEEDS[2])))
    assert errors.count(HINT) == 1


def test_a_game_may_redirect_its_output_while_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    """Its output is captured, and the streams are restored afterwards."""
    kept = io.StringIO()
    out = sys.stdout

    def play(agent: Agent, *, seed: int) -> None:
        if seed != SEEDS[0]:
            while agent.act(Obs(0).entities([Dot(0)]), Move) is not None:
                pass
            return
        with contextlib.redirect_stdout(kept):
            print("inside")
            agent.act(Obs(0).entities([Dot(0)]), Move)
        print("outside")
        while agent.act(Obs(0).entities([Dot(0)]), Move) is not None:
            pass

    run(Game(play, entities=(Dot,), actions=(Move,), name="redirects"), 2)
    assert kept.getvalue() == "inside\n"
    assert capsys.readouterr().out == "outside\n"
    assert sys.stdout is out


def test_it_has_the_rest_of_a_stream() -> None:
    output, stream = GameOutput(2, says_so=False), io.StringIO()
    with contextlib.redirect_stdout(stream), output([1]):
        print("one", flush=True)
        assert sys.stdout.isatty() is False
        output([0])
        assert sys.stdout.write("left out") == 8
    assert stream.getvalue() == "one\n"
