"""Connect four from PettingZoo: a board game in turns."""

import numpy as np
from pettingzoo.classic import connect_four_v3

from benchmarks.games.multi.features import numbers
from entity_env import Obs
from entity_env.agents import ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.interop.pettingzoo import from_pettingzoo

connect_four = from_pettingzoo(connect_four_v3.env, name="connect_four")

ROWS, COLUMNS = 6, 7
DIRECTIONS = ((0, 1), (1, 0), (1, 1), (1, -1))


def wins(taken: set[tuple[int, int]], row: int, column: int) -> bool:
    """Whether a stone at this place completes four."""
    for dy, dx in DIRECTIONS:
        line = [(row + i * dy, column + i * dx) in taken or i == 0 for i in range(-3, 4)]
        if any(all(line[i : i + 4]) for i in range(4)):
            return True
    return False


class Scripted(ScriptedAgent):
    """Completes four, else blocks four, else plays close to the middle."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        board = np.array(numbers(obs)).reshape(ROWS, COLUMNS, 2)
        stones = [{(int(y), int(x)) for y, x in np.argwhere(board[:, :, i])} for i in (0, 1)]
        height = board.sum(axis=(0, 2)).astype(int)

        def worth(choice: object) -> tuple[bool, bool, int]:
            column = int(choice.value)  # type: ignore[attr-defined]
            row = ROWS - 1 - int(height[column])
            return wins(stones[0], row, column), wins(stones[1], row, column), -abs(3 - column)

        return max(obs.allowed(actions[0]), key=worth)
