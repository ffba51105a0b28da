"""Scripted players for games of the gallery that have a simple strategy.

They assume the default settings of the game. `python -m tools.docs.games` measures them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any, Final, TypeVar

import numpy as np

from entity_env import Obs
from entity_env.agents import Agent, ScriptedAgent
from entity_env.agents.scripted_agent import Bot
from entity_env.authoring.action_type import ActionKey
from entity_env.cli.load_game import AgentLoader, load_player
from entity_env.games.azul import azul
from entity_env.games.cherry_pick import Cherry
from entity_env.games.classic.play import Drive, Push
from entity_env.games.meteor_shower.meteors import Body, Steer
from entity_env.games.multi_snake import (
    Food as ColoredFood,
    Head as ColoredHead,
    Move as ColoredMove,
    Segment as ColoredSegment,
)
from entity_env.games.pixel.worlds.world import Button
from entity_env.games.pixel.xo_chip.programs import PROGRAMS
from entity_env.games.snake import Food, Head, Move, Segment
from entity_env.games.treasure_hunt import Move as Walk, Trap, Treasure
from examples.bot import Careful

Cell = tuple[int, int]
M = TypeVar("M", Move, ColoredMove, Walk)


def snake_to_food(obs: Obs, *_: ActionKey) -> Move:
    """Takes the shortest way to the food; if there is none, goes toward the furthest free cell."""
    [head], body = _cells(obs.of_class(Head)), _cells(obs.of_class(Segment))
    return _towards(Move, head, _cells(obs.of_class(Food)), body[1:], 10)


def snakes_to_food(obs: Obs, *_: ActionKey) -> list[ColoredMove]:
    """Each snake takes the shortest way to its food, around all snakes and the other food."""
    heads, food = obs.of_class(ColoredHead), obs.of_class(ColoredFood)
    blocked = {*_cells(heads), *_cells(obs.of_class(ColoredSegment))}
    moves = []
    for head in heads:
        own = _cells(each for each in food if each.color == head.color)
        others = _cells(each for each in food if each.color != head.color)
        move = _towards(ColoredMove, (head.x, head.y), own, {*blocked, *others}, 10)
        blocked.add((head.x + move.dx, head.y + move.dy))
        moves.append(move)
    return moves


class Seeker(ScriptedAgent):
    """Goes to the nearest known treasure; if there is none, to the nearest unseen cell."""

    def begin_episode(self) -> None:
        self.unseen = {(x, y) for x in range(8) for y in range(8)}
        self.treasures: set[Cell] = set()
        self.traps: set[Cell] = set()

    def choose(self, obs: Obs, *_: ActionKey) -> Walk:
        me: Any = obs.global_features
        self.unseen -= {(x, y) for x, y in self.unseen if max(abs(x - me.x), abs(y - me.y)) <= 3}
        self.treasures |= {*_cells(obs.of_class(Treasure))}
        self.treasures.discard((me.x, me.y))
        self.traps |= {*_cells(obs.of_class(Trap))}
        return _towards(Walk, (me.x, me.y), self.treasures or self.unseen, self.traps, 8)


def best_cherry(obs: Obs, *_: ActionKey) -> list[Cherry]:
    """Takes the best cherry."""
    return [max(obs.of_class(Cherry), key=lambda cherry: float(cherry.quality))]


def balance(obs: Obs, *_: ActionKey) -> Push:
    """Pushes in the direction in which the pole falls, corrected for the cart's position."""
    position, velocity, angle, angular_velocity = _numbers(obs)
    falls = angle + 0.3 * angular_velocity + 0.02 * position + 0.05 * velocity
    return Push.RIGHT if falls > 0 else Push.LEFT


def rock(obs: Obs, *_: ActionKey) -> Drive:
    """Accelerates in the direction in which the car moves."""
    return Drive.RIGHT if _numbers(obs)[1] >= 0 else Drive.LEFT


def swing_up(obs: Obs, *_: ActionKey) -> list[list[float]]:
    """Adds the energy needed to reach the top; near the top, holds the pendulum upright."""
    cos, sin, speed = _numbers(obs)
    missing = 15 * (1 - cos) - speed**2 / 2
    torque = -(10 * sin + 2 * speed) if cos > 0.9 else missing * (1 if speed >= 0 else -1)
    return [[float(np.clip(torque, -2, 2))]]


def dodge(obs: Obs, *_: ActionKey) -> Steer:
    """Flies to a cell from which a path between all meteors exists; stays if in such a cell."""
    ship, *meteors = obs.of_class(Body)
    safe = set(range(9))  # cells in which the ship survives from the step `y` on
    for y in range(11, 0, -1):
        hit = {int(meteor.x) for meteor in meteors if meteor.y == y}
        safe = {x for x in range(9) if x not in hit and (y == 11 or safe & {x - 1, x, x + 1})}
    choices = (Steer.STAY, Steer.LEFT, Steer.RIGHT)
    return next((each for each in choices if ship.x + each.value in safe), Steer.STAY)


class Presser(ScriptedAgent):
    """Holds each of the given buttons for one step, then A forever."""

    def __init__(self, buttons: Iterable[Button]) -> None:
        self.buttons = tuple(buttons)

    def begin_episode(self) -> None:
        self.left = chain(self.buttons, repeat(Button.A))

    def choose(self, obs: Obs, *_: ActionKey) -> Button:
        return next(self.left)


def _cells(things: Iterable[Any]) -> list[Cell]:
    return [(thing.x, thing.y) for thing in things]


def _numbers(obs: Obs) -> list[float]:
    """The features of the only entity."""
    return [float(number) for number in obs.groups[0][0]]


def _towards(
    moves: type[M], start: Cell, goals: Collection[Cell], blocked: Collection[Cell], size: int
) -> M:
    """First move of the shortest way to a goal or, if none is reachable, to the furthest cell.

    Args:
        size: cells along each side of the board.
    """
    first = {start: next(iter(moves))}  # the first move of the way to each cell
    queue = deque([start])
    while queue and (cell := queue.popleft()) not in goals:
        for move in moves:
            there = x, y = cell[0] + move.dx, cell[1] + move.dy
            is_free = 0 <= x < size and 0 <= y < size and there not in blocked
            if is_free and there not in first:
                first[there] = move if cell == start else first[cell]
                queue.append(there)
    return first[cell]


def _pressing(buttons: Iterable[Button], _seed: int) -> Agent:
    return Presser(buttons)


_B: Final = Button
_GREEDY: Final = partial(load_player, azul, "greedy", load=AgentLoader())
SCRIPTED: Final[Mapping[str, Callable[[int], Agent]]] = {
    "snake": Bot(snake_to_food),
    "multi_snake": Bot(snakes_to_food),
    "treasure_hunt": Bot(Seeker),
    "cherry_pick": Bot(best_cherry),
    "tic_tac_toe": Bot(Careful),
    "azul": _GREEDY,
    "azul_by_id": _GREEDY,
    "cartpole": Bot(balance),
    "mountain_car": Bot(rock),
    "pendulum": Bot(swing_up),
    "meteors": Bot(dodge),
    "pixel:grid": partial(_pressing, (_B.RIGHT, _B.RIGHT, _B.DOWN, _B.RIGHT, _B.RIGHT, _B.UP)),
    "pixel:maze": partial(_pressing, PROGRAMS["maze"].solution),
    "pixel:catch": partial(_pressing, PROGRAMS["catch"].solution),
}
"""For each game, a function that makes its player from a seed."""
