"""Parts of all games of planets and fleets: shares of ships, owners, forecasts of battles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

Arrivals: TypeAlias = dict[int, dict[int, dict[int, int]]]
"""Arriving ships by owner, by turn, by planet."""
Fight: TypeAlias = Callable[[int, int, Mapping[int, int]], tuple[int, int]]
"""Owner and ships after a battle: of the planet's owner and ships with arriving ships by owner."""

HORIZON: Final = 40
"""Turns that forecasts cover; a feature with this value means later or never."""
TRAINING: Final = {
    "num_envs": 16,
    "num_steps": 64,
    "learning_rate": 0.002,
    "gamma": 0.995,
    "ent_coef": 0.03,
    "net": {"n_layer": 1},
}
"""Settings of the trainer: random play is too short to measure how long an episode lasts, and how
many fleets there are."""
_WORTH: Final = 20
"""Production of this many turns counts as much as ships."""


class Side(Enum):
    """Owner, as the player sees it."""

    MINE = 0
    NEUTRAL = 1
    ENEMY = 2


class Share(Enum):
    """How many ships a planet sends; the order is that of the arrays of an adapter."""

    HOLD = 0
    ENOUGH = 1
    HALF = 2
    ALL = 3


def side_of(owner: int, me: int, neutral: int) -> Side:
    """How a player sees an owner; `neutral` is the number for planets without one."""
    if owner == me:
        return Side.MINE
    return Side.NEUTRAL if owner == neutral else Side.ENEMY


def fitting_share(ships: NDArray[np.int64], allowed: NDArray[np.bool_], wanted: int) -> Share:
    """The share nearest to a number of ships; HOLD if none is allowed.

    Args:
        ships, allowed: `(4,)`, by share.
    """
    order = [share for share in (Share.HALF, Share.ALL, Share.ENOUGH) if allowed[share.value]]
    return min(order, key=lambda share: abs(int(ships[share.value]) - wanted), default=Share.HOLD)


def totals_of(
    planets: Iterable[tuple[int, int, int]], fleets: Iterable[tuple[int, int]], num_owners: int
) -> tuple[list[int], list[int], list[int]]:
    """Ships, production and worth of every owner from 0.

    Args:
        planets: owner, ships and production of each; negative owners are skipped.
        fleets: owner and ships of each.
    """
    ships, production = [0] * num_owners, [0] * num_owners
    for owner, count, rate in planets:
        if owner >= 0:
            ships[owner] += count
            production[owner] += rate
    for owner, count in fleets:
        ships[owner] += count
    return ships, production, [a + _WORTH * b for a, b in zip(ships, production, strict=True)]


def arrivals_of(fleets: Iterable[tuple[int, int, int, int]]) -> Arrivals:
    """The arriving ships of fleets, given planet, turn, owner and ships of each."""
    found: Arrivals = {}
    for planet, turn, owner, ships in fleets:
        by_owner = found.setdefault(planet, {}).setdefault(turn, {})
        by_owner[owner] = by_owner.get(owner, 0) + ships
    return found


def arriving(fleets: Mapping[int, Mapping[int, int]], me: int) -> tuple[int, int, int]:
    """Arriving ships of a player and of all others, and turns until the first of the others.

    Args:
        fleets: arriving ships by owner, by turn.
    """
    mine, others, attacked_in = 0, 0, HORIZON
    for turn, by_owner in fleets.items():
        for owner, ships in by_owner.items():
            if owner == me:
                mine += ships
            else:
                others += ships
                attacked_in = min(attacked_in, turn)
    return mine, others, attacked_in


class Forecast:
    """Owner and ships of every planet after 0 to `horizon` turns, if no fleet is sent.

    Args:
        planets: owner, ships and production of each.
        arrivals: planets by index; turns from 1.
        neutral: owner of planets that produce nothing.
        fight: the rule of battles.
        horizon: last turn of the forecast.

    Attributes:
        owners, ships: `(num_planets, horizon + 1)` int64.
    """

    def __init__(
        self,
        planets: Sequence[tuple[int, int, int]],
        arrivals: Arrivals,
        *,
        neutral: int,
        fight: Fight,
        horizon: int,
    ) -> None:
        table = np.array(planets, np.int64).reshape(-1, 3)
        growth = np.where(table[:, 0] == neutral, 0, table[:, 2])
        turns = np.arange(horizon + 1)
        self.owners: NDArray[np.int64] = np.repeat(table[:, :1], horizon + 1, axis=1)
        ships_in = table[:, 1:2] + growth[:, None] * turns
        self.ships: NDArray[np.int64] = ships_in.astype(np.int64)
        for i, by_turn in arrivals.items():
            owner, ships, production = planets[i]
            before = 0
            for turn in sorted(each for each in by_turn if each <= horizon):
                ships += production * (turn - before) * (owner != neutral)
                owner, ships = fight(owner, ships, by_turn[turn])
                before = turn
                self.owners[i, turn:] = owner
                rate = production if owner != neutral else 0
                self.ships[i, turn:] = ships + rate * turns[: horizon + 1 - turn]

    def needed(
        self, planets: NDArray[np.int64], turns: NDArray[np.int64], owners: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Ships that take planets on arrival; 0 where they already belong to the owner.

        Args:
            planets, turns: `(num_sources, num_targets)`.
            owners: `(num_sources,)`.
        """
        is_mine = self.owners[planets, turns] == owners[:, None]
        return np.where(is_mine, 0, self.ships[planets, turns] + 1)
