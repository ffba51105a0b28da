"""VecEnv: many copies of a game or environment, stepped together."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.channel import Transport, require_transport
from entity_env.environment import Environment
from entity_env.errors import ClosedError, ProtocolError, SchemaError, UsageError
from entity_env.game import Game
from entity_env.seeds import EpisodeSeeds
from entity_env.spaces import ActionName, ActionSpace, ObsSpace
from entity_env.vec.actions import checked_actions
from entity_env.vec.autoreset import Autoreset
from entity_env.vec.environment_batch import EnvironmentBatch
from entity_env.vec.game_batch import GameBatch
from entity_env.vec.picture import picture
from entity_env.vec.statistics import VecStatistics
from entity_env.vec_obs import VecActions, VecObs

Source: TypeAlias = Game | Callable[[], Environment]
"""A game, an `Environment` class, or a function that returns a new `Environment`."""


class VecEnv:
    """Steps many copies of a game or environment together, and shows them as one batch.

    A game for several agents has one row an agent: row `env_id * num_agents + agent_id`.

    Args:
        source: what to run.
        num_envs: how many copies.
        num_workers: 0 = in this process.
        seed: seed of the run: the seed of every episode follows from it, the index of the
            environment and the number of the episode.
        autoreset: what happens to ended episodes; see `Autoreset`.
        transport: how games wait for their actions; see `entity_env.agents.Transport`.

    Raises:
        UsageError: a number or mode that makes no sense.
        SchemaError: `source` is nothing that can be run.

    Arrays of a `VecObs` are views that stay valid until the next call that returns one. With the
    greenlet transport, the thread that resets a `VecEnv` must step and close it.
    """

    def __init__(
        self,
        source: Source,
        num_envs: int,
        num_workers: int = 0,
        *,
        seed: int = 0,
        autoreset: Autoreset = "same_step",
        transport: Transport = "greenlet",
    ) -> None:
        _require_choice("autoreset", autoreset, get_args(Autoreset))
        require_transport(transport)
        _require_count("num_envs", num_envs)
        if num_workers != 0:
            raise UsageError(f"num_workers must be 0, in this process: got {num_workers}")
        EpisodeSeeds(seed)  # refuses a bad one here rather than at the first reset
        if isinstance(source, Game):
            self._batch: GameBatch | EnvironmentBatch = GameBatch(
                source, num_envs, autoreset, transport
            )
        elif callable(source):
            self._batch = EnvironmentBatch(source, num_envs, autoreset)
        else:
            raise SchemaError(
                f"a VecEnv needs a Game, an Environment class, or a function that returns an "
                f"Environment: got {source!r}"
            )
        self.num_envs = num_envs
        self.num_agents = self._batch.num_agents
        self.num_rows = num_envs * self.num_agents
        self.autoreset = autoreset
        self._seed: int | None = seed
        self._last: VecObs | None = None
        self._sent: dict[ActionName, list[Any]] | None = None
        self._is_closed = False
        self._num_steps = 0
        self._waiting_s = 0.0
        self._returned_at = perf_counter()
        # Suspended games are not collected by themselves: their owner has to throw them out.
        self._finalizer = weakref.finalize(self, self._batch.close)

    def obs_space(self) -> ObsSpace:
        """What can be observed."""
        return self._batch.obs_space()

    def action_space(self) -> Mapping[ActionName, ActionSpace]:
        """What can be done."""
        return self._batch.action_space()

    def reset(self, seed: int | None = None) -> VecObs:
        """Begins a new episode in every environment, whatever its state.

        Args:
            seed: begins a new run with this seed; None goes on to the next episodes of the run.

        Raises:
            ClosedError: after `close`.
            UsageError: a seed that is no integer, or negative.
            WorkerError: a game raised; `reset` again goes on to the next episodes.
        """
        self._require_open()
        seed = self._seed if seed is None else seed
        if seed is not None:
            EpisodeSeeds(seed)  # refuses a bad one before anything happens
            self._batch.seed(seed)
        self._seed = None
        self._last = None
        self._sent = None
        return self._returned(self._batch.reset(range(self.num_envs)))

    def act(self, actions: VecActions) -> VecObs:
        """Gives every actor of the last batch its action and returns the next batch.

        Args:
            actions: per action one value an actor, in the order of `action_masks[name].actors` of
                the last batch: a flat array, or a `RaggedArray` with the same lengths.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or while an environment is over and autoreset disabled.
            SchemaError: actions that do not fit; nothing has happened then, and a right call works.
            WorkerError: a game raised; `reset` begins anew.
        """
        self.send(actions)
        return self.recv()

    def send(self, actions: VecActions) -> None:
        """The first half of `act`: hands over the actions.

        Raises:
            ClosedError, ProtocolError, SchemaError: as `act`.
        """
        last = self._require_ready()
        if self._sent is not None:
            raise ProtocolError("actions were sent already: call recv before the next send")
        masks = last.action_masks
        self._sent = checked_actions(actions, masks, self.action_space(), self._where)

    def recv(self, min_envs: int | None = None) -> VecObs:
        """The second half of `act`: returns the next batch.

        Args:
            min_envs: the smallest number of environments to wait for; in this process all of them
                come at once.

        Raises:
            ClosedError: after `close`.
            ProtocolError: without `send`.
            WorkerError: a game raised; `reset` begins anew.
        """
        self._require_reset()
        if self._sent is None:
            raise ProtocolError("no actions were sent: call send before recv")
        if min_envs is not None and not 1 <= min_envs <= self.num_envs:
            raise UsageError(f"min_envs must be from 1 to {self.num_envs}, got {min_envs}")
        values, self._sent = self._sent, None
        # Until the next batch is complete there is none to act on: after an error, only reset is.
        self._last = None
        self._waiting_s += perf_counter() - self._returned_at
        batch = self._returned(self._batch.act(values))
        self._num_steps += 1
        return batch

    def reset_envs(
        self, mask: NDArray[np.bool_] | Sequence[bool], seed: int | None = None
    ) -> VecObs:
        """Begins a new episode in the chosen environments, with autoreset disabled.

        All others show once more what they showed last, with the same flags, but a reward of 0 and
        nothing in `episodes`.

        Args:
            mask: `(num_envs,)` bool, True = reset.
            seed: begins a new run with this seed in those environments; None goes on.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`, or with autoreset on.
            SchemaError: a mask of another shape or dtype.
            WorkerError: a game raised; `reset` begins anew.
        """
        if self.autoreset != "disabled":
            raise ProtocolError(
                f'reset_envs needs autoreset="disabled", this VecEnv has {self.autoreset!r}'
            )
        self._require_reset()
        chosen = np.asarray(mask)
        if chosen.shape != (self.num_envs,) or chosen.dtype != np.bool_:
            raise SchemaError(
                f"mask needs the shape ({self.num_envs},) and bools: got {chosen.shape} "
                f"{chosen.dtype}"
            )
        env_ids = np.flatnonzero(chosen).tolist()
        if seed is not None:
            EpisodeSeeds(seed)
            for env_id in env_ids:
                self._batch.seed_env(env_id, seed)
        self._last = None
        self._sent = None
        return self._returned(self._batch.reset(env_ids))

    def render(self, env_id: int = 0) -> NDArray[np.uint8]:
        """Draws one environment as `(height, width, 3)` uint8.

        An `Environment` draws itself; of a game, the entities with features x and y are drawn on a
        grid.

        Raises:
            ClosedError: after `close`.
            ProtocolError: before `reset`.
            UsageError: no such environment.
            NotImplementedError: an `Environment` that cannot be drawn.
        """
        last = self._require_reset()
        if not 0 <= env_id < self.num_envs:
            raise UsageError(f"env_id must be from 0 to {self.num_envs - 1}, got {env_id}")
        if isinstance(self._batch, EnvironmentBatch):
            return self._batch.environment(env_id).render()
        return picture(last, self.obs_space(), env_id * self.num_agents)

    def statistics(self) -> VecStatistics:
        """Where the time went so far."""
        return VecStatistics(
            num_steps=self._num_steps,
            num_env_steps=self._num_steps * self.num_envs,
            num_episodes=self._batch.num_episodes,
            games_s=self._batch.games_s,
            packing_s=self._batch.packing_s,
            waiting_s=self._waiting_s,
            num_restarts=0,
        )

    def close(self) -> None:
        """Ends every game, so that their `finally` blocks run; may be called twice.

        Raises:
            ProtocolError: a game refuses to leave, or another thread must close it. All others are
                closed all the same.
        """
        self._is_closed = True
        self._last = None
        if self._finalizer.alive:
            self._batch.close()
            self._finalizer.detach()

    def __len__(self) -> int:
        return self.num_rows

    def __enter__(self) -> VecEnv:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _returned(self, batch: VecObs) -> VecObs:
        self._last = batch
        self._returned_at = perf_counter()
        return batch

    def _where(self, row: int) -> str:
        env_id, agent_id = divmod(row, self.num_agents)
        return f"env {env_id}" if self.num_agents == 1 else f"env {env_id}, agent {agent_id}"

    def _require_open(self) -> None:
        if self._is_closed:
            raise ClosedError("this VecEnv is closed: make a new one")

    def _require_reset(self) -> VecObs:
        self._require_open()
        if self._last is None:
            raise ProtocolError("nothing is being played: call reset first")
        return self._last

    def _require_ready(self) -> VecObs:
        last = self._require_reset()
        if self.autoreset == "disabled":
            over = [i for i in range(self.num_envs) if self._batch.is_over(i)]
            if over:
                raise ProtocolError(
                    f"the episodes of environments {over[:20]} have ended: call reset_envs for "
                    "them before act"
                )
        return last


def _require_count(name: str, value: object) -> None:
    if not isinstance(value, int | np.integer) or isinstance(value, bool) or value < 1:
        raise UsageError(f"{name} must be an integer, 1 or more: got {value!r}")


def _require_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise UsageError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
