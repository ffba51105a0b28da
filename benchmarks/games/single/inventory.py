"""Inventory: order three products every day. Long episodes of 300 decisions, large scores."""

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
    products = [Product(rng.uniform(1, 3), rng.uniform(2, 10)) for _ in range(num_products)]
    for day in range(num_days):
        obs = Obs(score).actors(products).globals(Calendar(num_days - day))
        orders = agent.act(obs, ORDER)
        if orders is None:
            return
        for product, order in zip(products, orders, strict=True):
            wanted = round(rng.uniform(0.5, 1.5) * product.demand)
            sold = min(wanted, product.stock)
            product.stock = min(product.stock - sold + product.coming, MAX_STOCK)
            product.coming = order.value
            score += 0.5 * product.price * sold - 0.05 * product.stock - 0.5 * order.value * 0.5
            score -= 0.5 * product.price * (wanted - sold)  # customers leave
    agent.game_over(Obs(score))


inventory = Game(
    play, entities=(Product,), actions=(ORDER,), global_features=Calendar, name="inventory"
)


class Scripted(ScriptedAgent):
    """Orders up to the demand of two and a half days."""

    def choose(self, obs: Obs, *actions: object) -> object:
        def order(product: Product) -> Order:
            missing = 2.5 * product.demand - product.stock - product.coming
            return max((each for each in Order if each.value <= max(missing, 0)), key=value)

        def value(order: Order) -> int:
            return order.value

        return [order(product) for product in obs.of_class(Product)]
