"""One decision of one snake, with the same network and observations for all contenders.

The network has enn-trainer's default size (2 layers, width 32, 2 heads) and random weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env import Categorical, Game, Obs
from entity_env.agents import Agent
from entity_env.agents.rogue_net import RogueNetConfig, Weights
from entity_env.agents.rogue_net.weights import expected_tensors

NUM_OBSERVATIONS: Final = 16
"""Number of observations. They are shown in turn, so no contender can cache results."""


@dataclass(slots=True)
class Head:
    """The actor."""

    x: float
    y: float


@dataclass(slots=True)
class Segment:
    """Most of the entities."""

    x: float
    y: float


@dataclass(slots=True)
class Food:
    """One in ten entities."""

    x: float
    y: float


class Move(Enum):
    """Four choices."""

    UP = 0
    DOWN = 1
    LEFT = 2
    RIGHT = 3


ACTION: Final = Categorical(Move)


def play(agent: Agent, *, seed: int, num_entities: int = 10) -> None:
    """Shows every observation once and ignores the actions."""
    for features in shown(num_entities):
        obs = Obs(0.0).actors([Head(*row) for row in features["Head"].tolist()])
        obs.entities([Segment(*row) for row in features["Segment"].tolist()])
        obs.entities([Food(*row) for row in features["Food"].tolist()])
        if agent.act(obs, ACTION) is None:
            return
    agent.game_over()


GAME: Final = Game(play, entities=(Head, Segment, Food), actions=(ACTION,), name="decision")


def weights(config: RogueNetConfig | None = None) -> Weights:
    """Weights of the network, equal in every process."""
    rng = np.random.default_rng(1)
    config = config or RogueNetConfig()
    spaces = GAME.obs_space(), GAME.action_space()
    tensors = {
        name: np.asarray(
            100.0
            if name.endswith("count")
            else rng.uniform(50, 200, spec.shape)
            if name.endswith("squares_sum")
            else rng.normal(0, 0.2, spec.shape),
            dtype=spec.dtype,
        )
        for name, spec in expected_tensors(*spaces, config).items()
    }
    return Weights(*spaces, config, tensors)


def shown(num_entities: int) -> list[Mapping[str, NDArray[np.float32]]]:
    """The features of all observations, arrays `(count, 2)` by entity type; each has one head."""
    rng = np.random.default_rng(2)
    num_food = num_entities // 10
    counts = {"Head": 1, "Segment": num_entities - num_food - 1, "Food": num_food}
    return [
        {name: rng.normal(size=(count, 2)).astype(np.float32) for name, count in counts.items()}
        for _ in range(NUM_OBSERVATIONS)
    ]
