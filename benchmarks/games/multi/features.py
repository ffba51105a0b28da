"""Helpers of the scripted players of imported games, whose observation is one row of numbers."""

from collections.abc import Sequence

import numpy as np

from entity_env import Obs


def numbers(obs: Obs) -> list[float]:
    """The only row of an observation."""
    return [float(each) for each in np.asarray(obs.groups[0])[0]]


def towards(way: Sequence[float]) -> int:
    """MPE's action toward (x, y): 1 left, 2 right, 3 down, 4 up."""
    x, y = way
    if abs(x) > abs(y):
        return 2 if x > 0 else 1
    return 4 if y > 0 else 3


def pairs(values: Sequence[float]) -> list[tuple[float, float]]:
    """Splits a flat list into positions (x, y)."""
    return list(zip(values[::2], values[1::2], strict=True))
