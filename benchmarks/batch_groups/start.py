"""How long until the first step: import, compile or load, reset, step."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.batch_groups.plan import Setup

_NUM_STARTS = 5
_SCRIPT = """
import numpy as np
from time import perf_counter
begin = perf_counter()
from entity_env.games.classic import CartPole
env = CartPole(64)
env.reset(seed=0)
mask = env.step_no_reset_with_result(np.zeros(64, dtype=np.uint8)).to_reset_mask()
env.reset_envs(mask)
print(perf_counter() - begin)
"""


def figures(setup: Setup) -> dict[str, float]:
    """Seconds in a fresh process, with an empty cache and with everything compiled."""
    cold, cached = [], []
    for i in range(_NUM_STARTS):
        setup.say(f"start {i + 1} of {_NUM_STARTS}")
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_start_s(folder))
            cached.append(_start_s(folder))
    return {
        "first_import_cold_s": statistics.median(cold),
        "first_import_cached_s": statistics.median(cached),
    }


def _start_s(cache: str) -> float:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT],
        env={**os.environ, "NUMBA_CACHE_DIR": cache},
        text=True,
        stdout=subprocess.PIPE,
        check=True,
    )
    return float(done.stdout)
