"""Fire brigade: three crews in a burning forest of about 200 trees. Hundreds of entities."""

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Crew:
    x: int
    y: int


@dataclass
class Tree:
    x: int
    y: int
    burning: int = 0  # turns on fire so far


class Order(Enum):
    SPRAY = (0, 0)
    UP = (0, 1)
    DOWN = (0, -1)
    LEFT = (-1, 0)
    RIGHT = (1, 0)


ORDER = Categorical(Order)
SPREAD, BURNS_FOR = 0.06, 8


def play(
    agent: Agent, *, seed: int, board_size: int = 15, num_crews: int = 3, max_turns: int = 60
) -> None:
    rng, burned, size = random.Random(seed), 0, board_size
    cells = [(x, y) for x in range(size) for y in range(size)]
    forest = {cell: Tree(*cell) for cell in cells if rng.random() < 0.9}
    crews = [Crew(rng.randrange(size), rng.randrange(size)) for _ in range(num_crews)]
    for cell in rng.sample(sorted(forest), 5):
        forest[cell].burning = 1

    def seen() -> Obs:
        obs = Obs(-burned).actors(crews).entities(list(forest.values()))
        inside = range(size)
        return obs.mask(
            ORDER,
            [
                [c.x + o.value[0] in inside and c.y + o.value[1] in inside for o in Order]
                for c in crews
            ],
        )

    for _ in range(max_turns):
        orders = agent.act(seen(), ORDER)
        if orders is None:
            return
        for crew, order in zip(crews, orders, strict=True):
            crew.x, crew.y = crew.x + order.value[0], crew.y + order.value[1]
            for dx in (-1, 0, 1) if order is Order.SPRAY else ():
                for dy in (-1, 0, 1):
                    if tree := forest.get((crew.x + dx, crew.y + dy)):
                        tree.burning = 0
        fires = [tree for tree in forest.values() if tree.burning]
        for tree in fires:
            tree.burning += 1
            for order in list(Order)[1:]:
                near = forest.get((tree.x + order.value[0], tree.y + order.value[1]))
                if near and not near.burning and rng.random() < SPREAD:
                    near.burning = 1
            if tree.burning > BURNS_FOR:
                del forest[tree.x, tree.y]
                burned += 1
        if not fires:
            break
    agent.game_over(seen(), truncated=any(tree.burning for tree in forest.values()))


fire_brigade = Game(play, entities=(Crew, Tree), actions=(ORDER,), name="fire_brigade")


class Scripted(ScriptedAgent):
    """Each crew walks to the nearest fire and sprays next to it."""

    def choose(self, obs: Obs, *actions: object) -> object:
        fires = [tree for tree in obs.of_class(Tree) if tree.burning]

        def order(crew: Crew, allowed: list[Order]) -> Order:
            if not fires:
                return Order.SPRAY
            fire = min(fires, key=lambda each: abs(each.x - crew.x) + abs(each.y - crew.y))
            dx, dy = fire.x - crew.x, fire.y - crew.y
            if max(abs(dx), abs(dy)) <= 1:
                return Order.SPRAY
            return min(allowed, key=lambda each: abs(dx - each.value[0]) + abs(dy - each.value[1]))

        return [order(*each) for each in zip(obs.of_class(Crew), obs.allowed(ORDER), strict=True)]
