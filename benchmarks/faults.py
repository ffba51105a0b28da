"""How long does it take to notice a fault, and to restart its environments?

Each fault happens in one of two workers with 32 environments each; the duration of the call that
raises or recovers is measured. In the last figures the parent is interrupted or killed; the time
until none of its processes is left is measured.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from multiprocessing import active_children
from pathlib import Path
from threading import Event
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import interleaved, report, rounds_and_json
from entity_env import Game, Obs, WorkerError
from entity_env.agents import Agent
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import VecEnv
from entity_env.vec.options import OnError

NUM_ENVS = 64
STEP_TIMEOUT_S = 0.5
VICTIM = EpisodeSeeds(0, NUM_ENVS - 1)[0]
STAY: dict[str, NDArray[np.int64]] = {"Move": np.zeros(NUM_ENVS, dtype=np.int64)}


class Move(Enum):
    STAY = 0
    GO = 1


@dataclass(slots=True)
class Dot:
    x: int


def play(agent: Agent, *, seed: int, fault: str = "") -> None:
    """Never ends; one game misbehaves at its fifth step."""
    for i in range(10**9):
        if i == 5 and seed == VICTIM:
            misbehave(fault)
        if agent.act(Obs(i).entities([Dot(i)]), Move) is None:
            return


def misbehave(fault: str) -> None:
    if fault == "raise":
        raise RuntimeError("a mistake")
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "hang":
        Event().wait()


game = Game(play, entities=(Dot,), actions=(Move,))


def fault_ms(fault: str, on_error: OnError) -> float:
    """Milliseconds of the step in which a fault happens."""
    timeout_s = STEP_TIMEOUT_S if fault == "hang" else None
    source = game.with_settings(fault=fault)
    with VecEnv(source, NUM_ENVS, 2, on_error=on_error, step_timeout_s=timeout_s) as vec:
        vec.reset()
        for _ in range(4):
            vec.act(STAY)
        begin = perf_counter()
        with contextlib.suppress(WorkerError):
            vec.act(STAY)
        return (perf_counter() - begin) * 1e3


def idle_death_ms() -> float:
    """Milliseconds until `act` reports a worker that was killed while it waited."""
    with VecEnv(game, NUM_ENVS, 2) as vec:
        vec.reset()
        os.kill(active_children()[0].pid or 0, signal.SIGKILL)
        begin = perf_counter()
        with contextlib.suppress(WorkerError):
            vec.act(STAY)
        return (perf_counter() - begin) * 1e3


def close_ms() -> float:
    """Milliseconds of `close` without any fault."""
    vec = VecEnv(game, NUM_ENVS, 2)
    vec.reset()
    begin = perf_counter()
    vec.close()
    return (perf_counter() - begin) * 1e3


SCRIPT = """
from benchmarks.faults import NUM_ENVS, STAY, VecEnv, game
vec = VecEnv(game.with_settings(fault={fault!r}), NUM_ENVS, 2)
vec.reset()
for _ in range(4):
    vec.act(STAY)
print("ready", flush=True)
while True:
    vec.act(STAY)
"""


def gone_ms(number: int, fault: str = "") -> float:
    """Milliseconds from a signal until no process is left; SIGKILL hits the parent alone."""
    with tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT.format(fault=fault)],
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,
            text=True,
        )
        with process:
            if process.stdout is None or process.stdout.readline() != "ready\n":
                raise SystemExit("the script of the parent failed")
            begin = perf_counter()
            if number == signal.SIGKILL:
                process.kill()
            else:
                os.killpg(process.pid, number)
            process.wait()
            while _is_anybody_left(process.pid):
                os.sched_yield()
            return (perf_counter() - begin) * 1e3


def _is_anybody_left(session: int) -> bool:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = path.read_text().rpartition(")")[2].split()
            if fields[3] == str(session) and fields[0] != "Z":
                return True
    return False


MEASURES: dict[str, Callable[[], float]] = {
    "raise_noticed_ms": lambda: fault_ms("raise", "raise"),
    "raise_restarted_ms": lambda: fault_ms("raise", "restart"),
    "kill_noticed_ms": lambda: fault_ms("kill", "raise"),
    "kill_restarted_ms": lambda: fault_ms("kill", "restart"),
    "idle_kill_noticed_ms": idle_death_ms,
    "hang_noticed_ms": lambda: fault_ms("hang", "raise"),
    "hang_restarted_ms": lambda: fault_ms("hang", "restart"),
    "close_ms": close_ms,
    "interrupted_gone_ms": lambda: gone_ms(signal.SIGINT),
    "parent_killed_gone_ms": lambda: gone_ms(signal.SIGKILL),
    "parent_killed_while_hanging_gone_ms": lambda: gone_ms(signal.SIGKILL, "hang"),
}


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    logging.getLogger("entity_env").setLevel(logging.ERROR)
    figures = interleaved(MEASURES, rounds)
    report("Faults", figures, ["numpy", "greenlet", "entity-env"], as_json)


if __name__ == "__main__":
    main()
