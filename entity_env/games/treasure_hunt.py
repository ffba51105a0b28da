"""Treasure hunt: an explorer looks for treasures among traps and sees only nearby cells.

Entities and features:
    Treasure: x, y, a cell with a treasure, from 0 to board_size - 1; y grows upward. Shown if at
        most `sight` cells away on both axes.
    Trap: x, y, a cell with a trap; shown like the treasures.
    Global: x, y, the cell of the explorer; steps_left, the steps left before the episode is
        truncated.
Actions:
    Move: UP, DOWN, LEFT or RIGHT, one choice for the whole observation. At a wall the explorer
        stays where it is.
Reward:
    1 for each treasure.
Terminated when:
    the explorer steps into a trap or has collected all treasures.
Truncated when:
    max_step steps have been taken.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games import treasure_hunt
    >>> [episode] = treasure_hunt.run(RandomAgent(seed=1), num_traps=0, max_step=20)
    >>> episode.length
    20
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from random import Random

from entity_env import Game, Obs, UsageError
from entity_env.agents import Agent


class Move(Enum):
    """Direction of the next step."""

    UP = (0, 1)
    DOWN = (0, -1)
    LEFT = (-1, 0)
    RIGHT = (1, 0)

    def __init__(self, dx: int, dy: int) -> None:
        self.dx = dx
        self.dy = dy


@dataclass(slots=True)
class Treasure:
    """A cell with a treasure."""

    x: int
    y: int


@dataclass(slots=True)
class Trap:
    """A cell with a trap, which terminates the episode."""

    x: int
    y: int


@dataclass(slots=True)
class Explorer:
    """Cell of the explorer, and remaining steps."""

    x: int
    y: int
    steps_left: int

    def sees(self, thing: Treasure | Trap, sight: int) -> bool:
        return abs(thing.x - self.x) <= sight and abs(thing.y - self.y) <= sight


def play(
    agent: Agent,
    *,
    seed: int,
    board_size: int = 8,
    num_treasures: int = 5,
    num_traps: int = 5,
    sight: int = 3,
    max_step: int = 60,
) -> None:
    """Plays one episode.

    Args:
        agent: chooses the moves.
        seed: determines the starting cell and the cells of all things.
        board_size: cells along each side.
        num_treasures: number of treasures, 1 or more.
        num_traps: number of traps.
        sight: distance, in cells, up to which things are shown.
        max_step: steps after which the episode is truncated, 1 or more.

    Raises:
        UsageError: a number out of range, or more things than cells.
    """
    if min(num_treasures, max_step) < 1 or min(num_traps, sight) < 0:
        raise UsageError(
            "treasure_hunt: num_treasures and max_step must be at least 1, num_traps and sight 0, "
            f"got {num_treasures}, {max_step}, {num_traps} and {sight}"
        )
    start, *places = _places(board_size, 1 + num_treasures + num_traps, Random(seed))
    explorer = Explorer(*start, max_step)
    treasures = [Treasure(*place) for place in places[:num_treasures]]
    traps = [Trap(*place) for place in places[num_treasures:]]
    while True:
        here = (explorer.x, explorer.y)
        treasures = [treasure for treasure in treasures if (treasure.x, treasure.y) != here]
        obs = (
            Obs(score=num_treasures - len(treasures))
            .globals(explorer)
            .entities([treasure for treasure in treasures if explorer.sees(treasure, sight)])
            .entities([trap for trap in traps if explorer.sees(trap, sight)])
        )
        is_over = not treasures or Trap(*here) in traps
        if is_over or not explorer.steps_left:
            agent.game_over(obs, truncated=not is_over)
            return
        move = agent.act(obs, Move)
        if move is None:
            return
        explorer.x = min(max(explorer.x + move.dx, 0), board_size - 1)
        explorer.y = min(max(explorer.y + move.dy, 0), board_size - 1)
        explorer.steps_left -= 1


def _places(board_size: int, count: int, rng: Random) -> list[tuple[int, int]]:
    cells = [(x, y) for x in range(board_size) for y in range(board_size)]
    if len(cells) < count:
        raise UsageError(
            f"treasure_hunt: a board_size of {board_size} is too small for the explorer, the "
            f"treasures and the traps: {count} cells"
        )
    return rng.sample(cells, count)


treasure_hunt = Game(
    play,
    entities=(Treasure, Trap),
    actions=(Move,),
    global_features=Explorer,
    max_entities={"Treasure": 5, "Trap": 5},
)
