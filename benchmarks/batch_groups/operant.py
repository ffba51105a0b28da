"""What does it cost if the caller resets the environments instead of `step`?

4,096 CartPoles with precomputed random pushes are stepped in two equivalent ways: the operant loop
(`step_no_reset_with_result`, mask of finished environments, `reset_envs`), and `step` with its
automatic resets and `view`. Neither copies anything.

Both run in this thread in short turns, in alternating order, measured in the thread's processor
time. A ratio is the median over turns of the ratio within a turn. Every round creates new batches,
because the speed of the same code varies by a few percent with the position of its memory.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from time import thread_time

from benchmarks.batch_groups.plan import Setup
from benchmarks.peers.classic_ours import cart_pole, cart_pole_auto_view

_NUM_ENVS = 4096
_NUM_TURNS = 200
_NUM_WARM_UPS = 20


def figures(setup: Setup) -> dict[str, float]:
    """Measures the overhead of resets by the caller.

    Returns:
        `operant_overhead_pct_4096`, extra processor time over automatic resets, in percent.
    """
    ratios: list[float] = []
    for i in range(setup.num_rounds):
        setup.say(f"round {i + 1} of {setup.num_rounds}")
        ratios.append(_ratio())
    return {"operant_overhead_pct_4096": (statistics.median(ratios) - 1) * 100}


def _ratio() -> float:
    """Processor time of the operant loop, divided by that of steps with automatic resets."""
    operant, fused = cart_pole(_NUM_ENVS).step, cart_pole_auto_view(_NUM_ENVS).step
    for _ in range(_NUM_WARM_UPS):
        operant()
        fused()
    ratios = []
    for turn in range(_NUM_TURNS):
        if turn % 2:
            mine, theirs = _seconds(operant), _seconds(fused)
        else:
            theirs, mine = _seconds(fused), _seconds(operant)
        ratios.append(mine / theirs)
    return statistics.median(ratios)


def _seconds(steps: Callable[[], object]) -> float:
    begin = thread_time()
    steps()
    return thread_time() - begin
