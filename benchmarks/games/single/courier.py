"""Courier: choose the next of up to 60 parcels. Negative scores, many selectable targets."""

import random
from dataclasses import dataclass

from entity_env import Game, Obs, SelectEntity
from entity_env.agents import Agent, ScriptedAgent


@dataclass
class Van:
    x: float
    y: float


@dataclass(eq=False)
class Parcel:
    x: float
    y: float


NEXT = SelectEntity(Parcel)


def distance(van: Van, parcel: Parcel) -> float:
    return float(((van.x - parcel.x) ** 2 + (van.y - parcel.y) ** 2) ** 0.5)


def play(agent: Agent, *, seed: int, max_parcels: int = 60) -> None:
    rng, score = random.Random(seed), 0.0
    van = Van(rng.random(), rng.random())
    num_parcels = rng.randint(max_parcels // 3, max_parcels)
    parcels = [Parcel(rng.random(), rng.random()) for _ in range(num_parcels)]
    while parcels:
        answer = agent.act(Obs(score).actors([van]).entities(parcels), NEXT)
        if answer is None or (parcel := answer[0]) is None:
            return
        score -= distance(van, parcel)
        van.x, van.y = parcel.x, parcel.y
        parcels.remove(parcel)
    agent.game_over(Obs(score))


courier = Game(play, entities=(Van, Parcel), actions=(NEXT,), name="courier")


class Scripted(ScriptedAgent):
    """Drives to the nearest parcel."""

    def choose(self, obs: Obs, *actions: object) -> object:
        [van] = obs.of_class(Van)
        return [min(obs.of_class(Parcel), key=lambda parcel: distance(van, parcel))]
