"""Single-agent games that need no extra file, with the version of their rules. Data only."""

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
"""Version of each game's rules. A change that makes scores incomparable raises it."""
