"""Orbit Wars: players send fleets between planets that orbit a sun; the most ships win.

Positions are turned so that every player's home is in the same quarter, with the sun at 0, 0.

Entities and features:
    Planet: owner (MINE, NEUTRAL, ENEMY); x, y, its center; radius; ships and log_ships; production,
        ships per turn; is_orbiting; is_comet, and leaves_in, the turns until a comet leaves; the
        forecast, if no further fleet is sent: arriving_mine, arriving_enemy (ships), attacked_in
        (turns, HORIZON = never), later (owner after all arrivals) and later_ships. The player's own
        planets are the actors.
    Fleet: owner (MINE, ENEMY); x, y; angle, its direction; ships and log_ships; arrives_in, turns
        until it reaches a planet (HORIZON = never).
    Space: turns_left; speed of the rotation; ships and production of the player and of the
        strongest rival; num_rivals, the rivals who have planets or fleets.
Actions:
    Send: for each of the player's planets a share of its ships, and the target. HOLD sends nothing
        and has the planet itself as its only target; ENOUGH is just enough to take the target on
        arrival; HALF and ALL of the ships, if these are at least 10. Fleets are aimed at the place
        where the target will be. Targets behind the sun, or further than HORIZON turns, are not
        allowed.
Reward:
    The change of the lead, the player's share of all ships (and 20 turns of production) minus that
    of the strongest rival; at the end, the score becomes the reward of kaggle-environments, 1 or
    -1.
Terminated when:
    500 turns (or the setting `turns`) have been played, or one player is left.
Truncated when:
    never.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.interop.kaggle.orbit_wars import orbit_wars
    >>> episodes = orbit_wars.run(RandomAgent(1), RandomAgent(2), seed=3, turns=50)
    >>> [episode.terminated for episode in episodes]
    [True, True]
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

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

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]

_NEUTRAL: Final = -1
_CENTER: Final = 50.0
_SUN: Final = 10.0
_ORBIT: Final = 50.0
"""Planets within this distance of the sun, radius included, move around it."""
_START: Final = 0.1
"""Distance from the edge of a planet at which fleets start."""
_AWAY: Final = 1e6
_LEAST: Final = 10
"""Ships of the smallest fleet that is not ENOUGH: hundreds of small fleets would slow the rules."""
_TURNS: Final = np.arange(HORIZON + 1)
_PER_TURN: Final = (1 / _TURNS[1:]).astype(np.float32)
_QUARTERS: Final[Mapping[int, tuple[int, ...]]] = {2: (0, 2), 4: (0, 1, 3, 2)}
"""Quarter turns from the home of the first player, by number of players."""


@dataclass(slots=True, eq=False)
class Planet:
    """A planet or comet, and what happens to it if no further fleet is sent."""

    owner: Side
    x: float
    y: float
    radius: float
    ships: int
    log_ships: float
    production: int
    is_orbiting: bool
    is_comet: bool
    leaves_in: int
    arriving_mine: int
    arriving_enemy: int
    attacked_in: int
    later: Side
    later_ships: int
    index: int = field(default=0, metadata=HIDDEN)
    """Row in the arrays of a turn."""


@dataclass(slots=True, eq=False)
class Fleet:
    """Ships on their way."""

    owner: Side
    x: float
    y: float
    angle: float
    ships: int
    log_ships: float
    arrives_in: int


@dataclass(slots=True)
class Space:
    """The state of the whole game."""

    turns_left: int
    speed: float
    my_ships: int
    my_production: int
    rival_ships: int
    rival_production: int
    num_rivals: int


@dataclass(frozen=True)
class Send:
    """A fleet of a planet."""

    share: Share
    target: Planet


SEND: Final = Composite(Send)


class _Turn:
    """The state of a turn, as arrays by planet."""

    def __init__(self, raw: Raw, max_speed: float, routes: dict[int, tuple[int, int]]) -> None:
        self.step = int(raw["step"])
        self.planets = raw["planets"]
        self.fleets = raw["fleets"]
        self.max_speed = max_speed
        table = np.array([planet[1:] for planet in self.planets], np.float64).reshape(-1, 6)
        self.owners = table[:, 0].astype(np.int64)
        self.radius = table[:, 3]
        self.ships = table[:, 4].astype(np.int64)
        self.rows = {planet[0]: i for i, planet in enumerate(self.planets)}
        self.leaves_in = np.zeros(len(table), np.int64)
        self.places = self._places(raw, table[:, 1:3] - _CENTER)
        self.lines = np.moveaxis(self.places, 2, 0).astype(np.float32)  # x and y apart
        self._routes = routes
        new = [fleet for fleet in self.fleets if fleet[0] not in routes]
        if new:
            self._find_routes(np.array(new, np.float64))
        reached = ((*self.route(fleet), fleet[1], fleet[6]) for fleet in self.fleets)
        self.arrivals = arrivals_of(each for each in reached if each[0] >= 0)
        self.forecast = Forecast(
            [(planet[1], planet[5], planet[6]) for planet in self.planets],
            self.arrivals,
            neutral=_NEUTRAL,
            fight=_fight,
            horizon=HORIZON,
        )

    def is_of(self, raw: Raw) -> bool:
        """Whether an observation is of this turn."""
        return self.planets is raw["planets"] and self.step == raw["step"]

    def route(self, fleet: Sequence[float]) -> tuple[int, int]:
        """Row of the planet that a fleet reaches, and turns until then; -1 and HORIZON if none."""
        planet, turn = self._routes[int(fleet[0])]
        row, turns = self.rows.get(planet, -1), turn - self.step
        return (row, turns) if row >= 0 and turns > 0 else (-1, HORIZON)

    def _places(self, raw: Raw, now: Floats) -> Floats:
        """`(num_planets, HORIZON + 1, 2)` centers of planets in the coming turns."""
        radii = np.hypot(now[:, 0], now[:, 1])
        comets = {each: i for group in raw["comets"] for i, each in enumerate(group["planet_ids"])}
        self.is_comet = np.array([planet[0] in comets for planet in self.planets], np.bool_)
        self.is_orbiting = (radii + self.radius < _ORBIT) & ~self.is_comet
        moved = np.maximum(_TURNS - (self.step == 0), 0)  # planets stand still in the first turn
        angles = raw["angular_velocity"] * self.is_orbiting[:, None] * moved
        cos, sin, x, y = np.cos(angles), np.sin(angles), now[:, :1], now[:, 1:]
        places = np.stack([x * cos - y * sin, x * sin + y * cos], axis=2)
        for group in raw["comets"]:
            for planet, path in zip(group["planet_ids"], group["paths"], strict=False):
                if planet in self.rows:
                    row = self.rows[planet]
                    ahead = np.array(path[max(group["path_index"], 0) :], np.float64)[: HORIZON + 1]
                    self.leaves_in[row] = max(len(path) - group["path_index"], 0)
                    places[row] = _AWAY
                    places[row, : len(ahead)] = ahead.reshape(-1, 2) - _CENTER
        return places

    def _find_routes(self, fleets: Floats) -> None:
        """Finds the planets that fleets reach; as in the rules, both move within a turn."""
        speed = self.speeds(fleets[:, 6])[:, None]
        ways = np.stack([np.cos(fleets[:, 4:5]) * speed, np.sin(fleets[:, 4:5]) * speed], axis=2)
        ahead = (fleets[:, None, 2:4] - _CENTER) + ways * _TURNS[:, None]
        apart = ahead[:, None] - self.places  # (num_fleets, num_planets, HORIZON + 1, 2)
        start, way = apart[:, :, :-1], np.diff(apart, axis=2)
        square = np.maximum((way * way).sum(3), 1e-12)
        nearest = np.clip(-(start * way).sum(3) / square, 0.0, 1.0)
        gap = start + nearest[..., None] * way
        hits = (gap * gap).sum(3) <= np.square(self.radius)[:, None]
        is_lost = _sun_crossed(ahead[:, :-1], ahead[:, 1:]) | (np.abs(ahead[:, 1:]) > 50).any(2)
        ends = hits.any(1) | is_lost
        for i, fleet in enumerate(fleets):
            turn = int(ends[i].argmax())
            rows = np.flatnonzero(hits[i, :, turn])
            planet = self.planets[rows[0]][0] if len(rows) else -1
            self._routes[int(fleet[0])] = planet, self.step + turn + 1

    def speeds(self, ships: Floats | Ints) -> Floats:
        """Distance that fleets fly in a turn."""
        logs = np.log(np.maximum(ships, 1)) / math.log(1000)
        return np.minimum(1.0 + (self.max_speed - 1.0) * logs**1.5, self.max_speed)


class _Orders:
    """The possible fleets of all players in a turn, by source, share and target.

    Attributes:
        sources: `(num_sources,)` rows of planets that have an owner.
        owners: `(num_sources,)` their owners.
        ships: `(num_sources, 4, num_planets)`.
        aims: `(num_sources, 4, num_planets, 2)` places to which fleets fly.
        allowed: `(num_sources, 4, num_planets)`.
    """

    def __init__(self, turn: _Turn) -> None:
        self.turn = turn
        self.sources = np.flatnonzero(turn.owners >= 0)
        self.owners = turn.owners[self.sources]
        count, size = len(self.sources), len(turn.planets)
        self.ships = np.zeros((count, 4, size), np.int64)
        self.aims = np.zeros((count, 4, size, 2))
        self.allowed = np.zeros((count, 4, size), np.bool_)
        self.allowed[np.arange(count), Share.HOLD.value, self.sources] = True
        self._start = turn.places[self.sources, 0]
        self._edge = turn.radius[self.sources] + _START
        x, y = (turn.lines[i] - self._start[:, i, None, None].astype(np.float32) for i in (0, 1))
        far = np.sqrt(x * x + y * y) - self._edge[:, None, None].astype(np.float32)
        self._far = far - (turn.radius[:, None] / 2).astype(np.float32)
        self._needed = self._far[..., 1:] * _PER_TURN
        own = np.broadcast_to(turn.ships[self.sources, None], (count, size))
        self._fly(Share.HALF, own // 2)
        arrive = self._fly(Share.ALL, own)
        planets = np.broadcast_to(np.arange(size), arrive.shape)
        enough = turn.forecast.needed(planets, arrive, self.owners)
        later = np.minimum(self._turns(enough), HORIZON)
        enough = np.maximum(enough, turn.forecast.needed(planets, later, self.owners))
        self._fly(Share.ENOUGH, np.where(enough <= own, enough, 0))

    def _turns(self, ships: Ints) -> Ints:
        """Turns until fleets reach their targets; HORIZON + 1 if never."""
        speed = self.turn.speeds(ships)[..., None].astype(np.float32)
        found = (self._needed <= speed).argmax(2)[..., None]
        is_there = np.take_along_axis(self._needed, found, 2) <= speed
        return np.where(is_there, found + 1, HORIZON + 1)[..., 0]

    def _fly(self, share: Share, ships: Ints) -> Ints:
        """Aims fleets of a share; returns the turns until they arrive, at most HORIZON."""
        turns = self._turns(ships)
        reach = np.clip(turns, 1, HORIZON)[..., None]
        speed = self.turn.speeds(ships)
        before = np.take_along_axis(self._far, reach - 1, 2)[..., 0] - speed * (reach[..., 0] - 1)
        after = np.take_along_axis(self._far, reach, 2)[..., 0] - speed * reach[..., 0]
        part = np.clip(before / np.maximum(before - after, 1e-9), 0.0, 1.0)[..., None]
        places, planets = self.turn.places, np.arange(ships.shape[1])
        old, new = places[planets, reach[..., 0] - 1], places[planets, reach[..., 0]]
        aims = old + part * (new - old)
        least = 1 if share is Share.ENOUGH else _LEAST
        allowed = (ships >= least) & (turns <= HORIZON) & (np.abs(aims) < _ORBIT + 1).all(2)
        allowed[np.arange(len(self.sources)), self.sources] = False
        allowed &= ~_sun_crossed(np.broadcast_to(self._start[:, None], aims.shape), aims)
        self.ships[:, share.value], self.aims[:, share.value] = ships, aims
        self.allowed[:, share.value] = allowed
        return np.minimum(turns, HORIZON)

    def move(self, source: int, share: Share, target: int) -> list[Any]:
        """A fleet as a move of the rules."""
        x, y = self.aims[source, share.value, target] - self._start[source]
        planet = self.turn.planets[self.sources[source]][0]
        return [planet, math.atan2(y, x), int(self.ships[source, share.value, target])]

    def nearest(self, source: int, angle: float, ships: int) -> tuple[Share, int]:
        """The share and the target of a move; HOLD if it flies past all targets."""
        places = self.aims[source, Share.HALF.value] - self._start[source]
        off = np.arctan2(places[:, 1], places[:, 0]) - angle
        off = np.abs(np.remainder(off + np.pi, 2 * np.pi) - np.pi)
        target = int(np.where(self.allowed[source, 1:].any(0), off, np.inf).argmin())
        if off[target] > math.atan2(self.turn.radius[target], np.hypot(*places[target])):
            return Share.HOLD, target
        sizes, allowed = self.ships[source, :, target], self.allowed[source, :, target]
        return fitting_share(sizes, allowed, ships), target


class _Seat(NamedTuple):
    """The last observation of a player; `rows` are those of its planets `mine` in the orders."""

    orders: _Orders
    rows: Ints
    mine: list[Planet]
    planets: list[Planet]


class OrbitWars(KaggleAdapter):
    """Planets and fleets, turned so that every player's home is in the same quarter."""

    environment = "orbit_wars"
    is_copied = False
    actions = (SEND,)

    def __init__(self, num_players: int, configuration: Raw) -> None:
        super().__init__(num_players, configuration)
        self._routes: dict[int, tuple[int, int]] = {}
        self._orders: _Orders | None = None
        self._seats: dict[int, _Seat] = {}

    @classmethod
    def seat_of(cls, raw: Raw) -> tuple[int, int]:
        return int(raw["player"]), 1 + max(planet[1] for planet in raw["planets"])

    def show(self, raw: Raw, player: int) -> Obs:
        orders = self._orders
        if orders is None or not orders.turn.is_of(raw):
            speed = float(self.configuration["shipSpeed"])
            orders = self._orders = _Orders(_Turn(raw, speed, self._routes))
        turn, rows = orders.turn, np.flatnonzero(orders.owners == player)
        space, lead = self._space(turn, raw, player)
        planets = self._planets(turn, player)
        mine = [planets[i] for i in orders.sources[rows]]
        others = [planet for planet in planets if planet.owner is not Side.MINE]
        self._seats[player] = _Seat(orders, rows, mine, planets)
        obs = Obs(lead).actors(mine, SEND).entities(others).globals(space)
        obs.entities(self._fleets(turn, player), of=Fleet)
        allowed = orders.allowed[rows][:, :, [planet.index for planet in mine + others]]
        obs.mask(SEND.share, np.any(allowed, axis=2))
        return obs.mask(SEND.target, allowed, given=SEND.share)

    def moves(self, answer: Sequence[Send], player: int) -> list[Any]:
        seat = self._seats[player]
        return [
            seat.orders.move(row, send.share, send.target.index)
            for row, send in zip(seat.rows, answer, strict=True)
            if send.share is not Share.HOLD
        ]

    def answer(self, moves: object, player: int) -> list[Send]:
        seat = self._seats[player]
        wanted = {move[0]: move for move in _moves(moves)}  # the last one of each planet
        found = []
        for row, planet in zip(seat.rows, seat.mine, strict=True):
            send = Send(Share.HOLD, planet)
            move = wanted.get(seat.orders.turn.planets[planet.index][0])
            if move is not None:
                share, target = seat.orders.nearest(row, move[1], move[2])
                send = Send(share, seat.planets[target]) if share is not Share.HOLD else send
            found.append(send)
        return found

    def _planets(self, turn: _Turn, player: int) -> list[Planet]:
        owners, ships = turn.forecast.owners[:, -1].tolist(), turn.forecast.ships[:, -1].tolist()
        places = _turned(turn.places[:, 0], -self._quarter(player)).tolist()
        is_comet, is_orbiting = turn.is_comet.tolist(), turn.is_orbiting.tolist()
        leaves_in = turn.leaves_in.tolist()
        planets = []
        for i, (_, owner, _, _, radius, count, production) in enumerate(turn.planets):
            mine, enemy, attacked_in = arriving(turn.arrivals.get(i, {}), player)
            planet = Planet(
                side_of(owner, player, _NEUTRAL),
                places[i][0],
                places[i][1],
                radius,
                count,
                math.log1p(count),
                production,
                is_orbiting[i],
                is_comet[i],
                leaves_in[i],
                mine,
                enemy,
                attacked_in,
                side_of(owners[i], player, _NEUTRAL),
                ships[i],
                i,
            )
            planets.append(planet)
        return planets

    def _fleets(self, turn: _Turn, player: int) -> NDArray[np.float32]:
        """Rows of `Fleet`."""
        rows = np.zeros((len(turn.fleets), 9), np.float32)
        if turn.fleets:
            table, quarter = np.array(turn.fleets, np.float64), self._quarter(player)
            rows[:, 0] = table[:, 1] == player
            rows[:, 2] = table[:, 1] != player
            rows[:, 3:5] = _turned(table[:, 2:4] - _CENTER, -quarter)
            angle = table[:, 4] - quarter * math.pi / 2
            rows[:, 5] = np.remainder(angle + math.pi, math.tau) - math.pi
            rows[:, 6], rows[:, 7] = table[:, 6], np.log1p(table[:, 6])
            rows[:, 8] = [turn.route(fleet)[1] for fleet in turn.fleets]
        return rows

    def _space(self, turn: _Turn, raw: Raw, player: int) -> tuple[Space, float]:
        """The state of the game, and the player's lead."""
        ships, production, worth = totals_of(
            ((planet[1], planet[5], planet[6]) for planet in turn.planets),
            ((fleet[1], fleet[6]) for fleet in turn.fleets),
            self.num_players,
        )
        rivals = [i for i in range(self.num_players) if i != player]
        rival = max(rivals, key=worth.__getitem__)
        lead = (worth[player] - worth[rival]) / max(sum(worth), 1)
        space = Space(
            int(self.configuration["episodeSteps"]) - turn.step,
            raw["angular_velocity"],
            ships[player],
            production[player],
            ships[rival],
            production[rival],
            sum(worth[i] > 0 for i in rivals),
        )
        return space, lead

    def _quarter(self, player: int) -> int:
        return _QUARTERS[self.num_players][player]


def _moves(moves: object) -> list[tuple[int, float, int]]:
    """The valid moves of an action, as the rules read it."""
    found = []
    for move in moves if isinstance(moves, list) else []:
        if isinstance(move, list | tuple) and len(move) == 3:
            planet, angle, ships = move
            if all(isinstance(each, int | float) and math.isfinite(each) for each in move):
                found.append((int(planet), float(angle), int(ships)))
    return found


def _fight(owner: int, ships: int, attackers: Mapping[int, int]) -> tuple[int, int]:
    """Fleets fight each other first, the rest fights the planet."""
    order = sorted(attackers.items(), key=lambda item: item[1], reverse=True)
    attacker, left = order[0][0], order[0][1] - (order[1][1] if len(order) > 1 else 0)
    if left <= 0 or attacker == owner:
        return owner, ships + max(left, 0)
    return (owner, ships - left) if left <= ships else (attacker, left - ships)


def _turned(places: Floats, quarters: int) -> Floats:
    """Positions turned by quarters around the sun, counterclockwise."""
    x, y = places[:, 0], places[:, 1]
    turned = [(x, y), (-y, x), (-x, -y), (y, -x)][quarters % 4]
    return np.stack(turned, axis=1)


def _sun_crossed(start: Floats, end: Floats) -> Flags:
    """Whether lines between places `(..., 2)` pass through the sun."""
    way = end - start
    square = np.maximum((way * way).sum(-1), 1e-12)
    nearest = np.clip(-(start * way).sum(-1) / square, 0.0, 1.0)
    gap = start + nearest[..., None] * way
    return np.asarray((gap * gap).sum(-1) < _SUN**2)


def play(agents: Sequence[Agent], *, seed: int, players: int = 2, turns: int = 0) -> None:
    """Plays one episode; see `play_kaggle`.

    Args:
        agents: the players.
        seed: determines planets and comets.
        players: 2 or 4.
        turns: length of an episode; 0 = 500.
    """
    play_kaggle(OrbitWars, agents, seed=seed, players=players, turns=turns)


orbit_wars = KaggleGame(
    play,
    adapter=OrbitWars,
    entities=(Planet, Fleet),
    global_features=Space,
    name="orbit_wars",
    look="entity_env.interop.kaggle.looks:orbit_wars",
    training={**TRAINING, "update_epochs": 3},
    max_entities={"Planet": 48, "Fleet": 256},
    version="1.0.9",
)
bots: Final = KaggleBots(OrbitWars)
