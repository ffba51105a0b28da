"""Bots for tic-tac-toe: they see the game's own objects and answer with one of its actions.

Watch it:      entity-env play tic_tac_toe --agent examples/bot.py:Careful --agent random
Play it:       entity-env play tic_tac_toe --agent human --agent examples/bot.py:Careful
Compare:       entity-env eval tic_tac_toe --agents random,examples/bot.py:Careful
Learn from it: VecEnv(against(tic_tac_toe, Careful), num_envs=64), see `entity_env.agents.bots`
"""

import random

from entity_env import Obs
from entity_env.agents import ScriptedAgent
from entity_env.games.tic_tac_toe import Mine, Square, Theirs

LINES = [
    *([Square((x, y)) for x in range(3)] for y in range(3)),
    *([Square((x, y)) for y in range(3)] for x in range(3)),
    [Square((i, i)) for i in range(3)],
    [Square((i, 2 - i)) for i in range(3)],
]


class Careful(ScriptedAgent):
    """Completes a line, else blocks one, else takes the center or a random square."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def choose(self, obs: Obs, *actions: object) -> Square:
        free = obs.allowed(Square)
        for owner in (Mine, Theirs):
            taken = [Square((each.x, each.y)) for each in obs.of_class(owner)]
            for line in LINES:
                left = [square for square in line if square not in taken]
                if len(left) == 1 and left[0] in free:
                    return left[0]
        return Square.B2 if Square.B2 in free else self.rng.choice(free)


def corners(obs: Obs, *actions: object) -> Square:
    """A bot can also be a function. This one takes a corner, or else the first free square."""
    free: list[Square] = obs.allowed(Square)
    return next((each for each in free if each.value in [(0, 0), (2, 2), (0, 2), (2, 0)]), free[0])
