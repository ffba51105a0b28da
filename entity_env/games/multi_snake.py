"""Multi-snake: several snakes of different colors share a board, and each of them acts.

The snakes move one after another, in color order. A snake whose move would end the game stays where
it is; later snakes still move.

Entities and features:
    Head: x, y, the cell of a head, from 0 to board_size - 1 (y grows upward); color, the number of
        the snake, from 0 to num_snakes - 1. The heads are the actors.
    Segment: x, y, a cell of a body; color, the number of its snake.
    Food: x, y, a cell with food; color, the number of the snake that may eat it. One per color.
    Global: step, the number of steps taken so far.
Actions:
    Move: UP, DOWN, LEFT or RIGHT, one choice for each head.
Reward:
    1 / (max_snake_length - 1) / num_snakes for food of the snake's own color, until the snake is
    max_snake_length long; 1 in total for a perfect episode.
Terminated when:
    a head runs into a wall, into a snake (its own tail included) or into food of another color; or
    all snakes are max_snake_length long.
Truncated when:
    max_step steps have been taken.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games import multi_snake
    >>> episodes = multi_snake.run(RandomAgent(seed=1), episodes=3, num_snakes=4)
    >>> [episode.terminated for episode in episodes]
    [True, True, True]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from entity_env import Categorical, Game, Obs, SplitMix64, UsageError
from entity_env.agents import Agent


class Move(Enum):
    """Direction of a move."""

    UP = (0, 1)
    DOWN = (0, -1)
    LEFT = (-1, 0)
    RIGHT = (1, 0)

    def __init__(self, dx: int, dy: int) -> None:
        self.dx = dx
        self.dy = dy


MOVE: Final = Categorical(Move)


@dataclass(slots=True)
class Head:
    """The head of a snake: it moves and eats."""

    x: int
    y: int
    color: int


@dataclass(slots=True)
class Segment:
    """A cell of a body."""

    x: int
    y: int
    color: int


@dataclass(slots=True)
class Food:
    """Food that only the snake of the same color may eat."""

    x: int
    y: int
    color: int


@dataclass(slots=True)
class Clock:
    """Step counter of the episode."""

    step: int


def play(
    agent: Agent,
    *,
    seed: int,
    board_size: int = 10,
    num_snakes: int = 2,
    max_snake_length: int = 11,
    max_step: int = 180,
) -> None:
    """Plays episodes until the agent stops.

    Args:
        agent: moves all snakes.
        seed: seed of the first episode; later episodes use `agent.seed`.
        board_size: cells along each side.
        num_snakes: number of snakes on the board.
        max_snake_length: length at which a snake stops growing, in cells, including its head.
        max_step: steps after which an episode is truncated.

    Raises:
        UsageError: see `require_playable`.
    """
    require_playable(
        board_size=board_size,
        num_snakes=num_snakes,
        max_snake_length=max_snake_length,
        max_step=max_step,
    )
    board = _Board(board_size, num_snakes, max_snake_length)
    while True:
        board.reset(seed)
        goes_on = True
        while goes_on and board.clock.step < max_step:
            moves = agent.act(board.obs(), MOVE)
            if moves is None:
                return
            goes_on = board.move(moves)
        agent.game_over(board.obs(), truncated=goes_on)
        seed = agent.seed


def require_playable(
    *, board_size: int, num_snakes: int, max_snake_length: int, max_step: int
) -> None:
    """Raises UsageError for a number that is too small, or a board too small for its contents."""
    if min(num_snakes, max_snake_length - 1, max_step) < 1:
        raise UsageError(
            "multi_snake: num_snakes and max_step must be at least 1, max_snake_length 2, "
            f"got {num_snakes}, {max_step} and {max_snake_length}"
        )
    if board_size < 1 or board_size**2 < num_snakes * (max_snake_length + 1):
        raise UsageError(
            f"multi_snake: a board_size of {board_size} is too small for {num_snakes} snakes of "
            f"length {max_snake_length} and their food: {num_snakes * (max_snake_length + 1)} cells"
        )


class _Board:
    """Snakes and food, with an index of occupied cells for `move`."""

    def __init__(self, board_size: int, num_snakes: int, max_snake_length: int) -> None:
        side = range(board_size)
        self.cells = [(x, y) for x in side for y in side]
        self.walls = {(x, y) for x in side for y in (-1, board_size)}
        self.walls |= {(x, y) for x in (-1, board_size) for y in side}
        self.num_snakes = num_snakes
        self.max_eaten = (max_snake_length - 1) * num_snakes
        self.max_segments = max_snake_length - 1
        self.rng = SplitMix64()

    def reset(self, seed: int) -> None:
        self.rng.seed(seed)
        self.clock = Clock(0)
        self.num_eaten = 0
        self.blocked = self.walls.copy()  # walls and snakes
        self.food_at: dict[tuple[int, int], Food] = {}
        self.heads = [self._new_head(color) for color in range(self.num_snakes)]
        self.bodies: list[deque[Segment]] = [deque() for _ in self.heads]  # tail first
        self.segments: list[Segment] = []  # of all bodies
        self.food = [self._place(Food(0, 0, color)) for color in range(self.num_snakes)]

    def obs(self) -> Obs:
        obs = Obs(self.num_eaten / self.max_eaten).globals(self.clock)
        return obs.actors(self.heads).entities(self.segments).entities(self.food)

    def move(self, moves: Sequence[Move]) -> bool:
        """Moves the snakes; True if the game continues."""
        self.clock.step += 1
        eaten = []
        goes_on = True
        for head, body, move in zip(self.heads, self.bodies, moves, strict=True):
            cell = (head.x + move.dx, head.y + move.dy)
            food = self.food_at.get(cell)
            if cell in self.blocked or (food is not None and food.color != head.color):
                goes_on = False
                continue
            if food is not None:
                eaten.append(self.food_at.pop(cell))
            if food is not None and len(body) < self.max_segments:
                self._grow(head, body)
            else:
                self._follow(head, body)
            self.blocked.add(cell)
            head.x, head.y = cell
        for food in eaten:  # after all moves, so no snake runs into new food in this step
            self._place(food)
        return goes_on and self.num_eaten < self.max_eaten

    def _grow(self, head: Head, body: deque[Segment]) -> None:
        segment = Segment(head.x, head.y, head.color)
        body.append(segment)
        self.segments.append(segment)
        self.num_eaten += 1

    def _follow(self, head: Head, body: deque[Segment]) -> None:
        """Moves the tail segment to the cell of the head, which frees the tail's cell.

        Without a body, frees the cell of the head.
        """
        if not body:
            self.blocked.remove((head.x, head.y))
            return
        segment = body.popleft()
        self.blocked.remove((segment.x, segment.y))
        segment.x, segment.y = head.x, head.y
        body.append(segment)

    def _new_head(self, color: int) -> Head:
        cell = self._free_cell()
        self.blocked.add(cell)
        return Head(*cell, color)

    def _place(self, food: Food) -> Food:
        cell = self._free_cell()
        self.food_at[cell] = food
        food.x, food.y = cell
        return food

    def _free_cell(self) -> tuple[int, int]:
        while True:
            cell = self.rng.choice(self.cells)
            if cell not in self.blocked and cell not in self.food_at:
                return cell


MULTI_SNAKE_NAMES: Final = {
    "SnakeHead": "Head",
    "SnakeBody": "Segment",
    "move": "Move",
    **{label.lower(): label for label in Move.__members__},
}
"""This game's name for each name of entity-gym's MultiSnake. As the `names` of `load_agent`, this
mapping loads an agent that enn-trainer trained on entity-gym's version."""

multi_snake = Game(
    play,
    entities=(Head, Segment, Food),
    actions=(MOVE,),
    global_features=Clock,
    max_entities={"Segment": 20},
)
