"""Simple tag from MPE: three adversaries hunt a faster agent. Two different roles."""

from mpe2 import simple_tag_v3

from benchmarks.games.multi.features import numbers, pairs, towards
from entity_env import Obs
from entity_env.agents import ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.interop.pettingzoo import from_pettingzoo

simple_tag = from_pettingzoo(simple_tag_v3.parallel_env, name="simple_tag")


class Scripted(ScriptedAgent):
    """Adversaries run to the agent; the agent flees the nearest one, but stays near the center."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        shown = numbers(obs)
        if len(shown) == 16:  # an adversary: the agent is the last of the others
            x, y = shown[12:14]
        else:
            near_x, near_y = min(pairs(shown[8:14]), key=lambda way: way[0] ** 2 + way[1] ** 2)
            x, y = -near_x - shown[2] ** 5, -near_y - shown[3] ** 5
        return obs.allowed(actions[0])[towards((x, y))]
