"""Tower defense: towers choose their targets, a builder builds. Up to hundreds of enemies.

Two classes of actors, scores in the hundreds, episodes of about 100 turns.
"""

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Categorical, Game, Obs, SelectEntity
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Tower:
    x: float
    level: int = 1


@dataclass
class Builder:
    gold: int = 10
    lives: int = 200


@dataclass(eq=False)
class Enemy:
    x: float
    health: int
    speed: float
    is_boss: bool = False


@dataclass(eq=False)
class Plot:
    x: float


class Build(Enum):
    WAIT = 0
    TOWER = 1
    UPGRADE = 2


HIT, BUILD, PLACE = SelectEntity(Enemy), Categorical(Build), SelectEntity(Plot)
LENGTH, REACH, PRICE = 30.0, 7.0, 8


def wave(rng: random.Random, turn: int) -> list[Enemy]:
    count = rng.randint(1, 3 + turn // 8)
    found = [
        Enemy(0.0, rng.randint(2, 6 + turn // 15), rng.uniform(0.2, 0.5)) for _ in range(count)
    ]
    return [*found, Enemy(0.0, 20 + turn // 2, 0.25, True)] if turn % 25 == 24 else found


def play(agent: Agent, *, seed: int, num_turns: int = 100) -> None:
    rng, score = random.Random(seed), 0
    towers, builder, enemies = [Tower(8.0), Tower(16.0)], Builder(), list[Enemy]()
    plots = [Plot(float(x)) for x in range(4, 30, 3)]

    def seen() -> Obs:
        obs = Obs(score).actors(towers, HIT).actors([builder], BUILD)
        obs.entities(enemies).entities(plots)
        obs.mask(HIT, [[abs(t.x - enemy.x) <= REACH for enemy in enemies] for t in towers])
        is_rich = builder.gold >= PRICE
        return obs.mask(BUILD, [[True, is_rich and bool(plots), is_rich]])

    for turn in range(num_turns):
        enemies += wave(rng, turn)
        answer = agent.act(seen(), HIT, BUILD)
        if answer is None:
            return
        targets, [build] = answer
        for tower, target in zip(towers, targets, strict=True):
            if target is not None:
                target.health -= tower.level
        killed = [enemy for enemy in enemies if enemy.health <= 0]
        score += sum(20 if enemy.is_boss else 2 for enemy in killed)
        builder.gold += len(killed)
        if build is Build.TOWER:
            obs = Obs(score).actors([builder], PLACE).entities(plots).entities(towers)
            places = agent.act(obs, PLACE)
            if places is None or (plot := places[0]) is None:
                return
            plots.remove(plot)
            towers.append(Tower(plot.x))
        elif build is Build.UPGRADE:
            min(towers, key=lambda tower: tower.level).level += 1
        builder.gold -= PRICE if build is not Build.WAIT else 0
        for enemy in enemies:
            enemy.x += enemy.speed
        builder.lives -= sum(e.x > LENGTH and e.health > 0 for e in enemies)
        enemies = [enemy for enemy in enemies if enemy.health > 0 and enemy.x <= LENGTH]
        if builder.lives <= 0:
            break
    agent.game_over(seen(), truncated=builder.lives > 0)


tower_defense = Game(
    play,
    entities=(Tower, Builder, Enemy, Plot),
    actions=(HIT, BUILD, PLACE),
    name="tower_defense",
)


class Scripted(ScriptedAgent):
    """Hits the weakest enemy in range, builds in the middle, then upgrades."""

    def choose(self, obs: Obs, *actions: object) -> object:
        if PLACE in actions:
            return [min(obs.of_class(Plot), key=lambda plot: abs(plot.x - LENGTH / 2))]
        weakest = [
            min(enemies, key=lambda enemy: (enemy.health, -enemy.x), default=None)
            for enemies in obs.allowed(HIT)
        ]
        [allowed] = obs.allowed(BUILD)
        wanted = (Build.TOWER, Build.UPGRADE, Build.WAIT)
        return weakest, [next(each for each in wanted if each in allowed)]
