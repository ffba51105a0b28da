"""Bids: both players simultaneously bid a card for a prize; the higher card wins it."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs
from entity_env.agents import Agent, ScriptedAgent


class Card(Enum):
    C1 = 1
    C2 = 2
    C3 = 3
    C4 = 4
    C5 = 5
    C6 = 6
    C7 = 7
    C8 = 8


@dataclass
class Mine:
    value: int


@dataclass
class Theirs:
    value: int


@dataclass
class Prize:
    value: int
    is_next: bool


def play(agents: Sequence[Agent], *, seed: int) -> None:
    rng, scores = random.Random(seed), [0, 0]
    hands, prizes = [list(Card), list(Card)], list(range(1, len(Card) + 1))
    rng.shuffle(prizes)
    while prizes:
        pending = []
        for seat, agent in enumerate(agents):
            obs = Obs(scores[seat] - scores[1 - seat])
            obs.entities([Mine(card.value) for card in hands[seat]])
            obs.entities([Theirs(card.value) for card in hands[1 - seat]])
            obs.entities([Prize(value, i == 0) for i, value in enumerate(prizes)])
            obs.mask(Card, [card in hands[seat] for card in Card])
            pending.append(agent.act_async(obs, Card))
        answers = [each.get() for each in pending]
        bids = [card for card in answers if card is not None]
        if len(bids) < len(agents):
            return
        for seat in (0, 1):
            hands[seat].remove(bids[seat])
            scores[seat] += prizes[0] * (bids[seat].value > bids[1 - seat].value)
        prizes = sorted(prizes[1:], key=lambda value: rng.random())
    for seat, agent in enumerate(agents):
        agent.game_over(Obs(scores[seat] - scores[1 - seat]))


bids = Game(play, entities=(Mine, Theirs, Prize), actions=(Card,), num_agents=2, name="bids")


class Scripted(ScriptedAgent):
    """Bids the card with the value of the prize."""

    def choose(self, obs: Obs, *actions: object) -> object:
        prize = next(each for each in obs.of_class(Prize) if each.is_next)
        return Card(prize.value)
