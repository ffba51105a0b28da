"""From a frame to the reset mask, compared with plain float arithmetic and with memory bandwidth.

Frames have 72 x 80 shades, and there is one goal.

- Ours is the whole path from bytes to the mask: exact sum, one division, match, truncation,
  reward, mask.
- The float version computes only the distance: convert to float32, subtract, abs, mean.
- Memory bandwidth is measured by summing a large array.
- The bit-plane version reads a quarter of a byte per pixel, from frames that are already packed.

Everything runs in one thread and is measured in its processor time, so other processes matter only
if they fill the caches.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from time import thread_time

import numpy as np
import torch
from torch import Tensor

from benchmarks.batch_groups.plan import Setup
from entity_env.games.pixel import Goal, RewardConfig
from entity_env.games.pixel.reward.reward import (
    distance_sum,
    normalize_sums,
    reset_mask,
    reward,
    truncate,
    update_match,
)

_HEIGHT, _WIDTH = 72, 80
_SIZES = (64, 1024, 8192)
_MEMORY_BYTES = 256 * 2**20
_ROUND_S = 0.03

Call = Callable[[], object]


def figures(setup: Setup) -> dict[str, float]:
    """Ratios, GB/s of the frames' bytes and of the memory, and microseconds."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return _figures(setup)
    finally:
        torch.set_num_threads(threads)


def _figures(setup: Setup) -> dict[str, float]:
    memory = torch.ones(_MEMORY_BYTES // 4)
    calls: dict[str, Call] = {"memory": memory.sum}
    for num in _SIZES:
        calls |= {f"{name}_{num}": call for name, call in _contenders(num).items()}
    rounds = _rounds(calls, setup)
    middle = {name: statistics.median(times) for name, times in rounds.items()}
    memory_gb_per_s = _MEMORY_BYTES / middle["memory"] / 1e9

    def ratio(slower: str, faster: str) -> float:
        return statistics.median(a / b for a, b in zip(rounds[slower], rounds[faster], strict=True))

    found = {"memory_gb_per_s": memory_gb_per_s}
    for num in _SIZES:
        num_bytes = num * _HEIGHT * _WIDTH
        found |= {
            f"reward_vs_float_{num}": ratio(f"float_{num}", f"reward_{num}"),
            f"reward_gb_per_s_{num}": num_bytes / middle[f"reward_{num}"] / 1e9,
            f"memory_vs_reward_{num}": ratio(f"reward_{num}", "memory") * _MEMORY_BYTES / num_bytes,
            f"reward_us_{num}": 1e6 * middle[f"reward_{num}"],
            f"float_us_{num}": 1e6 * middle[f"float_{num}"],
        }
        if f"planes_{num}" in middle:
            found[f"bit_planes_vs_bytes_{num}"] = ratio(f"distance_{num}", f"planes_{num}")
    return found


def _contenders(num: int) -> dict[str, Call]:
    """Functions to measure on `num` frames; raises if their distances differ."""
    generator = torch.Generator().manual_seed(num)
    shape = (num, _HEIGHT, _WIDTH)
    frames = torch.randint(0, 4, shape, dtype=torch.uint8, generator=generator)
    goal = Goal(torch.randint(0, 4, shape[1:], dtype=torch.uint8, generator=generator))
    config = RewardConfig()
    sums = distance_sum(frames, goal)
    prev_dist = normalize_sums(sums, goal).flip(0)
    counts = torch.zeros(num, dtype=torch.int32)
    as_float = goal.pixels.to(torch.float32)

    def path() -> Tensor:
        found = distance_sum(frames, goal)
        dist = normalize_sums(found, goal)
        _, terminated = update_match(found, counts, goal.threshold, config.match_k)
        _, truncated = truncate(counts, config.max_steps)
        reward(prev_dist, dist, terminated, config)
        return reset_mask(terminated, truncated)

    def plain() -> Tensor:
        return (frames.to(torch.float32) - as_float).abs().mean((1, 2)) / 3

    if not torch.allclose(plain(), normalize_sums(sums, goal)):
        raise RuntimeError("the float form found another distance")
    calls: dict[str, Call] = {
        "float": plain,
        "reward": path,
        "distance": lambda: distance_sum(frames, goal),
    }
    if hasattr(np, "bitwise_count"):  # from numpy 2 on
        calls["planes"] = _planes(frames, goal, sums)
    return calls


def _planes(frames: Tensor, goal: Goal, sums: Tensor) -> Call:
    """Distances from bit-planes, by counting bits; x0 and x1 are the planes of a ^ b.

    |a - b| = x0 + 2 x1 - 2 x0 x1 (a0 ^ a1)
    """
    a0, a1 = (_packed(frames.numpy() >> plane & 1) for plane in (0, 1))
    b0, b1 = (_packed(goal.pixels.numpy()[None] >> plane & 1) for plane in (0, 1))

    def count() -> np.ndarray:
        x0, x1 = a0 ^ b0, a1 ^ b1
        both = np.bitwise_count(x0 & x1 & (a0 ^ a1)).sum(1, dtype=np.int32)
        high = np.bitwise_count(x1).sum(1, dtype=np.int32)
        low = np.bitwise_count(x0).sum(1, dtype=np.int32)
        total: np.ndarray = low + 2 * (high - both)
        return total

    if not np.array_equal(count(), sums.numpy()):
        raise RuntimeError("the bit-planes have another distance")
    return count


def _packed(bits: np.ndarray) -> np.ndarray:
    """(N, H, W) of 0 and 1 to (N, words) of 64 bits."""
    packed: np.ndarray = np.packbits(bits.reshape(len(bits), -1), axis=1)
    return packed.view(np.uint64)


def _rounds(calls: Mapping[str, Call], setup: Setup) -> dict[str, list[float]]:
    """Seconds per call, one per round; the functions take turns."""
    rounds: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for i in range(setup.num_rounds):
        setup.say(f"round {i + 1} of {setup.num_rounds}")
        for name, call in calls.items():
            rounds[name].append(_seconds(call))
    return rounds


def _seconds(call: Call) -> float:
    begin, num_calls = thread_time(), 0
    while thread_time() - begin < _ROUND_S or not num_calls:
        call()
        num_calls += 1
    return (thread_time() - begin) / num_calls
