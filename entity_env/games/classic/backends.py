"""Kernels: what steps and resets a batch, compiled or in plain numpy."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Literal, Protocol, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from entity_env.errors import MissingExtraError, UsageError
from entity_env.games.classic.dynamics import Rules
from entity_env.games.classic.plain import PlainKernels
from entity_env.games.classic.state_table import Memory

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
        self._module: Any = import_module(f"{__package__}.{self._name}_compiled")
        self._compiled: Any = import_module("entity_env.vec.batch_env.batch_compiled")

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
    if backend not in get_args(Backend):
        raise UsageError(
            f"{rules.name}: backend must be one of {', '.join(get_args(Backend))}, got {backend!r}"
        )
    has_numba = find_spec("numba") is not None
    if backend == "numba" and not has_numba:
        raise MissingExtraError("numba", "fast", f'{rules.name}(backend="numba")')
    return (
        PlainKernels(rules, memory)
        if backend == "numpy" or not has_numba
        else CompiledKernels(rules)
    )
