"""A tiny batch environment in plain Python: slow, with non-contiguous arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from entity_env import ProtocolError, SchemaError
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    CategoricalActionSpace,
    ContinuousActionSpace,
    Entity,
    GlobalCategoricalActionSpace,
    ObsSpace,
)
from entity_env.vec.batch_env.batch_env import (
    BatchActions,
    BatchEnv,
    BatchSeed,
    ResetMask,
    StepResult,
)

LABELS = ("BACK", "STAY", "ON")
SPACES: Mapping[str, ActionSpace] = {
    "global": GlobalCategoricalActionSpace(LABELS),
    "categorical": CategoricalActionSpace(LABELS),
    "continuous": ContinuousActionSpace((-1.0,), (1.0,)),
}


class Corridor(BatchEnv):
    """Walks along a corridor of 5 cells; terminates at either end, truncated after 6 steps.

    The reward is the position. The start is random, from its own generator.
    """

    def __init__(self, num_envs: int, kind: str = "global", obs_size: int = 2) -> None:
        super().__init__(num_envs, obs_size)
        self.space = SPACES[kind]
        self.is_closed = False
        self.rngs: list[np.random.Generator] = []
        table = np.zeros((num_envs, 2), np.float32)
        flags = np.zeros((num_envs, 4), np.uint8)
        self.result = StepResult(
            np.zeros((num_envs, obs_size), np.float32), table[:, 0], flags[:, 1], flags[:, 3]
        )

    def obs_space(self) -> ObsSpace:
        return ObsSpace(entities={"Walker": Entity(("x", "time"))})

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        return {"Walk": self.space}

    def reset(self, seed: BatchSeed | None = None) -> None:
        everyone = ResetMask.from_bool(np.ones(self.num_envs, np.bool_))
        if not self.rngs or seed is not None:
            self.rngs = [np.random.default_rng(0) for _ in range(self.num_envs)]
        self.result.rewards[:] = 0
        self.reset_envs(everyone, seed)

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        self._require_reset()
        seeds = None if seed is None else self.env_seeds(seed)
        for i in mask.iter_set():
            if seeds is not None:
                self.rngs[i] = np.random.default_rng(int(seeds[i]))
            self.result.observations[i, :2] = self.rngs[i].integers(1, 4), 0
            self.result.terminals[i] = self.result.truncations[i] = 0

    def step(self, actions: BatchActions) -> None:
        self.step_no_reset(actions)
        self.reset_envs(self.result.to_reset_mask())

    def step_no_reset(self, actions: BatchActions) -> None:
        self._require_reset()
        if self.result.to_reset_mask().any():
            raise ProtocolError("some environments have ended")
        moves = self._moves(actions)
        shown = self.result.observations
        shown[:, 0] += moves
        shown[:, 1] += 1
        self.result.rewards[:] = shown[:, 0]
        self.result.terminals[:] = (shown[:, 0] <= 0) | (shown[:, 0] >= 4)
        self.result.truncations[:] = shown[:, 1] >= 6

    def step_no_reset_with_result(self, actions: BatchActions) -> StepResult:
        self.step_no_reset(actions)
        return self.result

    def view(self) -> StepResult:
        self._require_reset()
        return self.result

    def close(self) -> None:
        self.is_closed = True

    def _moves(self, actions: BatchActions) -> NDArray[np.float32]:
        if actions.shape != (self.num_envs,):
            raise SchemaError(f"actions must be ({self.num_envs},), got {actions.shape}")
        moves = np.asarray(actions, np.float32)
        if not isinstance(self.space, ContinuousActionSpace):
            moves -= 1
        if not (np.abs(moves) <= 1).all():
            raise SchemaError("actions out of range")
        return moves

    def _require_reset(self) -> None:
        if not self.rngs:
            raise ProtocolError("call reset first")


class Walled(Corridor):
    """A corridor in which staying is illegal, as is going back in the middle."""

    @property
    def legal_masks(self) -> NDArray[np.bool_]:
        allowed = np.ones((self.num_envs, 3), np.bool_)
        allowed[:, 1] = False
        allowed[self.result.observations[:, 0] == 2, 0] = False
        allowed[self.result.to_reset_mask().indices()] = False
        return allowed

    def _moves(self, actions: BatchActions) -> NDArray[np.float32]:
        moves = super()._moves(actions)
        if not self.legal_masks[np.arange(self.num_envs), np.asarray(actions, np.int64)].all():
            raise SchemaError("not allowed")
        return moves


class Parade(Corridor):
    """Three walkers in a row follow the first; position and time are global features."""

    num_entities = 3

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, obs_size=8)

    def obs_space(self) -> ObsSpace:
        return ObsSpace(("place", "clock"), super().obs_space().entities)

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        super().reset_envs(mask, seed)
        self._follow()

    def step_no_reset(self, actions: BatchActions) -> None:
        super().step_no_reset(actions)
        self._follow()

    def _follow(self) -> None:
        shown = self.result.observations
        for i in range(1, 4):
            shown[:, 2 * i : 2 * i + 2] = shown[:, :2] - (i % 3, 0)


class Strided(Corridor):
    """Two walkers on the same path, in rows with gaps."""

    num_entities = 2

    def __init__(self, num_envs: int) -> None:
        super().__init__(num_envs, obs_size=4)
        self.result.observations = np.zeros((num_envs, 5), np.float32)[:, :4]

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        super().reset_envs(mask, seed)
        self.result.observations[:, 2:] = self.result.observations[:, :2]

    def step_no_reset(self, actions: BatchActions) -> None:
        super().step_no_reset(actions)
        self.result.observations[:, 2:] = self.result.observations[:, :2]


class Spoilt(Corridor):
    """Nothing moves; after some steps, env 4 has a non-finite number.

    Args:
        what: "reward", "observation", or "start", the observation after a reset.
    """

    def __init__(self, num_envs: int, what: str, steps: int) -> None:
        super().__init__(num_envs)
        self.what = what
        self.left = steps

    def step_no_reset(self, actions: BatchActions) -> None:
        super().step_no_reset(actions)
        self.left -= 1
        if self.left == 0 and self.num_envs > 4:
            if self.what == "reward":
                self.result.rewards[4] = np.inf
            elif self.what == "observation":
                self.result.observations[4, 1] = np.nan

    def reset_envs(self, mask: ResetMask, seed: BatchSeed | None = None) -> None:
        super().reset_envs(mask, seed)
        if self.left <= 0 and self.num_envs > 4 and self.what == "start":
            self.result.observations[4, 0] = -np.inf
