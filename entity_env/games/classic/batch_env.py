"""ClassicEnv: what CartPole, MountainCar and Pendulum share as batches."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from entity_env.core.seeding import stream_states
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ContinuousActionSpace,
    Entity,
    ObsSpace,
)
from entity_env.core.validation import checked_count, checked_seed
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError
from entity_env.games.classic.backends import Backend, Step, are_in_range, make_kernels
from entity_env.games.classic.dynamics import Rules
from entity_env.games.classic.state_table import CLOCK, MAX_STEPS, NEXT_DEADLINE, Memory
from entity_env.vec.batch_env.batch_env import (
    MISFIT,
    BatchActions,
    BatchEnv,
    PackedResult,
    ResetMask,
    StepResult,
)
from entity_env.vec.batch_env.reset_mask import require_reset_mask

# Numbers of ended environments that keep any from being stepped.
_NOT_RESET = -1
_CLOSED = -2
_MOST_NAMED = 8
_MOST_STEPS = 2**62


class ClassicEnv(BatchEnv):
    """A batch of one of the classic games.

    Actions are arrays of uint8 or int64 for choices, of float32 for torques; integers and floats
    of other dtypes are converted, which costs some microseconds. One thread at a time may call; the
    compiled backend lets other threads run meanwhile.

    Args:
        rules: which game.
        num_envs: how many copies.
        max_episode_steps: steps after which an episode is cut.
        backend: what steps them.
    """

    is_always_finite = True

    def __init__(
        self, rules: Rules, num_envs: int, max_episode_steps: int, backend: Backend
    ) -> None:
        super().__init__(num_envs, len(rules.features))
        self.max_episode_steps = checked_count("max_episode_steps", max_episode_steps)
        if max_episode_steps > _MOST_STEPS:
            raise UsageError(f"max_episode_steps must be at most 2**62: got {max_episode_steps}")
        self._rules = rules
        self._has_torques = isinstance(rules.space, ContinuousActionSpace)
        self._memory = Memory(
            self.num_envs,
            len(rules.state),
            self.obs_size,
            self.max_episode_steps,
            self._has_torques,
        )
        self._address = self._memory.address
        self._result = PackedResult(
            self._memory.observations,
            self._memory.rewards,
            self._memory.terminals,
            self._memory.truncations,
            self._memory.ended,
        )
        self._result.num_ended = _NOT_RESET
        self._kernels = make_kernels(backend, rules, self._memory)
        self._reset = self._kernels.reset()
        self._everyone = _all_set(self.num_envs)
        # The step for the dtype that came last; compiled when the first of it comes.
        self._dtype: np.dtype[Any] | None = None
        self._step: Step = _no_step
        self._steps: dict[str, tuple[np.dtype[Any], Step]] = {}

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={self._rules.name: Entity(self._rules.features)})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {self._rules.action: self._rules.space}

    def supports_no_reset(self) -> bool:
        return True

    def reset(self, seed: int | None = None) -> None:
        result, memory = self._result, self._memory
        if result.num_ended == _CLOSED:
            raise self._refusal("reset")
        if seed is None and result.num_ended == _NOT_RESET:
            seed = int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
        if seed is not None:
            memory.streams[:] = stream_states(checked_seed(seed, bits=64), np.arange(self.num_envs))
        memory.header[CLOCK] = 0
        memory.header[NEXT_DEADLINE] = memory.header[MAX_STEPS]
        memory.rewards[:] = 0
        result.num_ended = self._reset(self._everyone, self._address)

    def step(self, actions: BatchActions) -> None:
        if self.step_no_reset_with_result(actions).num_ended:
            self._result.num_ended = self._reset(self._result.ended, self._address)

    def step_no_reset(self, actions: BatchActions) -> None:
        self.step_no_reset_with_result(actions)

    def step_no_reset_with_result(self, actions: BatchActions) -> PackedResult:
        # Below some hundred environments the calls of this method are what a step costs.
        result = self._result
        if result.num_ended:
            raise self._refusal("step")
        count = MISFIT
        try:
            if actions.dtype is self._dtype and actions.ndim == 1:
                count = self._step(actions, self._address)
        except (AttributeError, TypeError):  # no array
            pass
        result.num_ended = count if count >= 0 else self._step_slowly(actions)
        return result

    def reset_envs(self, mask: ResetMask, seed: int | None = None) -> None:
        result = self._result
        if result.num_ended < 0:
            raise self._refusal("reset_envs")
        if getattr(mask, "num_envs", None) != self.num_envs or not isinstance(mask, ResetMask):
            require_reset_mask(self._rules.name, mask, self.num_envs)
        if seed is not None:
            first, env_ids = checked_seed(seed, bits=64), mask.indices()
            self._memory.streams[env_ids] = stream_states(first, env_ids)
        words = mask.words()
        if words is not None:
            result.num_ended = self._reset(words, self._address)

    def view(self) -> StepResult:
        if self._result.num_ended < 0:
            raise self._refusal("view")
        return self._result

    @property
    def state(self) -> NDArray[np.float32]:
        """`(num_envs, state_size)` float32: the states that the physics go on from, a copy.

        The numbers of a state are named at the head of the game's module, in this order.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
        """
        self.view()
        return np.ascontiguousarray(self._memory.state.T)

    def set_state(self, states: NDArray[np.floating[Any]]) -> None:
        """Begins a new episode everywhere, in the states given rather than in drawn ones.

        Args:
            states: `(num_envs, state_size)` floats, laid out like `state`.

        Raises:
            ClosedError: after `close`.
            SchemaError: another shape or dtype, or a state in which no episode goes on.
        """
        given = self._checked_states(states)
        self.reset()
        memory = self._memory
        memory.state[:] = given.T
        memory.observations[:] = self._rules.observe(memory.state)

    def close(self) -> None:
        self._result.num_ended = _CLOSED

    def __reduce__(self) -> NoReturn:
        # Compiled steps know their memory by its address: a copy would write to the original's.
        raise TypeError(
            f"{type(self).__name__} can be neither copied nor pickled: make another one, and give "
            "it set_state(env.state)"
        )

    def _step_slowly(self, actions: object) -> int:
        """Steps by actions that the present step did not take, or says what is wrong with them."""
        checked = self._checked_actions(actions)
        name = checked.dtype.name
        if name not in self._steps:
            self._steps[name] = np.dtype(name), self._kernels.step(name)
        self._dtype, self._step = self._steps[name]
        return self._step(checked, self._address)

    def _checked_actions(self, given: object) -> NDArray[Any]:
        """The actions, in a dtype that there is a step for, one after another."""
        actions = _array(given)
        where = f"{self._rules.name}: {self._rules.action} actions"
        kind, wanted = ("f", "floats") if self._has_torques else ("iu", "integers")
        if actions.shape != (self.num_envs,) or actions.dtype.kind not in kind:
            raise SchemaError(
                f"{where} must be ({self.num_envs},) {wanted}, one an environment: got "
                f"{actions.shape} {actions.dtype}"
            )
        wrong = np.flatnonzero(~are_in_range(self._rules, actions))
        if len(wrong):
            env_id = int(wrong[0])
            raise SchemaError(
                f"{where} must be {self._range()}: got {actions[env_id]} for environment {env_id}"
                + (f", and {len(wrong) - 1} more out of range" if len(wrong) > 1 else "")
            )
        dtype = np.dtype(np.float32 if self._has_torques else np.int64)
        return np.ascontiguousarray(
            actions, dtype=np.dtype(np.uint8) if actions.dtype == np.uint8 else dtype
        )

    def _range(self) -> str:
        space = self._rules.space
        if isinstance(space, ContinuousActionSpace):
            return f"from {space.low[0]:g} to {space.high[0]:g}"
        labels = ", ".join(f"{i} = {label}" for i, label in enumerate(space.index_to_label))
        return f"one of {labels}"

    def _checked_states(self, given: object) -> NDArray[np.float32]:
        states = _array(given)
        rules = self._rules
        if states.shape != (self.num_envs, len(rules.state)) or states.dtype.kind != "f":
            raise SchemaError(
                f"{rules.name}: states must be {(self.num_envs, len(rules.state))} floats "
                f"({', '.join(rules.state)}): got {states.shape} {states.dtype}"
            )
        states = states.astype(np.float32)
        low, high = np.array(rules.low, np.float32), np.array(rules.high, np.float32)
        wrong = np.argwhere(~((states >= low) & (states <= high) & np.isfinite(states)))
        if len(wrong):
            env_id, number = wrong[0].tolist()
            raise SchemaError(
                f"{rules.name}: {rules.state[number]} must be finite, from {low[number]:g} to "
                f"{high[number]:g}: got {states[env_id, number]} for environment {env_id}"
            )
        return states

    def _refusal(self, method: str) -> Exception:
        """Why a method cannot be called now."""
        name, num_ended = self._rules.name, self._result.num_ended
        if num_ended == _CLOSED:
            return ClosedError(f"{name}.{method}: the environments are closed")
        if num_ended == _NOT_RESET:
            return ProtocolError(f"{name}.{method}: call reset first")
        ended = self._result.to_reset_mask().indices()
        named = ", ".join(str(env_id) for env_id in ended[:_MOST_NAMED])
        more = f" and {num_ended - _MOST_NAMED} more" if num_ended > _MOST_NAMED else ""
        return ProtocolError(
            f"{name}.{method}: the episodes of environments {named}{more} have ended: reset them "
            "first, with reset_envs(result.to_reset_mask())"
        )


def _array(given: object) -> NDArray[Any]:
    """Anything as an array; what is none has a shape that nobody expects."""
    try:
        return np.asarray(given)
    except ValueError:  # lists of different lengths
        return np.array(None)


def _all_set(num_envs: int) -> NDArray[np.uint64]:
    """The bits of a mask of all environments."""
    words = np.full((num_envs + 63) // 64, np.iinfo(np.uint64).max, np.uint64)
    words[-1] >>= np.uint64(-num_envs % 64)
    return words


def _no_step(actions: NDArray[Any], address: int) -> int:
    """Before the first step: no actions fit."""
    return MISFIT
