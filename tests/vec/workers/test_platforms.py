"""Workers on systems without some features of Linux; processes imitate them, see `imitated`."""

from __future__ import annotations

import logging
import multiprocessing
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from random import Random
from time import monotonic

import pytest

from entity_env.cli import options
from entity_env.cli.options import default_workers
from entity_env.errors import UsageError
from entity_env.vec import VecEnv
from entity_env.vec.workers.start import start_context
from tests import ROOT
from tests.helpers.children import dawdle
from tests.helpers.tiny_games import count
from tests.helpers.worker_helpers import is_running
from tests.vec.workers.imitated import environment_of

each_system = pytest.mark.parametrize("system", ["macos", "windows"])

PREPARE = """
    import multiprocessing, os, sys
    from entity_env.core.seeding import EpisodeSeeds
    from entity_env.errors import WorkerError
    from entity_env.vec import VecEnv
    from tests.helpers.worker_games import crowd, faulty
    from tests.helpers.worker_helpers import plain_reset, plain_step, stay
"""
STEP = """
    batches = []
    for num_workers in (0, 2):
        with VecEnv(crowd.with_settings(largest=3000), 3, num_workers) as vec:
            batches.append([plain_reset(vec), *(plain_step(vec) for _ in range(5))])
    assert batches[0] == batches[1]
    assert max(len(row.features["Dot"]) for row in batches[1][1].rows) == 3000
"""
"""A program with growing blocks, in both directions."""
FAIL = """
    victim = EpisodeSeeds(0, 3)[0]
    for fault in ("loops", "waits", "os._exit", "raise"):
        game = faulty.with_settings(victim=victim, fault=fault, at=1)
        limit_s = 0.5 if fault in ("loops", "waits") else None
        with VecEnv(game, 4, 2, step_timeout_s=limit_s) as vec:
            vec.reset()
            try:
                vec.act(stay(4))
            except WorkerError as error:
                print(fault, error.worker, error.env_id, error.reason, error.game_traceback)
            vec.reset()
"""
LIVE = """
    with VecEnv(faulty, 4, 2) as vec:
        vec.reset()
        print(*(child.pid for child in multiprocessing.active_children()), flush=True)
        sys.stdin.read()
"""


def start(system: str, folder: Path, text: str) -> subprocess.Popen[str]:
    """Runs a program on an imitated system."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(PREPARE) + textwrap.dedent(text)],
        cwd=ROOT,
        env=environment_of(system, folder),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@each_system
def test_workers_step_as_environments_in_this_process(system: str, tmp_path: Path) -> None:
    with start(system, tmp_path, STEP) as process:
        assert process.communicate() == ("", "")
    assert process.returncode == 0


@pytest.mark.slow
@each_system
def test_a_game_that_fails_is_named_with_its_stack(system: str, tmp_path: Path) -> None:
    with start(system, tmp_path, FAIL) as process:
        output, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    for fault, place in (
        ("loops", "hangs: no answer for 0.5 s"),
        ("loops", "in run_in_circles"),
        ("waits", "in stare_at_the_wall"),
        ("os._exit", "died (exit code 3)"),
        ("raise", "the board is 100 % on fire"),
    ):
        assert place in output.split(f"{fault} 1 3 ")[1].split(" 1 3 ")[0]


@pytest.mark.slow
@each_system
def test_workers_end_with_their_parent(system: str, tmp_path: Path) -> None:
    with start(system, tmp_path, LIVE) as process:
        assert process.stdout is not None
        workers = [int(word) for word in process.stdout.readline().split()]
        assert len(workers) == 2
        assert all(map(is_running, workers))
        process.kill()
        process.wait()
        deadline = monotonic() + 20.0
        while any(map(is_running, workers)) and monotonic() < deadline:
            dawdle(Random(0), 1000)
        assert not any(map(is_running, workers))


@pytest.mark.parametrize(
    ("system", "missing"), [("linux", "socket.send_fds"), ("emscripten", "processes")]
)
def test_a_system_without_workers_says_so_and_needs_none(
    system: str, missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(options, "num_cores", lambda: 4)
    assert default_workers(8) == 4
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.delattr(socket, "send_fds")
    with pytest.raises(UsageError, match="num_workers must be 0 on this system, got 2") as caught:
        VecEnv(count, 2, 2)
    assert missing in str(caught.value)
    with VecEnv(count, 2) as vec:
        vec.reset()
    with caplog.at_level(logging.WARNING):
        assert default_workers(8) == 0
    [record] = caplog.records
    assert missing in record.getMessage()


def test_where_no_process_forks_they_are_spawned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(multiprocessing, "get_all_start_methods", lambda: ["spawn"])
    assert start_context(None).get_start_method() == "spawn"
    with pytest.raises(UsageError, match="start_method must be one of spawn, got 'forkserver'"):
        start_context("forkserver")


@pytest.mark.slow
def test_the_imitation_lacks_what_it_says(tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    code = """
        import faulthandler, select, signal, socket
        from entity_env.vec.workers.shared_memory import SharedBlock
        from entity_env.vec.workers.wakeup_event import default_path
        for owner, name in [
            (os, "memfd_create"), (os, "fork"), (os, "sched_yield"), (select, "poll"),
            (socket, "send_fds"), (faulthandler, "register"), (signal, "SIGUSR1"),
        ]:
            print(name, hasattr(owner, name))
        block = SharedBlock.create(8)
        print(isinstance(block._handle, str), default_path(), end="")
    """
    found: dict[str, list[str]] = {}
    for system in ("macos", "windows"):
        with start(system, tmp_path, code) as process:
            found[system] = process.communicate()[0].splitlines()
    assert [line.split()[1] for line in found["windows"][:-1]] == ["False"] * 7
    assert found["windows"][-1] == "True kernel"
    assert found["macos"][0] == "memfd_create False"
    assert found["macos"][-1].startswith("False")
