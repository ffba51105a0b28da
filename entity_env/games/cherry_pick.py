"""Cherry pick: choose the good cherries one by one and leave the bad ones.

Entities and features:
    Picker: no features; the actor.
    Cherry: quality, its reward. Good cherries add up to 1, bad ones to -1.
Actions:
    SelectCherry: the picker takes one of the remaining cherries.
Reward:
    the quality of the cherry; 1 in total if only good cherries are taken.
Terminated when:
    num_good cherries have been taken.
Truncated when:
    never.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games import cherry_pick
    >>> [episode] = cherry_pick.run(RandomAgent(seed=1), num_good=3)
    >>> episode.length, episode.reward < 1
    (3, True)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Final

from entity_env import Game, Obs, SelectEntity, SplitMix64, UsageError
from entity_env.agents import Agent


@dataclass(slots=True)
class Picker:
    """The actor: takes the cherries."""


@dataclass(slots=True, eq=False)
class Cherry:
    """A cherry: good if its quality is above 0, bad otherwise."""

    quality: float


PICK: Final = SelectEntity(Cherry)


def play(agent: Agent, *, seed: int, num_good: int = 8, num_bad: int = 8) -> None:
    """Plays one episode.

    Args:
        agent: chooses the cherries.
        seed: determines the qualities and the order of the cherries.
        num_good: number of good cherries, 1 or more.
        num_bad: number of bad cherries, 1 or more.

    Raises:
        UsageError: num_good or num_bad below 1.
    """
    if min(num_good, num_bad) < 1:
        raise UsageError(
            f"cherry_pick: num_good and num_bad must be at least 1, got {num_good} and {num_bad}"
        )
    rng = SplitMix64(seed)
    cherries = _cherries(num_good, 1, rng) + _cherries(num_bad, -1, rng)
    rng.shuffle(cherries)
    picker = Picker()
    score = 0.0
    for _ in range(num_good):
        picked = agent.act(Obs(score).actors([picker]).entities(cherries), PICK)
        if picked is None:
            return
        [cherry] = picked
        if cherry is None:  # never: one cherry always remains
            break
        cherries.remove(cherry)
        score += cherry.quality
    agent.game_over(Obs(score).actors([picker]).entities(cherries))


def _cherries(count: int, total: float, rng: SplitMix64) -> list[Cherry]:
    """Cherries with qualities that add up to `total`."""
    weights = [rng.uniform(0.1, 1) for _ in range(count)]
    whole = reduce(add, weights)  # `sum` rounds differently since Python 3.12
    return [Cherry(total * weight / whole) for weight in weights]


cherry_pick = Game(play, entities=(Picker, Cherry), actions=(PICK,), max_entities={"Cherry": 16})
