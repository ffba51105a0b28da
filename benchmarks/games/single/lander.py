"""Lander: two thrusters against gravity. Continuous actions, physics, scores in the hundreds."""

import random
from dataclasses import dataclass

from entity_env import Continuous, Game, Obs
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Craft:
    x: float
    y: float
    vx: float
    vy: float


THRUST = Continuous("Thrust", low=[-1, 0], high=[1, 1], labels=["side", "up"])
GRAVITY, STEP_S = 1.0, 0.1


def play(agent: Agent, *, seed: int, max_steps: int = 200) -> None:
    rng = random.Random(seed)
    craft = Craft(rng.uniform(-3, 3), rng.uniform(4, 6), rng.uniform(-1, 1), rng.uniform(-1, 0))
    score = 0.0
    for _ in range(max_steps):
        thrust = agent.act(Obs(score).actors([craft]), THRUST)
        if thrust is None:
            return
        side, up = (float(each) for each in thrust[0])
        craft.vx += side * STEP_S
        craft.vy += (2 * up - GRAVITY) * STEP_S
        craft.x += craft.vx * STEP_S
        craft.y += craft.vy * STEP_S
        score -= 0.1 * (up + abs(side))  # fuel
        if craft.y <= 0:
            score += 100 - 40 * abs(craft.x) - 40 * abs(craft.vx) - 40 * abs(craft.vy)
            agent.game_over(Obs(score).actors([craft]))
            return
    agent.game_over(Obs(score).actors([craft]), truncated=True)


lander = Game(play, entities=(Craft,), actions=(THRUST,), name="lander")


class Scripted(ScriptedAgent):
    """Steers to the middle and brakes more the lower it is."""

    def choose(self, obs: Obs, *actions: object) -> object:
        [craft] = obs.of_class(Craft)
        side = -0.6 * craft.x - 1.5 * craft.vx
        up = 0.5 + (-0.15 - 0.3 * craft.y - craft.vy)
        return [[min(max(side, -1), 1), min(max(up, 0), 1)]]
