"""Skirmish from `examples/skirmish.py`: two teams of four units take turns."""

from entity_env import Obs
from entity_env.agents import ScriptedAgent
from examples.skirmish import STEP, Foe, Step, Unit, skirmish as skirmish


class Scripted(ScriptedAgent):
    """Every unit aims at the weakest foe in range; if there is none, goes to the weakest of all."""

    def choose(self, obs: Obs, *actions: object) -> object:
        foes = obs.of_class(Foe)
        steps, targets = [], []
        for unit, allowed in zip(obs.of_class(Unit), obs.allowed(STEP), strict=True):

            def gap(foe: Foe, step: Step = Step.STAY, unit: Unit = unit) -> int:
                dx, dy = step.value
                return max(abs(foe.x - unit.x - dx), abs(foe.y - unit.y - dy))

            target = min(foes, key=lambda foe: (gap(foe) > unit.kind.value[1], foe.health))
            is_near = gap(target) <= unit.kind.value[1]
            targets.append(target)
            steps.append(Step.STAY if is_near else min(allowed, key=lambda s: gap(target, s)))
        return steps, targets
