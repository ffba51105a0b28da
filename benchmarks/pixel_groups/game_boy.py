"""A Game Boy on PyBoy, running the tests' tiny cartridge, for readers who know PyBoy's speed.

The machines differ: a Game Boy frame is 70,224 clock cycles and a different picture, an XO-CHIP
frame 30 instructions. Steps per second therefore show how long training waits, not which emulator
is better. The cartridge sleeps until the next frame, which PyBoy skips; games that do not sleep are
slower. Measured by the clock, with one Game Boy in a separate process.
"""

from __future__ import annotations

import statistics
from importlib.util import find_spec
from time import perf_counter

import torch

from benchmarks.batch_groups.plan import Setup
from tests.games.pixel.worlds.game_boy_rom import square_rom

_NUM_STEPS = 100


def figures(setup: Setup) -> dict[str, float]:
    """`pyboy_env_steps_per_s`: 24 frames per step, the last one drawn; empty without PyBoy."""
    if find_spec("pyboy") is None:
        setup.say("PyBoy is not installed")
        return {}
    from entity_env.games.pixel.worlds.game_boy import PyBoyWorld

    with PyBoyWorld(square_rom(), 1) as world:
        actions = torch.zeros(1, dtype=torch.int32)
        pixels = torch.zeros((1, world.height, world.width), dtype=torch.uint8)
        rates = []
        for i in range(setup.num_rounds + 1):
            setup.say(f"round {i} of {setup.num_rounds}")
            begin = perf_counter()
            for _ in range(_NUM_STEPS):
                world.step(actions)
                world.render(pixels)
            rates.append(_NUM_STEPS / (perf_counter() - begin))
    return {"pyboy_env_steps_per_s": statistics.median(rates[1:])}
