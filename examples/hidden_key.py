"""Hidden key: the first room shows the color of a key; the last one asks which door it opens.

Play it:   entity-env play examples/hidden_key.py --agent human
Train it:  entity-env train examples/hidden_key.py --steps 100000 --set-train net.memory=32
           (opens the right door every time; without memory, one time in four)
"""

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent


class Color(Enum):
    RED = 0
    GREEN = 1
    BLUE = 2
    YELLOW = 3


@dataclass
class Room:
    left: int  # rooms between this one and the doors
    key: Color | None  # lies in the first room only


DOOR = Categorical(Color)  # any choice leads to the next room, until the doors are reached


def play(agent: Agent, *, seed: int, rooms: int = 10) -> None:
    key = random.Random(seed).choice(list(Color))
    choice: Color | None = None
    for left in range(rooms, -1, -1):
        room = Room(left, key if left == rooms else None)
        answer = agent.act(Obs(0.0).actors([room]), DOOR)
        if answer is None:  # stop: the program that runs this game is closing it
            return
        (choice,) = answer
    agent.game_over(Obs(1.0 if choice is key else 0.0))


hidden_key = Game(play, entities=(Room,), actions=(DOOR,), name="hidden_key")
