"""Failures leave replays, which fail again; the failure itself is always reported."""

import os
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from random import Random

import numpy as np
import pytest

from entity_env import Game, Obs, WorkerError
from entity_env.agents import Agent
from entity_env.agents.channels.channel import Transport
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.vec_env_base import Autoreset
from entity_env.core.vec_obs import VecObs
from entity_env.replay import Replay
from entity_env.vec import VecEnv
from entity_env.vec.options import OnError
from tests.helpers.tiny_games import Dot, Move, ask, dots_game
from tests.helpers.worker_games import EXITS, FAULTS, LENGTH, faulty

MODES: tuple[Autoreset, ...] = ("same_step", "next_step", "disabled")
VICTIM = EpisodeSeeds(0, 3)[1]
"""The second episode of environment 3, in worker 1 of 2."""


def play_both(agents: Sequence[Agent], *, seed: int, victim: int = -1, fault: str = "") -> None:
    """Two agents move together; the second leaves after the first step."""
    pending = [agent.act_async(Obs().entities([Dot(i)]), Move) for i, agent in enumerate(agents)]
    moves = [each.get() for each in pending]
    if None in moves:
        return
    agents[1].game_over(Obs(moves[1].value if moves[1] else 0))
    for i in range(3):
        if seed == victim and i == 2:
            FAULTS[fault](agents[0])
        if ask(agents[0], score=i, x=i) is None:
            return
    agents[0].game_over()


both = dots_game(play_both, num_agents=2)
GAMES = {1: faulty, 2: both}


def play_on(vec: VecEnv, num_steps: int) -> VecObs:
    """Plays moves that differ from step to step."""
    obs, rng = vec.reset(), Random(0)
    for _ in range(num_steps):
        done = np.zeros(vec.num_envs, np.bool_)
        if vec.autoreset == "disabled":
            np.logical_not(obs.is_ready.reshape(vec.num_envs, -1).any(axis=1), out=done)
        if done.any():
            obs = vec.reset_envs(done)
        else:
            num_actors = len(obs.action_masks["Move"].actors.values)
            obs = vec.act({"Move": np.array([rng.randrange(3) for _ in range(num_actors)])})
    return obs


def failing(num_agents: int, fault: str) -> Game:
    return GAMES[num_agents].with_settings(victim=VICTIM, fault=fault)


FAILURES = {
    "raise": (r"on fire \(env 3, .*replay: .*--debug -1", "OSError: the board is 100 % on fire"),
    "waits": (r"hangs.*; replay: ", "hangs: no answer for 0.5 s"),
    "killed": (r"died \(signal 9\).*; replay: ", "died (signal 9)"),
}
"""Texts of the error and the replay, by fault."""


CASES = [
    (*where, num_agents, on_error)
    for where in (*product(("raise", "waits"), (0, 2)), ("killed", 2))
    for num_agents in (1, 2)
    for on_error in ("raise", "restart")
]


# Each fault with one of the modes, in turn.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "num_workers", "num_agents", "on_error", "mode"),
    [(*case, MODES[i % 3]) for i, case in enumerate(CASES)],
)
def test_a_failure_leaves_a_replay(
    tmp_path: Path,
    fault: str,
    num_agents: int,
    num_workers: int,
    mode: Autoreset,
    on_error: OnError,
) -> None:
    game, (told, failure) = failing(num_agents, fault), FAILURES[fault]
    with VecEnv(
        game,
        4,
        num_workers,
        autoreset=mode,
        on_error=on_error,
        failures=tmp_path,
        step_timeout_s=0.5 if fault == "waits" else None,
    ) as vec:
        if on_error == "raise":
            with pytest.raises(WorkerError, match=told) as caught:
                play_on(vec, 3 * LENGTH)
            assert caught.value.replay == str(tmp_path / f"{game.name}-env3-episode1.replay")
            play_on(vec, 1)  # lost episodes of other environments are not failures
        else:
            play_on(vec, 3 * LENGTH)
        assert vec.has_crashed == (fault != "raise" and num_workers > 0)
    [path] = tmp_path.iterdir()
    replay = Replay.load(path)
    assert path.name == f"{game.name}-env3-episode1.replay"
    assert (replay.failure, replay.header.episode_seed) == (failure, VICTIM)
    assert replay.has_observations == (fault == "raise")  # made by repeating the episode
    assert replay.num_decisions == (2 if num_agents == 1 else 4)
    if fault != "killed":
        assert replay.verify(game, step_timeout_s=0.3 if fault == "waits" else None) is None
        return
    # Without the kill, the game continues at this point.
    header = replace(replay.header, settings={"victim": -1})
    found = Replay(header, replay.lines, failure=replay.failure).verify(game)
    assert "failed here with died (signal 9), but now it does not" in str(found)


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["greenlet", "thread"])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_game_that_would_end_the_program_or_prevent_a_report(
    tmp_path: Path, num_workers: int, transport: Transport
) -> None:
    for fault, reason in EXITS.items():
        game = failing(1, fault).with_transport(transport)
        with (
            VecEnv(game, 4, num_workers, failures=tmp_path / fault) as vec,
            pytest.raises(WorkerError, match=f"the game {reason}") as caught,
        ):
            play_on(vec, 3 * LENGTH)
        error = caught.value
        assert (error.env_id, error.seed, error.episode, error.step) == (3, VICTIM, 1, 2)
        assert "in play_faulty" in error.game_traceback
        replay = Replay.load(error.replay)
        assert (replay.num_decisions, replay.verify(game)) == (2, None)
        with VecEnv(game, 4, num_workers, on_error="restart") as vec:
            play_on(vec, 3 * LENGTH)
            assert vec.statistics().num_restarts == 1


def test_a_keyboard_interrupt_is_a_failure_in_a_worker_and_ctrl_c_elsewhere() -> None:
    game = failing(1, "KeyboardInterrupt")
    with (
        VecEnv(game, 4, 2) as vec,
        pytest.raises(WorkerError, match=r"raised KeyboardInterrupt:  \(env 3, worker 1, seed"),
    ):
        play_on(vec, 3 * LENGTH)
    with VecEnv(game, 4, on_error="restart") as vec, pytest.raises(KeyboardInterrupt):
        play_on(vec, 3 * LENGTH)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize("ends", ["raises", "returns"])
@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.filterwarnings("ignore:This process.*multi-threaded:DeprecationWarning")
def test_a_process_that_a_game_forks_does_not_go_on(num_workers: int, ends: str) -> None:
    """The game waits for the process, and raises if its exit code is not 1."""
    with VecEnv(failing(1, f"fork {ends}"), 4, num_workers, on_error="restart") as vec:
        assert play_on(vec, 3 * LENGTH).reward.tolist() == [1.0] * 4
        assert vec.statistics().num_restarts == 0


def test_a_failure_before_the_first_action(tmp_path: Path) -> None:
    game = faulty.with_settings(victim=VICTIM, fault="raise", at=0)
    with VecEnv(game, 4, failures=tmp_path) as vec, pytest.raises(WorkerError, match="replay: "):
        play_on(vec, 2 * LENGTH)
    [path] = tmp_path.iterdir()
    replay = Replay.load(path)
    assert (replay.num_decisions, replay.header.run) == (0, {"episode": 1, "env": 3})
    assert replay.verify(game) is None


def test_no_file_is_replaced(tmp_path: Path) -> None:
    game = failing(1, "raise")
    (tmp_path / "play_faulty-env3-episode1.replay").write_text("mine")
    for _ in range(2):
        with VecEnv(game, 4, failures=tmp_path) as vec, pytest.raises(WorkerError):
            play_on(vec, 3 * LENGTH)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == [
        "play_faulty-env3-episode1-2.replay",
        "play_faulty-env3-episode1-3.replay",
        "play_faulty-env3-episode1.replay",
    ]
    assert (tmp_path / names[-1]).read_text() == "mine"


@pytest.mark.parametrize("on_error", ["raise", "restart"])
def test_a_replay_that_cannot_be_written_hides_nothing(
    tmp_path: Path, on_error: OnError, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    with VecEnv(failing(1, "raise"), 4, failures=tmp_path / "file", on_error=on_error) as vec:
        if on_error == "raise":
            with pytest.raises(WorkerError, match="on fire") as caught:
                play_on(vec, 3 * LENGTH)
            [note] = caught.value.__notes__
            assert not caught.value.replay
        else:
            play_on(vec, 3 * LENGTH)
            [note] = caplog.messages
    assert "its replay could not be written: cannot write" in note


def test_a_full_disk_hides_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("entity_env.core.files.os.replace", full)
    with (
        VecEnv(failing(1, "raise"), 4, failures=tmp_path) as vec,
        pytest.raises(WorkerError, match="on fire") as caught,
    ):
        play_on(vec, 3 * LENGTH)
    assert "No space left" in caught.value.__notes__[0]
    assert not list(tmp_path.iterdir())


def test_a_game_that_does_not_fail_again_keeps_its_actions(tmp_path: Path) -> None:
    times: list[int] = []

    def play(agent: Agent, *, seed: int) -> None:
        for i in range(3):
            if ask(agent, x=i) is None:
                return
        times.append(seed)
        if len(times) == 3:
            raise ValueError("the third time")
        agent.game_over()

    with (
        VecEnv(dots_game(play), 1, failures=tmp_path) as vec,
        pytest.raises(WorkerError, match="ValueError: the third time") as caught,
    ):
        play_on(vec, 9)
    assert "played again, the episode does not fail like this" in caught.value.__notes__[0]
    replay = Replay.load(caught.value.replay)
    assert replay.failure == "ValueError: the third time"
    assert replay.num_decisions == 3
    assert not replay.has_observations


def test_a_game_that_always_fails_writes_so_many_files_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def play(agent: Agent, *, seed: int) -> None:
        if ask(agent) is not None:
            raise ValueError("always")

    monkeypatch.setattr("entity_env.replay.failures._MAX_FAILURES", 3)
    with VecEnv(dots_game(play), 2, on_error="restart", failures=tmp_path) as vec:
        play_on(vec, 5)
    assert len(list(tmp_path.iterdir())) == 3
    assert sum("no more" in message for message in caplog.messages) == 1


def test_without_a_folder_nothing_is_kept() -> None:
    with VecEnv(failing(1, "raise"), 4) as vec, pytest.raises(WorkerError) as caught:
        play_on(vec, 3 * LENGTH)
    assert not caught.value.replay
    assert "replay: " not in str(caught.value)
