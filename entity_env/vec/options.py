"""VecOptions: validated arguments of a `VecEnv`, sent to its workers."""

from __future__ import annotations

import pickle
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from numpy.typing import ArrayLike

from entity_env.agents.channels.channel import Transport
from entity_env.authoring.game import Game
from entity_env.authoring.load_module import to_pickle
from entity_env.authoring.step_timeout import require_timeout
from entity_env.core.environment import Environment
from entity_env.core.seeding import Run
from entity_env.core.validation import checked_count, require_choice
from entity_env.core.vec_env_base import VEC_ENV_MAKERS, Autoreset, reset_runs
from entity_env.errors import SchemaError, UsageError, WorkerError
from entity_env.vec.batch_env.source import BatchSource

OnError: TypeAlias = Literal["raise", "restart"]
"""Reaction to a game that raises or hangs, or whose process dies. "raise": the waiting call raises.
"restart": the failed episode is truncated, and the environment starts its next episode; if a
process dies, this holds for all its environments. Array environments restart only with workers, and
only if their process dies or hangs."""

Source: TypeAlias = Game | Callable[[], Environment] | BatchSource
"""A game, an `Environment` class, a function that returns a new `Environment`, or a source of array
environments, such as `MultiSnakeBatch`."""


@dataclass(frozen=True)
class VecOptions:
    """Arguments of a `VecEnv`, checked."""

    source: Source
    num_envs: int
    num_workers: int
    autoreset: Autoreset
    transport: Transport | None
    on_error: OnError
    step_timeout_s: float | None
    start_method: str | None
    start_timeout_s: float | None

    def __post_init__(self) -> None:
        require_choice("autoreset", self.autoreset, self.autoresets)
        require_choice("on_error", self.on_error, get_args(OnError))
        if self.transport is not None:
            require_choice("transport", self.transport, get_args(Transport))
        require_timeout(self.step_timeout_s)
        checked_count("num_envs", self.num_envs)
        checked_count("num_workers", self.num_workers, 0)
        require_timeout(self.start_timeout_s, "start_timeout_s")
        require_source(self.source)
        if self.num_workers > self.num_envs:
            raise UsageError(
                f"num_workers must be at most num_envs, got {self.num_workers} for {self.num_envs}"
            )
        if isinstance(self.source, BatchSource):
            self._require_batch_options()
        if self.num_workers and (missing := missing_for_workers()):
            raise UsageError(
                f"num_workers must be 0 on this system, got {self.num_workers}: workers need "
                f"{missing}; num_workers=0 steps the environments in this process"
            )

    def _require_batch_options(self) -> None:
        """Raises `UsageError` for options that array environments cannot follow."""
        if self.on_error == "restart" and not self.num_workers:
            raise UsageError(
                'on_error="restart" needs num_workers for array environments: those of a process '
                "fail together, and only a new process can start again"
            )
        if self.transport is not None:
            raise UsageError(
                f"transport is for games, which wait for their actions: got {self.transport!r} for "
                "array environments"
            )

    @property
    def autoresets(self) -> Sequence[Autoreset]:
        source = self.source
        return source.autoresets if isinstance(source, BatchSource) else get_args(Autoreset)

    @property
    def has_episode_seeds(self) -> bool:
        return not isinstance(self.source, BatchSource) or self.source.has_episode_seeds

    def new_runs(
        self, env_ids: Sequence[int], seed: int | None, starts: ArrayLike | None = None
    ) -> dict[int, Run]:
        """New runs of reset environments, by the rule of the source; see `reset_runs`."""
        source = self.source
        make = source.new_runs if isinstance(source, BatchSource) else reset_runs
        return make(env_ids, self.num_envs, seed, starts)

    def pickled(self) -> bytes:
        """The options, pickled for a worker; a source from `__main__` is pickled by value."""
        try:
            return to_pickle(self)
        except (pickle.PicklingError, TypeError, AttributeError, ValueError) as error:
            raise WorkerError(
                f"a VecEnv sends its source to its workers, but {self.source!r} cannot be pickled: "
                f"{error}; let play create the objects that the source holds, or use num_workers=0"
            ) from error


def missing_for_workers() -> str:
    """Feature that this system lacks for worker processes, or ""."""
    if sys.platform in ("emscripten", "wasi"):
        return "processes"
    can_share = sys.platform == "win32" or hasattr(socket, "send_fds")
    return "" if can_share else "file descriptors that are sent through sockets (socket.send_fds)"


def require_source(source: object) -> None:
    """Raises `SchemaError` for an object that cannot be the source of a `VecEnv`."""
    if not isinstance(source, Game | BatchSource) and not callable(source):
        raise SchemaError(
            "a VecEnv needs a Game, an Environment class, or a function that returns an "
            f"Environment: got {source!r}{VEC_ENV_MAKERS}"
        )
