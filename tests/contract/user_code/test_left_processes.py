"""Code of users that exits or hangs while a process that it has started holds its pipes open.

Every wait ends when the process does, long before its limit, and that process ends, too: the check
for orphans at the end of this file finds those that are left. Limits here are longer than the time
that a test may take.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from entity_env import Game, WorkerError
from entity_env.agents import RandomAgent
from entity_env.authoring.load_module import load_module
from entity_env.cluster.jobs import Job, run_jobs
from entity_env.errors import ReplayError, UsageError
from entity_env.processes import exit_with_parent, kill_group_of, run_group
from entity_env.replay import record, verify_in_new_process
from entity_env.vec import VecEnv
from entity_env.vec.external.game import ExternalGame
from entity_env.vec.external.program import Program
from entity_env.views.pictures import _write_mp4
from tests import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="process groups")
LONG_S = 500.0
LIAR = ROOT / "tests" / "vec" / "external" / "liar.py"
LEAVES = "import os, subprocess, sys\nsubprocess.Popen(['sleep', '500'])\n"
EXITED = r"exited with code 3 before message \d \(%s\) was complete"


def liar(fault: str) -> list[str]:
    return [sys.executable, "-S", str(LIAR), fault]


# ---------------------------------------------------------------------------- programs


def test_a_program_that_exits_before_it_is_described() -> None:
    for fault, due in (("leaves_HELLO", "HELLO"), ("leaves_START", "READY")):
        with pytest.raises(WorkerError, match=EXITED % due):
            ExternalGame(liar(fault))


@pytest.mark.parametrize("place", ["RESET", "ACT"])
@pytest.mark.parametrize("num_workers", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_a_program_that_exits_in_a_step(place: str, num_workers: int) -> None:
    game = ExternalGame(liar(f"leaves_{place}"))
    with VecEnv(game, 2, num_workers=num_workers, step_timeout_s=LONG_S) as vec:
        if place == "ACT":
            vec.reset()
        with pytest.raises(WorkerError, match=EXITED % "STEP"):
            vec.act({"Move": np.zeros(2, np.int64)}) if place == "ACT" else vec.reset()


def test_a_program_that_exits_while_one_game_is_played() -> None:
    with pytest.raises(WorkerError, match=EXITED % "STEP"):
        ExternalGame(liar("leaves_ACT")).run(RandomAgent(seed=0))


def test_a_program_that_is_closed() -> None:
    program = Program(liar("leaves_CLOSE"))
    program.start(1, {})
    program.close()
    program = Program(liar("leaves_CLOSE"))
    program.start(1, {})
    close = b"ENE1\x08\0\0\0" + bytes(8)
    assert program.last_words([close], LONG_S, ends=False, is_enough=bool) == (b"", 3)


# ---------------------------------------------------------------------------- workers

GAME = """
import os, subprocess, time
from dataclasses import dataclass
from enum import Enum
from entity_env import Game, Obs

class Move(Enum):
    A = 0

@dataclass
class Dot:
    x: float

def play(agent, *, seed, way: str = "spawn", end: str = "close"):
    if way == "spawn":
        subprocess.Popen(["sleep", "500"])
    elif os.fork() == 0:
        time.sleep(500)
        os._exit(0)
    for i in range(5):
        if i == 2 and end == "exit":
            os._exit(3)
        while i == 2 and end == "hang":
            time.sleep(1)
        if agent.act(Obs(i).entities([Dot(1)]), Move) is None:
            return
    agent.game_over(Obs(5))

game = Game(play, entities=(Dot,), actions=(Move,))
"""


def leaving(file: Path, text: str = GAME) -> Game:
    file.write_text(text)
    game: Game = load_module(file).game
    return game


@pytest.mark.slow
@pytest.mark.parametrize("end", ["exit", "hang", "close"])
@pytest.mark.parametrize("way", ["spawn", "fork"])
@pytest.mark.parametrize("start_method", ["forkserver", "spawn"])
def test_a_worker_whose_game_has_started_processes(
    tmp_path: Path, start_method: str, way: str, end: str
) -> None:
    game = leaving(tmp_path / "leaving.py").with_settings(way=way, end=end)
    limit_s = 1.0 if end == "hang" else LONG_S
    options: Any = {"start_method": start_method, "step_timeout_s": limit_s}
    with VecEnv(game, 1, num_workers=1, **options) as vec:
        vec.reset()
        vec.act({"Move": np.zeros(1, np.int64)})
        if end != "close":
            with pytest.raises(WorkerError, match="exit code 3" if end == "exit" else "hangs"):
                vec.act({"Move": np.zeros(1, np.int64)})


# ---------------------------------------------------------------------------- other processes


@pytest.mark.slow
def test_playing_in_another_process(tmp_path: Path) -> None:
    own = GAME.replace('subprocess.Popen(["sleep", "500"])', "pass")
    file = tmp_path / "leaving_here.py"  # by a name that no other module has
    game = leaving(file, own)
    replay = record(game, RandomAgent(seed=1), seed=1)
    file.write_text(LEAVES + own)
    assert verify_in_new_process(game, [replay], timeout_s=LONG_S) == [None]
    file.write_text(LEAVES + "os._exit(3)")
    with pytest.raises(ReplayError, match="ended with the code 3"):
        verify_in_new_process(game, [replay], timeout_s=LONG_S)


@pytest.mark.slow
@pytest.mark.parametrize("last", ["", "os._exit(3)"])
def test_jobs(tmp_path: Path, last: str) -> None:
    code = LEAVES + last
    job = Job("one", lambda: exec(code), tmp_path / "log")  # noqa: S102 - as user code
    run_jobs([job], 1)
    assert (job.state, job.error) == (("failed", "exit code 3") if last else ("done", ""))


@pytest.mark.slow
def test_a_submission_that_is_tried() -> None:
    embedding = pytest.importorskip("entity_env.interop.kaggle.embedding")
    with pytest.raises(UsageError, match=r"a submission, .*: exit code 3"):
        embedding.require_alone(LEAVES + "os._exit(3)", Path("main.py"), ())
    embedding.require_alone(LEAVES, Path("main.py"), ())


@pytest.mark.parametrize("code", [0, 3])
def test_ffmpeg(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    pictures = pytest.importorskip("PIL.Image")
    script = f"#!/bin/sh\nsleep 500 &\ncat >/dev/null\nyes no | head -c 300000 >&2\nexit {code}\n"
    (tmp_path / "ffmpeg").write_text(script)
    (tmp_path / "ffmpeg").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    images = [pictures.new("RGB", (8, 8))] * 3
    if code:
        with pytest.raises(UsageError, match=r"ffmpeg failed: no\nno"):
            _write_mp4(tmp_path / "a.mp4", images, (8, 8), 5.0)
    else:
        _write_mp4(tmp_path / "a.mp4", images, (8, 8), 5.0)


# ---------------------------------------------------------------------------- groups


def run(code: str, timeout_s: float | None = LONG_S, data: bytes = b"") -> tuple[int, bytes] | None:
    done = run_group([sys.executable, "-S", "-c", LEAVES + textwrap.dedent(code)], data, timeout_s)
    return None if done is None else (done.code, done.output)


def test_outputs_arrive_although_others_hold_the_pipe_open() -> None:
    echo = "sys.stdout.write(sys.stdin.read()); sys.stdout.flush(); os._exit(3)"
    assert run(echo, None, b"x" * 300_000) == (3, b"x" * 300_000)
    assert run("os._exit(0)", data=b"not read" * 100_000) == (0, b"")


def test_a_process_in_another_group_delays_nothing_and_stays() -> None:
    code = """
    child = subprocess.Popen(["sleep", "500"], start_new_session=True)
    print(child.pid, flush=True)
    os._exit(0)
    """
    done = run(code, None)
    assert done is not None
    os.kill(int(done[1]), signal.SIGKILL)


def test_one_that_takes_too_long_is_ended_with_its_group() -> None:
    assert run("import time; time.sleep(500)", 0.2) is None


def test_the_number_of_an_ended_group_may_belong_to_another_process() -> None:
    with subprocess.Popen(["sleep", "500"], start_new_session=True) as other:
        kill_group_of(other.pid, has_ended=True)  # as if that number had been used before
        assert other.poll() is None
        kill_group_of(other.pid, has_ended=False)
        assert other.wait() == -signal.SIGKILL
    kill_group_of(other.pid, has_ended=True)


def test_a_process_ends_with_its_parent() -> None:
    code = f"import sys; sys.path[:] = {sys.path!r}\n" + textwrap.dedent(
        f"""
        import os, time
        from {exit_with_parent.__module__} import exit_with_parent
        parent = os.getpid()
        if os.fork():
            os._exit(0)
        exit_with_parent(parent)
        time.sleep(500)
        """
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    # The check for orphans at the end of this file waits for the child.
