"""Inspecting worker processes from outside, and running scripts with workers."""

import multiprocessing
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entity_env.vec import VecEnv
from tests import ROOT
from tests.helpers.executors import Batch, plain_batch


def stay(num_actors: int) -> dict[str, NDArray[np.int64]]:
    """The same move for all actors."""
    return {"Move": np.ones(num_actors, np.int64)}


def plain_reset(vec: VecEnv) -> Batch:
    return plain_batch(vec.reset(), (vec.obs_space(), vec.action_space()))


def plain_step(vec: VecEnv) -> Batch:
    return plain_batch(vec.act(stay(vec.num_envs)), (vec.obs_space(), vec.action_space()))


def pid_of(worker: int) -> int:
    """Process id of a worker of the only `VecEnv`."""
    [pid] = [
        child.pid
        for child in multiprocessing.active_children()
        if child.name == f"entity_env worker {worker}"
    ]
    assert pid is not None
    return pid


def processor_s(pid: int) -> float:
    """Processor time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def is_running(pid: int) -> bool:
    """Whether a process is running and not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@contextmanager
def script(path: Path, text: str) -> Iterator[subprocess.Popen[str]]:
    """Runs a script in a separate session; kills it at the end if it still runs."""
    file = path / "script.py"
    file.write_text(textwrap.dedent(text))
    with subprocess.Popen(
        [sys.executable, str(file)],
        cwd=path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
