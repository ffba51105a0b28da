"""Memory of a network: what it has seen so far, per sequence; and its recurrence in numpy.

Only the recurrence is sequential in time. Its inputs, the gates, are computed for all rows of a
batch at once, and so is everything that reads the states.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.numpy_net.functions import product, sigmoid
from entity_env.core.ragged import Floats, Ints
from entity_env.core.vec_obs import VecObs

NUM_GATES: Final = 3
"""Inputs of the recurrence per number in memory: reset, write and candidate, in this order."""


@dataclass(frozen=True)
class Past:
    """States before the rows of a batch, which are steps of sequences.

    Consecutive rows belong to one sequence, in order of time: `lengths[0]` rows to the first, and
    so on.

    Args:
        states: `(num_sequences, width)` float32, before the first row of every sequence.
        lengths: `(num_sequences,)` int64; None = every row is a sequence.
        begins: `(num_rows,)` bool: the row is the first of its episode, so the state before it is
            0, whatever came earlier; None = none is.
    """

    states: Floats
    lengths: Ints | None = None
    begins: NDArray[np.bool_] | None = None

    @cached_property
    def order(self) -> StepOrder:
        """The order in which the recurrence computes the rows."""
        lengths = self.lengths
        if lengths is None:
            every = np.arange(len(self.states))
            return StepOrder(every, every, np.array([0, len(every)]))
        by_length = np.argsort(-lengths, kind="stable")
        most = int(lengths.max(initial=0))
        # (most,) number of sequences that have a row at each time
        counts = np.bincount(lengths, minlength=most + 1)[::-1].cumsum()[::-1][1:]
        starts = (np.cumsum(lengths) - lengths)[by_length]
        offsets = np.concatenate(([0], np.cumsum(counts)))
        time = np.repeat(np.arange(most), counts)
        place = np.arange(len(time)) - offsets[:-1][time]
        return StepOrder(by_length, starts[place] + time, offsets)

    def part(self, columns: slice) -> Past:
        """Some columns of the states."""
        return Past(np.ascontiguousarray(self.states[:, columns]), self.lengths, self.begins)


class RowStates:
    """States of a network in the running episodes of all agents of some environments.

    Keeps those of the last 64 `VecEnv`s apart.

    Args:
        width: how many numbers it remembers.
    """

    def __init__(self, width: int) -> None:
        self.width = width
        self._by_source: dict[int | None, NDArray[np.float32]] = {}
        """By `VecObs.source`: by environment and agent; 0 at the start of an episode."""

    def past(self, obs: VecObs) -> Past:
        """The states before the observations of a batch; forgets episodes that ended before."""
        states = self._states(obs)
        envs, agents, _ = states.shape
        need = int(obs.env_id.max(initial=-1)) + 1, int(obs.agent_id.max(initial=-1)) + 1
        if need[0] > envs or need[1] > agents:
            grown = np.zeros((max(need[0], envs), max(need[1], agents), self.width), np.float32)
            grown[:envs, :agents] = states
            self._by_source[obs.source] = states = grown
        is_new = obs.done if obs.begins is None else obs.done | obs.begins
        states[obs.env_id[is_new], obs.agent_id[is_new]] = 0
        return Past(states[obs.env_id, obs.agent_id])

    def advance(self, obs: VecObs, states: Floats) -> None:
        """Stores the states after decisions on a batch, for the rows that were asked for one."""
        is_ready = obs.is_ready
        self._states(obs)[obs.env_id[is_ready], obs.agent_id[is_ready]] = states[is_ready]

    def _states(self, obs: VecObs) -> NDArray[np.float32]:
        """The states of the batch's environments."""
        if obs.source not in self._by_source:
            if len(self._by_source) >= _MAX_SOURCES:  # those of `VecEnv`s that were closed
                del self._by_source[next(iter(self._by_source))]
            self._by_source[obs.source] = np.zeros((0, 0, self.width), np.float32)
        return self._by_source[obs.source]


class StepOrder(NamedTuple):
    """Rows of a batch by time, then by sequence, longest first.

    Args:
        sequences: `(num_sequences,)` the order of the sequences.
        rows: `(num_rows,)` the row at each place.
        offsets: `(num_times + 1,)` first place of each time.
    """

    sequences: Ints
    rows: Ints
    offsets: Ints


class Recalled(NamedTuple):
    """States after every row, and activations for the gradient, both by step order.

    Args:
        states: `(num_rows, width)`.
        before: `(num_rows, width)` states before every row.
        reset, write, candidate: `(num_rows, width)` activations of the gates.
        read: `(num_rows, width)` what the candidate reads of the state, before `reset`.
    """

    states: Floats
    before: Floats
    reset: Floats
    write: Floats
    candidate: Floats
    read: Floats


def recur(gates: Floats, weight: Floats, past: Past) -> Recalled:
    """A gated recurrent unit (GRU) over the rows of a batch.

    With the state h before a row, its gates g and the products u = weight @ h, the state after it
    is h + write * (candidate - h), where reset and write are sigmoids of g + u, and candidate is
    tanh(g + reset * u). Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder for
    Statistical Machine Translation" (2014), with the reset after the product, as in cuDNN.

    Args:
        gates: `(num_rows, 3 * width)`, in the order of `NUM_GATES`.
        weight: `(3 * width, width)`.
    """
    width = weight.shape[1]
    sequences, rows, offsets = past.order
    given = gates[rows]
    shape = len(rows), width
    found = Recalled(*(np.empty(shape, np.float32) for _ in Recalled._fields))
    keeps = None if past.begins is None else _keeps(past.begins[rows])
    state, transposed = past.states[sequences], weight.T
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        at = slice(start, stop)
        state = state[: stop - start]
        if keeps is not None:
            state = np.multiply(state, keeps[at])
        found.before[at] = state
        products = product(state, transposed)
        own = given[at]
        opened = sigmoid(own[:, : 2 * width] + products[:, : 2 * width])
        found.reset[at], write = opened[:, :width], opened[:, width:]
        found.read[at] = read = products[:, 2 * width :]
        candidate = np.tanh(own[:, 2 * width :] + opened[:, :width] * read)
        state = np.add(state, write * (candidate - state))
        found.write[at], found.candidate[at], found.states[at] = write, candidate, state
    return found


def recur_without_each(gates: Floats, weight: Floats, state: Floats) -> Floats:
    """States after the steps of one sequence, if some are left out.

    Args:
        gates: `(num_steps, 3 * width)`.
        weight: as for `recur`.
        state: `(1, width)` before the first step.

    Returns:
        `(num_steps + 2, width)`: after all steps; after all steps, but from a state of 0; without
        the first step, without the second one, and so on.
    """
    states: Floats = np.concatenate((state, np.zeros_like(state)))
    for row in gates:
        own = np.broadcast_to(row, (len(states), len(row)))
        after = recur(own, weight, Past(states)).states
        states = np.concatenate((after, states[:1]))
    return states


def recur_backward(
    by_states: Floats, weight: Floats, past: Past, found: Recalled
) -> tuple[Floats, Floats]:
    """Gradients of gates and weight, given that of the states, `(num_rows, width)` in row order.

    No gradient goes back to the states before the first rows.
    """
    width = weight.shape[1]
    _, rows, offsets = past.order
    before, reset, write, candidate, read = found[1:]
    # Derivatives that do not depend on later rows.
    of_write = (candidate - before) * write * (1 - write)
    of_candidate = write * (1 - candidate * candidate)
    of_reset = read * reset * (1 - reset)
    kept = np.float32(1) - write
    keeps = None if past.begins is None else _keeps(past.begins[rows])
    by_found = by_states[rows]
    by_products = np.empty((len(rows), NUM_GATES * width), np.float32)
    by_candidate = np.empty_like(by_found)
    later: Floats = np.zeros((0, width), np.float32)
    for start, stop in zip(offsets[-2::-1].tolist(), offsets[:0:-1].tolist(), strict=True):
        at = slice(start, stop)
        by_state = by_found[at]
        by_state[: len(later)] += later
        inner = by_products[at]
        by_candidate[at] = candidate_part = by_state * of_candidate[at]
        np.multiply(candidate_part, of_reset[at], out=inner[:, :width])
        np.multiply(by_state, of_write[at], out=inner[:, width : 2 * width])
        np.multiply(candidate_part, reset[at], out=inner[:, 2 * width :])
        later = by_state * kept[at]
        later += product(inner, weight)
        if keeps is not None:
            later *= keeps[at]
    by_weight = product(by_products.T, before)
    by_products[:, 2 * width :] = by_candidate
    by_gates = np.empty_like(by_products)
    by_gates[rows] = by_products
    return by_gates, by_weight


def _keeps(begins: NDArray[np.bool_]) -> Floats:
    """Factor of the state before every row."""
    return (~begins[:, None]).astype(np.float32)


def write_biases(width: int) -> Floats:
    """Biases of the write gates with which the memory starts, `(width,)`.

    Spread so that state fades over 2 to `_LONGEST` steps, as in Tallec & Ollivier, "Can recurrent
    neural networks warp time?" (2018).
    """
    steps = np.geomspace(_SHORTEST, _LONGEST, width)
    return -np.log(steps - 1).astype(np.float32)


_MAX_SOURCES: Final = 64
_SHORTEST: Final = 2.0
_LONGEST: Final = 128.0
