"""Leduc hold'em from PettingZoo and RLCard: poker with six cards, hidden information."""

from pettingzoo.classic import leduc_holdem_v4

from benchmarks.games.multi.features import numbers
from entity_env import Obs
from entity_env.agents import ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.interop.pettingzoo import from_pettingzoo

leduc_holdem = from_pettingzoo(leduc_holdem_v4.env, name="leduc_holdem")

CALL, RAISE, FOLD, CHECK = range(4)


class Scripted(ScriptedAgent):
    """Raises with a pair or a king; else checks, or calls with a queen and folds a jack."""

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        shown = numbers(obs)
        rank = shown[:3].index(1)
        is_pair = shown[3 + rank] == 1
        wanted = [RAISE, CALL] if is_pair or rank == 2 else [CHECK, FOLD if rank == 0 else CALL]
        allowed = {each.value: each for each in obs.allowed(actions[0])}
        return next(allowed[each] for each in [*wanted, CHECK, FOLD] if each in allowed)
