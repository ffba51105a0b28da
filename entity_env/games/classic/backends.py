"""Kernels: what steps and resets a batch, compiled or in plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from entity_env.core.spaces import ContinuousActionSpace
from entity_env.core.validation import uses_numba
from entity_env.games.classic.dynamics import Rules, start_draws
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
        draws, memory.streams[chosen] = start_draws(memory.streams[chosen])
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


Backend: TypeAlias = Literal["auto", "numba", "numpy"]
"""`numba`: compiled, which takes a second for the first process of an installation. `numpy`: the
plain reference. `auto`: compiled where numba is installed."""

Step: TypeAlias = Callable[[NDArray[Any], int], int]
"""Steps all environments by actions of one dtype, in the memory at an address. Returns how
many have ended, or `MISFIT`, before anything changes, for actions that do not fit: another number,
apart in memory, or out of range. They have one dimension: whoever calls has seen to the dtype."""

Reset: TypeAlias = Callable[[NDArray[np.uint64], int], int]
"""Resets the environments whose bits are set, and returns how many others have ended."""


class Kernels(Protocol):
    """What steps and resets the environments of one memory."""

    def step(self, dtype: str) -> Step:
        """The step for actions of a dtype: uint8 or int64 for choices, float32 for torques."""

    def reset(self) -> Reset:
        """The reset."""


class CompiledKernels:
    """Machine code of one game, compiled or read from the cache when it is asked for."""

    def __init__(self, rules: Rules) -> None:
        module = {"CartPole": "cart_pole", "MountainCar": "mountain_car", "Pendulum": "pendulum"}
        self._name = module[rules.name]
        self._module: Any = import_module(f"{__package__}.{self._name}_kernel")
        self._compiled: Any = import_module("entity_env.core.numba_utils")

    def step(self, dtype: str) -> Step:
        function: Step = getattr(self._module, f"step_{self._name}")
        # As numbers without a sign: what was below 0 is then too large.
        actions = self._compiled.array_of({"int64": "uint64"}.get(dtype, dtype))
        step: Step = self._compiled.loaded(function, actions, self._compiled.ADDRESS)
        return step

    def reset(self) -> Reset:
        function: Reset = getattr(self._module, f"reset_{self._name}")
        reset: Reset = self._compiled.loaded(function, self._compiled.WORDS, self._compiled.ADDRESS)
        return reset


def make_kernels(backend: Backend, rules: Rules, memory: Memory) -> Kernels:
    """The kernels of a backend.

    Raises:
        UsageError: no such backend.
        MissingExtraError: "numba" where numba is not installed.
    """
    if uses_numba(rules.name, backend, get_args(Backend)):
        return CompiledKernels(rules)
    return PlainKernels(rules, memory)
