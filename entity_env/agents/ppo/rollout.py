"""Plays every environment for some steps and keeps what it needs to learn from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.agents.ppo.gae import Trajectories
from entity_env.agents.ppo.rollout_buffer import DecisionStorage, EntityStorage, FrozenDecisions
from entity_env.agents.rogue_net.torch_net.net import Decisions, RogueNet
from entity_env.agents.rogue_net.torch_net.rollout_policy import fastest_policy
from entity_env.core.spaces import CategoricalActionSpace, GlobalCategoricalActionSpace
from entity_env.core.vec_obs import VecEnvironment, VecObs, find_not_finite
from entity_env.errors import ProtocolError, SchemaError, TrainingDivergedError


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a rollout saw and did; arrays are valid until the next `collect`.

    Args:
        decisions: what was observed and done, a decision each.
        steps, rows: `(num_decisions,)` int64, when and by whom: indices into `trajectories`.
        logprobs: `(num_decisions,)` float32, log-probability of what was done.
        trajectories: values, rewards and ends of every step and row.
    """

    decisions: FrozenDecisions
    steps: NDArray[np.int64]
    rows: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    trajectories: Trajectories


class Collector:
    """Collects rollouts, each going on where the last one stopped.

    Args:
        vec: the environments; they reset themselves in the step in which they end.
        net: decides.
        generator: where draws come from.
        next_obs: the observations that `vec` gave last, of new episodes.

    Raises:
        SchemaError: an observation that is not finite.
    """

    def __init__(
        self, vec: VecEnvironment, net: RogueNet, generator: torch.Generator, next_obs: VecObs
    ) -> None:
        self._vec = vec
        self._net = net
        self._generator = generator
        self.next_obs = next_obs
        self._clock = _EpisodeClock(len(next_obs))
        _require_finite_obs(next_obs, net, lambda row: self._clock.place(row, []))
        kinds = (CategoricalActionSpace, GlobalCategoricalActionSpace)
        self._storage = DecisionStorage(
            {
                name: len(space) if isinstance(space, kinds) else 0
                for name, space in net.action_space.items()
            }
        )

    def collect(self, num_steps: int, after_step: Callable[[VecObs], None]) -> Rollout:
        """Plays `num_steps` steps.

        Args:
            num_steps: steps of each environment.
            after_step: is given every new batch; what it raises ends the rollout.

        Raises:
            ProtocolError: no row was asked for anything, or an episode was cut without its last
                observation.
            SchemaError: a reward or an observation that is not finite.
            TrainingDivergedError: the network gives numbers that are not finite.
        """
        what = Trajectories.empty(num_steps, len(self.next_obs))
        logprobs = np.zeros_like(what.rewards)
        finals = _FinalObservations()
        self._storage.clear()
        policy = fastest_policy(self._net)
        for t in range(num_steps):
            next_obs = self.next_obs
            decisions = policy.act(next_obs, generator=self._generator)
            require_finite_decisions(decisions)
            is_ready = next_obs.is_ready
            rows = None if is_ready.all() else np.flatnonzero(is_ready)
            self._vec.send(decisions.actions)
            # While the games go on: what they showed stays valid until `recv`.
            self._storage.add(next_obs, decisions.samples, rows)
            what.is_ready[t] = is_ready
            what.values[t] = decisions.values
            logprobs[t] = decisions.logprobs

            self.next_obs = next_obs = self._vec.recv()
            what.rewards[t] = next_obs.reward
            what.terminated[t] = next_obs.terminated
            what.truncated[t] = next_obs.truncated
            self._require_finite(what, t)
            finals.add(next_obs, t)
            after_step(next_obs)
        what.is_ready[-1] = self.next_obs.is_ready
        if not (what.terminated[-1] | what.truncated[-1]).all():  # else nobody looks at it
            what.values[-1] = self._net.values(self.next_obs)
        finals.fill(what.final_values, self._net)
        self._clock.advance(what.terminated | what.truncated)
        return self._finish(what, logprobs)

    def _require_finite(self, what: Trajectories, t: int) -> None:
        """Checks what came of step `t`, whatever stepped the environments."""
        obs = self.next_obs

        def place(row: int, *, is_next: bool = False) -> str:
            done = list(what.terminated[: t + is_next] | what.truncated[: t + is_next])
            return self._clock.place(row, done, 1 - is_next)

        if not np.isfinite(obs.reward).all():
            row = int(np.flatnonzero(~np.isfinite(obs.reward))[0])
            raise SchemaError(
                f"{_row_name(obs, row)}, {place(row)}: the reward must be finite, got "
                f"{obs.reward[row]}"
            )
        _require_finite_obs(obs, self._net, lambda row: place(row, is_next=True))
        if obs.final is not None:
            final = obs.final
            _require_finite_obs(final, self._net, lambda row: place(int(_rows_of(final, obs)[row])))

    def _finish(self, what: Trajectories, logprobs: NDArray[np.float32]) -> Rollout:
        steps, rows = np.nonzero(what.is_ready[:-1])
        if not len(steps):
            raise ProtocolError(
                f"no agent was asked for an action in {len(what.rewards)} steps of "
                f"{what.rewards.shape[1]} rows: there is nothing to learn from"
            )
        return Rollout(self._storage.freeze(), steps, rows, logprobs[steps, rows], what)


class _EpisodeClock:
    """Number of the episode, and its steps, of every row at the start of a rollout.

    Args:
        num_rows: how many rows.
    """

    def __init__(self, num_rows: int) -> None:
        self._episodes = np.zeros(num_rows, np.int64)
        self._steps = np.zeros(num_rows, np.int64)

    def advance(self, done: NDArray[np.bool_]) -> None:
        """Goes on by a rollout; `done` is `(num_steps, num_rows)`."""
        since = done[::-1].argmax(axis=0)
        self._steps = np.where(done.any(axis=0), since, self._steps + len(done))
        self._episodes += done.sum(axis=0)

    def place(self, row: int, done: Sequence[NDArray[np.bool_]], steps: int = 0) -> str:
        """Episode and step of a row, some steps after those that `done` tells of."""
        ends = [t for t, each in enumerate(done) if each[row]]
        steps += len(done) - 1 - ends[-1] if ends else int(self._steps[row]) + len(done)
        return f"episode {self._episodes[row] + len(ends)}, step {steps}"


def require_finite_decisions(decisions: Decisions) -> None:
    """Checks that a network still computes.

    Raises:
        TrainingDivergedError: its values or probabilities are not finite.
    """
    for what, numbers in (("values", decisions.values), ("probabilities", decisions.logprobs)):
        if not np.isfinite(numbers).all():
            raise TrainingDivergedError(f"the {what} that the network gives are not finite")


def _require_finite_obs(obs: VecObs, net: RogueNet, place: Callable[[int], str]) -> None:
    found = find_not_finite(obs.features)
    if found is None:
        return
    name, row, feature, value = found
    entity = net.obs_space.entities.get(name)
    names = net.obs_space.global_features if entity is None else entity.features
    raise SchemaError(
        f"{_row_name(obs, row)}, {place(row)}: feature {names[feature]!r} of entity {name} must be "
        f"finite, got {value}"
    )


def _row_name(obs: VecObs, row: int) -> str:
    env_id, agent_id = int(obs.env_id[row]), int(obs.agent_id[row])
    return f"env {env_id}, agent {agent_id}" if obs.agent_id.any() else f"env {env_id}"


class _FinalObservations:
    """The last observations of episodes that were cut, to be valued all at once."""

    def __init__(self) -> None:
        self._entities = EntityStorage()
        self._steps: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[np.int64]] = []

    def add(self, obs: VecObs, step: int) -> None:
        is_cut = obs.truncated & ~obs.terminated
        if not is_cut.any():
            return
        if obs.final is None:
            raise ProtocolError(
                "an episode was truncated, but its last observation did not come: "
                'train on environments with autoreset="same_step"'
            )
        rows = _rows_of(obs.final, obs)
        chosen = np.flatnonzero((rows >= 0) & is_cut[rows])
        missing = np.setdiff1d(np.flatnonzero(is_cut), rows)
        if len(missing):
            raise ProtocolError(
                f"the episode of env {obs.env_id[missing[0]]}, agent {obs.agent_id[missing[0]]} "
                "was truncated, but `final` has no observation of it"
            )
        self._entities.add(obs.final, chosen)
        self._rows.append(rows[chosen])
        self._steps.append(np.full(len(chosen), step, dtype=np.int64))

    def fill(self, final_values: NDArray[np.float32], net: RogueNet) -> None:
        if self._rows:
            place = np.concatenate(self._steps), np.concatenate(self._rows)
            final_values[place] = net.values(self._entities.freeze())


def _rows_of(part: VecObs, whole: VecObs) -> NDArray[np.int64]:
    """`(len(part),)`: the row of `whole` for the same agent of the same environment, or -1."""
    num_agents = int(max(part.agent_id.max(initial=0), whole.agent_id.max(initial=0))) + 1
    key = whole.env_id * num_agents + whole.agent_id
    wanted = part.env_id * num_agents + part.agent_id
    order = np.argsort(key)
    place = np.searchsorted(key, wanted, sorter=order)
    rows = order[np.minimum(place, len(order) - 1)]
    return np.where(key[rows] == wanted, rows, -1)
