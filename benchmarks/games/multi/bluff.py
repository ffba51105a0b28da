"""Bluff: liar's dice for four. Hidden dice, rising bids; a wrong bid or doubt loses the round."""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs
from entity_env.agents import Agent, ScriptedAgent


class Face(Enum):
    ONE = 1
    TWO = 2
    THREE = 3
    FOUR = 4


class Say(Enum):  # the lowest legal bid of a face, or a doubt
    ONES = 1
    TWOS = 2
    THREES = 3
    FOURS = 4
    LIAR = 0


@dataclass
class Die:
    face: Face
    is_mine: bool


@dataclass
class Bid:
    count: int
    face: int
    seats_ago: int  # 0: the latest

    def raised(self, face: int) -> int:
        """The lowest count of a face that beats this bid."""
        return self.count + (face <= self.face)


@dataclass
class Rounds:
    left: int


def observe(dice: list[list[Face]], bids: list[Bid], seat: int, score: float, left: int) -> Obs:
    shown = [Die(face, owner == seat) for owner, hand in enumerate(dice) for face in hand]
    obs = Obs(score).entities(shown).visible(Die, [die.is_mine for die in shown])
    history = [Bid(bid.count, bid.face, i) for i, bid in enumerate(reversed(bids[-4:]))]
    return obs.entities(history).globals(Rounds(left))


def play(agents: Sequence[Agent], *, seed: int, num_dice: int = 2, rounds: int = 5) -> None:
    rng, scores, turn = random.Random(seed), [0.0] * len(agents), 0
    for left in range(rounds, 0, -1):
        dice = [[rng.choice(list(Face)) for _ in range(num_dice)] for _ in agents]
        bids: list[Bid] = []
        while True:
            last = bids[-1] if bids else Bid(0, 4, 0)
            limit = num_dice * len(agents)
            allowed = [last.raised(say.value) <= limit for say in list(Say)[:4]]
            obs = observe(dice, bids, turn, scores[turn], left)
            say = agents[turn].act(obs.mask(Say, [*allowed, bool(bids)]), Say)
            if say is None:
                return
            if say is Say.LIAR:
                break
            bids.append(Bid(last.raised(say.value), say.value, 0))
            turn = (turn + 1) % len(agents)
        count = sum(face.value == bids[-1].face for hand in dice for face in hand)
        loser = turn if count >= bids[-1].count else (turn - 1) % len(agents)
        for seat in range(len(agents)):
            scores[seat] += -1 if seat == loser else 1 / (len(agents) - 1)
        turn = loser
    for agent, score in zip(agents, scores, strict=True):
        agent.game_over(Obs(score))


bluff = Game(
    play,
    entities=(Die, Bid),
    actions=(Say,),
    global_features=Rounds,
    num_agents=4,
    name="bluff",
)


class Scripted(ScriptedAgent):
    """Makes the bid that the expected dice support best; doubts a bid that they do not support."""

    def choose(self, obs: Obs, *actions: object) -> object:
        own = Counter(die.face.value for die in obs.of_class(Die) if die.is_mine)
        others = sum(not die.is_mine for die in obs.of_class(Die))
        last = next((bid for bid in obs.of_class(Bid) if not bid.seats_ago), Bid(0, 4, 0))
        allowed = obs.allowed(Say)

        def surplus(say: Say) -> float:
            return own[say.value] + others / 4 - last.raised(say.value)

        best = max((say for say in allowed if say is not Say.LIAR), key=surplus, default=Say.LIAR)
        chance = own[last.face] + others / 4 - last.count
        return Say.LIAR if Say.LIAR in allowed and chance < -max(surplus(best), -2) else best
