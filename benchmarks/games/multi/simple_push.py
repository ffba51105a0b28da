"""Simple push from MPE: an agent seeks its landmark, an adversary keeps it away."""

from mpe2 import simple_push_v3

from benchmarks.games.multi.features import numbers, pairs, towards
from entity_env import Obs
from entity_env.agents import ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.interop.pettingzoo import from_pettingzoo

simple_push = from_pettingzoo(simple_push_v3.parallel_env, name="simple_push")


class Scripted(ScriptedAgent):
    """The agent goes to its goal, the adversary to the landmark nearest to the agent."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        shown = numbers(obs)
        if len(shown) == 8:  # the adversary, which does not know the goal
            x, y = shown[6:8]
            landmarks = pairs(shown[2:6])
            way = min(landmarks, key=lambda each: (each[0] - x) ** 2 + (each[1] - y) ** 2)
        else:
            way = (shown[2], shown[3])
        slowed = (way[0] - 0.5 * shown[0], way[1] - 0.5 * shown[1])
        return obs.allowed(actions[0])[towards(slowed)]
