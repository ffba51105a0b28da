"""`memory.recur` and its gradient, one sequence after another.

In numpy, each step of time is a dozen calls, however few sequences a minibatch has.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.kernels.simd import ONE, ZERO, vectorized, vectorized_inline
from entity_env.core.ragged import Floats, Ints

_HALF = np.float32(0.5)
_BOUND = np.float32(7.9)
"""Beyond it, tanh is 1 to the precision of float32."""


@vectorized_inline
def _tanh(x: np.float32) -> np.float32:
    """A rational approximation with an error of a few units in the last place, as in Eigen."""
    x = min(max(x, -_BOUND), _BOUND)
    y = x * x
    p = np.float32(-2.76076847742355e-16)
    p = p * y + np.float32(2.00018790482477e-13)
    p = p * y + np.float32(-8.60467152213735e-11)
    p = p * y + np.float32(5.12229709037114e-08)
    p = p * y + np.float32(1.48572235717979e-05)
    p = p * y + np.float32(6.37261928875436e-04)
    p = p * y + np.float32(4.89352455891786e-03)
    q = np.float32(1.19825839466702e-06)
    q = q * y + np.float32(1.18534705686654e-04)
    q = q * y + np.float32(2.26843463243900e-03)
    q = q * y + np.float32(4.89352518554385e-03)
    return x * p / q


@vectorized
def recur_rows(
    gates: Floats,
    transposed: Floats,
    first: Floats,
    lengths: Ints,
    begins: NDArray[np.bool_],
    states: Floats,
    before: Floats,
    opened: Floats,
    candidates: Floats,
    read: Floats,
) -> None:
    """The states after every row, and activations for `recur_rows_backward`.

    Args:
        transposed: `(width, 3 * width)` recurrent weight.
        first: `(num_sequences, width)` states before the first rows, see `Past`.
        begins: `(num_rows,)` the row is the first of its episode.
        states, before, candidates, read: `(num_rows, width)` results, as in `Recalled`.
        opened: `(num_rows, 2 * width)` the gates reset and write.
    """
    width = len(transposed)
    products = np.empty(3 * width, np.float32)
    row = 0
    for s in range(len(lengths)):
        for t in range(lengths[s]):
            old, new, own, given = before[row], states[row], opened[row], gates[row]
            if begins[row]:
                old[:] = ZERO
            else:
                old[:] = first[s] if t == 0 else states[row - 1]
            products[:] = ZERO
            for k in range(width):
                factor, line = old[k], transposed[k]
                for c in range(3 * width):
                    products[c] += factor * line[c]
            for c in range(2 * width):
                own[c] = _HALF + _HALF * _tanh(_HALF * (given[c] + products[c]))
            for c in range(width):
                inner = products[2 * width + c]
                read[row, c] = inner
                candidate = _tanh(given[2 * width + c] + own[c] * inner)
                candidates[row, c] = candidate
                new[c] = old[c] + own[width + c] * (candidate - old[c])
            row += 1


@vectorized
def recur_rows_backward(
    by_states: Floats,
    weight: Floats,
    lengths: Ints,
    begins: NDArray[np.bool_],
    before: Floats,
    opened: Floats,
    candidates: Floats,
    read: Floats,
    by_gates: Floats,
    by_products: Floats,
) -> None:
    """Gradients of the gates, and of the products of weight and state, `(num_rows, 3 * width)`.

    Args:
        by_states: `(num_rows, width)` gradient of the states.
        weight: `(3 * width, width)`.
    """
    width = weight.shape[1]
    later = np.empty(width, np.float32)
    row = len(by_states)
    for s in range(len(lengths) - 1, -1, -1):
        later[:] = ZERO
        for _ in range(lengths[s]):
            row -= 1
            own, of_gates, of_products = opened[row], by_gates[row], by_products[row]
            for c in range(width):
                by_state = by_states[row, c] + later[c]
                reset, write, candidate = own[c], own[width + c], candidates[row, c]
                by_candidate = by_state * write * (ONE - candidate * candidate)
                by_reset = by_candidate * read[row, c] * reset * (ONE - reset)
                by_write = by_state * (candidate - before[row, c]) * write * (ONE - write)
                of_gates[c] = of_products[c] = by_reset
                of_gates[width + c] = of_products[width + c] = by_write
                of_gates[2 * width + c] = by_candidate
                of_products[2 * width + c] = by_candidate * reset
                later[c] = by_state * (ONE - write)
            for k in range(3 * width):
                factor, line = of_products[k], weight[k]
                for c in range(width):
                    later[c] += factor * line[c]
            if begins[row]:
                later[:] = ZERO
