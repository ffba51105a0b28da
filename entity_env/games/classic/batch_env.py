"""ClassicEnv: base class of the CartPole, MountainCar and Pendulum batches."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Final, Literal, NoReturn, TypeAlias, cast, get_args

import numpy as np
from numpy.typing import NDArray

from entity_env import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
)
from entity_env.core import seeding, vec_env_base
from entity_env.core.validation import checked_count, uses_numba
from entity_env.errors import SchemaError, UsageError
from entity_env.games.classic.state_table import CLOCK, MAX_STEPS, NEXT_DEADLINE, SLOT, StateTable
from entity_env.vec.batch_env import (
    MISFIT,
    BatchActions,
    BatchEnv,
    BatchSeed,
    PackedResult,
    ResetMask,
    StepResult,
    are_in_range,
    as_any_array,
    checked_actions,
    require_reset_mask,
)

NUM_DRAWS: Final = 4
HALF: Final = 2**23
"""Draws are integers from `-HALF` to `HALF - 1`, exact in float32."""

Backend: TypeAlias = Literal["auto", "numba", "numpy"]
"""`numba`: compiled; compiling takes a second in the first process of an installation. `numpy`: the
reference, which computes in double precision; `state` is float64, all other arrays are as in
`numba`. `auto`: `numba` if installed, else `numpy`."""

State: TypeAlias = NDArray[np.floating]
"""`(state_size, num_envs)` float32, or float64 in numpy: one row per state variable."""

Step: TypeAlias = Callable[[NDArray[Any], int], int]
"""Steps all environments, in the table at an address, by one-dimensional actions of one dtype.

Returns the number of ended environments. If the actions have another length, are out of range or
cannot be read, changes no environment and returns `MISFIT`.
"""

Reset: TypeAlias = Callable[[NDArray[np.uint64], int], int]
"""Resets the environments whose bits are set; returns how many still wait for a reset."""

# Values of `num_ended` that forbid a step.
_NOT_RESET = -1
_CLOSED = -2
_MAX_STEPS = 2**62


class ClassicEnv(BatchEnv):
    """A batch of one classic game. Subclasses define the class attributes and the physics.

    Actions are uint8 or int64 arrays for choices, float32 arrays for torques. Other integer and
    float dtypes are converted, which costs a few microseconds. Not thread-safe; the compiled
    backend releases the GIL.

    Args:
        num_envs: number of environments, at least 1.
        max_episode_steps: steps after which an episode is truncated, 1 to 2**62.
        backend: implementation of the physics; see `Backend`.

    Attributes:
        name: name of the game and of its only entity.
        kernel: suffix of the game's functions in `kernels`.
        features: columns of an observation.
        action: name of its only action.
        space: labels of the action, or bounds of the torque.
        state_names: names of the state variables.
        start_middle, start_scale: an initial state is `start_middle + draw * start_scale`.
        state_low, state_high: range of each state variable; `set_state` refuses states outside it.

    Raises:
        UsageError: a number out of range, or an unknown backend.
        MissingExtraError: the backend "numba" without numba.
    """

    name: ClassVar[str]
    kernel: ClassVar[str]
    features: ClassVar[tuple[str, ...]]
    action: ClassVar[ActionName]
    space: ClassVar[GlobalCategoricalActionSpace | ContinuousActionSpace]
    state_names: ClassVar[tuple[str, ...]]
    start_middle: ClassVar[tuple[float, ...]]
    start_scale: ClassVar[tuple[float, ...]]
    state_low: ClassVar[tuple[float, ...]]
    state_high: ClassVar[tuple[float, ...]]

    is_always_finite = True

    def __init__(self, num_envs: int, max_episode_steps: int, backend: Backend) -> None:
        super().__init__(num_envs, len(self.features))
        self.max_episode_steps = checked_count("max_episode_steps", max_episode_steps)
        if max_episode_steps > _MAX_STEPS:
            raise UsageError(f"max_episode_steps must be at most 2**62: got {max_episode_steps}")
        self._has_torques = isinstance(self.space, ContinuousActionSpace)
        self._is_compiled = uses_numba(self.name, backend, get_args(Backend))
        self._memory = StateTable(
            self.num_envs,
            len(self.state_names),
            self.obs_size,
            self.max_episode_steps,
            self._has_torques,
            has_double_state=not self._is_compiled,
        )
        self._address = self._memory.address
        self._result = PackedResult(
            self._memory.observations,
            self._memory.rewards,
            self._memory.terminals,
            self._memory.truncations,
            self._memory.ended,
            self._memory.slots if self._is_compiled else (),
            self._memory.header[SLOT : SLOT + 1].data,
        )
        self._result.num_ended = _NOT_RESET
        self._reset = self._make_reset()
        self._all_envs = _all_set(self.num_envs)
        # Step for the dtype of the last actions; compiled at its first use.
        self._dtype: np.dtype[Any] | None = None
        self._step: Step = _no_step
        self._steps: dict[str, tuple[np.dtype[Any], Step]] = {}

    @classmethod
    def initial_states(cls, draws: NDArray[np.float32]) -> State:
        """Initial states for draws; see `start_draws`."""
        middle, scale = np.array([cls.start_middle, cls.start_scale], np.float32)[..., np.newaxis]
        states: State = middle + draws[: len(scale)] * scale
        return states

    @staticmethod
    @abstractmethod
    def advance(
        state: State, actions: NDArray[np.generic]
    ) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
        """Steps states in place; returns rewards and terminated flags."""

    @staticmethod
    def observe(state: State) -> NDArray[np.float32]:
        """Observations `(num_envs, len(features))`; by default the states themselves."""
        return state.T

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={self.name: Entity(self.features, is_single=True)})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {self.action: self.space}

    def reset(self, seed: BatchSeed | None = None) -> None:
        result, memory = self._result, self._memory
        if result.num_ended == _CLOSED:
            self._refuse("reset")
        if seed is None and result.num_ended == _NOT_RESET:
            seed = self._new_seed()
        if seed is not None:
            memory.streams[:] = vec_env_base.splitmix64(self.env_seeds(seed))
        memory.header[CLOCK] = 0
        memory.header[NEXT_DEADLINE] = memory.header[MAX_STEPS]
        memory.rewards[:] = 0
        result.num_ended = self._reset(self._all_envs, self._address)
        result.go_on()

    def step(self, actions: BatchActions) -> None:
        result = self.step_no_reset_with_result(actions)
        if result.num_ended:
            result.is_fresh = False
            result.num_ended = self._reset(result.ended, self._address)

    def step_no_reset_with_result(self, actions: BatchActions) -> PackedResult:
        # Below a few hundred environments, the calls here dominate a step's time.
        result = self._result
        if result.num_ended:
            self._refuse("step")
        count = MISFIT
        try:
            if actions.dtype is self._dtype and actions.ndim == 1:
                count = self._step(actions, self._address)
        except (AttributeError, TypeError):  # not an array
            pass
        result.num_ended = count if count >= 0 else self._step_slowly(actions)
        result.is_fresh = True
        return result

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        result = self._result
        if mask is result.given and seed is None and (words := mask._words) is not None:
            # The usual call: nothing to check.
            result.is_fresh = False
            result.num_ended = self._reset(words, self._address)
            return
        if result.num_ended < 0:
            self._refuse("reset_envs")
        if getattr(mask, "num_envs", None) != self.num_envs or not isinstance(mask, ResetMask):
            require_reset_mask(self.name, mask, self.num_envs)
        if seed is not None:
            env_ids = mask.indices()
            self._memory.streams[env_ids] = vec_env_base.splitmix64(self.env_seeds(seed, env_ids))
        words = mask.words()
        if words is not None:
            result.num_ended = self._reset(words, self._address)
            result.go_on()

    def view(self) -> StepResult:
        if self._result.num_ended < 0:
            self._refuse("view")
        return self._result

    @property
    def state(self) -> NDArray[np.floating]:
        """Copy of the current states, `(num_envs, state_size)`; see `state_names`.

        float32 in the compiled backend, float64 in numpy.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
        """
        self.view()
        return np.ascontiguousarray(self._memory.state.T)

    def set_state(self, states: NDArray[np.floating[Any]]) -> None:
        """Starts a new episode in every environment, in the given states.

        Args:
            states: `(num_envs, state_size)` floats, laid out like `state`.

        Raises:
            ClosedError: after `close`.
            SchemaError: wrong shape or dtype, or a state outside `state_low` to `state_high`.
        """
        given = self._checked_states(states)
        self.reset()
        memory = self._memory
        memory.state[:] = given.T
        memory.observations[:] = self.observe(memory.state)

    def close(self) -> None:
        self._result.num_ended = _CLOSED
        self._result.given = ResetMask(self.num_envs)

    def __reduce__(self) -> NoReturn:
        # Compiled steps hold the address of their table: a copy would write to the original.
        raise TypeError(
            f"{type(self).__name__} can be neither copied nor pickled: make a new one, and call "
            "its set_state(env.state)"
        )

    def _make_step(self, dtype: str) -> Step:
        """Step for a dtype: uint8 or int64 for choices, float32 for torques."""
        if not self._is_compiled:
            return partial(_numpy_step, type(self), self._memory)
        # Unsigned: a negative choice becomes too large.
        return cast(Step, _loaded(f"step_{self.kernel}", {"int64": "uint64"}.get(dtype, dtype)))

    def _make_reset(self) -> Reset:
        if not self._is_compiled:
            return partial(_numpy_reset, type(self), self._memory)
        return cast(Reset, _loaded(f"reset_{self.kernel}", "uint64"))

    def _step_slowly(self, actions: object) -> int:
        """Steps by actions that the current step refused, or raises the error that explains why."""
        checked = self._checked_actions(actions)
        name = checked.dtype.name
        if name not in self._steps:
            self._steps[name] = np.dtype(name), self._make_step(name)
        self._dtype, self._step = self._steps[name]
        return self._step(checked, self._address)

    def _checked_actions(self, given: object) -> NDArray[Any]:
        """The actions, contiguous, in a dtype that has a step."""
        where = f"{self.name}: {self.action}"
        actions = checked_actions(where, given, self.num_envs, self.space)
        dtype = np.dtype(np.float32 if self._has_torques else np.int64)
        return np.ascontiguousarray(
            actions, dtype=np.dtype(np.uint8) if actions.dtype == np.uint8 else dtype
        )

    def _checked_states(self, given: object) -> NDArray[np.floating]:
        states = as_any_array(given)
        names = self.state_names
        if states.shape != (self.num_envs, len(names)) or states.dtype.kind != "f":
            raise SchemaError(
                f"{self.name}: states must be {(self.num_envs, len(names))} floats "
                f"({', '.join(names)}): got {states.shape} {states.dtype}"
            )
        exact, states = states.astype(self._memory.state.dtype), states.astype(np.float32)
        low, high = np.array(self.state_low, np.float32), np.array(self.state_high, np.float32)
        wrong = np.argwhere(~((states >= low) & (states <= high) & np.isfinite(states)))
        if len(wrong):
            env_id, number = wrong[0].tolist()
            raise SchemaError(
                f"{self.name}: {names[number]} must be finite, from {low[number]:g} to "
                f"{high[number]:g}: got {states[env_id, number]} for environment {env_id}"
            )
        return exact

    def _refuse(self, method: str) -> NoReturn:
        """Raises the error for a method that cannot be called now."""
        num_ended = self._result.num_ended
        self._is_closed, self._is_reset = num_ended == _CLOSED, num_ended != _NOT_RESET
        self._require_begun(method)
        raise self._not_reset(method, self._result.to_reset_mask().indices())


def start_draws(streams: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Draws for initial states, `(NUM_DRAWS, n)` int32, and the SplitMix64 states after them."""
    first = streams + np.uint64(seeding.GAMMA)
    second = first + np.uint64(seeding.GAMMA)
    words = vec_env_base.splitmix64(np.stack([first, second]))
    high, low = words >> np.uint64(40), words >> np.uint64(8) & np.uint64(2 * HALF - 1)
    bits = np.stack([high[0], low[0], high[1], low[1]])
    return bits.astype(np.int32) - np.int32(HALF), second


def _numpy_step(
    game: type[ClassicEnv], memory: StateTable, actions: NDArray[Any], address: int
) -> int:
    """`Step` in numpy, for any dtype; the reference of the kernels."""
    if len(actions) != len(memory.rewards) or not are_in_range(game.space, actions).all():
        return MISFIT
    memory.rewards[:], memory.terminals[:] = game.advance(memory.state, actions)
    memory.observations[:] = game.observe(memory.state)
    memory.header[CLOCK] += 1
    memory.truncations[:] = memory.deadlines <= memory.header[CLOCK]
    return _count_ended(memory)


def _numpy_reset(
    game: type[ClassicEnv], memory: StateTable, words: NDArray[np.uint64], address: int
) -> int:
    """`Reset` in numpy; the reference of the kernels."""
    bits = np.unpackbits(words.view(np.uint8), bitorder="little")
    chosen = np.flatnonzero(bits)
    draws, memory.streams[chosen] = start_draws(memory.streams[chosen])
    memory.state[:, chosen] = state = game.initial_states(draws.astype(np.float32))
    memory.observations[chosen] = game.observe(state)
    memory.terminals[chosen] = memory.truncations[chosen] = 0
    memory.deadlines[chosen] = memory.header[CLOCK] + memory.header[MAX_STEPS]
    return _count_ended(memory)


def _count_ended(memory: StateTable) -> int:
    mask = ResetMask.from_done_flags(memory.terminals, memory.truncations)
    memory.ended[:] = mask.chunks
    return mask.count()


def _loaded(name: str, dtype: str) -> Any:  # noqa: ANN401 - a `Step` or a `Reset`
    """Machine code of a kernel for a dtype; compiled or read from the cache."""
    kernels: Any = import_module(f"{__package__}.kernels")
    numba_utils: Any = import_module("entity_env.core.numba_utils")
    signature = numba_utils.array_of(dtype), numba_utils.ADDRESS
    return numba_utils.loaded(getattr(kernels, name), *signature)


def _all_set(num_envs: int) -> NDArray[np.uint64]:
    words = np.full((num_envs + 63) // 64, np.iinfo(np.uint64).max, np.uint64)
    words[-1] >>= np.uint64(-num_envs % 64)
    return words


def _no_step(actions: NDArray[Any], address: int) -> int:
    """The initial `Step`, which accepts no actions."""
    return MISFIT
