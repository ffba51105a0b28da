"""Helpers of `collect`: locations of invalid numbers, staggered resets, truncated episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import itemgetter

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.torch_net.policy import Policy, PolicyOutput, past_argument
from entity_env.agents.rogue_net.torch_net.rollout_policy import ActingPolicy
from entity_env.agents.training.rollout_buffer import RaggedSamples, Segments, Trajectories
from entity_env.agents.training.tracking.rollout_figures import RolloutMeter
from entity_env.core.episode import ERROR_METRIC
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ActionName
from entity_env.core.vec_env_base import partial_reset
from entity_env.core.vec_obs import (
    EntityBatch,
    VecEnvironment,
    VecObs,
    concat_entities,
    find_not_finite,
)
from entity_env.errors import ProtocolError, SchemaError, TrainingDivergedError


def decide(
    policy: ActingPolicy, obs: VecObs, generator: torch.Generator, memory: RowMemory
) -> PolicyOutput:
    """`Policy.act`, with the past if the network has a memory, which then remembers `obs`."""
    past = memory.past
    if past is not None:
        memory.history.append((past.states.copy(), memory.begins.copy()))
    output = policy.act(obs, generator=generator, **past_argument(past))
    memory.advance(output, obs.is_ready)
    return output


def staggered_starts(
    num_envs: int, num_staggered: int, num_steps: int, seed: int
) -> NDArray[np.int64]:
    """`(num_envs,)` step after which each environment is reset, to keep them out of lockstep.

    Spread evenly over the first `num_staggered` steps, in an order drawn from the seed, and rounded
    down to the end of a rollout of `num_steps` steps. 0 = is not reset.
    """
    places = np.random.default_rng(seed).permutation(num_envs)
    starts: NDArray[np.int64] = places * num_staggered // num_envs
    return starts // num_steps * num_steps


class RowMemory:
    """States of a network in the running episode of every row.

    Args:
        width: `Policy.memory_width`; 0 = nothing.
    """

    def __init__(self, num_rows: int, width: int) -> None:
        self.states = np.zeros((num_rows, width), np.float32)
        """`(num_rows, width)`, 0 where the next decision is the first of an episode."""
        self.begins = np.ones(num_rows, np.bool_)
        """`(num_rows,)`: the next decision is the first of an episode."""
        self.history: list[tuple[Floats, NDArray[np.bool_]]] = []
        """Earlier `states` and `begins`, one pair per step of the rollout."""

    @property
    def past(self) -> Past | None:
        """For `Policy.act`; None without memory."""
        return Past(self.states) if self.states.shape[1] else None

    def advance(self, output: PolicyOutput, is_ready: NDArray[np.bool_]) -> None:
        """Remembers the decisions of the rows that were asked for one."""
        if output.states is not None:
            self.states = np.where(is_ready[:, None], output.states, self.states)
            self.begins = self.begins & ~is_ready

    def before_ends(self, obs: VecObs) -> Floats:
        """`(num_rows, width)`: what is remembered before the last observations in `obs.final`.

        A failed episode has no new last observation, but that of its last decision, which the
        present states include.
        """
        if not self.history or not obs.truncated.any():
            return self.states
        failed = {
            (each.env_id, each.agent_id) for each in obs.episodes if ERROR_METRIC in each.metrics
        }
        if not failed:
            return self.states
        places = zip(obs.env_id.tolist(), obs.agent_id.tolist(), strict=True)
        is_failed = np.array([place in failed for place in places])
        return np.where(is_failed[:, None], self.history[-1][0], self.states)

    def segments(
        self,
        decided: tuple[NDArray[np.int64], ...],
        inds: NDArray[np.int64],
        memory_steps: int,
    ) -> Segments | None:
        """The segments of a rollout, see `Segments.cut`; None without memory.

        Args:
            decided: step and row of every decision.
        """
        if not self.history:
            return None
        states, begins = (np.stack(each)[decided] for each in zip(*self.history, strict=True))
        return Segments.cut(states, begins, decided[1], inds, memory_steps)

    def restart(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> None:
        """Forgets the episodes of some rows, which have ended."""
        if self.states.shape[1]:
            self.states[rows] = 0
            self.begins[rows] = True


class Collector:
    """Environments and network for `collect`; each rollout continues the last one.

    Args:
        vec: the environments, with autoreset "same_step".
        next_obs: the observations from `vec.reset`.
        config: the settings; may be replaced between rollouts.
        seed: for the order of staggered resets, see `stagger`.

    Attributes:
        meter: statistics of the rollouts.
        memory: what the network remembers before `next_obs`.

    Raises:
        SchemaError: an observation that is not finite.
    """

    def __init__(
        self,
        vec: VecEnvironment,
        net: Policy,
        generator: torch.Generator,
        next_obs: VecObs,
        config: CurrentConfig,
        seed: int = 0,
    ) -> None:
        self.vec = vec
        self.net = net
        self.generator = generator
        self.config = config
        self.next_obs = next_obs
        self.memory = RowMemory(len(next_obs), net.memory_width)
        self._clock = _EpisodeClock(len(next_obs))
        self._require_finite_obs(next_obs, self._clock.place)
        num_envs = getattr(vec, "num_envs", len(next_obs))
        self.meter = RolloutMeter(num_envs, len(next_obs), net.action_space)
        self._num_steps = 0
        """Number of steps in all rollouts so far."""
        self._reset_envs = partial_reset(vec)
        num_staggered = 0 if self._reset_envs is None else config.staggered_steps
        self._starts = staggered_starts(num_envs, num_staggered, config.num_steps, seed)
        """Step at which each environment is reset; 0 = never again."""

    def stagger(self) -> NDArray[np.int64]:
        """Resets the environments that are due, see `PPOConfig.staggered_steps`.

        Call it between rollouts: `collect` must evaluate the last observations before they are
        replaced. No statistics count the interrupted episodes.

        Returns:
            The rows that start new episodes.

        Raises:
            SchemaError: an observation that is not finite.
        """
        is_due = (self._starts > 0) & (self._starts <= self._num_steps)
        if self._reset_envs is None or not is_due.any():
            return np.empty(0, np.int64)
        self._starts[is_due] = 0
        self.next_obs = next_obs = self._reset_envs(is_due)
        # If a worker died between rollouts, its environments have also restarted.
        rows = np.flatnonzero(is_due[next_obs.env_id] | next_obs.done)
        self._clock.restart(rows)
        self.meter.restart(rows)
        self.memory.restart(rows)
        self._require_finite_obs(next_obs, self._clock.place)
        return rows

    def count(
        self,
        trajectories: Trajectories,
        obs: EntityBatch,
        samples: Mapping[ActionName, RaggedSamples],
    ) -> None:
        """Adds a rollout and its decisions to the statistics."""
        self._clock.advance(trajectories.done)
        self._num_steps += len(trajectories.rewards)
        self.meter.add(trajectories, obs.action_masks, samples)
        rewards = trajectories.rewards[trajectories.is_ready[:-1]]
        self.meter.add_decisions(obs, samples, rewards)

    def require_finite(self, trajectories: Trajectories, t: int) -> None:
        """Raises `SchemaError` if a reward or observation of step `t` is not finite."""
        obs = self.next_obs

        def before(row: int) -> str:
            return self._clock.place(row, trajectories.done[:t], 1)

        if not np.isfinite(obs.reward).all():
            row = int(np.flatnonzero(~np.isfinite(obs.reward))[0])
            raise SchemaError(
                f"{_row_name(obs, row)}, {before(row)}: the reward must be finite, got "
                f"{obs.reward[row]}"
            )
        self._require_finite_obs(
            obs, lambda row: self._clock.place(row, trajectories.done[: t + 1])
        )
        if obs.final is not None:
            final = obs.final
            self._require_finite_obs(final, lambda row: before(int(obs.find_rows(final)[row])))

    def _require_finite_obs(self, obs: VecObs, place: Callable[[int], str]) -> None:
        found = find_not_finite(obs.features)
        if found is None:
            return
        name, row, feature, value = found
        entity = self.net.obs_space.entities.get(name)
        names = self.net.obs_space.global_features if entity is None else entity.features
        raise SchemaError(
            f"{_row_name(obs, row)}, {place(row)}: feature {names[feature]!r} of entity {name} "
            f"must be finite, got {value}"
        )


def _row_name(obs: VecObs, row: int) -> str:
    env_id, agent_id = int(obs.env_id[row]), int(obs.agent_id[row])
    return f"env {env_id}, agent {agent_id}" if obs.agent_id.any() else f"env {env_id}"


class _EpisodeClock:
    """Episode index and step of every row at the start of a rollout."""

    def __init__(self, num_rows: int) -> None:
        self._episodes = np.zeros(num_rows, np.int64)
        self._steps = np.zeros(num_rows, np.int64)

    def advance(self, done: NDArray[np.bool_]) -> None:
        """Advances by a rollout; `done` is `(num_steps, num_rows)`."""
        since = done[::-1].argmax(axis=0)
        self._steps = np.where(done.any(axis=0), since, self._steps + len(done))
        self._episodes += done.sum(axis=0)

    def restart(self, rows: NDArray[np.int64]) -> None:
        self._episodes[rows] += 1
        self._steps[rows] = 0

    def place(self, row: int, done: NDArray[np.bool_] | None = None, steps: int = 0) -> str:
        """Episode and step of a row, as text, `steps` steps after those in `done`.

        `done` is `(num_steps, num_rows)`, from the start of the rollout; None = no steps.
        """
        passed = np.zeros(0, np.bool_) if done is None else done[:, row]
        ends = np.flatnonzero(passed)
        steps += len(passed) + (-1 - int(ends[-1]) if len(ends) else int(self._steps[row]))
        return f"episode {self._episodes[row] + len(ends)}, step {steps}"


def require_finite_output(output: PolicyOutput) -> None:
    """Raises `TrainingDivergedError` if values or probabilities are not finite."""
    for name, numbers in (("values", output.values), ("probabilities", output.logprobs)):
        if not np.isfinite(numbers).all():
            raise TrainingDivergedError(f"the {name} from the network are not finite")


class FinalObservations:
    """Final observations of truncated episodes, evaluated in one batch."""

    def __init__(self) -> None:
        self._entities: list[EntityBatch] = []
        self._steps: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[np.int64]] = []
        self._states: list[Floats] = []

    def add(self, obs: VecObs, step: int, states: Floats) -> None:
        """Adds those of a step; `states` are what the network remembers of each row's episode."""
        is_cut = obs.truncated & ~obs.terminated
        if not is_cut.any():
            return
        if obs.final is None:
            raise ProtocolError(
                "an episode was truncated, but its final observation is missing: "
                'train on environments with autoreset="same_step"'
            )
        rows = obs.find_rows(obs.final)
        chosen = np.flatnonzero((rows >= 0) & is_cut[rows])
        missing = np.setdiff1d(np.flatnonzero(is_cut), rows)
        if len(missing):
            raise ProtocolError(
                f"the episode of env {obs.env_id[missing[0]]}, agent {obs.agent_id[missing[0]]} "
                "was truncated, but `final` has no observation of it"
            )
        shown = EntityBatch(obs.final.features, obs.final.visible, {})
        self._entities.append(shown.map_arrays(itemgetter(chosen)))
        self._rows.append(rows[chosen])
        self._states.append(states[rows[chosen]])
        self._steps.append(np.full(len(chosen), step, dtype=np.int64))

    def fill(self, final_values: NDArray[np.float32], net: Policy) -> None:
        if self._rows:
            place = np.concatenate(self._steps), np.concatenate(self._rows)
            entities, states = concat_entities(self._entities), np.concatenate(self._states)
            past = Past(states) if states.shape[1] else None
            final_values[place] = net.values(entities, **past_argument(past))
