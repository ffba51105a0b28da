"""The XO-CHIP: steps per second on one core, compared with the plain machine; resets; first start.

A step is 24 frames of 30 instructions of `maze`, with precomputed random buttons. Like most games,
`maze` mostly waits for a timer, the best case for the plain machine, so both also run a program
that draws all the time (`_drawing`). A frame of another machine is a different amount of work, so
compare steps per second with care.

Everything runs in one thread and is measured in its processor time, except the start, which is
measured by the clock.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from itertools import cycle
from time import thread_time

import numpy as np
import torch

from benchmarks.batch_groups.plan import Setup
from entity_env.games.pixel import Button, Goal, PixelGoalEnv, RewardConfig
from entity_env.games.pixel.xo_chip import KEYS
from entity_env.games.pixel.xo_chip.programs import (
    FRAMES,
    INSTRUCTIONS,
    PROGRAMS,
    goal_frame,
    program,
)
from entity_env.games.pixel.xo_chip.world import XoChipWorld
from tests.games.pixel.xo_chip.plain_machine import PlainMachine

_GAME = "maze"
# Draws random digits forever: v0, v1 = random; i = the digit v0; draw v0, v1, 5.
_DRAWING = bytes.fromhex("C03F C11F F029 D015 1200")
_SIZES = (64, 1024, 4096)
_MAIN_SIZE = 1024
# Steps per round, summed over all machines: about 50 ms.
_STEPS = 16384
_PLAIN_STEPS = 20
_NUM_STARTS = 5

Measures = dict[str, Callable[[], float]]
"""By figure: a function that returns seconds of processor time per step of one machine."""


def figures(setup: Setup) -> dict[str, float]:
    """Steps per second, ratios to the plain machine, resets in percent of a step, and starts."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return {**_speeds(setup), **_starts(setup)}
    finally:
        torch.set_num_threads(threads)


def _speeds(setup: Setup) -> dict[str, float]:
    drawing = XoChipWorld(_DRAWING, _MAIN_SIZE, frames=FRAMES, instructions=INSTRUCTIONS)
    measures: Measures = {
        "plain": _plain(program(_GAME)),
        "plain_drawing": _plain(_DRAWING),
        "drawing": _steps(drawing),
    }
    for num_envs in _SIZES:
        measures |= _world(num_envs)
    measures["env"] = _env(_MAIN_SIZE)
    for measure in measures.values():
        measure()
    rounds: dict[str, list[float]] = {name: [] for name in measures}
    for i in range(setup.num_rounds):
        setup.say(f"round {i + 1} of {setup.num_rounds}")
        for name, measure in measures.items():
            rounds[name].append(measure())
    middle = {name: statistics.median(values) for name, values in rounds.items()}

    def ratio(above: str, below: str) -> float:
        pairs = zip(rounds[above], rounds[below], strict=True)
        return statistics.median(a / b for a, b in pairs)

    step = f"step_{_MAIN_SIZE}"
    return {
        "xo_env_steps_per_s": 1 / middle[step],
        "xo_vs_oracle": ratio("plain", step),
        "xo_vs_oracle_drawing": ratio("plain_drawing", "drawing"),
        "xo_env_steps_per_s_drawing": 1 / middle["drawing"],
        "empty_reset_pct": 100 * ratio(f"reset_{_MAIN_SIZE}", step),
        "oracle_steps_per_s": 1 / middle["plain"],
        "pixel_goal_env_steps_per_s": 1 / middle["env"],
        **{f"xo_env_steps_per_s_{num}": 1 / middle[f"step_{num}"] for num in _SIZES},
        **{f"xo_screens_per_s_{num}": 1 / middle[f"render_{num}"] for num in _SIZES},
        **{f"empty_reset_pct_{num}": 100 * ratio(f"reset_{num}", f"step_{num}") for num in _SIZES},
    }


def _world(num_envs: int) -> Measures:
    world = XoChipWorld(program(_GAME), num_envs, frames=FRAMES, instructions=INSTRUCTIONS)
    pixels = torch.zeros((num_envs, world.height, world.width), dtype=torch.uint8)
    nobody = torch.zeros(num_envs, dtype=torch.bool)
    slots = torch.zeros(num_envs, dtype=torch.int32)
    return {
        f"step_{num_envs}": _steps(world),
        f"render_{num_envs}": _timed(lambda: world.render(pixels), num_envs),
        f"reset_{num_envs}": _timed(lambda: world.reset(nobody, slots), num_envs),
    }


def _steps(world: XoChipWorld) -> Callable[[], float]:
    actions = _actions(world.num_envs)
    return _timed(lambda: world.step(next(actions)), world.num_envs)


def _env(num_envs: int) -> Callable[[], float]:
    """A whole step: machine, screen, stack, tiles, distance, reward, resets of finished ones."""
    world = XoChipWorld(program(_GAME), num_envs, frames=FRAMES, instructions=INSTRUCTIONS)
    goal = Goal(torch.from_numpy(goal_frame(_GAME)), tau=1e-4)
    warm_ups = (PROGRAMS[_GAME].start,)
    env = PixelGoalEnv(world, goal, RewardConfig(max_steps=64), warm_ups=warm_ups)
    env.reset(seed=0)
    actions = _actions(num_envs)
    return _timed(lambda: env.step_tensors(next(actions), autoreset=True), num_envs)


def _plain(rom: bytes) -> Callable[[], float]:
    machine = PlainMachine(rom)
    keys = [KEYS[button] for button in Button]
    buttons = cycle(np.random.default_rng(0).integers(len(keys), size=64).tolist())

    def measure() -> float:
        begin = thread_time()
        for _ in range(_PLAIN_STEPS):
            machine.step(1 << keys[next(buttons)], frames=FRAMES, instructions=INSTRUCTIONS)
        return (thread_time() - begin) / _PLAIN_STEPS

    return measure


def _actions(num_envs: int) -> Iterator[torch.Tensor]:
    rng = np.random.default_rng(0)
    rows = rng.integers(len(Button), size=(16, num_envs), dtype=np.int32)
    return cycle(torch.from_numpy(rows).unbind())


def _timed(call: Callable[[], object], num_envs: int) -> Callable[[], float]:
    num_calls = max(_STEPS // num_envs, 1)

    def measure() -> float:
        begin = thread_time()
        for _ in range(num_calls):
            call()
        return (thread_time() - begin) / (num_calls * num_envs)

    return measure


_SCRIPT = """
import torch
from time import perf_counter
from entity_env.games.pixel.xo_chip.world import XoChipWorld
begin = perf_counter()
world = XoChipWorld(bytes([0x12, 0]), 64)
actions = torch.zeros(64, dtype=torch.int32)
world.step(actions)
world.render(torch.zeros((64, 64, 128), dtype=torch.uint8))
world.reset(actions == 0, actions)
print(perf_counter() - begin)
"""


def _starts(setup: Setup) -> dict[str, float]:
    """Seconds to import Warp, to compile or load the kernels, and to run each kernel once.

    Measured in a fresh process after it imports torch and the games, once with an empty cache and
    once with everything cached.
    """
    cold, cached = [], []
    for i in range(_NUM_STARTS):
        setup.say(f"start {i + 1} of {_NUM_STARTS}")
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_start_s(folder))
            cached.append(_start_s(folder))
    return {"cold_s": statistics.median(cold), "cached_s": statistics.median(cached)}


def _start_s(cache: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "WARP_CACHE_PATH": cache},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        check=True,
    )
    return float(done.stdout)
