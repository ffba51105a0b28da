"""Steps and resets of the classic games as numba kernels, and their shared functions.

`step_*` is a `Step` and `reset_*` a `Reset` of `batch_env`; the numpy physics in the games' modules
are the reference. Sines and cosines are polynomials after a range reduction, because loops that
call a library cannot be vectorized.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core import seeding
from entity_env.core.numba_utils import (
    FAST_MATH,
    carray,
    compiled,
    count_bits,
    pointer,
    splitmix64,
    trailing_zeros,
)
from entity_env.games.classic import cart_pole as cart, mountain_car as car, pendulum
from entity_env.games.classic.batch_env import HALF, ClassicEnv
from entity_env.games.classic.state_table import (
    CLOCK,
    DEADLINES,
    ENDED,
    LANES,
    MAX_STEPS,
    MOVES,
    NEXT_DEADLINE,
    NUM_ENVS,
    NUM_HEADERS,
    REWARDS,
    SLOT,
    STATE,
    STREAMS,
    TERMINALS,
    TRUNCATIONS,
    WIDTH,
)
from entity_env.vec.batch_env import MISFIT, NUM_SLOTS, pack_words

Words: TypeAlias = NDArray[np.uint64]
Bytes: TypeAlias = NDArray[np.uint8]
Longs: TypeAlias = NDArray[np.int64]
Choices: TypeAlias = NDArray[np.uint8] | NDArray[np.uint64]

f32, f64, u64, i64 = np.float32, np.float64, np.uint64, np.int64
_ZERO, _HALF, _ONE, _THREE = f32(0.0), f32(0.5), f32(1.0), f32(3.0)
_NEVER = np.iinfo(np.int64).max

_PI_HIGH = f32(np.pi)
_PI_LOW = f32(np.pi - float(f32(np.pi)))
_PER_PI = f32(1 / np.pi)
# Minimax polynomial of degree 9 on [-pi/2, pi/2], error 5e-9 (fitted by reweighted least squares),
# at most 1e-7 in float32.
_SINE_3, _SINE_5, _SINE_7, _SINE_9 = (
    f32(-1.66666567e-01),
    f32(8.33300783e-03),
    f32(-1.98059297e-04),
    f32(2.59853647e-06),
)


@compiled(FAST_MATH)
def _half_wave(x: np.float32) -> np.float32:
    """Sine on [-pi/2, pi/2]."""
    z = x * x
    return x + x * z * (_SINE_3 + z * (_SINE_5 + z * (_SINE_7 + z * _SINE_9)))


@compiled(FAST_MATH)
def cosine(x: np.float32) -> np.float32:
    """Cosine, off by at most 4e-7 for |x| < 10.

    Subtracts the nearest odd multiple of pi/2 from x in two parts, for extra digits.
    """
    turns = np.rint(x * _PER_PI - _HALF)
    middle = turns + _HALF
    wave = _half_wave((x - middle * _PI_HIGH) - middle * _PI_LOW)
    return wave if np.int32(turns) & 1 else -wave


@compiled(FAST_MATH)
def sine_within_pi(x: np.float32) -> np.float32:
    """Sine from -pi to pi, off by at most 2e-7; folded at a quarter turn."""
    size = abs(x)
    wave = _half_wave(min(size, (_PI_HIGH - size) + _PI_LOW))
    return wave if x >= _ZERO else -wave


@compiled(FAST_MATH)
def cosine_within_pi(x: np.float32) -> np.float32:
    """Cosine from -pi to pi, off by at most 2e-7."""
    return _half_wave((_HALF * _PI_HIGH - abs(x)) + _HALF * _PI_LOW)


@compiled(inline=True)
def _header(memory: int) -> Longs:
    header: Longs = carray(pointer(memory), NUM_HEADERS, i64)
    return header


@compiled(inline=True)
def _row(memory: int, number: np.int64) -> int:
    return int(memory + number * _header(memory)[WIDTH] * 4)


@compiled(inline=True)
def _floats(memory: int, number: np.int64) -> NDArray[np.float32]:
    row: NDArray[np.float32] = carray(pointer(_row(memory, number)), _header(memory)[WIDTH], f32)
    return row


@compiled(inline=True)
def _longs(memory: int, number: np.int64) -> Longs:
    """Two rows as int64."""
    row: Longs = carray(pointer(_row(memory, number)), _header(memory)[WIDTH], i64)
    return row


@compiled(inline=True)
def _words(memory: int, number: np.int64) -> Words:
    """Two rows as uint64."""
    row: Words = carray(pointer(_row(memory, number)), _header(memory)[WIDTH], u64)
    return row


@compiled(inline=True)
def _flags(memory: int, number: np.int64) -> Bytes:
    """A row as uint8; one byte per environment, and the rest is unused."""
    row: Bytes = carray(pointer(_row(memory, number)), _header(memory)[WIDTH] * 4, np.uint8)
    return row


@compiled(inline=True)
def _lanes(memory: int) -> int:
    """Number of environments that loops run over; see `LANES`."""
    return int((_header(memory)[NUM_ENVS] + LANES - 1) // LANES * LANES)


@compiled(inline=True)
def _fits(actions: NDArray[np.generic], memory: int) -> bool:
    return bool(
        actions.shape[0] == _header(memory)[NUM_ENVS]
        and (actions.shape[0] == 1 or actions.strides[0] == actions.itemsize)
    )


@compiled()
def _take_choices(actions: Choices, num_choices: int, memory: int) -> bool:
    """Copies unsigned choices into the table; True if all are in range."""
    if not _fits(actions, memory):
        return False
    moves = _flags(memory, MOVES)
    largest = actions[0]
    for i in range(actions.shape[0]):
        largest = max(largest, actions[i])
        moves[i] = actions[i]
    return bool(largest < num_choices)


@compiled()
def _take_torques(actions: NDArray[np.float32], limit: np.float32, memory: int) -> bool:
    """Copies torques into the table; True if all are in range. NaN is out of range."""
    if not _fits(actions, memory):
        return False
    moves = _floats(memory, MOVES)
    are_valid = True
    for i in range(actions.shape[0]):
        action = actions[i]
        are_valid &= (action >= -limit) & (action <= limit)
        moves[i] = action
    return are_valid


@compiled(inline=True)
def _finish_step(memory: int) -> int:
    """Truncates episodes, packs the flags and counts ended environments."""
    header = _header(memory)
    num_envs = header[NUM_ENVS]
    terminals, truncations = _flags(memory, TERMINALS), _flags(memory, TRUNCATIONS)
    for i in range(num_envs, _lanes(memory)):
        terminals[i] = 0
    header[CLOCK] += 1
    if header[CLOCK] < header[NEXT_DEADLINE]:
        for i in range(num_envs):
            truncations[i] = 0
    else:
        deadlines = _longs(memory, DEADLINES)
        header[NEXT_DEADLINE] = _truncate(num_envs, header[CLOCK], deadlines, truncations)
    num_words = (num_envs + 63) // 64
    ended = _words(memory, ENDED)
    num_ended = pack_words(num_words, _words(memory, TERMINALS), _words(memory, TRUNCATIONS), ended)
    if header[SLOT]:
        slot = ended[header[SLOT] * num_words :]
        for j in range(num_words):
            slot[j] = ended[j]
    return num_ended


@compiled()
def _truncate(num: int, clock: int, deadlines: Longs, truncations: Bytes) -> int:
    """Truncates episodes at their deadline; returns the earliest other deadline."""
    next_deadline = _NEVER
    for i in range(num):
        truncations[i] = deadlines[i] <= clock
        if deadlines[i] > clock:
            next_deadline = min(next_deadline, deadlines[i])
    return next_deadline


_GAMMA = u64(seeding.GAMMA)
_SIGN = np.int32(HALF)
_LOW_BITS = u64(2 * HALF - 1)


@compiled()
def _high_draw(word: np.uint64) -> np.float32:
    return f32(np.int32(word >> u64(40)) - _SIGN)


@compiled()
def _low_draw(word: np.uint64) -> np.float32:
    return f32(np.int32((word >> u64(8)) & _LOW_BITS) - _SIGN)


@compiled(inline=True)
def _draws(streams: Words, i: np.int64) -> tuple[np.float32, np.float32, np.float32, np.float32]:
    """Advances an environment's stream; returns the four draws of `start_draws`."""
    first = streams[i] + _GAMMA
    second = first + _GAMMA
    streams[i] = second
    first, second = splitmix64(first), splitmix64(second)
    return _high_draw(first), _low_draw(first), _high_draw(second), _low_draw(second)


@compiled(inline=True)
def _num_words(chosen: Words, memory: int) -> int:
    return int(min(chosen.shape[0], (_header(memory)[NUM_ENVS] + 63) // 64))


@compiled()
def _still_ended(chosen: Words, memory: int) -> int:
    """Removes reset environments from the ended ones; returns how many remain.

    If `chosen` is the slot that steps write, it is in use as a mask, so steps take the next slot.
    """
    header, ended = _header(memory), _words(memory, ENDED)
    slot = ended[header[SLOT] * ((header[NUM_ENVS] + 63) // 64) :]
    if header[SLOT] and chosen.ctypes.data == slot.ctypes.data:
        header[SLOT] = header[SLOT] % NUM_SLOTS + 1
    count = i64(0)
    for j in range(_num_words(chosen, memory)):
        ended[j] &= ~chosen[j]
        count += count_bits(ended[j])
    return int(count)


@compiled(inline=True)
def _new_deadline(memory: int) -> int:
    header = _header(memory)
    deadline = header[CLOCK] + header[MAX_STEPS]
    header[NEXT_DEADLINE] = min(header[NEXT_DEADLINE], deadline)
    return int(deadline)


def _starts(game: type[ClassicEnv]) -> NDArray[np.float32]:
    """`(2, state_size)`: middle and scale of each initial state variable."""
    return np.array([game.start_middle, game.start_scale], f32)


@compiled(inline=True)
def _reset(chosen: Words, memory: int, starts: NDArray[np.float32], has_angle: bool) -> int:
    """Starts episodes in the chosen environments.

    The observation is the state; with `has_angle`, cosine and sine replace its first variable.
    """
    streams, deadlines = _words(memory, STREAMS), _longs(memory, DEADLINES)
    deadline, size = _new_deadline(memory), starts.shape[1]
    terminals, truncations = _flags(memory, TERMINALS), _flags(memory, TRUNCATIONS)
    observations = _floats(memory, STATE + size)
    for j in range(_num_words(chosen, memory)):
        word = chosen[j]
        while word:
            i = 64 * j + i64(trailing_zeros(word))
            word &= word - u64(1)
            draws = _draws(streams, i)
            end = (size + has_angle) * (i + 1)
            for k in range(size):
                number = starts[0, k] + draws[k] * starts[1, k]
                _floats(memory, STATE + k)[i] = observations[end - size + k] = number
            if has_angle:
                angle = np.float64(_floats(memory, STATE)[i])
                observations[3 * i] = math.cos(angle)
                observations[3 * i + 1] = math.sin(angle)
            deadlines[i], terminals[i], truncations[i] = deadline, 0, 0
    return _still_ended(chosen, memory)


_PUSH = f32(cart.FORCE / cart.TOTAL_MASS)
_POLE = f32(cart.POLE_MASS * cart.HALF_LENGTH / cart.TOTAL_MASS)
_GRAVITY = f32(cart.GRAVITY)
_LEVER = f32(cart.HALF_LENGTH * 4 / 3)
_LEVER_LESS = f32(cart.HALF_LENGTH * cart.POLE_MASS / cart.TOTAL_MASS)
_TAU = f32(cart.STEP_S)
_MAX_X, _MAX_THETA = f32(cart.MAX_POSITION), f32(cart.MAX_ANGLE)
_SIXTH, _120TH, _24TH, _720TH = (f32(1 / n) for n in (6, 120, 24, 720))


@compiled(FAST_MATH)
def _move_carts(memory: int) -> None:
    """`CartPole.advance` and `observe`.

    Before a step no pole leans more than 12 degrees. In that range the first terms of the series
    are off by 4e-9, so no range reduction is needed.
    """
    moves, terminals = _flags(memory, MOVES), _flags(memory, TERMINALS)
    rewards = _floats(memory, REWARDS)
    x, x_dot = _floats(memory, STATE), _floats(memory, STATE + 1)
    theta, theta_dot = _floats(memory, STATE + 2), _floats(memory, STATE + 3)
    observations = _floats(memory, STATE + 4)
    for i in range(_lanes(memory)):
        angle, speed, spin = theta[i], x_dot[i], theta_dot[i]
        square = angle * angle
        sin = angle - angle * square * (_SIXTH - square * _120TH)
        cos = _ONE - square * (_HALF - square * (_24TH - square * _720TH))
        push = _PUSH if moves[i] else -_PUSH
        pull = push + _POLE * spin * spin * sin
        spin_dot = (_GRAVITY * sin - cos * pull) / (_LEVER - _LEVER_LESS * cos * cos)
        speed_dot = pull - _POLE * spin_dot * cos
        new_x, new_theta = x[i] + _TAU * speed, angle + _TAU * spin
        new_speed, new_spin = speed + _TAU * speed_dot, spin + _TAU * spin_dot
        x[i], x_dot[i], theta[i], theta_dot[i] = new_x, new_speed, new_theta, new_spin
        observations[4 * i] = new_x
        observations[4 * i + 1] = new_speed
        observations[4 * i + 2] = new_theta
        observations[4 * i + 3] = new_spin
        rewards[i] = _ONE
        terminals[i] = (abs(new_x) > _MAX_X) | (abs(new_theta) > _MAX_THETA)


@compiled()
def step_cart_pole(actions: Choices, memory: int) -> int:
    """See `Step`."""
    if not _take_choices(actions, 2, memory):
        return MISFIT
    _move_carts(memory)
    return _finish_step(memory)


_CART_STARTS = _starts(cart.CartPole)


@compiled()
def reset_cart_pole(chosen: Words, memory: int) -> int:
    """See `Reset`."""
    return _reset(chosen, memory, _CART_STARTS, False)


_ENGINE, _SLOPE = f32(car.FORCE), f32(car.GRAVITY)
_MIN_X, _RIGHT_END, _GOAL = f32(car.MIN_POSITION), f32(car.MAX_POSITION), f32(car.GOAL)
_MAX_SPEED = f32(car.MAX_SPEED)


@compiled(FAST_MATH)
def _move_cars(memory: int) -> None:
    moves, terminals = _flags(memory, MOVES), _flags(memory, TERMINALS)
    rewards = _floats(memory, REWARDS)
    x, velocity = _floats(memory, STATE), _floats(memory, STATE + 1)
    observations = _floats(memory, STATE + 2)
    for i in range(_lanes(memory)):
        speed = velocity[i] + (f32(moves[i]) - _ONE) * _ENGINE - cosine(_THREE * x[i]) * _SLOPE
        speed = min(max(speed, -_MAX_SPEED), _MAX_SPEED)
        place = min(max(x[i] + speed, _MIN_X), _RIGHT_END)
        speed = _ZERO if (place == _MIN_X) & (speed < _ZERO) else speed
        x[i], velocity[i] = place, speed
        observations[2 * i] = place
        observations[2 * i + 1] = speed
        rewards[i] = -_ONE
        terminals[i] = (place >= _GOAL) & (speed >= _ZERO)


@compiled()
def step_mountain_car(actions: Choices, memory: int) -> int:
    """See `Step`."""
    if not _take_choices(actions, 3, memory):
        return MISFIT
    _move_cars(memory)
    return _finish_step(memory)


_CAR_STARTS = _starts(car.MountainCar)


@compiled()
def reset_mountain_car(chosen: Words, memory: int) -> int:
    """See `Reset`."""
    return _reset(chosen, memory, _CAR_STARTS, False)


_TORQUE = f32(pendulum.MAX_TORQUE)
_FALL = f32(pendulum.FALL * pendulum.STEP_S)
_TWIST = f32(pendulum.TWIST * pendulum.STEP_S)
_DT, _MAX_SPIN = f32(pendulum.STEP_S), f32(pendulum.MAX_SPEED)
_SPIN_COST, _TORQUE_COST = pendulum.SPEED_COST, pendulum.TORQUE_COST
_TURN_HIGH, _TURN_LOW = f32(2) * _PI_HIGH, f32(2) * _PI_LOW


@compiled(FAST_MATH)
def _move_pendulums(memory: int) -> None:
    """`Pendulum.advance` and `observe`.

    A step turns by at most 0.4, so it crosses pi at most once.
    """
    torques, rewards = _floats(memory, MOVES), _floats(memory, REWARDS)
    observations = _floats(memory, STATE + 2)
    theta, theta_dot = _floats(memory, STATE), _floats(memory, STATE + 1)
    for i in range(_lanes(memory)):
        angle, spin, torque = theta[i], theta_dot[i], torques[i]
        wide_angle, wide_spin, wide_torque = f64(angle), f64(spin), f64(torque)
        cost = wide_angle**2 + _SPIN_COST * wide_spin**2 + _TORQUE_COST * wide_torque**2
        spin = spin + (_FALL * sine_within_pi(angle) + _TWIST * torque)
        spin = min(max(spin, -_MAX_SPIN), _MAX_SPIN)
        angle = angle + spin * _DT
        turns = _ONE if angle > _PI_HIGH else (-_ONE if angle < -_PI_HIGH else _ZERO)
        angle = (angle - turns * _TURN_HIGH) - turns * _TURN_LOW
        theta[i], theta_dot[i] = angle, spin
        observations[3 * i] = cosine_within_pi(angle)
        observations[3 * i + 1] = sine_within_pi(angle)
        observations[3 * i + 2] = spin
        rewards[i] = f32(-cost)


@compiled()
def step_pendulum(actions: NDArray[np.float32], memory: int) -> int:
    """See `Step`."""
    if not _take_torques(actions, _TORQUE, memory):
        return MISFIT
    _flags(memory, TERMINALS)[: _header(memory)[NUM_ENVS]] = 0
    _move_pendulums(memory)
    return _finish_step(memory)


_PENDULUM_STARTS = _starts(pendulum.Pendulum)


@compiled()
def reset_pendulum(chosen: Words, memory: int) -> int:
    """See `Reset`."""
    return _reset(chosen, memory, _PENDULUM_STARTS, True)
