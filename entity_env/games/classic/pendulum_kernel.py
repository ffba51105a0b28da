"""Pendulum, compiled; `pendulum.py` is the reference."""

from __future__ import annotations

import math

import numpy as np

from entity_env.core.numba_utils import FAST_MATH, compiled, splitmix64, trailing_zeros
from entity_env.games.classic import pendulum
from entity_env.games.classic.kernels import (
    GAMMA,
    PI_HIGH,
    PI_LOW,
    Floats,
    Words,
    cosine_within_pi,
    f32,
    finish,
    fits,
    flags,
    floats,
    header_of,
    high_draw,
    i64,
    lanes,
    longs,
    low_draw,
    next_deadline,
    num_words,
    sine_within_pi,
    still_ended,
    take_torques,
    u64,
    words,
)
from entity_env.games.classic.state_table import (
    DEADLINES,
    MOVES,
    NUM_ENVS,
    REWARDS,
    STATE,
    STREAMS,
    TERMINALS,
    TRUNCATIONS,
)
from entity_env.vec.batch_env.batch_env import MISFIT

_ONE, _ZERO = f32(1.0), f32(0.0)
_TORQUE = f32(pendulum.MAX_TORQUE)
_FALL = f32(pendulum.FALL * pendulum.STEP_S)
_TWIST = f32(pendulum.TWIST * pendulum.STEP_S)
_DT, _MAX_SPIN = f32(pendulum.STEP_S), f32(pendulum.MAX_SPEED)
_SPIN_COST, _TORQUE_COST = f32(pendulum.SPEED_COST), f32(pendulum.TORQUE_COST)
_ANGLE_START, _SPIN_START = f32(pendulum.ANGLE_SCALE), f32(pendulum.SPEED_SCALE)
_TURN_HIGH, _TURN_LOW = f32(2) * PI_HIGH, f32(2) * PI_LOW


@compiled(FAST_MATH)
def _swing(
    num: int,
    torques: Floats,
    theta: Floats,
    theta_dot: Floats,
    observations: Floats,
    rewards: Floats,
) -> None:
    """`pendulum.advance` of all; a step turns by 0.4 at most, and so passes half a turn once."""
    for i in range(num):
        angle, spin, torque = theta[i], theta_dot[i], torques[i]
        cost = angle * angle + _SPIN_COST * spin * spin + _TORQUE_COST * torque * torque
        spin = spin + (_FALL * sine_within_pi(angle) + _TWIST * torque)
        spin = min(max(spin, -_MAX_SPIN), _MAX_SPIN)
        angle = angle + spin * _DT
        turns = _ONE if angle > PI_HIGH else (-_ONE if angle < -PI_HIGH else _ZERO)
        angle = (angle - turns * _TURN_HIGH) - turns * _TURN_LOW
        theta[i], theta_dot[i] = angle, spin
        observations[3 * i] = cosine_within_pi(angle)
        observations[3 * i + 1] = sine_within_pi(angle)
        observations[3 * i + 2] = spin
        rewards[i] = -cost


@compiled()
def step_pendulum(actions: Floats, memory: int) -> int:
    """See `kernels.Step`."""
    num_envs = header_of(memory)[NUM_ENVS]
    if not fits(actions, num_envs):
        return MISFIT
    if not take_torques(actions, _TORQUE, floats(memory, MOVES)):
        return MISFIT
    flags(memory, TERMINALS)[:num_envs] = 0
    _swing(
        lanes(num_envs),
        floats(memory, MOVES),
        floats(memory, STATE),
        floats(memory, STATE + 1),
        floats(memory, STATE + 2),
        floats(memory, REWARDS),
    )
    return finish(memory)


@compiled()
def reset_pendulum(chosen: Words, memory: int) -> int:
    """See `kernels.Reset`."""
    streams, deadlines = words(memory, STREAMS), longs(memory, DEADLINES)
    deadline = next_deadline(memory)
    terminals, truncations = flags(memory, TERMINALS), flags(memory, TRUNCATIONS)
    theta, theta_dot, observations = (
        floats(memory, STATE),
        floats(memory, STATE + 1),
        floats(memory, STATE + 2),
    )
    for j in range(num_words(chosen, memory)):
        word = chosen[j]
        while word:
            i = 64 * j + i64(trailing_zeros(word))
            word &= word - u64(1)
            first = streams[i] + GAMMA
            streams[i] = first + GAMMA
            first = splitmix64(first)
            theta[i], theta_dot[i] = high_draw(first) * _ANGLE_START, low_draw(first) * _SPIN_START
            observations[3 * i] = math.cos(np.float64(theta[i]))
            observations[3 * i + 1] = math.sin(np.float64(theta[i]))
            observations[3 * i + 2] = theta_dot[i]
            deadlines[i], terminals[i], truncations[i] = deadline, 0, 0
    return still_ended(chosen, memory)
