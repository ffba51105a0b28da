"""The classic games in plain numpy: the readable reference, and what runs without numba."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.core import starts
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.games.classic.dynamics import Rules
from entity_env.games.classic.state_table import CLOCK, MAX_STEPS, Memory
from entity_env.vec.batch_env.batch_env import MISFIT, ResetMask


class PlainKernels:
    """Steps and resets the environments of one memory; see `kernels.Kernels`."""

    def __init__(self, rules: Rules, memory: Memory) -> None:
        self._rules = rules
        self._memory = memory

    def step(self, dtype: str) -> PlainStep:
        """The step, which takes every dtype."""
        return PlainStep(self._rules, self._memory)

    def reset(self) -> PlainReset:
        """The reset."""
        return PlainReset(self._rules, self._memory)


class PlainStep:
    """Steps all environments; see `kernels.Step`."""

    def __init__(self, rules: Rules, memory: Memory) -> None:
        self._rules = rules
        self._memory = memory

    def __call__(self, actions: NDArray[Any], address: int) -> int:
        memory = self._memory
        if len(actions) != len(memory.rewards) or not are_in_range(self._rules, actions).all():
            return MISFIT
        memory.rewards[:], memory.terminals[:] = self._rules.advance(memory.state, actions)
        memory.observations[:] = self._rules.observe(memory.state)
        memory.header[CLOCK] += 1
        memory.truncations[:] = memory.deadlines <= memory.header[CLOCK]
        return _count_ended(memory)


class PlainReset:
    """Resets the chosen environments; see `kernels.Reset`."""

    def __init__(self, rules: Rules, memory: Memory) -> None:
        self._rules = rules
        self._memory = memory

    def __call__(self, words: NDArray[np.uint64], address: int) -> int:
        memory = self._memory
        bits = np.unpackbits(words.view(np.uint8), bitorder="little")
        chosen = np.flatnonzero(bits)
        draws, memory.streams[chosen] = starts.draw(memory.streams[chosen])
        memory.state[:, chosen] = state = self._rules.start(draws.astype(np.float32))
        memory.observations[chosen] = self._rules.observe(state)
        memory.terminals[chosen] = memory.truncations[chosen] = 0
        memory.deadlines[chosen] = memory.header[CLOCK] + memory.header[MAX_STEPS]
        return _count_ended(memory)


def are_in_range(rules: Rules, actions: NDArray[Any]) -> NDArray[np.bool_]:
    """Which actions are allowed, by value; NaN is not."""
    space = rules.space
    if isinstance(space, ContinuousActionSpace):
        are_allowed: NDArray[np.bool_] = (actions >= space.low[0]) & (actions <= space.high[0])
    else:
        are_allowed = (actions >= 0) & (actions < len(space))
    return are_allowed


def _count_ended(memory: Memory) -> int:
    """Packs the flags, and counts what has ended."""
    mask = ResetMask.from_done_flags(memory.terminals, memory.truncations)
    memory.ended[:] = mask.chunks
    return mask.count()
