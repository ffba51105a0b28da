"""VecEnvBase: rows, lifecycle and seeds of a `VecEnv`; shared checks and messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NoReturn, Self, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.seeding import GAMMA, EpisodeSeeds, Run, splitmix64_int
from entity_env.core.vec_obs import VecObs
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError, shown

Words = TypeVar("Words", np.uint64, NDArray[np.uint64])
Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
"""Reset mode of an environment whose episode has ended.

`same_step`: the row shows the first observation of the next episode, and `VecObs.final` the last
observation of the old one; reward and flags belong to the old episode. `next_step`: the row shows
the last observation; the next `act` ignores the action and shows the first observation of the next
episode. `disabled`: the row shows the last observation until `reset_envs` resets that environment.

A multi-agent environment has ended when the episodes of all agents have. Until then, the row of an
agent whose episode has ended is empty after the step that showed its last observation. Only with
`same_step`, in a `Game(respawns=True)`, can such an agent start its next episode while the others
still play."""


class VecEnvBase(ABC):
    """Rows and lifecycle of a `VecEnv`.

    Row `env_id * num_agents + agent_id` of a batch belongs to agent `agent_id` of environment
    `env_id`.

    Args:
        num_agents: rows per environment.
    """

    def __init__(self, num_envs: int, num_agents: int, autoreset: Autoreset) -> None:
        self.num_envs = num_envs
        self.num_agents = num_agents
        self.num_rows = num_envs * num_agents
        self.autoreset: Autoreset = autoreset
        self.can_reset_envs = True
        """Whether `reset_envs` can reset some environments while others continue."""
        self._is_over = np.zeros(num_envs, dtype=np.bool_)
        self._env_id, self._agent_id = np.divmod(np.arange(self.num_rows), num_agents)
        self._is_closed = False

    @abstractmethod
    def close(self) -> None:
        """Closes all environments; may be called twice."""

    @property
    def is_over(self) -> NDArray[np.bool_]:
        """`(num_envs,)` bool, a copy: the episodes of all agents of the environment have ended.

        Such an environment waits for its reset: by `reset_envs(vec.is_over)` with autoreset
        "disabled", by the next `act` with "next_step". With "same_step", none does. For one agent,
        these are the environments whose row is `done` in a batch of all. Environments between
        `send` and `recv` keep their last value.
        """
        return self._is_over.copy()

    def __len__(self) -> int:
        return self.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self, error: Exception | None = None) -> None:
        """Raises `ClosedError` after `close`, caused by `error` if given."""
        if self._is_closed:
            raise ClosedError(f"this {type(self).__name__} is closed: make a new one") from error

    def _raise_not_reset(self) -> NoReturn:
        raise ProtocolError("nothing is being played: call reset first")


VEC_ENV_MAKERS: Final = (
    "; create one with VecEnv(game, 64) (entity_env.vec); for a batch environment, BatchVecEnv; "
    "for Gymnasium, GymnasiumVecEnv(gymnasium.make_vec(...)) "
    "(entity_env.interop.gymnasium); for PettingZoo, VecEnv(from_pettingzoo(...), 64) "
    "(entity_env.interop.pettingzoo)"
)
"""End of a message about an object of the wrong kind."""


def require_vec_env(vec: object, user: str, autoreset: Autoreset | None = None) -> None:
    """Checks that an object is a vector environment, with this `autoreset` if given.

    Raises:
        SchemaError: it is not; the message says how to make one.
        UsageError: it has another `autoreset`.
    """
    names = ("num_rows", "obs_space", "action_space", "reset", "act", "send", "recv")
    if isinstance(vec, type) or not all(hasattr(vec, name) for name in names):
        raise SchemaError(f"{user} needs a VecEnv: got {shown(vec)}{VEC_ENV_MAKERS}")
    if autoreset is not None and (found := getattr(vec, "autoreset", autoreset)) != autoreset:
        raise UsageError(
            f'{user} needs a VecEnv with autoreset="{autoreset}": this {type(vec).__name__} has '
            f"{found!r}"
        )


def partial_reset(vec: object) -> Callable[..., VecObs] | None:
    """`vec.reset_envs`, or None if `vec` can only reset all environments together."""
    return getattr(vec, "reset_envs", None) if getattr(vec, "can_reset_envs", False) else None


def row_name(row: int, num_agents: int, first_env: int = 0) -> str:
    """Name of a row's environment and agent, for error messages."""
    env_id, agent_id = divmod(row, num_agents)
    name = f"env {first_env + env_id}"
    return name if num_agents == 1 else f"{name}, agent {agent_id}"


def require_running(ended: Sequence[int]) -> None:
    """Raises `ProtocolError` if any environments must be reset first."""
    if ended:
        raise ProtocolError(
            f"the episodes of environments {ended[:20]} have ended: call reset_envs for them "
            "before act, for example reset_envs(vec.is_over)"
        )


def reset_runs(
    env_ids: Iterable[int], num_envs: int, seed: int | None, starts: ArrayLike | None
) -> dict[int, Run]:
    """New runs of the environments to reset; empty without a seed, so current runs continue.

    With `starts`, every environment uses the seeds of `EpisodeSeeds(seed)`, like `Game.run`, from
    its own start number on.

    Raises:
        UsageError: `starts` without a seed, or an invalid seed.
        SchemaError: `starts` of the wrong shape, dtype or range.
    """
    if seed is None:
        if starts is not None:
            raise UsageError("starts need a seed: pass the seed, too")
        return {}
    seeds = EpisodeSeeds(seed)  # rejects an invalid seed, even if no environment is reset
    if starts is None:
        return {env_id: (EpisodeSeeds(seed, env_id), 0) for env_id in env_ids}
    try:
        numbers = np.asarray(starts)
    except ValueError as error:  # rows of different lengths
        raise SchemaError(f"starts needs one value per environment: {error}") from error
    if numbers.shape != (num_envs,) or numbers.dtype.kind not in "iu" or numbers.min() < 0:
        raise SchemaError(
            f"starts needs the shape ({num_envs},) and integers, 0 or more: got {numbers.shape} "
            f"{numbers.dtype}" + (f", {numbers.min()}" if numbers.dtype.kind == "i" else "")
        )
    return {env_id: (seeds, int(numbers[env_id])) for env_id in env_ids}


# ------------------------------------------------------------------ seeds as arrays

_MULTIPLY_1, _MULTIPLY_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT_1, _SHIFT_2, _SHIFT_3 = np.uint64(30), np.uint64(27), np.uint64(31)


def splitmix64(state: Words) -> Words:
    """SplitMix64 output function, for uint64 arrays and for scalars in compiled code."""
    state = (state ^ (state >> _SHIFT_1)) * _MULTIPLY_1
    state = (state ^ (state >> _SHIFT_2)) * _MULTIPLY_2
    return state ^ (state >> _SHIFT_3)


def env_seeds(seed: int, env_ids: NDArray[np.int64]) -> NDArray[np.uint64]:
    """`(len(env_ids),) uint64`: seed of each environment's sequence of episodes.

    Environment 0 uses the seed itself, so a batch of one environment can repeat any environment of
    any batch. Environment `i` > 0 uses `hash(seed) + i`, below 2**63. These seeds are
    consecutive, and batches with adjacent values of `seed` share no sequence.

    Args:
        seed: seed of the batch, below 2**64.
        env_ids: from 0 to 2**62 - 1.
    """
    seeds = env_ids.astype(np.uint64)
    seeds += np.uint64(splitmix64_int(seed + GAMMA) >> 2)
    seeds[env_ids == 0] = seed
    return seeds
