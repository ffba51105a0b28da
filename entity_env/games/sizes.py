"""Versions of the games, and their largest numbers of entities: data, without loading a game."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple


class GameSize(NamedTuple):
    """What other libraries must know of a game before they make one.

    Args:
        num_agents: number of agents.
        max_entities: the largest number of entities, of each type whose number varies, with the
            default settings.
        version: of the rules: one more whenever a change makes scores incomparable.
    """

    num_agents: int = 1
    max_entities: Mapping[str, int] = {}
    version: int = 0


_AZUL: Final = {"Group": 25}
"""Five factories of at most four groups, and one of each color in the middle."""

SIZES: Final[Mapping[str, GameSize]] = {
    "snake": GameSize(max_entities={"Segment": 99}),
    "multi_snake": GameSize(max_entities={"Segment": 20}),
    "treasure_hunt": GameSize(max_entities={"Treasure": 5, "Trap": 5}),
    "cherry_pick": GameSize(max_entities={"Cherry": 16}),
    "rock_paper_scissors": GameSize(2),
    "tic_tac_toe": GameSize(2, {"Empty": 9, "Mine": 5, "Theirs": 5}),
    "azul": GameSize(2, {**_AZUL, "Option": 150}),
    "azul_by_id": GameSize(2, _AZUL),
    "cartpole": GameSize(),
    "mountain_car": GameSize(),
    "pendulum": GameSize(),
    "meteors": GameSize(),
    "pixel:grid": GameSize(),
    "pixel:maze": GameSize(),
    "pixel:catch": GameSize(),
}
"""The games that need no file, by name."""
