"""Rules: what tells one classic game from another, and its plain physics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core import seeding
from entity_env.core.spaces import ActionName, ContinuousActionSpace, GlobalCategoricalActionSpace

NUM_DRAWS: Final = 4
HALF: Final = 2**23
"""Draws are integers from `-HALF` to `HALF - 1`: all of them are exact float32."""

State: TypeAlias = NDArray[np.float32]
"""`(state_size, num_envs)`: a row for every number of a state."""


@dataclass(frozen=True)
class Rules:
    """Describes a classic game.

    Args:
        name: of the game, and of its only entity.
        features: the columns of an observation.
        action: name of its only action.
        space: the labels of that action, or the bounds of a torque.
        state: the numbers of a state.
        low: the least of each number of a state in which an episode goes on.
        high: the largest.
        start: turns draws, `(NUM_DRAWS, num)` float32 integers (see `start_draws`), into states.
        advance: moves states on in place by the actions given; returns rewards, float32, and
            whether the rules end the episode, bool.
        observe: observations `(num_envs, len(features))` of states.
    """

    name: str
    features: Sequence[str]
    action: ActionName
    space: GlobalCategoricalActionSpace | ContinuousActionSpace
    state: Sequence[str]
    low: Sequence[float]
    high: Sequence[float]
    start: Callable[[NDArray[np.float32]], State]
    advance: Callable[[State, NDArray[np.generic]], tuple[NDArray[np.float32], NDArray[np.bool_]]]
    observe: Callable[[State], NDArray[np.float32]]


def start_draws(streams: NDArray[np.uint64]) -> tuple[NDArray[np.int32], NDArray[np.uint64]]:
    """Draws that one start state each is made of, and the SplitMix64 states after them.

    Args:
        streams: `(num,) uint64` SplitMix64 states.

    Returns:
        `(NUM_DRAWS, num) int32` from `-HALF` to `HALF - 1`, and `(num,) uint64`.
    """
    first = streams + np.uint64(seeding.GAMMA)
    second = first + np.uint64(seeding.GAMMA)
    words = seeding.splitmix64(np.stack([first, second]))
    high, low = words >> np.uint64(40), words >> np.uint64(8) & np.uint64(2 * HALF - 1)
    bits = np.stack([high[0], low[0], high[1], low[1]])
    return bits.astype(np.int32) - np.int32(HALF), second
