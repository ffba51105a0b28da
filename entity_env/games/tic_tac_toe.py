"""Tic-tac-toe: two agents take turns, and a mask excludes the squares that are taken.

Entities and features:
    Empty: x, y, a free square, from 0 to 2; y grows upward.
    Mine: x, y, a square of the observing agent.
    Theirs: x, y, a square of the other agent.
Actions:
    Square: A1, B1, C1, A2, B2, C2, A3, B3 or C3, as on a chessboard: A to C stand for x = 0 to 2,
        and 1 to 3 for y = 0 to 2. One choice for the whole observation; taken squares are masked
        out.
Reward:
    at the end, 1 for the winner and -1 for the loser; 0 for both in a draw.
Terminated when:
    three squares in a row, column or diagonal belong to one agent, or all squares are taken.
Truncated when:
    never.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games import tic_tac_toe
    >>> one, other = tic_tac_toe.run(RandomAgent(seed=1), RandomAgent(seed=2))
    >>> one.reward + other.reward
    0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from entity_env import Game, Obs, SplitMix64
from entity_env.agents import Agent


class Square(Enum):
    """One of the nine squares, with its x and y."""

    A1 = (0, 0)
    B1 = (1, 0)
    C1 = (2, 0)
    A2 = (0, 1)
    B2 = (1, 1)
    C2 = (2, 1)
    A3 = (0, 2)
    B3 = (1, 2)
    C3 = (2, 2)


@dataclass(slots=True)
class Empty:
    """A free square."""

    x: int
    y: int


@dataclass(slots=True)
class Mine:
    """A square of the observing agent."""

    x: int
    y: int


@dataclass(slots=True)
class Theirs:
    """A square of the other agent."""

    x: int
    y: int


Owners = Mapping[Square, int]
"""Agent that owns each taken square."""

LINES: Final = (
    *(tuple(Square((x, y)) for x in range(3)) for y in range(3)),
    *(tuple(Square((x, y)) for y in range(3)) for x in range(3)),
    tuple(Square((i, i)) for i in range(3)),
    tuple(Square((i, 2 - i)) for i in range(3)),
)
"""Rows, columns and diagonals."""


def play(agents: Sequence[Agent], *, seed: int) -> None:
    """Plays one episode.

    Args:
        agents: the two players.
        seed: determines which agent begins.
    """
    owners: dict[Square, int] = {}
    turn = SplitMix64(seed).randrange(2)
    while not _has_won(owners, 1 - turn) and len(owners) < len(Square):
        square = agents[turn].act(_observe(owners, turn), Square)
        if square is None:
            return
        owners[square] = turn
        turn = 1 - turn
    for i, agent in enumerate(agents):
        agent.game_over(_observe(owners, i, score=_has_won(owners, i) - _has_won(owners, 1 - i)))


def _has_won(owners: Owners, agent: int) -> bool:
    return any(all(owners.get(square) == agent for square in line) for line in LINES)


def _observe(owners: Owners, agent: int, score: int = 0) -> Obs:
    return (
        Obs(score)
        .entities([Empty(*square.value) for square in Square if square not in owners])
        .entities([Mine(*square.value) for square, owner in owners.items() if owner == agent])
        .entities([Theirs(*square.value) for square, owner in owners.items() if owner != agent])
        .mask(Square, [square not in owners for square in Square])
    )


tic_tac_toe = Game(
    play,
    entities=(Empty, Mine, Theirs),
    actions=(Square,),
    num_agents=2,
    max_entities={"Empty": 9, "Mine": 5, "Theirs": 5},
    # There are few positions, so one block is enough. The entropy bonus stays constant, so the
    # agent explores until the end of training, and tries every reply that could beat it.
    training={
        "preset": "board",
        "net": {"n_layer": 1, "n_head": 2},
        "anneal_entropy": False,
    },
)
