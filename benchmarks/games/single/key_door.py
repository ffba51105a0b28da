"""Key and door: a hall of pillars, one point for reaching the door with the key. Sparse scores."""

import random
from collections import deque
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Walker:
    x: int
    y: int
    has_key: bool = False


@dataclass
class Wall:
    x: int
    y: int


@dataclass
class Key:
    x: int
    y: int


@dataclass
class Door:
    x: int
    y: int


class Move(Enum):
    UP = (0, 1)
    DOWN = (0, -1)
    LEFT = (-1, 0)
    RIGHT = (1, 0)


Cell = tuple[int, int]


def pillars(rng: random.Random, size: int) -> set[Cell]:
    """Cells of pillars. No two touch, so every other cell can be reached."""
    found: set[Cell] = set()
    for _ in range(size):
        x, y = rng.randrange(1, size - 1), rng.randrange(1, size - 1)
        if all(max(abs(x - left), abs(y - low)) > 1 for left, low in found):
            found.add((x, y))
    return found


def play(agent: Agent, *, seed: int, board_size: int = 6, max_moves: int = 60) -> None:
    rng = random.Random(seed)
    walls = [Wall(*cell) for cell in sorted(pillars(rng, board_size))]
    cells = {(x, y) for x in range(board_size) for y in range(board_size)}
    free = cells - {(wall.x, wall.y) for wall in walls}
    start, at_key, at_door = rng.sample(sorted(free), 3)
    walker, keys, door = Walker(*start), [Key(*at_key)], Door(*at_door)

    def seen(score: int) -> Obs:
        obs = Obs(score).entities([walker]).entities(walls).entities(keys).entities([door])
        there = [(walker.x + move.value[0], walker.y + move.value[1]) for move in Move]
        return obs.mask(Move, [cell in free for cell in there])

    for _ in range(max_moves):
        move = agent.act(seen(0), Move)
        if move is None:
            return
        walker.x, walker.y = walker.x + move.value[0], walker.y + move.value[1]
        if (walker.x, walker.y) == at_key:
            walker.has_key, keys = True, []
        if walker.has_key and (walker.x, walker.y) == at_door:
            agent.game_over(seen(1))
            return
    agent.game_over(seen(0), truncated=True)


key_door = Game(play, entities=(Walker, Wall, Key, Door), actions=(Move,), name="key_door")


class Scripted(ScriptedAgent):
    """Takes the shortest path to the key, then to the door."""

    def choose(self, obs: Obs, *actions: object) -> object:
        [walker], [door] = obs.of_class(Walker), obs.of_class(Door)
        goal = (obs.of_class(Key) or [door])[0]
        steps = {(goal.x, goal.y): 0}
        queue = deque(steps)
        walls = {(wall.x, wall.y) for wall in obs.of_class(Wall)}
        most = max(walker.x, walker.y, goal.x, goal.y)
        while queue:
            x, y = queue.popleft()
            for dx, dy in (move.value for move in Move):
                cell = (x + dx, y + dy)
                is_near = min(cell) >= 0 and max(cell) <= most + 1
                if is_near and cell not in walls and cell not in steps:
                    steps[cell] = steps[x, y] + 1
                    queue.append(cell)
        return min(
            obs.allowed(Move),
            key=lambda move: steps[walker.x + move.value[0], walker.y + move.value[1]],
        )
