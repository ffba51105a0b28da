"""What does it cost that episodes are reset by the caller, and not by the step?

4,096 CartPoles with random pushes, made beforehand, are stepped in two ways that do the same: the
operant loop, `step_no_reset_with_result`, a mask of what has ended, `reset_envs`; and `step`, which
resets by itself, with `view`. Nothing is copied on either side.

Both run in this thread in short turns, in alternating order, and the thread's processor time
counts. A ratio is the median over turns of the ratio within a turn. Every round takes new batches,
since the same code is some percent faster or slower with where its memory lies.
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
    """Measures all of it.

    Returns:
        `operant_overhead_pct_4096`, percent of processor time over steps that reset themselves.
    """
    ratios: list[float] = []
    for i in range(setup.num_rounds):
        setup.say(f"round {i + 1} of {setup.num_rounds}")
        ratios.append(_ratio())
    return {"operant_overhead_pct_4096": (statistics.median(ratios) - 1) * 100}


def _ratio() -> float:
    """Processor time of the operant loop over that of steps which reset themselves."""
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
