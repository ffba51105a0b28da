"""What the compiled games share: sine and cosine, actions, the ends of episodes, draws.

`plain.py` is the reference: the tests compare. Sines and cosines are polynomials after a range
reduction, since loops that call a library cannot be vectorized.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core import seeding
from entity_env.core.numba_utils import FAST_MATH, carray, compiled, count_bits, pointer
from entity_env.games.classic.dynamics import HALF
from entity_env.games.classic.state_table import (
    CLOCK,
    DEADLINES,
    ENDED,
    LANES,
    MAX_STEPS,
    NEXT_DEADLINE,
    NUM_ENVS,
    NUM_HEADERS,
    TERMINALS,
    TRUNCATIONS,
    WIDTH,
)
from entity_env.vec.batch_env.reset_mask_kernel import pack_words

Floats: TypeAlias = NDArray[np.float32]
Words: TypeAlias = NDArray[np.uint64]
Bytes: TypeAlias = NDArray[np.uint8]
Longs: TypeAlias = NDArray[np.int64]
Choices: TypeAlias = NDArray[np.uint8] | NDArray[np.uint64]

f32, u64, i64 = np.float32, np.uint64, np.int64
_ZERO, _HALF = f32(0.0), f32(0.5)
_NEVER = np.iinfo(np.int64).max

PI_HIGH = f32(np.pi)
PI_LOW = f32(np.pi - float(f32(np.pi)))
_PER_PI = f32(1 / np.pi)
# The polynomial of degree 9 whose largest error on [-pi/2, pi/2] is smallest, 5e-9 (fitted by
# reweighted least squares); in float32 its value is off by 1e-7 at most.
_SINE_3, _SINE_5, _SINE_7, _SINE_9 = (
    f32(-1.66666567e-01),
    f32(8.33300783e-03),
    f32(-1.98059297e-04),
    f32(2.59853647e-06),
)


@compiled(FAST_MATH)
def _half_wave(x: np.float32) -> np.float32:
    """The sine on [-pi/2, pi/2]."""
    z = x * x
    return x + x * z * (_SINE_3 + z * (_SINE_5 + z * (_SINE_7 + z * _SINE_9)))


@compiled(FAST_MATH)
def cosine(x: np.float32) -> np.float32:
    """The cosine, off by 4e-7 at most for |x| < 10.

    x less the nearest odd multiple of half a pi, in two parts: that has more digits than a float.
    """
    turns = np.rint(x * _PER_PI - _HALF)
    middle = turns + _HALF
    wave = _half_wave((x - middle * PI_HIGH) - middle * PI_LOW)
    return wave if np.int32(turns) & 1 else -wave


@compiled(FAST_MATH)
def sine_within_pi(x: np.float32) -> np.float32:
    """The sine of an angle from -pi to pi, off by 2e-7 at most: folded at a quarter turn."""
    size = abs(x)
    wave = _half_wave(min(size, (PI_HIGH - size) + PI_LOW))
    return wave if x >= _ZERO else -wave


@compiled(FAST_MATH)
def cosine_within_pi(x: np.float32) -> np.float32:
    """The cosine of an angle from -pi to pi, off by 2e-7 at most."""
    return _half_wave((_HALF * PI_HIGH - abs(x)) + _HALF * PI_LOW)


@compiled(inline=True)
def lanes(num_envs: int) -> int:
    """How many environments loops run over; see `LANES`."""
    return (num_envs + LANES - 1) // LANES * LANES


@compiled(inline=True)
def fits(actions: NDArray[np.generic], num_envs: int) -> bool:
    """Whether there is one action an environment, one after another in memory."""
    return actions.shape[0] == num_envs and (
        num_envs == 1 or actions.strides[0] == actions.itemsize
    )


@compiled()
def take_choices(actions: Choices, num_choices: int, moves: Bytes) -> bool:
    """Copies choices, which have no sign; whether all are in range."""
    largest = actions[0]
    for i in range(actions.shape[0]):
        largest = max(largest, actions[i])
        moves[i] = actions[i]
    return bool(largest < num_choices)


@compiled()
def take_torques(actions: Floats, limit: np.float32, moves: Floats) -> bool:
    """Copies torques; whether all are in range, which NaN is not."""
    are_valid = True
    for i in range(actions.shape[0]):
        action = actions[i]
        are_valid &= (action >= -limit) & (action <= limit)
        moves[i] = action
    return are_valid


@compiled(inline=True)
def header_of(memory: int) -> Longs:
    """The header of the memory at an address."""
    header: Longs = carray(pointer(memory), NUM_HEADERS, i64)
    return header


@compiled(inline=True)
def _row(memory: int, number: np.int64) -> int:
    """The address of a row."""
    return int(memory + number * header_of(memory)[WIDTH] * 4)


@compiled(inline=True)
def floats(memory: int, number: np.int64) -> Floats:
    """A row as it is."""
    row: Floats = carray(pointer(_row(memory, number)), header_of(memory)[WIDTH], f32)
    return row


@compiled(inline=True)
def longs(memory: int, number: np.int64) -> Longs:
    """Two rows as wide numbers."""
    row: Longs = carray(pointer(_row(memory, number)), header_of(memory)[WIDTH], i64)
    return row


@compiled(inline=True)
def words(memory: int, number: np.int64) -> Words:
    """Two rows as words."""
    row: Words = carray(pointer(_row(memory, number)), header_of(memory)[WIDTH], u64)
    return row


@compiled(inline=True)
def flags(memory: int, number: np.int64) -> Bytes:
    """A row as flags or choices: four times as many as there are environments."""
    row: Bytes = carray(pointer(_row(memory, number)), header_of(memory)[WIDTH] * 4, np.uint8)
    return row


@compiled(inline=True)
def finish(memory: int) -> int:
    """Cuts episodes, and packs and counts those that have ended."""
    header = header_of(memory)
    num_envs = header[NUM_ENVS]
    terminals, truncations = flags(memory, TERMINALS), flags(memory, TRUNCATIONS)
    for i in range(num_envs, lanes(num_envs)):
        terminals[i] = 0
    header[CLOCK] += 1
    if header[CLOCK] < header[NEXT_DEADLINE]:
        for i in range(num_envs):
            truncations[i] = 0
    else:
        deadlines = longs(memory, DEADLINES)
        header[NEXT_DEADLINE] = _cut(num_envs, header[CLOCK], deadlines, truncations)
    return pack_words(
        (num_envs + 63) // 64,
        words(memory, TERMINALS),
        words(memory, TRUNCATIONS),
        words(memory, ENDED),
    )


@compiled()
def _cut(num: int, clock: int, deadlines: Longs, truncations: Bytes) -> int:
    """Cuts the episodes whose time is up; the next deadline of the others."""
    next_deadline = _NEVER
    for i in range(num):
        truncations[i] = deadlines[i] <= clock
        if deadlines[i] > clock:
            next_deadline = min(next_deadline, deadlines[i])
    return next_deadline


GAMMA = u64(seeding.GAMMA)
_SIGN = np.int32(HALF)
_LOW_BITS = u64(2 * HALF - 1)


@compiled()
def high_draw(word: np.uint64) -> np.float32:
    """The first draw of a word; see `start_draws`."""
    return f32(np.int32(word >> u64(40)) - _SIGN)


@compiled()
def low_draw(word: np.uint64) -> np.float32:
    """The second draw of a word."""
    return f32(np.int32((word >> u64(8)) & _LOW_BITS) - _SIGN)


@compiled(inline=True)
def num_words(chosen: Words, memory: int) -> int:
    """How many words of a mask to read: no mask reaches beyond the memory."""
    return int(min(chosen.shape[0], (header_of(memory)[NUM_ENVS] + 63) // 64))


@compiled()
def still_ended(chosen: Words, memory: int) -> int:
    """Takes reset environments out of those that have ended; counts the rest."""
    ended = words(memory, ENDED)
    count = i64(0)
    for j in range(num_words(chosen, memory)):
        ended[j] &= ~chosen[j]
        count += count_bits(ended[j])
    return int(count)


@compiled(inline=True)
def next_deadline(memory: int) -> int:
    """When episodes that begin now are cut."""
    header = header_of(memory)
    deadline = header[CLOCK] + header[MAX_STEPS]
    header[NEXT_DEADLINE] = min(header[NEXT_DEADLINE], deadline)
    return int(deadline)
