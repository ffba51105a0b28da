"""A rollout in arrays: by step and row, and by decision, for minibatches."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.action_index import Samples
from entity_env.agents.rogue_net.memory import Past
from entity_env.agents.rogue_net.torch_net.policy import Evaluation, Policy, past_argument
from entity_env.agents.rogue_net.torch_net.tensors import has_kernels
from entity_env.core.ragged import Floats, RaggedArray, total_rows
from entity_env.core.spaces import ActionName
from entity_env.core.vec_obs import EntityBatch, concat_entities

Scalar = TypeVar("Scalar", bound=np.generic)
RaggedSamples: TypeAlias = RaggedArray[np.int64 | np.float32]


@dataclass(frozen=True, slots=True)
class Trajectories:
    """Values, rewards and episode ends of every row in a rollout of `num_steps` steps.

    Step `t` observes, acts, and receives a reward together with observation `t + 1`.

    Args:
        is_ready: `(num_steps + 1, num_rows)` bool: the row decides on observation `t`.
        values: `(num_steps + 1, num_rows)` float32, the value of observation `t`. The last value of
            a row is unused if its episode has just ended.
        rewards: `(num_steps, num_rows)` float32, received with observation `t + 1`.
        terminated, truncated: `(num_steps, num_rows)` bool: the episode ended before observation
            `t + 1`, the first of the next episode.
        final_values: `(num_steps, num_rows)` float32, the value of the final observation of a
            truncated episode; meaningless elsewhere.
    """

    is_ready: NDArray[np.bool_]
    values: NDArray[np.float32]
    rewards: NDArray[np.float32]
    terminated: NDArray[np.bool_]
    truncated: NDArray[np.bool_]
    final_values: NDArray[np.float32]

    @classmethod
    def empty(cls, num_steps: int, num_rows: int) -> Trajectories:
        shape, longer = (num_steps, num_rows), (num_steps + 1, num_rows)
        return cls(
            is_ready=np.zeros(longer, dtype=np.bool_),
            values=np.zeros(longer, dtype=np.float32),
            rewards=np.zeros(shape, dtype=np.float32),
            terminated=np.zeros(shape, dtype=np.bool_),
            truncated=np.zeros(shape, dtype=np.bool_),
            final_values=np.zeros(shape, dtype=np.float32),
        )

    def first(self, num_steps: int) -> Trajectories:
        """The first steps, as views."""
        return Trajectories(
            is_ready=self.is_ready[: num_steps + 1],
            values=self.values[: num_steps + 1],
            rewards=self.rewards[:num_steps],
            terminated=self.terminated[:num_steps],
            truncated=self.truncated[:num_steps],
            final_values=self.final_values[:num_steps],
        )

    @property
    def done(self) -> NDArray[np.bool_]:
        """`(num_steps, num_rows)`: the episode ended before observation `t + 1`."""
        return self.terminated | self.truncated


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Decisions of a rollout, as copies.

    Args:
        obs: one row per decision.
        samples: per action one value per actor, as `Policy.evaluate` takes them.
        logprobs, values: `(num_decisions,)` float32, of the rollout's policy.
        advantages, returns: `(num_decisions,)` float32, targets of policy and value.
        past: what the network remembered before the segments; None without memory.
        teacher_past: the same of the teacher, if there is one.
        actor_logprobs: log-probabilities of the rollout's policy, in the order of `ActorLogprobs`;
            None = not needed.
    """

    obs: EntityBatch
    samples: Mapping[ActionName, NDArray[np.int64 | np.float32]]
    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]
    past: Past | None = None
    teacher_past: Past | None = None
    actor_logprobs: Floats | None = None


@dataclass(frozen=True, slots=True)
class Segments:
    """Decisions of a rollout in sequences, to train a network with memory through time.

    A segment is up to `memory_steps` decisions of one row, in order of time; episodes may begin in
    the middle.

    Args:
        states: `(num_decisions, width)` float32, what the network remembered before each decision
            of the rollout.
        begins: `(num_decisions,)` bool: the decision is the first of its episode.
        rows: `(num_decisions,)` int64, the row that makes each decision.
        decisions: indices of decisions, one sequence per segment.
        of: `(num_decisions,)` int64 segment of each decision; -1 = none.
        teacher_states: like `states`, of the teacher, if there is one.
    """

    states: Floats
    begins: NDArray[np.bool_]
    rows: NDArray[np.int64]
    decisions: RaggedArray[np.int64]
    of: NDArray[np.int64]
    teacher_states: Floats | None = None

    @classmethod
    def cut(
        cls,
        states: Floats,
        begins: NDArray[np.bool_],
        rows: NDArray[np.int64],
        inds: NDArray[np.int64],
        memory_steps: int,
    ) -> Segments:
        """Cuts decisions into segments.

        Args:
            states, begins, rows: as above; decisions of a row are in order of time.
            inds: the decisions to learn from; of a row, all but some of its last.
            memory_steps: number of decisions per segment; the last of a row may be shorter.
        """
        by_row = inds[np.argsort(rows[inds], kind="stable")]
        owners = rows[by_row]
        first = np.flatnonzero(np.diff(owners, prepend=-1))  # of each row
        sizes = np.diff(first, append=len(owners))
        place = np.arange(len(owners)) - np.repeat(first, sizes)
        starts = np.flatnonzero(place % memory_steps == 0)
        lengths = np.diff(starts, append=len(owners))
        of = np.full(len(rows), -1)
        of[by_row] = np.repeat(np.arange(len(starts)), lengths)
        return cls(states, begins, rows, RaggedArray.unchecked(by_row, lengths), of)

    def past(self, mb_inds: NDArray[np.int64], states: Floats) -> Past:
        """The past of decisions that are whole segments, one after another.

        `states` are those of the network or of the teacher.
        """
        starts = np.flatnonzero(np.diff(self.of[mb_inds], prepend=-1))
        lengths = np.diff(starts, append=len(mb_inds))
        return Past(states[mb_inds[starts]], lengths, self.begins[mb_inds])


@dataclass(frozen=True, slots=True)
class Rollout:
    """All decisions of a rollout; fields as in `Minibatch`, except these.

    Args:
        samples: per action one value per actor, in one sequence per decision.
        b_inds: `(num_learnable,)` int64, decisions with a known outcome.
        segments: these decisions in sequences; None without memory.
        actor_logprobs: in one sequence per decision, empty if its outcome is unknown.
    """

    obs: EntityBatch
    samples: Mapping[ActionName, RaggedSamples]
    b_inds: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]
    segments: Segments | None = None
    actor_logprobs: RaggedArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.logprobs)

    @property
    def num_units(self) -> int:
        """Number of segments or, without memory, of decisions with a known outcome."""
        return len(self.b_inds if self.segments is None else self.segments.decisions.lengths)

    def splits(self, rng: np.random.Generator, count: int) -> list[NDArray[np.int64]]:
        """Decisions with a known outcome in `count` random parts, segments in one piece each."""
        if self.segments is None:
            return np.array_split(rng.permutation(self.b_inds), count)
        drawn = np.array_split(rng.permutation(self.num_units), count)
        return [self.segments.decisions[each].values for each in drawn]

    def parts(self, mb_inds: NDArray[np.int64], most: int) -> list[NDArray[np.int64]]:
        """Positions in `mb_inds`, in parts of at most `most`, but of at least a segment."""
        at, num_parts = np.arange(len(mb_inds)), -(-len(mb_inds) // most)
        if self.segments is None or num_parts < 2:
            return np.array_split(at, num_parts) if num_parts else []
        ends = np.flatnonzero(np.diff(self.segments.of[mb_inds], append=-1)) + 1
        cuts, start = [], 0
        for end, following in zip(ends.tolist(), [*ends[1:].tolist(), 0], strict=True):
            if following - start > most:
                cuts.append(end)
                start = end
        return np.split(at, cuts)

    def minibatch(self, mb_inds: NDArray[np.int64]) -> Minibatch:
        """The decisions with these indices, in order."""
        past = teacher_past = None
        if (segments := self.segments) is not None:
            past = segments.past(mb_inds, segments.states)
            if segments.teacher_states is not None:
                teacher_past = segments.past(mb_inds, segments.teacher_states)
        return Minibatch(
            self.obs.map_arrays(lambda each: _take(each, mb_inds)),
            {name: _take(each, mb_inds).values for name, each in self.samples.items()},
            self.logprobs[mb_inds],
            self.values[mb_inds],
            self.advantages[mb_inds],
            self.returns[mb_inds],
            past,
            teacher_past,
            None if self.actor_logprobs is None else _take(self.actor_logprobs, mb_inds).values,
        )


def evaluate_minibatch(net: Policy, minibatch: Minibatch) -> Evaluation:
    """`Policy.evaluate` on a minibatch."""
    return net.evaluate(minibatch.obs, minibatch.samples, **past_argument(minibatch.past))


class RolloutBuffer:
    """Observations and samples of a rollout, in order of decisions."""

    def __init__(self) -> None:
        self._obs: list[EntityBatch] = []
        self._samples: list[Mapping[ActionName, RaggedSamples]] = []

    def add(
        self,
        obs: EntityBatch,
        samples: Mapping[ActionName, Samples],
        rows: NDArray[np.int64] | None,
    ) -> None:
        """Copies the decisions of some rows, or of all; `samples` as in `PolicyOutput`."""
        copies: Callable[[RaggedArray[Any]], RaggedArray[Any]]
        copies = RaggedArray.copy if rows is None else itemgetter(rows)
        self._obs.append(obs.map_arrays(copies))
        self._samples.append(
            {
                name: copies(RaggedArray(values, obs.action_masks[name].actors.lengths))
                for name, values in samples.items()
            }
        )

    def joined(self) -> tuple[EntityBatch, dict[ActionName, RaggedSamples]]:
        samples = {
            name: RaggedArray.concat([each[name] for each in self._samples])
            for name in self._samples[0]
        }
        return concat_entities(self._obs), samples


def _take(sequences: RaggedArray[Scalar], index: NDArray[np.int64]) -> RaggedArray[Scalar]:
    """Copies of the sequences with these indices, in order; the indices must be valid."""
    if not has_kernels():
        return sequences[index]
    # Late import: numba is slow to load, and optional.
    from entity_env.agents.rogue_net.kernels.layout import take_sequences

    lengths, values = sequences.lengths[index], sequences.values
    width = math.prod(values.shape[1:])
    taken = np.empty((total_rows(lengths, len(values)), *values.shape[1:]), dtype=values.dtype)
    source, out = values.reshape(len(values), width), taken.reshape(len(taken), width)
    take_sequences(source, sequences.offsets, index, out)
    return RaggedArray.unchecked(taken, lengths)
