"""Planet Wars: two players send fleets between planets that stand still; the most ships win.

Entities and features:
    Planet: owner (MINE, NEUTRAL, ENEMY); x, y, from the middle of the map; ships and log_ships;
        growth, ships per turn; the forecast, if no further fleet is sent: arriving_mine,
        arriving_enemy (ships), attacked_in (turns, HORIZON = never), later (owner after all
        arrivals) and later_ships. The player's own planets are the actors.
    Fleet: owner (MINE, ENEMY); x, y; ships and log_ships; arrives_in, turns until it arrives.
    Space: turns_left; ships and growth of both players.
Actions:
    Send: for each of the player's planets a share of its ships, and the target. HOLD sends nothing
        and has the planet itself as its only target; ENOUGH is just enough to take the target on
        arrival; HALF and ALL of the ships.
Reward:
    The change of the lead, the player's share of all ships (and 20 turns of growth) minus that of
    the rival; at the end, the score becomes the reward of kaggle-environments: 1, 0 or -1.
Terminated when:
    200 turns (or the setting `turns`) have been played, or at most one player is left.
Truncated when:
    never.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.interop.kaggle.planet_wars import planet_wars
    >>> episodes = planet_wars.run(RandomAgent(1), RandomAgent(2), seed=3, turns=50)
    >>> [episode.terminated for episode in episodes]
    [True, True]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents import Agent
from entity_env.authoring.action_type import Composite
from entity_env.authoring.entity_type import HIDDEN
from entity_env.authoring.obs import Obs
from entity_env.interop.kaggle import KaggleAdapter, KaggleBots, KaggleGame, play_kaggle
from entity_env.interop.kaggle.fleets import (
    HORIZON,
    TRAINING,
    Arrivals,
    Forecast,
    Share,
    Side,
    arrivals_of,
    arriving,
    fitting_share,
    side_of,
    totals_of,
)
from entity_env.interop.kaggle.game import Raw

_NEUTRAL: Final = 0
_MIDDLE: Final = 15.0


@dataclass(slots=True, eq=False)
class Planet:
    """A planet, and what happens to it if no further fleet is sent."""

    owner: Side
    x: float
    y: float
    ships: int
    log_ships: float
    growth: int
    arriving_mine: int
    arriving_enemy: int
    attacked_in: int
    later: Side
    later_ships: int
    index: int = field(default=0, metadata=HIDDEN)
    """Number of the planet in kaggle-environments."""


@dataclass(slots=True, eq=False)
class Fleet:
    """Ships on their way."""

    owner: Side
    x: float
    y: float
    ships: int
    log_ships: float
    arrives_in: int


@dataclass(slots=True)
class Space:
    """The state of the whole game."""

    turns_left: int
    my_ships: int
    my_growth: int
    rival_ships: int
    rival_growth: int


@dataclass(frozen=True)
class Send:
    """A fleet of a planet."""

    share: Share
    target: Planet


SEND: Final = Composite(Send)


class PlanetWars(KaggleAdapter):
    """Planets and fleets, around the middle of the map."""

    environment = "planet_wars"
    is_copied = False
    actions = (SEND,)

    def __init__(self, num_players: int, configuration: Raw) -> None:
        super().__init__(num_players, configuration)
        self._seats: dict[int, _Seat] = {}

    @classmethod
    def seat_of(cls, raw: Raw) -> tuple[int, int]:
        return int(raw["player"]) - 1, 2

    def show(self, raw: Raw, player: int) -> Obs:
        planets = raw["planets"]
        arrivals = arrivals_of(
            (target, left, owner, ships) for owner, ships, _, target, _, left in raw["fleets"]
        )
        forecast = Forecast(
            [(planet[3], planet[4], planet[5]) for planet in planets],
            arrivals,
            neutral=_NEUTRAL,
            fight=_fight,
            horizon=HORIZON,
        )
        space, lead = self._space(raw, player)
        shown = [_planet(planet, arrivals, forecast, player + 1) for planet in planets]
        mine = [each for each in shown if each.owner is Side.MINE]
        others = [each for each in shown if each.owner is not Side.MINE]
        seat = self._seats[player] = _Seat(planets, forecast, mine, shown, player + 1)
        obs = Obs(lead).actors(mine, SEND).entities(others).globals(space)
        obs.entities([_fleet(fleet, planets, player + 1) for fleet in raw["fleets"]])
        allowed = seat.allowed[:, :, [each.index for each in mine + others]]
        obs.mask(SEND.share, np.any(allowed, axis=2))
        return obs.mask(SEND.target, allowed, given=SEND.share)

    def moves(self, answer: Sequence[Send], player: int) -> list[Any]:
        seat = self._seats[player]
        return [
            [planet.index, send.target.index, seat.count(i, send.share, send.target.index)]
            for i, (planet, send) in enumerate(zip(seat.mine, answer, strict=True))
            if send.share is not Share.HOLD
        ]

    def answer(self, moves: object, player: int) -> list[Send]:
        seat = self._seats[player]
        wanted = {move[0]: move for move in _moves(moves, len(seat.shown))}
        found = []
        for i, planet in enumerate(seat.mine):
            share, target = Share.HOLD, planet.index
            if move := wanted.get(planet.index):
                target = move[1]
                allowed = seat.allowed[i, :, target]
                share = fitting_share(seat.ships[i, :, target], allowed, move[2])
            found.append(Send(share, planet if share is Share.HOLD else seat.shown[target]))
        return found

    def _space(self, raw: Raw, player: int) -> tuple[Space, float]:
        """The state of the game, and the player's lead."""
        ships, growth, worth = totals_of(
            ((planet[3], planet[4], planet[5]) for planet in raw["planets"]),
            ((fleet[0], fleet[1]) for fleet in raw["fleets"]),
            3,
        )
        me, rival = player + 1, 2 - player
        lead = (worth[me] - worth[rival]) / max(worth[me] + worth[rival], 1)
        left = int(self.configuration["episodeSteps"]) - int(raw["step"])
        return Space(left, ships[me], growth[me], ships[rival], growth[rival]), lead


class _Seat:
    """The last observation of a player, and its possible fleets by source, share and target."""

    def __init__(
        self,
        planets: Sequence[Any],
        forecast: Forecast,
        mine: list[Planet],
        shown: list[Planet],
        owner: int,
    ) -> None:
        self.mine, self.shown = mine, shown
        places = np.array([planet[1:3] for planet in planets], np.float64)
        sources = np.array([planet.index for planet in mine], np.int64)
        ways = places[sources, None] - places
        trips = np.ceil(np.hypot(ways[..., 0], ways[..., 1])).astype(np.int64)
        own = np.array([planet.ships for planet in mine], np.int64)[:, None]
        targets = np.broadcast_to(np.arange(len(planets)), trips.shape)
        owners = np.full(len(mine), owner)
        enough = forecast.needed(targets, np.minimum(trips, HORIZON), owners)
        self.ships: NDArray[np.int64] = np.zeros((len(mine), 4, len(planets)), np.int64)
        self.ships[:, Share.ENOUGH.value] = np.where(enough <= own, enough, 0)
        self.ships[:, Share.HALF.value] = own // 2
        self.ships[:, Share.ALL.value] = own
        self.allowed: NDArray[np.bool_] = self.ships > 0
        rows = np.arange(len(mine))
        self.allowed[rows, :, sources] = False
        self.allowed[rows, Share.HOLD.value, sources] = True

    def count(self, source: int, share: Share, target: int) -> int:
        """Ships of a fleet."""
        return int(self.ships[source, share.value, target])


def _planet(
    planet: Sequence[Any],
    arrivals: Arrivals,
    forecast: Forecast,
    me: int,
) -> Planet:
    index, x, y, owner, ships, growth = planet
    mine, enemy, attacked_in = arriving(arrivals.get(index, {}), me)
    return Planet(
        side_of(owner, me, _NEUTRAL),
        x - _MIDDLE,
        y - _MIDDLE,
        ships,
        math.log1p(ships),
        growth,
        mine,
        enemy,
        attacked_in,
        side_of(int(forecast.owners[index, -1]), me, _NEUTRAL),
        int(forecast.ships[index, -1]),
        index,
    )


def _fleet(fleet: Sequence[Any], planets: Sequence[Any], me: int) -> Fleet:
    owner, ships, source, target, trip, left = fleet
    part = 1 - left / max(trip, 1)
    x, y = (planets[source][i] * (1 - part) + planets[target][i] * part for i in (1, 2))
    return Fleet(
        side_of(owner, me, _NEUTRAL), x - _MIDDLE, y - _MIDDLE, ships, math.log1p(ships), left
    )


def _moves(moves: object, num_planets: int) -> list[tuple[int, int, int]]:
    """The valid moves of an action."""
    found = []
    for move in moves if isinstance(moves, list) else []:
        is_move = isinstance(move, list | tuple) and len(move) == 3
        if is_move and all(isinstance(each, int) for each in move) and 0 <= move[1] < num_planets:
            planet, target, ships = map(int, move)  # True indexes an array in another way than 1
            found.append((planet, target, ships))
    return found


def _fight(owner: int, ships: int, attackers: Mapping[int, int]) -> tuple[int, int]:
    """The largest force keeps what it has more than the second; equal forces destroy all."""
    forces = {owner: ships}
    for who, count in attackers.items():
        forces[who] = forces.get(who, 0) + count
    order = sorted(forces.items(), key=lambda item: item[1], reverse=True)
    left = order[0][1] - (order[1][1] if len(order) > 1 else 0)
    return (order[0][0], left) if left > 0 else (owner, 0)


def play(agents: Sequence[Agent], *, seed: int, players: int = 2, turns: int = 0) -> None:
    """Plays one episode; see `play_kaggle`.

    Args:
        agents: the players.
        seed: determines the map.
        players: 2.
        turns: length of an episode; 0 = 200.
    """
    play_kaggle(PlanetWars, agents, seed=seed, players=players, turns=turns)


planet_wars = KaggleGame(
    play,
    adapter=PlanetWars,
    entities=(Planet, Fleet),
    global_features=Space,
    name="planet_wars",
    look="entity_env.interop.kaggle.looks:planet_wars",
    training=TRAINING,
    max_entities={"Planet": 30, "Fleet": 256},
    version="1.0.0",
)
bots: Final = KaggleBots(PlanetWars)
