"""VecEnvBase: lifecycle, argument checks and error messages of all vector environments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NoReturn, Self, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from entity_env.core.seeding import EpisodeSeeds, Run
from entity_env.core.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.core.validation import checked_mask, checked_seed
from entity_env.core.vec_actions import checked_vec_actions
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError, shown

Autoreset: TypeAlias = Literal["same_step", "next_step", "disabled"]
"""What happens to an environment whose episode has ended.

`same_step`: the row shows the first observation of the next episode, and `VecObs.final` the last
one of the old; reward and flags belong to the old. `next_step`: the row shows the last observation,
and the next `act` ignores the action and shows the first one of the next episode. `disabled`: the
row shows the last observation until `reset_envs` is called for that environment.

In a game for several agents an environment has ended when the episodes of all of them have. Until
then the rows of those that are over are empty, after the step that showed their last observation;
only with `same_step`, and in a `Game(respawns=True)`, can such an agent begin its next episode
while the others still play."""


class VecEnvBase(ABC):
    """Base class of environments that are stepped as one batch; a `VecEnvironment`.

    Row `env_id * num_agents + agent_id` of a batch belongs to an agent of an environment.

    Args:
        num_envs: how many environments.
        num_agents: rows of each.
        autoreset: what happens to ended episodes.
    """

    def __init__(self, num_envs: int, num_agents: int, autoreset: Autoreset) -> None:
        self.num_envs = num_envs
        self.num_agents = num_agents
        self.num_rows = num_envs * num_agents
        self.autoreset: Autoreset = autoreset
        self.can_reset_envs = True
        """Whether `reset_envs` can reset some environments while others play on."""
        self._env_id, self._agent_id = np.divmod(np.arange(self.num_rows), num_agents)
        self._is_closed = False

    @abstractmethod
    def obs_space(self) -> ObsSpace:
        """Space of the observations."""

    @abstractmethod
    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """Space of every action, by name."""

    @abstractmethod
    def close(self) -> None:
        """Ends all environments; may be called twice."""

    def __len__(self) -> int:
        return self.num_rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_open(self, error: Exception | None = None) -> None:
        """Raises a `ClosedError` after `close`; `error` is its cause, if a call has failed."""
        if self._is_closed:
            raise ClosedError(f"this {type(self).__name__} is closed: make a new one") from error

    def _raise_not_reset(self) -> NoReturn:
        raise ProtocolError("nothing is being played: call reset first")

    def _name_row(self, row: int) -> str:
        return row_name(row, self.num_agents)


class SyncVecEnv(VecEnvBase):
    """Base class of environments of this process that all step together, in `recv`.

    Subclasses set `_obs` to every batch that they return. Arrays of a `VecObs` are valid until the
    next call that returns one.
    """

    def __init__(self, num_envs: int, num_agents: int, autoreset: Autoreset) -> None:
        super().__init__(num_envs, num_agents, autoreset)
        self._obs: VecObs | None = None
        """The last batch; None before `reset`."""
        self._sent: Mapping[ActionName, NDArray[Any]] | None = None
        """Actions between `send` and `recv`."""

    @abstractmethod
    def _reset(self, chosen: NDArray[np.bool_] | None, seed: int | None) -> VecObs:
        """Begins a new episode in the chosen environments, of a new run if there is a seed."""

    @abstractmethod
    def _step(self, actions: Mapping[ActionName, NDArray[Any]]) -> VecObs:
        """Steps all environments by checked actions."""

    def _ended_envs(self) -> Sequence[int]:
        """Indices of environments that must be reset before the next step."""
        return ()

    def _checked_seed(self, seed: int) -> int:
        return checked_seed(seed)

    def reset(self, seed: int | None = None) -> VecObs:
        """Begins a new episode in every environment, whatever its state.

        Args:
            seed: begins a new run with this seed; None goes on with the present run.

        Raises:
            ClosedError: after `close`.
            UsageError: a seed that is no integer, or negative.
        """
        self._require_open()
        seed = None if seed is None else self._checked_seed(seed)
        self._sent = None
        return self._reset(None, seed)

    def reset_envs(
        self, mask: NDArray[np.bool_] | Sequence[bool], seed: int | None = None
    ) -> VecObs:
        """Begins a new episode in the chosen environments, whatever their state.

        As `VecEnv.reset_envs`.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: as for `reset`, in the chosen environments.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, between `send` and `recv`, or if `can_reset_envs` is
                False.
            SchemaError: a mask of another shape or dtype.
            UsageError: a seed that is no integer, or negative.
        """
        self._require_reset()
        if not self.can_reset_envs:
            raise ProtocolError(
                f"the environments of this {type(self).__name__} reset themselves, and only all of "
                "them can be reset: call reset"
            )
        if self._sent is not None:
            raise ProtocolError("actions were sent: call recv before reset_envs")
        chosen = checked_mask(mask, self.num_envs)
        return self._reset(chosen, None if seed is None else self._checked_seed(seed))

    def act(self, actions: VecActions) -> VecObs:
        """Gives every actor of the last batch its action and returns the next batch.

        Args:
            actions: per action one value per actor, in the order of `action_masks[name].actors` of
                the last batch: a flat array, or a `RaggedArray` with the same lengths.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, between `send` and `recv`, or while an environment is
                over and autoreset disabled.
            SchemaError: actions that do not fit; nothing has happened then, and a right call works.
        """
        return self._step(self._checked(actions))

    def send(self, actions: VecActions) -> None:
        """The first half of `act`: checks the actions and keeps a copy; raises what `act` does."""
        self._sent = {name: np.array(values) for name, values in self._checked(actions).items()}

    def recv(self) -> VecObs:
        """The second half of `act`.

        Raises:
            ClosedError: after `close`.
            ProtocolError: no actions were sent.
        """
        self._require_reset()
        sent, self._sent = self._sent, None
        if sent is None:
            raise ProtocolError("no actions were sent: call send before recv")
        return self._step(sent)

    def close(self) -> None:
        """Refuses all further steps; may be called twice."""
        self._is_closed = True

    def _require_reset(self) -> VecObs:
        self._require_open()
        if self._obs is None:
            self._raise_not_reset()
        return self._obs

    def _checked(self, actions: VecActions) -> Mapping[ActionName, NDArray[Any]]:
        obs = self._require_reset()
        if self._sent is not None:
            raise ProtocolError("actions were sent already: call recv before the next send")
        if self.autoreset == "disabled":
            require_running(self._ended_envs())
        return checked_vec_actions(actions, obs.action_masks, self.action_space(), self._name_row)


VEC_ENV_MAKERS: Final = (
    "; a VecEnv is made by VecEnv(game, 64) (entity_env.vec), of a batch environment by "
    "BatchVecEnv, of Gymnasium's by GymnasiumVecEnv(gymnasium.make_vec(...)) "
    "(entity_env.interop.gymnasium), of PettingZoo's by VecEnv(from_pettingzoo(...), 64) "
    "(entity_env.interop.pettingzoo)"
)
"""End of a message about an object of another kind."""


def require_vec_env(vec: object, user: str, autoreset: Autoreset | None = None) -> None:
    """Checks that an object is a vector environment; with this `autoreset`, if one is given.

    Raises:
        SchemaError: it is none; says how to make one.
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
    """`vec.reset_envs`, if it can reset some environments while others play on; None = it cannot.

    A `VecEnvironment` says so by a `can_reset_envs` that is True.
    """
    return getattr(vec, "reset_envs", None) if getattr(vec, "can_reset_envs", False) else None


def row_name(row: int, num_agents: int, first_env: int = 0) -> str:
    """Names the environment and agent of a row, for error messages."""
    env_id, agent_id = divmod(row, num_agents)
    name = f"env {first_env + env_id}"
    return name if num_agents == 1 else f"{name}, agent {agent_id}"


def require_running(ended: Sequence[int]) -> None:
    """Raises a `ProtocolError` if there are environments that must be reset first."""
    if ended:
        raise ProtocolError(
            f"the episodes of environments {ended[:20]} have ended: call reset_envs for them "
            "before act"
        )


def reset_runs(
    env_ids: Iterable[int], num_envs: int, seed: int | None, starts: ArrayLike | None
) -> dict[int, Run]:
    """The new runs of environments that are reset; none where they go on with the present one."""
    if seed is None:
        if starts is not None:
            raise UsageError("starts are those of a seed: give it as well")
        return {}
    seeds = EpisodeSeeds(seed)  # refuses a bad one, also when no environment is reset
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
