"""Drones: four drones fly over beacons. Continuous actions for several actors."""

import random
from dataclasses import dataclass

from entity_env import Continuous, Game, Obs
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Drone:
    x: float
    y: float
    vx: float = 0.0
    vy: float = 0.0


@dataclass
class Beacon:
    x: float
    y: float


PUSH = Continuous("Push", low=[-1, -1], high=[1, 1], labels=["x", "y"])
REACH, STEP_S, DRAG = 0.12, 0.1, 0.9


def play(agent: Agent, *, seed: int, num_drones: int = 4, num_steps: int = 100) -> None:
    rng, score = random.Random(seed), 0
    drones = [Drone(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(num_drones)]
    beacons = [Beacon(rng.uniform(-1, 1), rng.uniform(-1, 1)) for _ in range(num_drones + 2)]
    for _ in range(num_steps):
        pushes = agent.act(Obs(score).actors(drones).entities(beacons), PUSH)
        if pushes is None:
            return
        for drone, (ax, ay) in zip(drones, pushes.tolist(), strict=True):
            drone.vx, drone.vy = DRAG * drone.vx + STEP_S * ax, DRAG * drone.vy + STEP_S * ay
            drone.x = min(max(drone.x + STEP_S * drone.vx, -1.0), 1.0)
            drone.y = min(max(drone.y + STEP_S * drone.vy, -1.0), 1.0)
            for beacon in beacons:
                if (drone.x - beacon.x) ** 2 + (drone.y - beacon.y) ** 2 < REACH**2:
                    score += 1
                    beacon.x, beacon.y = rng.uniform(-1, 1), rng.uniform(-1, 1)
    agent.game_over(Obs(score).actors(drones).entities(beacons), truncated=True)


drones = Game(play, entities=(Drone, Beacon), actions=(PUSH,), name="drones")


class Scripted(ScriptedAgent):
    """Each drone flies to its nearest beacon."""

    def choose(self, obs: Obs, *actions: object) -> object:
        pushes = []
        for drone in obs.of_class(Drone):
            ways = [(each.x - drone.x, each.y - drone.y) for each in obs.of_class(Beacon)]
            x, y = min(ways, key=lambda way: way[0] ** 2 + way[1] ** 2)
            wanted = (4 * x - drone.vx, 4 * y - drone.vy)
            pushes.append([min(max(each, -1.0), 1.0) for each in wanted])
        return pushes
