"""What a vector environment of Gymnasium tells step by step, kept for every environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.errors import SchemaError


class Ledger:
    """Counts the episodes of all environments."""

    def __init__(self, num_envs: int) -> None:
        self._rewards = np.zeros(num_envs, dtype=np.float64)
        self._lengths = np.zeros(num_envs, dtype=np.int64)
        self._numbers = np.full(num_envs, -1, dtype=np.int64)
        self._seeds = np.zeros(num_envs, dtype=object)  # of any size

    def begin(self, chosen: NDArray[np.bool_], seed: int | None) -> None:
        """Begins episodes, of a new run if there is a seed."""
        self._rewards[chosen] = 0
        self._lengths[chosen] = 0
        self._numbers[chosen] += 1
        if seed is not None:
            self._numbers[chosen] = 0
            self._seeds[chosen] = (seed + np.arange(len(chosen), dtype=object))[chosen]

    def place(self, env_id: int, steps: int = 0) -> str:
        """Episode and step of an environment, some steps after those that were counted."""
        return f"episode {self._numbers[env_id]}, step {self._lengths[env_id] + steps}"

    def step(self, reward: NDArray[np.float32], chosen: NDArray[np.bool_]) -> None:
        """Counts a step of the chosen ones."""
        self._rewards += reward
        self._lengths += chosen

    def end(self, terminated: NDArray[np.bool_], truncated: NDArray[np.bool_]) -> list[Episode]:
        """The episodes that have ended."""
        return [
            Episode(
                reward=float(self._rewards[i]),
                length=int(self._lengths[i]),
                terminated=bool(terminated[i]),
                truncated=bool(truncated[i]),
                seed=int(self._seeds[i]),
                number=int(self._numbers[i]),
                env_id=i,
            )
            for i in np.flatnonzero(terminated | truncated).tolist()
        ]


class AllowedActions:
    """What `info["action_mask"]` said of every environment last.

    Args:
        num_envs: how many environments.
        num_choices: of an action, or 0 if it is not one choice.
        where: names the source, for errors.
    """

    def __init__(self, num_envs: int, num_choices: int, where: str) -> None:
        self._allowed = np.ones((num_envs, num_choices), dtype=np.bool_)
        self._where = where
        self._is_told = False

    def read(self, info: Mapping[str, Any]) -> None:
        """Keeps what an info says, of those that it tells of.

        Raises:
            SchemaError: a mask of another shape.
        """
        told = info.get("action_mask")
        if told is None or not self._allowed.shape[1]:
            return
        masks = np.asarray(told).astype(np.bool_)
        if masks.shape != self._allowed.shape:
            raise SchemaError(
                f"{self._where}: info['action_mask'] needs the shape {self._allowed.shape}, one "
                f"flag a choice: got {masks.shape}"
            )
        whose = info.get("_action_mask", np.ones(len(masks), dtype=np.bool_))
        self._allowed[whose] = masks[whose]
        self._is_told = True

    def of(self, ready: NDArray[np.bool_]) -> NDArray[np.bool_] | None:
        """`(num_ready, num_choices)`, True = allowed; None = everything.

        Raises:
            SchemaError: nothing is allowed to one of those.
        """
        if not self._is_told:
            return None
        stuck = np.flatnonzero(ready & ~self._allowed.any(axis=1))
        if len(stuck):
            raise SchemaError(
                f"{self._where}: info['action_mask'] of env {stuck[0]} allows nothing"
            )
        return self._allowed[ready]
