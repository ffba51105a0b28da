"""Simple spread from MPE: three agents cover three landmarks together. Cooperation."""

from itertools import permutations

from mpe2 import simple_spread_v3

from benchmarks.games.multi.features import numbers, pairs, towards
from entity_env import Obs
from entity_env.agents import ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.interop.pettingzoo import from_pettingzoo

simple_spread = from_pettingzoo(simple_spread_v3.parallel_env, name="simple_spread")


class Scripted(ScriptedAgent):
    """Goes to its landmark in the assignment with the shortest total distance."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        shown = numbers(obs)
        landmarks, agents = pairs(shown[4:10]), [(0.0, 0.0), *pairs(shown[10:14])]

        def total(order: tuple[tuple[float, float], ...]) -> float:
            ways = zip(order, agents, strict=True)
            return sum(float(((x - u) ** 2 + (y - v) ** 2) ** 0.5) for (x, y), (u, v) in ways)

        x, y = min(permutations(landmarks), key=total)[0]
        way = (x - 0.5 * shown[0], y - 0.5 * shown[1])
        is_there = max(abs(way[0]), abs(way[1])) < 0.05
        return obs.allowed(actions[0])[0 if is_there else towards(way)]
