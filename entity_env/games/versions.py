"""The games for one agent that need no file, with the version of their rules: data alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

VERSIONS: Final[Mapping[str, int]] = dict.fromkeys(
    (
        "snake",
        "multi_snake",
        "treasure_hunt",
        "cherry_pick",
        "cartpole",
        "mountain_car",
        "pendulum",
        "meteors",
        "pixel:grid",
        "pixel:maze",
        "pixel:catch",
    ),
    0,
)
"""One more whenever a change makes scores incomparable."""
