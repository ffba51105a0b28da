"""Observations and samples of a rollout in flat arrays, from which any minibatch is gathered."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.action_index import Samples
from entity_env.agents.rogue_net.torch_net.tensors import has_kernels
from entity_env.core.ragged import RaggedArray, total_rows
from entity_env.core.spaces import ActionName
from entity_env.core.vec_obs import EntityBatch, concat_entities

Scalar = TypeVar("Scalar", bound=np.generic)
RaggedSamples: TypeAlias = RaggedArray[np.int64 | np.float32]


@dataclass(frozen=True, slots=True)
class Minibatch:
    """Decisions of a rollout, as copies; arrays of figures are `(num_decisions,)` float32.

    Args:
        obs: observations, a row for each decision.
        samples: per action one value an actor, as `RogueNet.evaluate` takes them.
        logprobs, values: of the policy of the rollout.
        advantages, returns: targets of policy and value.
    """

    obs: EntityBatch
    samples: Mapping[ActionName, NDArray[np.int64 | np.float32]]
    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rollout:
    """All decisions of a rollout; arrays of figures as in `Minibatch`.

    Args:
        b_inds: `(num_learnable,)` int64, decisions with a known outcome.
    """

    obs: EntityBatch
    samples: Mapping[ActionName, RaggedSamples]
    b_inds: NDArray[np.int64]
    logprobs: NDArray[np.float32]
    values: NDArray[np.float32]
    advantages: NDArray[np.float32]
    returns: NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.logprobs)

    def minibatch(self, mb_inds: NDArray[np.int64]) -> Minibatch:
        """The decisions of that index, in that order."""
        return Minibatch(
            self.obs.map_arrays(lambda each: _take(each, mb_inds)),
            {name: _take(each, mb_inds).values for name, each in self.samples.items()},
            self.logprobs[mb_inds],
            self.values[mb_inds],
            self.advantages[mb_inds],
            self.returns[mb_inds],
        )


class RolloutBuffer:
    """Observations and samples of a rollout, decision after decision."""

    def __init__(self) -> None:
        self._obs: list[EntityBatch] = []
        self._samples: list[Mapping[ActionName, RaggedSamples]] = []

    def clear(self) -> None:
        """Removes all decisions."""
        self._obs.clear()
        self._samples.clear()

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
        """All observations and samples, which are the caller's; the buffer is empty again."""
        samples = {
            name: RaggedArray.concat([each[name] for each in self._samples])
            for name in self._samples[0]
        }
        obs = concat_entities(self._obs)
        self.clear()
        return obs, samples


def _take(sequences: RaggedArray[Scalar], index: NDArray[np.int64]) -> RaggedArray[Scalar]:
    """Copies of the sequences of that index, in that order; the index is not checked."""
    if not has_kernels():
        return sequences[index]
    # Here and not above: numba takes a while to import, and may not be installed.
    from entity_env.agents.rogue_net.kernels.layout import take_sequences

    lengths, values = sequences.lengths[index], sequences.values
    width = math.prod(values.shape[1:])
    taken = np.empty((total_rows(lengths, len(values)), *values.shape[1:]), dtype=values.dtype)
    source, out = values.reshape(len(values), width), taken.reshape(len(taken), width)
    take_sequences(source, sequences.offsets, index, out)
    return RaggedArray.unchecked(taken, lengths)
