"""A Game Boy on PyBoy, with the tests' tiny cartridge, for those who know how fast that is.

The machines differ: a frame of a Game Boy is 70,224 clock cycles and a picture of its own, one of
ours 30 instructions of another machine. So steps a second say what training waits for, not who
emulates better. The tiny cartridge sleeps until the next frame, which PyBoy skips: games that do
not are slower. One Game Boy, in a process of its own, by the clock.
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
    """`pyboy_env_steps_per_s`, 24 frames a step, the last one drawn; nothing without PyBoy."""
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
