"""Are the episodes of a `VecEnv` correct while workers are killed, games fail and Ctrl-C is hit?

Four workers play a game with integer rewards. Games raise and hang now and then, and workers are
killed at random moments; everything is restarted. At random moments a step is interrupted and all
environments are reset, as after Ctrl-C in a notebook. This script adds up every step, and the
returned episodes must match the sums exactly. The memory of all processes and the open files of
this one must not grow. Exits with an error if any of this fails.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import random
import signal
import statistics
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from threading import Event
from time import monotonic
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from benchmarks.common import report
from entity_env import Game, Obs, VecObs
from entity_env.agents import Agent
from entity_env.core.seeding import EpisodeSeeds
from entity_env.vec import VecEnv

NUM_WORKERS = 4
NUM_ENVS = 64
STEP_TIMEOUT_S = 0.5
STEPS_A_KILL = 400
"""Mean number of batches between two kills."""
STEPS_AN_INTERRUPT = 300
"""Mean number of batches between two interrupts."""
LONGEST_WAIT_S = 0.004
"""Longest time from the call to the interrupt; about the duration of a step."""
RAISES_A_STEP = 1 / 10_000
HANGS_A_STEP = 1 / 40_000
"""Probabilities per step of a game."""
SAMPLE_S = 2.0
"""Time between two measurements of the memory."""
MAX_GROWTH_MB = 20.0
MAX_GROWTH_FILES = 8
"""Not 0, because a worker that was just replaced has up to three memory blocks fewer."""


class Move(Enum):
    LEFT = 0
    RIGHT = 1


@dataclass(slots=True)
class Cart:
    x: int
    number: int


def play(agent: Agent, *, seed: int) -> None:
    """Counts its steps, shows up to thirty carts, and sometimes fails."""
    rng = random.Random(seed)
    score = rng.randrange(10)
    number = 0
    for number in range(rng.randrange(1, 60)):
        if number:
            misbehave(rng)
        carts = [Cart(i, number) for i in range(1 + rng.randrange(30))]
        move = agent.act(Obs(score).entities(carts), Move)
        if move is None:
            return
        score += rng.randrange(-3, 4) + move.value
    agent.game_over(Obs(score).entities([Cart(0, number + 1)]), truncated=score % 2 == 0)


def misbehave(rng: random.Random) -> None:
    luck = rng.random()
    if luck < RAISES_A_STEP:
        raise RuntimeError("out of luck")
    if luck < RAISES_A_STEP + HANGS_A_STEP:
        Event().wait()


@dataclass
class BatchEpisodeStats:
    """Totals of the observed steps of each environment, and of the reported episodes."""

    reward: NDArray[np.float64] = field(default_factory=lambda: np.zeros(NUM_ENVS))
    length: NDArray[np.int64] = field(default_factory=lambda: np.zeros(NUM_ENVS, dtype=np.int64))
    number: NDArray[np.int64] = field(default_factory=lambda: np.zeros(NUM_ENVS, dtype=np.int64))
    shown_reward: float = 0.0
    shown_steps: int = 0
    told_reward: float = 0.0
    told_steps: int = 0
    num_episodes: int = 0
    num_errors: int = 0
    num_missed: int = 0
    """Failures in steps that were interrupted."""
    mismatches: list[str] = field(default_factory=list)

    def enter(self, batch: VecObs) -> None:
        """Adds a batch that follows actions."""
        envs = batch.env_id
        self.reward[envs] += batch.reward
        self.length[envs] += 1
        self.shown_reward += float(batch.reward.sum())
        self.shown_steps += len(envs)
        self._check_flags(batch)
        for episode in batch.episodes:
            i = episode.env_id
            seed = EpisodeSeeds(0, i)[episode.number]
            told = (episode.reward, episode.length, episode.seed, episode.number >= self.number[i])
            shown = (self.reward[i], self.length[i], seed, True)
            if told != shown:
                self.mismatches.append(f"env {i}: told {told}, shown {shown}")
            self.told_reward += episode.reward
            self.told_steps += episode.length
            self.num_episodes += 1
            self.num_errors += "error" in episode.metrics
            self.reward[i] = self.length[i] = 0
            self.number[i] = episode.number + 1
        shown_numbers = batch.features["Cart"].values[batch.features["Cart"].offsets[:-1], 1]
        if not np.array_equal(shown_numbers, self.length[envs]):
            self.mismatches.append(f"carts show {shown_numbers} steps, not {self.length[envs]}")

    def _check_flags(self, batch: VecObs) -> None:
        ended = sorted(episode.env_id for episode in batch.episodes)
        final = [] if batch.final is None else sorted(batch.final.env_id.tolist())
        flagged = batch.env_id[batch.done].tolist()
        if not ended == final == sorted(flagged):
            self.mismatches.append(f"ended {ended}, final {final}, done {flagged}")

    def forget(self, num_restarts: int) -> None:
        """Drops the episodes that a reset of all environments has interrupted.

        Args:
            num_restarts: environments restarted so far, including in interrupted steps.
        """
        self.shown_reward -= float(self.reward.sum())
        self.shown_steps -= int(self.length.sum())
        self.reward[:] = self.length[:] = 0
        self.number += 1  # the interrupted episode is not repeated
        self.num_missed = num_restarts - self.num_errors

    def close(self) -> None:
        """Compares the totals."""
        left = float(self.reward.sum()), int(self.length.sum())
        told = self.told_reward + left[0], self.told_steps + left[1]
        if told != (self.shown_reward, self.shown_steps):
            self.mismatches.append(f"in all told {told}, {self.shown_reward, self.shown_steps}")


class Warnings(logging.Handler):
    """Counts the library's warnings about workers."""

    def __init__(self) -> None:
        super().__init__()
        self.num_deaths = 0
        self.num_hangs = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.num_hangs += "hangs" in record.getMessage()
        self.num_deaths += "died" in record.getMessage()


def resident_mb() -> float:
    """Private dirty memory of this process and its workers, in MB."""
    return sum(map(_private_mb, [os.getpid(), *_workers()]))


def _private_mb(pid: int) -> float:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # it has died in the meantime
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) / 1024


def num_files() -> int:
    """Files that this process has open."""
    return len(os.listdir("/proc/self/fd"))


def _workers() -> list[int]:
    return [child.pid for child in multiprocessing.active_children() if child.pid is not None]


def dawdle(rng: random.Random) -> None:
    """Waits for a random time, sometimes zero."""
    for _ in range(rng.choice((0, 100, 3_000, 30_000))):
        pass


def interrupt(number: int, frame: object) -> NoReturn:
    """Interrupts this process, like Ctrl-C."""
    raise KeyboardInterrupt


def soak(minutes: float, seed: int) -> tuple[dict[str, float], list[str]]:
    """Runs the test; returns the figures and the problems found."""
    rng = random.Random(seed)
    books, warnings = BatchEpisodeStats(), Warnings()
    logger = logging.getLogger("entity_env")
    logger.addHandler(warnings)
    logger.propagate = False
    game = Game(play, entities=(Cart,), actions=(Move,))
    memory: list[float] = []
    files: list[int] = []
    num_kills = num_interrupts = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    begin = sampled = monotonic()
    with VecEnv(
        game, NUM_ENVS, NUM_WORKERS, on_error="restart", step_timeout_s=STEP_TIMEOUT_S
    ) as vec:
        batch = vec.reset()
        while monotonic() - begin < 60 * minutes:
            choices = np.array([rng.randrange(2) for _ in range(len(batch))], dtype=np.int64)
            try:
                if rng.random() < 1 / STEPS_AN_INTERRUPT:
                    signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT_S * (1 - rng.random()))
                vec.send({"Move": choices})
                if rng.random() < 1 / STEPS_A_KILL:
                    dawdle(rng)
                    os.kill(rng.choice(_workers()), signal.SIGKILL)
                    num_kills += 1
                batch = vec.recv(min_envs=rng.choice((1, 20, None)))
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                num_interrupts += 1
                batch = vec.reset()
                books.forget(vec.statistics().num_restarts)
                continue
            books.enter(batch)
            if monotonic() - sampled > SAMPLE_S:
                sampled = monotonic()
                memory.append(resident_mb())
                files.append(num_files())
        elapsed = monotonic() - begin
        restarts = vec.statistics().num_restarts
    signal.signal(signal.SIGALRM, before)
    books.close()
    figures = {
        "minutes": elapsed / 60,
        "env_steps": books.shown_steps,
        "episodes": books.num_episodes,
        "kills": num_kills,
        "interrupts": num_interrupts,
        "hangs": warnings.num_hangs,
        "raises": restarts - (NUM_ENVS // NUM_WORKERS) * _num_lost(warnings),
        "episodes_lost": books.num_errors,
        "mismatches": len(books.mismatches),
        "memory_mb": statistics.median(memory),
        "memory_growth_mb": _growth(memory),
        "open_files_growth": _growth(files),
    }
    problems = books.mismatches[:20]
    if books.num_errors + books.num_missed != restarts:
        told = f"{books.num_errors} episodes lost, {books.num_missed} more in interrupted steps"
        problems.append(f"{told}, but {restarts} environments restarted")
    if warnings.num_deaths > num_kills:
        problems.append(f"{warnings.num_deaths} workers died, only {num_kills} were killed")
    if figures["memory_growth_mb"] > MAX_GROWTH_MB:
        problems.append(f"memory grew by {figures['memory_growth_mb']:.1f} MB")
    if figures["open_files_growth"] > MAX_GROWTH_FILES:
        problems.append(f"{figures['open_files_growth']:.0f} more files are open")
    return figures, problems


def _num_lost(warnings: Warnings) -> int:
    return warnings.num_deaths + warnings.num_hangs


def _growth(samples: list[float] | list[int]) -> float:
    """Growth from the second quarter to the last, by their medians; the first is warm-up."""
    quarter = max(len(samples) // 4, 1)
    early = samples[quarter : 2 * quarter] or samples
    return statistics.median(samples[-quarter:]) - statistics.median(early)


def main() -> None:
    """Soaks and reports."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0, help="duration of the test")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random kills")
    parser.add_argument("--json", action="store_true", help="print one JSON object, nothing else")
    arguments = parser.parse_args()
    figures, problems = soak(arguments.minutes, arguments.seed)
    report("Soak", figures, ["numpy", "greenlet", "entity-env"], arguments.json)
    if problems:
        raise SystemExit("\n".join(["the test has failed:", *problems]))


if __name__ == "__main__":
    main()
