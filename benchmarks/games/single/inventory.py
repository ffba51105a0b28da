"""Inventory: order three products every day while their demand changes.

Long episodes of 300 decisions, scores in the thousands.
"""

import random
from dataclasses import dataclass
from enum import Enum

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Product:
    price: float
    demand: float  # mean per day
    stock: int = 20
    coming: int = 0  # arrives tomorrow


class Order(Enum):
    NONE = 0
    FEW = 5
    SOME = 10
    MANY = 20


@dataclass
class Calendar:
    days_left: int


ORDER = Categorical(Order)
MAX_STOCK = 100


def play(agent: Agent, *, seed: int, num_days: int = 300, num_products: int = 3) -> None:
    rng, score = random.Random(seed), 0.0
    products = [Product(rng.uniform(1.5, 2.5), rng.uniform(1, 15)) for _ in range(num_products)]
    for day in range(num_days):
        obs = Obs(score).actors(products).globals(Calendar(num_days - day))
        orders = agent.act(obs, ORDER)
        if orders is None:
            return
        for product, order in zip(products, orders, strict=True):
            if rng.random() < 0.05:
                product.demand = rng.uniform(1, 15)
            wanted = round(rng.uniform(0.5, 1.5) * product.demand)
            sold = min(wanted, product.stock)
            product.stock = min(product.stock - sold + product.coming, MAX_STOCK)
            product.coming = order.value
            score += 0.5 * product.price * sold - 0.05 * product.stock - 0.25 * order.value
            score -= 0.5 * product.price * (wanted - sold)  # customers leave
    agent.game_over(Obs(score))


inventory = Game(
    play, entities=(Product,), actions=(ORDER,), global_features=Calendar, name="inventory"
)


class Scripted(ScriptedAgent):
    """Orders enough for three days of mean demand."""

    def choose(self, obs: Obs, *actions: object) -> object:
        def order(product: Product) -> Order:
            missing = 3 * product.demand - product.stock - product.coming
            return min(Order, key=lambda each: abs(each.value - missing))

        return [order(product) for product in obs.of_class(Product)]
