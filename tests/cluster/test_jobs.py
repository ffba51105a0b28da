"""Jobs: local processes that end separately, together, or with their parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from entity_env.cluster.jobs import Job, run_jobs
from entity_env.errors import UsageError

pytestmark = pytest.mark.timeout(120)
posix = pytest.mark.skipif(sys.platform == "win32", reason="sends signals")


def job_of(folder: Path, name: str, function: Callable[[], object]) -> Job:
    return Job(name, function, folder / name / "output.txt")


def write(path: Path, text: str = "") -> None:
    path.write_text(text)


def fail(error: BaseException) -> None:
    sys.stdout.write("before\n")
    raise error


def save_when_stopped(path: Path) -> None:
    """Waits for Ctrl-C and then saves, like training."""
    write(path.with_suffix(".pid"), str(os.getpid()))
    try:
        time.sleep(100)
    except KeyboardInterrupt:
        write(path)
        raise


def never_stop(path: Path) -> None:
    write(path.with_suffix(".pid"), str(os.getpid()))
    while True:
        try:
            time.sleep(100)
        except KeyboardInterrupt:
            write(path)


@pytest.mark.slow
def test_one_that_fails_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    number = 3
    jobs = [
        job_of(tmp_path, "a", lambda: write(tmp_path / "made", str(number))),  # by value
        job_of(tmp_path, "b", partial(fail, ValueError("boom"))),
        job_of(tmp_path, "c", partial(fail, UsageError("gamma must be\nsmall"))),
        job_of(tmp_path, "d", partial(fail, SystemExit(3))),
        job_of(tmp_path, "e", partial(os.kill, 0, 0)),
        job_of(tmp_path, "f", lambda: os.kill(os.getpid(), 9)),
        job_of(tmp_path, "g", lambda: sys.exit(130)),
    ]
    most = 0

    def count() -> None:
        nonlocal most
        most = max(most, sum(job.state == "running" for job in jobs))

    assert run_jobs(jobs, 2, count) is None
    assert [job.state for job in jobs] == [
        *("done", "failed", "failed", "failed", "done", "failed", "stopped")
    ]
    assert most <= 2
    assert (tmp_path / "made").read_text() == "3"
    assert [job.error for job in jobs[1:4]] == ["ValueError: boom", "gamma must be small", "before"]
    assert jobs[5].error == "its process was killed by signal 9"
    assert "Traceback" in jobs[1].log.read_text()
    assert "Traceback" not in jobs[2].log.read_text()


@pytest.mark.slow
def test_one_that_is_not_wanted_any_more_saves_and_stops_while_others_run(tmp_path: Path) -> None:
    left, saved = tmp_path / "left", tmp_path / "saved.txt"
    unwanted = job_of(tmp_path, "a", partial(save_when_stopped, saved))
    other = job_of(tmp_path, "b", lambda: write(left))

    def drop() -> None:  # as soon as both run
        if left.exists() and saved.with_suffix(".pid").exists():
            unwanted.is_wanted = False

    assert run_jobs([unwanted, other], 2, drop) is None
    assert (unwanted.state, other.state) == ("stopped", "done")
    assert saved.exists()


def test_jobs_find_the_modules_and_files_of_their_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_module_of_jobs.py").write_text("def work():\n    open('made', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    import own_module_of_jobs  # type: ignore[import-not-found]

    job = job_of(tmp_path, "a", own_module_of_jobs.work)
    run_jobs([job], 1)
    assert (job.state, job.error) == ("done", "")
    assert (tmp_path / "made").exists()


def test_a_log_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(UsageError, match=r"cannot write .*output\.txt"):
        run_jobs([job_of(tmp_path, "a", lambda: None)], 1)


# ------------------------------------------------------------------ signals

PARENT = """
import sys
from functools import partial
from pathlib import Path
from entity_env.cluster.jobs import run_jobs
from tests.cluster.test_jobs import job_of, never_stop, save_when_stopped

folder = Path(sys.argv[1])
function = never_stop if sys.argv[2] == "never" else save_when_stopped
jobs = [job_of(folder, name, partial(function, folder / f"{name}.saved")) for name in "abc"]
try:
    signum = run_jobs(jobs, 2)
except KeyboardInterrupt:
    signum = "killed"
print(signum, *(job.state for job in jobs))
"""


@pytest.fixture
def parent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[str]]:
    """A process with two of three jobs running."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path), getattr(request, "param", "")],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(lambda: len(pids(tmp_path)) == 2)
        yield process
    finally:
        process.kill()
        process.communicate()


def pids(folder: Path) -> list[int]:
    return [int(path.read_text() or 0) for path in folder.glob("*.pid")]


def wait_for(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # an orphan may still have to be reaped by init
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return True


@pytest.mark.slow
@posix
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_all_when_they_have_saved(
    tmp_path: Path, parent: subprocess.Popen[str], signum: int
) -> None:
    parent.send_signal(signum)
    told, _ = parent.communicate(timeout=60)
    assert told.split() == [str(int(signum)), "stopped", "stopped", "waiting"]
    assert sorted(path.name for path in tmp_path.glob("*.saved")) == ["a.saved", "b.saved"]
    assert not any(map(is_alive, pids(tmp_path)))


@pytest.mark.slow
@posix
@pytest.mark.parametrize("parent", ["never"], indirect=True)
def test_a_second_interrupt_kills_what_does_not_stop(
    tmp_path: Path, parent: subprocess.Popen[str]
) -> None:
    parent.send_signal(signal.SIGINT)
    wait_for(lambda: len(list(tmp_path.glob("*.saved"))) == 2)
    assert parent.poll() is None
    parent.send_signal(signal.SIGINT)
    told, _ = parent.communicate(timeout=60)
    assert told.split() == ["killed", "stopped", "stopped", "waiting"]
    assert not any(map(is_alive, pids(tmp_path)))


@pytest.mark.slow
@posix
def test_jobs_stop_when_their_parent_is_killed(
    tmp_path: Path, parent: subprocess.Popen[str]
) -> None:
    parent.kill()
    wait_for(lambda: not any(map(is_alive, pids(tmp_path))))
    assert len(list(tmp_path.glob("*.saved"))) == 2
