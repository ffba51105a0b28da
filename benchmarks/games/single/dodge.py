"""Dodge: a ship with inertia between falling rocks. Physics, episodes of up to 400 decisions."""

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Ship:
    x: float
    vx: float = 0.0


@dataclass
class Rock:
    x: float
    y: float
    vx: float
    vy: float


class Thrust(Enum):
    LEFT = -1
    OFF = 0
    RIGHT = 1


WIDTH, HEIGHT, RADIUS = 6.0, 8.0, 0.5


def play(agent: Agent, *, seed: int, max_steps: int = 400) -> None:
    rng, ship, score = random.Random(seed), Ship(0.0), 0.0
    rocks: list[Rock] = []
    for step in range(max_steps):
        if step % 5 == 0:
            x, vx = rng.uniform(-WIDTH, WIDTH), rng.uniform(-0.1, 0.1)
            rocks.append(Rock(x, HEIGHT, vx, -rng.uniform(0.15, 0.35)))
        thrust = agent.act(Obs(score).entities([ship]).entities(rocks), Thrust)
        if thrust is None:
            return
        ship.vx = 0.9 * ship.vx + 0.06 * thrust.value
        ship.x += ship.vx
        for rock in rocks:
            rock.x, rock.y = rock.x + rock.vx, rock.y + rock.vy
        is_hit = any((rock.x - ship.x) ** 2 + rock.y**2 < RADIUS**2 for rock in rocks)
        if is_hit or abs(ship.x) > WIDTH:
            agent.game_over(Obs(score))
            return
        rocks = [rock for rock in rocks if rock.y > -1]
        score += 0.1
    agent.game_over(Obs(score).entities([ship]).entities(rocks), truncated=True)


dodge = Game(play, entities=(Ship, Rock), actions=(Thrust,), name="dodge")


class Scripted(ScriptedAgent):
    """Simulates each thrust; takes the one clearest of rocks and walls, then nearest the middle."""

    def choose(self, obs: Obs, *actions: object) -> object:
        [ship], rocks = obs.of_class(Ship), obs.of_class(Rock)

        def clear(thrust: Thrust) -> tuple[float, float]:
            x, vx, least = ship.x, ship.vx, 9.0
            for step in range(1, 21):
                vx = 0.9 * vx + 0.06 * thrust.value * (step < 12)
                x += vx
                for rock in rocks:
                    dx, dy = rock.x + step * rock.vx - x, rock.y + step * rock.vy
                    least = min(least, dx * dx + dy * dy)
                if abs(x) > WIDTH - 0.3:
                    least = 0.0
            return (min(least, 1.0), -abs(x))

        return max(Thrust, key=clear)
