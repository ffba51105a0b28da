"""Collects rollouts: plays every environment for some steps and computes advantages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter

import numpy as np
import torch
from numpy.typing import NDArray

from entity_env.agents.ppo.config import CurrentConfig
from entity_env.agents.ppo.gae import Trajectories, compute_advantages
from entity_env.agents.ppo.rollout_buffer import Rollout, RolloutBuffer
from entity_env.agents.ppo.tracking.rollout_figures import RolloutMeter
from entity_env.agents.rogue_net.torch_net.policy import Policy, PolicyOutput
from entity_env.agents.rogue_net.torch_net.rollout_policy import fastest_policy
from entity_env.core.vec_env_base import partial_reset
from entity_env.core.vec_obs import (
    EntityBatch,
    VecEnvironment,
    VecObs,
    concat_entities,
    find_not_finite,
)
from entity_env.errors import ProtocolError, SchemaError, TrainingDivergedError


def staggered_starts(
    num_envs: int, num_staggered: int, num_steps: int, seed: int
) -> NDArray[np.int64]:
    """`(num_envs,)` steps after which environments are reset, so that they do not run in lockstep.

    Spread evenly over the first `num_staggered` steps, drawn by the seed, and rounded down to the
    end of a rollout of `num_steps` steps. 0 = the environment goes on with its first episode.
    """
    places = np.random.default_rng(seed).permutation(num_envs)
    starts: NDArray[np.int64] = places * num_staggered // num_envs
    return starts // num_steps * num_steps


class Collector:
    """Collects rollouts, each from where the last one stopped.

    Args:
        vec: the environments, with autoreset "same_step".
        net: the policy.
        generator: source of its draws.
        next_obs: the last observations of `vec`, of new episodes.
        config: the settings, which may be replaced between rollouts.
        seed: of the order in which environments are staggered, see `stagger`.

    Attributes:
        meter: counts the rollouts.

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
        self._vec = vec
        self._net = net
        self._generator = generator
        self.config = config
        self.next_obs = next_obs
        self._clock = _EpisodeClock(len(next_obs))
        _require_finite_obs(next_obs, net, lambda row: self._clock.place(row, []))
        self._buffer = RolloutBuffer()
        num_rows = len(next_obs)
        num_envs = getattr(vec, "num_envs", num_rows)
        self.meter = RolloutMeter(num_envs, num_rows, net.action_space)
        self._num_steps = 0
        """Of all rollouts so far."""
        self._reset_envs = partial_reset(vec)
        num_staggered = 0 if self._reset_envs is None else config.staggered_steps
        self._starts = staggered_starts(num_envs, num_staggered, config.num_steps, seed)
        """Of every environment the step at which it is reset; 0 = no more."""

    def stagger(self) -> NDArray[np.int64]:
        """Resets the environments whose turn it is, see `PPOConfig.staggered_steps`.

        The values of their last observations have been used by then. The episodes that this cuts
        off are in no figures.

        Returns:
            The rows that begin new episodes.

        Raises:
            SchemaError: an observation that is not finite.
        """
        is_due = (self._starts > 0) & (self._starts <= self._num_steps)
        if self._reset_envs is None or not is_due.any():
            return np.empty(0, np.int64)
        self._starts[is_due] = 0
        self.next_obs = next_obs = self._reset_envs(is_due)
        # Where a worker died between rollouts, others began anew, too.
        rows = np.flatnonzero(is_due[next_obs.env_id] | next_obs.done)
        self._clock.restart(rows)
        self.meter.restart(rows)
        _require_finite_obs(next_obs, self._net, lambda row: self._clock.place(row, []))
        return rows

    def collect(self, num_steps: int, after_step: Callable[[VecObs], None]) -> Rollout:
        """Plays `num_steps` steps."""
        trajectories = Trajectories.empty(num_steps, len(self.next_obs))
        logprobs = np.zeros_like(trajectories.rewards)
        finals = _FinalObservations()
        self._buffer.clear()
        policy = fastest_policy(self._net)
        for t in range(num_steps):
            next_obs = self.next_obs
            output = policy.act(next_obs, generator=self._generator)
            require_finite_output(output)
            is_ready = next_obs.is_ready
            rows = None if is_ready.all() else np.flatnonzero(is_ready)
            self._vec.send(output.actions)
            # While the environments step: observations stay valid until `recv`.
            self._buffer.add(next_obs, output.samples, rows)
            trajectories.is_ready[t] = is_ready
            trajectories.values[t] = output.values
            logprobs[t] = output.logprobs

            self.next_obs = next_obs = self._vec.recv()
            trajectories.rewards[t] = next_obs.reward
            trajectories.terminated[t] = next_obs.terminated
            trajectories.truncated[t] = next_obs.truncated
            self._require_finite(trajectories, t)
            finals.add(next_obs, t)
            after_step(next_obs)
        trajectories.is_ready[-1] = self.next_obs.is_ready
        done = trajectories.terminated | trajectories.truncated
        if not done[-1].all():  # else it is not used
            trajectories.values[-1] = self._net.values(self.next_obs)
        finals.fill(trajectories.final_values, self._net)
        self._clock.advance(done)
        self._num_steps += num_steps
        rollout = self._finish(trajectories, logprobs)
        self.meter.add(trajectories, rollout.obs.action_masks)
        return rollout

    def _require_finite(self, trajectories: Trajectories, t: int) -> None:
        """Checks rewards and observations of step `t`, of any kind of environments."""
        obs = self.next_obs

        def place(row: int, *, is_next: bool = False) -> str:
            done = trajectories.terminated | trajectories.truncated
            return self._clock.place(row, list(done[: t + is_next]), 1 - is_next)

        if not np.isfinite(obs.reward).all():
            row = int(np.flatnonzero(~np.isfinite(obs.reward))[0])
            raise SchemaError(
                f"{_row_name(obs, row)}, {place(row)}: the reward must be finite, got "
                f"{obs.reward[row]}"
            )
        _require_finite_obs(obs, self._net, lambda row: place(row, is_next=True))
        if obs.final is not None:
            final = obs.final
            _require_finite_obs(final, self._net, lambda row: place(int(obs.find_rows(final)[row])))

    def _finish(self, trajectories: Trajectories, logprobs: NDArray[np.float32]) -> Rollout:
        decided = np.nonzero(trajectories.is_ready[:-1])
        values, config = trajectories.values[decided], self.config
        with np.errstate(over="ignore", invalid="ignore"):  # refused below
            advantages, is_known = compute_advantages(trajectories, config.gamma, config.gae_lambda)
            returns = advantages[decided] + values
        if not np.isfinite(returns).all():
            largest = float(np.abs(trajectories.rewards).max())
            raise TrainingDivergedError(
                f"the returns are beyond float32: a reward of this rollout was {largest:.3g} or -"
                f"{largest:.3g}"
            )
        obs, samples = self._buffer.joined()
        return Rollout(
            obs=obs,
            samples=samples,
            b_inds=np.flatnonzero(is_known[decided]),
            logprobs=logprobs[decided],
            values=values,
            advantages=advantages[decided],
            returns=returns,
        )


class _EpisodeClock:
    """Episode number and step of every row at the start of a rollout."""

    def __init__(self, num_rows: int) -> None:
        self._episodes = np.zeros(num_rows, np.int64)
        self._steps = np.zeros(num_rows, np.int64)

    def advance(self, done: NDArray[np.bool_]) -> None:
        """Counts a rollout; `done` is `(num_steps, num_rows)`."""
        since = done[::-1].argmax(axis=0)
        self._steps = np.where(done.any(axis=0), since, self._steps + len(done))
        self._episodes += done.sum(axis=0)

    def restart(self, rows: NDArray[np.int64]) -> None:
        """Begins the next episode of some rows, between rollouts."""
        self._episodes[rows] += 1
        self._steps[rows] = 0

    def place(self, row: int, done: Sequence[NDArray[np.bool_]], steps: int = 0) -> str:
        """Episode and step of a row, `steps` after those of `done`."""
        ends = [t for t, each in enumerate(done) if each[row]]
        steps += len(done) - 1 - ends[-1] if ends else int(self._steps[row]) + len(done)
        return f"episode {self._episodes[row] + len(ends)}, step {steps}"


def require_finite_output(output: PolicyOutput) -> None:
    """Raises `TrainingDivergedError` if values or probabilities are not finite."""
    for name, numbers in (("values", output.values), ("probabilities", output.logprobs)):
        if not np.isfinite(numbers).all():
            raise TrainingDivergedError(f"the {name} that the network gives are not finite")


def _require_finite_obs(obs: VecObs, net: Policy, place: Callable[[int], str]) -> None:
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
    """Final observations of truncated episodes, to be valued all at once."""

    def __init__(self) -> None:
        self._entities: list[EntityBatch] = []
        self._steps: list[NDArray[np.int64]] = []
        self._rows: list[NDArray[np.int64]] = []

    def add(self, obs: VecObs, step: int) -> None:
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
        self._steps.append(np.full(len(chosen), step, dtype=np.int64))

    def fill(self, final_values: NDArray[np.float32], net: Policy) -> None:
        if self._rows:
            place = np.concatenate(self._steps), np.concatenate(self._rows)
            final_values[place] = net.values(concat_entities(self._entities))
