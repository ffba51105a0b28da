"""Throws: nine rounds of rock, paper, scissors; each game draws what every throw earns."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs
from entity_env.agents import Agent, ScriptedAgent


class Throw(Enum):
    ROCK = 0
    PAPER = 1
    SCISSORS = 2

    def beats(self, other: "Throw") -> bool:
        return (self.value - other.value) % 3 == 1


@dataclass
class Prize:  # what a throw earns if it wins
    throw: Throw
    points: int


@dataclass
class Past:
    mine: Throw
    theirs: Throw
    rounds_ago: int


def play(agents: Sequence[Agent], *, seed: int, rounds: int = 9) -> None:
    rng, past = random.Random(seed), list[list[Throw]]()
    prizes = {throw: rng.randint(1, 5) for throw in Throw}

    def points(mine: Throw, theirs: Throw) -> int:
        return prizes[mine] * mine.beats(theirs) - prizes[theirs] * theirs.beats(mine)

    def seen(seat: int) -> Obs:
        obs = Obs(sum(points(both[seat], both[1 - seat]) for both in past))
        rows = [Past(both[seat], both[1 - seat], i) for i, both in enumerate(reversed(past))]
        return obs.entities([Prize(*each) for each in prizes.items()]).entities(rows)

    for _ in range(rounds):
        pending = [agent.act_async(seen(seat), Throw) for seat, agent in enumerate(agents)]
        answers = [each.get() for each in pending]
        throws = [throw for throw in answers if throw is not None]
        if len(throws) < len(agents):
            return
        past.append(throws)
    for seat, agent in enumerate(agents):
        agent.game_over(seen(seat))


throws = Game(play, entities=(Prize, Past), actions=(Throw,), num_agents=2, name="throws")


class Scripted(ScriptedAgent):
    """Makes the throw that earns most against uniformly random throws."""

    def choose(self, obs: Obs, *actions: object) -> object:
        points = {each.throw: each.points for each in obs.of_class(Prize)}

        def worth(throw: Throw) -> int:
            return sum(
                points[throw] * throw.beats(other) - points[other] * other.beats(throw)
                for other in Throw
            )

        return max(Throw, key=worth)
