"""MountainCar, compiled; `mountain_car.py` is the reference."""

from __future__ import annotations

from entity_env.core.numba_utils import FAST_MATH, compiled, splitmix64, trailing_zeros
from entity_env.games.classic import mountain_car as car
from entity_env.games.classic.kernels import (
    GAMMA,
    Bytes,
    Choices,
    Floats,
    Words,
    cosine,
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

_ONE, _ZERO = f32(1.0), f32(0.0)
_ENGINE, _SLOPE = f32(car.FORCE), f32(car.GRAVITY)
_MIN_X, _RIGHT_END, _GOAL = f32(car.MIN_POSITION), f32(car.MAX_POSITION), f32(car.GOAL)
_MAX_SPEED, _THREE = f32(car.MAX_SPEED), f32(3.0)
_CAR_START, _CAR_MIDDLE = f32(car.START_SCALE), f32(car.START_MIDDLE)


@compiled(FAST_MATH)
def _move_cars(
    num: int,
    moves: Bytes,
    x: Floats,
    velocity: Floats,
    observations: Floats,
    rewards: Floats,
    terminals: Bytes,
) -> None:
    """`mountain_car.advance` of all."""
    for i in range(num):
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
    """See `kernels.Step`."""
    num_envs = header_of(memory)[NUM_ENVS]
    moves = flags(memory, MOVES)
    if not fits(actions, num_envs):
        return MISFIT
    if not take_choices(actions, 3, moves):
        return MISFIT
    _move_cars(
        lanes(num_envs),
        moves,
        floats(memory, STATE),
        floats(memory, STATE + 1),
        floats(memory, STATE + 2),
        floats(memory, REWARDS),
        flags(memory, TERMINALS),
    )
    return finish(memory)


@compiled()
def reset_mountain_car(chosen: Words, memory: int) -> int:
    """See `kernels.Reset`."""
    streams, deadlines = words(memory, STREAMS), longs(memory, DEADLINES)
    deadline = next_deadline(memory)
    terminals, truncations = flags(memory, TERMINALS), flags(memory, TRUNCATIONS)
    x, velocity, observations = (
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
            x[i] = observations[2 * i] = _CAR_MIDDLE + high_draw(splitmix64(first)) * _CAR_START
            velocity[i] = observations[2 * i + 1] = _ZERO
            deadlines[i], terminals[i], truncations[i] = deadline, 0, 0
    return still_ended(chosen, memory)
