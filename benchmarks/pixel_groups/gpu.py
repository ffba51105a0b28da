"""On a GPU: whole steps of 1,024 to 65,536 machines, the reward alone, and synchronizations.

A step is 24 frames of 30 instructions of `maze`, then screen, stack, tiles, distance, match,
reward, and resets of finished machines; run eagerly and as a CUDA graph. The reward, everything
after the screen, reads every frame once and writes it to the stack; its time is compared with a
copy of as many bytes.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.batch_groups.plan import Setup
from entity_env.games.pixel import PixelGoalEnv
from entity_env.games.pixel.batches import program_env

_SIZES = (1024, 4096, 16384, 65536)
_NUM_STEPS = 20
_WAITS = ("Synchronize", "DtoH")


def figures(setup: Setup) -> dict[str, float]:
    """Steps per second, reward time over copy time, and synchronizations; empty without a GPU."""
    if not torch.cuda.is_available():
        setup.say("there is no GPU: nothing of this group is measured")
        return {}
    found: dict[str, float] = {}
    for num in _SIZES:
        setup.say(f"{num:,} machines")
        found |= _figures_of(num, setup.num_rounds)
    return found


def _figures_of(num: int, num_rounds: int) -> dict[str, float]:
    env = program_env("maze", num, device="cuda")
    env.reset(seed=0)
    actions = torch.randint(0, 7, (num,), dtype=torch.int32, device="cuda")

    def step() -> None:
        env.step_tensors(actions, autoreset=True)

    for _ in range(3):
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    eager, replayed = _seconds(step, num_rounds), _seconds(graph.replay, num_rounds)
    waits = _num_waits(step)
    judged, copied = _reward_and_copy(env, num_rounds)
    env.close()
    return {
        f"gpu_env_steps_per_s_{num}": num / eager,
        f"gpu_graph_env_steps_per_s_{num}": num / replayed,
        f"gpu_reward_vs_copy_{num}": judged / copied,
        f"gpu_reward_gb_per_s_{num}": 2 * env.trackers.frames.numel() / judged / 1e9,
        f"gpu_waits_{num}": float(waits),
    }


def _reward_and_copy(env: PixelGoalEnv, num_rounds: int) -> tuple[float, float]:
    """Seconds to compute rewards and flags from the frames, and to copy the frames."""
    ops, frames = env._ops, env.trackers.frames
    other = torch.empty_like(frames)

    def judge() -> None:
        ops.observe()
        ops.judge()

    def copy() -> None:
        other.copy_(frames)

    return _seconds(judge, num_rounds), _seconds(copy, num_rounds)


def _seconds(call: Callable[[], None], num_rounds: int) -> float:
    """Median seconds per call, by the GPU's clock."""
    times: list[float] = []
    for _ in range(num_rounds):
        begin = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        begin.record()
        for _ in range(_NUM_STEPS):
            call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000 / _NUM_STEPS)
    return statistics.median(times)


def _num_waits(step: Callable[[], None]) -> int:
    """Counts how often the host waits for the GPU or copies from it, over a few steps."""
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiled:
        for _ in range(_NUM_STEPS):
            step()
    # Without the wait of the profiler itself, at the end.
    waits = sum(
        event.count
        for event in profiled.key_averages()
        if any(word in event.key for word in _WAITS) and "cudaDeviceSynchronize" not in event.key
    )
    return int(waits)
