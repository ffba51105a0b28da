"""Knapsack: take items while they fit. Short episodes of 3 to 9 decisions, shrinking masks."""

import random
from dataclasses import dataclass

from entity_env import Game, Obs, SelectEntity
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Bag:
    room: int


@dataclass(eq=False)
class Item:
    weight: int
    value: int


TAKE = SelectEntity(Item)


def play(agent: Agent, *, seed: int, num_items: int = 15, room: int = 25) -> None:
    rng, bag, score = random.Random(seed), Bag(room), 0
    items = [Item(rng.randint(1, 12), rng.randint(1, 20)) for _ in range(num_items)]
    while any(item.weight <= bag.room for item in items):
        obs = Obs(score).actors([bag]).entities(items)
        taken = agent.act(obs.mask(TAKE, [[item.weight <= bag.room for item in items]]), TAKE)
        if taken is None or (item := taken[0]) is None:
            return
        items.remove(item)
        bag.room -= item.weight
        score += item.value
    agent.game_over(Obs(score))


knapsack = Game(play, entities=(Bag, Item), actions=(TAKE,), name="knapsack")


class Scripted(ScriptedAgent):
    """Takes the item with the highest value per weight."""

    def choose(self, obs: Obs, *actions: object) -> object:
        return [max(obs.allowed(TAKE)[0], key=lambda item: item.value / item.weight)]
