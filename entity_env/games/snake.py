"""Snake: one snake on a board, and one choice per step for the whole snake.

Entities and features:
    Head: x, y, the cell of the head, from 0 to board_size - 1; y grows upward.
    Segment: x, y, a cell of the body; one per food eaten so far.
    Food: x, y, the cell of the only food; none when the snake fills the board.
Actions:
    Move: UP, DOWN, LEFT or RIGHT, one choice for the whole observation.
Reward:
    1 for each food.
Terminated when:
    the head moves into a wall or the body, or the snake fills the board. The cell that the tail
    leaves in the same step counts as free.
Truncated when:
    the snake has not eaten for as many steps as the board has cells, enough to visit each cell.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games import snake
    >>> [episode] = snake.run(RandomAgent(seed=1), board_size=6)
    >>> episode.length > 0
    True
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs, SplitMix64, UsageError
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
class Head:
    """The head of the snake."""

    x: int
    y: int


@dataclass(slots=True)
class Segment:
    """A cell of the body."""

    x: int
    y: int


@dataclass(slots=True)
class Food:
    """Food, which makes the snake grow."""

    x: int
    y: int


def play(agent: Agent, *, seed: int, board_size: int = 10) -> None:
    """Plays one episode.

    Args:
        agent: chooses the moves.
        seed: determines where the snake starts and where food appears.
        board_size: cells along each side, 2 or more.

    Raises:
        UsageError: board_size below 2.
    """
    if board_size < 2:
        raise UsageError(f"snake: board_size must be at least 2, got {board_size}")
    rng = SplitMix64(seed)
    cells = [(x, y) for x in range(board_size) for y in range(board_size)]
    head = Head(*rng.choice(cells))
    body: list[Segment] = []  # tail first
    food = _new_food(cells, head, body, rng)
    steps_since_food = 0
    while True:
        obs = Obs(score=len(body)).entities([head]).entities(body).entities(food)
        if not food or steps_since_food == len(cells):
            agent.game_over(obs, truncated=bool(food))
            return
        move = agent.act(obs, Move)
        if move is None:
            return
        x, y = head.x + move.dx, head.y + move.dy
        is_inside = 0 <= x < board_size and 0 <= y < board_size
        if not is_inside or Segment(x, y) in body[1:]:
            agent.game_over(obs)
            return
        body.append(Segment(head.x, head.y))
        head.x, head.y = x, y
        if Food(x, y) in food:
            food = _new_food(cells, head, body, rng)
            steps_since_food = 0
        else:
            del body[0]
            steps_since_food += 1


def _new_food(
    cells: list[tuple[int, int]], head: Head, body: list[Segment], rng: SplitMix64
) -> list[Food]:
    taken = {(head.x, head.y), *((segment.x, segment.y) for segment in body)}
    free = [cell for cell in cells if cell not in taken]
    return [Food(*rng.choice(free))] if free else []


snake = Game(play, entities=(Head, Segment, Food), actions=(Move,), max_entities={"Segment": 99})
