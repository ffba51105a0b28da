"""CartPole, compiled; `cart_pole.py` is the reference."""

from __future__ import annotations

from entity_env.core.numba_utils import FAST_MATH, compiled, splitmix64, trailing_zeros
from entity_env.games.classic import cart_pole as cart
from entity_env.games.classic.kernels import (
    GAMMA,
    Bytes,
    Choices,
    Floats,
    Words,
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
    still_ended,
    take_choices,
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

_ONE, _HALF = f32(1.0), f32(0.5)
_PUSH = f32(cart.FORCE / cart.TOTAL_MASS)
_POLE = f32(cart.POLE_MASS * cart.HALF_LENGTH / cart.TOTAL_MASS)
_GRAVITY = f32(cart.GRAVITY)
_LEVER = f32(cart.HALF_LENGTH * 4 / 3)
_LEVER_LESS = f32(cart.HALF_LENGTH * cart.POLE_MASS / cart.TOTAL_MASS)
_TAU = f32(cart.STEP_S)
_MAX_X, _MAX_THETA = f32(cart.MAX_POSITION), f32(cart.MAX_ANGLE)
_CART_START = f32(cart.START_SCALE)
_SIXTH, _120TH, _24TH, _720TH = (f32(1 / n) for n in (6, 120, 24, 720))


@compiled(FAST_MATH)
def _move_carts(
    num: int,
    moves: Bytes,
    x: Floats,
    x_dot: Floats,
    theta: Floats,
    theta_dot: Floats,
    observations: Floats,
    rewards: Floats,
    terminals: Bytes,
) -> None:
    """`cart_pole.advance` of all.

    Before a step no pole leans more than 12 degrees, else its episode has ended: there the first
    terms of the series leave 4e-9, and no reduction is needed.
    """
    for i in range(num):
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
    """See `kernels.Step`."""
    num_envs = header_of(memory)[NUM_ENVS]
    moves = flags(memory, MOVES)
    if not fits(actions, num_envs):
        return MISFIT
    if not take_choices(actions, 2, moves):
        return MISFIT
    _move_carts(
        lanes(num_envs),
        moves,
        floats(memory, STATE),
        floats(memory, STATE + 1),
        floats(memory, STATE + 2),
        floats(memory, STATE + 3),
        floats(memory, STATE + 4),
        floats(memory, REWARDS),
        flags(memory, TERMINALS),
    )
    return finish(memory)


@compiled()
def reset_cart_pole(chosen: Words, memory: int) -> int:
    """See `kernels.Reset`."""
    streams, deadlines = words(memory, STREAMS), longs(memory, DEADLINES)
    deadline = next_deadline(memory)
    terminals, truncations = flags(memory, TERMINALS), flags(memory, TRUNCATIONS)
    x, x_dot, theta, theta_dot = (
        floats(memory, STATE),
        floats(memory, STATE + 1),
        floats(memory, STATE + 2),
        floats(memory, STATE + 3),
    )
    observations = floats(memory, STATE + 4)
    for j in range(num_words(chosen, memory)):
        word = chosen[j]
        while word:
            i = 64 * j + i64(trailing_zeros(word))
            word &= word - u64(1)
            first = streams[i] + GAMMA
            second = first + GAMMA
            streams[i] = second
            first, second = splitmix64(first), splitmix64(second)
            x[i] = observations[4 * i] = high_draw(first) * _CART_START
            x_dot[i] = observations[4 * i + 1] = low_draw(first) * _CART_START
            theta[i] = observations[4 * i + 2] = high_draw(second) * _CART_START
            theta_dot[i] = observations[4 * i + 3] = low_draw(second) * _CART_START
            deadlines[i], terminals[i], truncations[i] = deadline, 0, 0
    return still_ended(chosen, memory)
