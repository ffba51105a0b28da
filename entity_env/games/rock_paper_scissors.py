"""Rock, paper, scissors: two agents throw at once, each with a strength the other cannot see.

Entities and features:
    Player: strength.is_ROCK, strength.is_PAPER, strength.is_SCISSORS, the throw that counts double
        when this agent wins with it; drawn every round.
    Opponent: the other agent's strength. Visible to the value function; hidden from the policy
        unless `cheat` is set.
Actions:
    Throw: ROCK, PAPER or SCISSORS, one choice for the whole observation.
Reward:
    1 for winning a round, 2 if the throw was the winner's strength; the loser gets the negative. 0
    if both throws are equal.
Terminated when:
    num_rounds rounds have been played.
Truncated when:
    never.
Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games import rock_paper_scissors
    >>> one, other = rock_paper_scissors.run(RandomAgent(seed=1), RandomAgent(seed=2))
    >>> one.reward + other.reward
    0
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from random import Random

from entity_env import Game, Obs, UsageError
from entity_env.agents import Agent


class Throw(Enum):
    """A throw. Each beats the previous one, and the first beats the last."""

    ROCK = 0
    PAPER = 1
    SCISSORS = 2

    def beats(self, other: Throw) -> bool:
        return (self.value - other.value) % 3 == 1


@dataclass(slots=True)
class Player:
    """The observing agent."""

    strength: Throw


@dataclass(slots=True)
class Opponent:
    """The other agent."""

    strength: Throw


def play(agents: Sequence[Agent], *, seed: int, num_rounds: int = 5, cheat: bool = False) -> None:
    """Plays one episode.

    Args:
        agents: the two players.
        seed: determines the strengths.
        num_rounds: number of throws per agent, 1 or more.
        cheat: let the policy see the opponent's strength.

    Raises:
        UsageError: num_rounds below 1.
    """
    if num_rounds < 1:
        raise UsageError(f"rock_paper_scissors: num_rounds must be at least 1, got {num_rounds}")
    rng = Random(seed)
    score = 0  # of the first agent; the other agent's score is its negative
    for _ in range(num_rounds):
        mine, theirs = rng.choices(list(Throw), k=2)
        both = (
            agents[0].act_async(_observe(score, mine, theirs, cheat), Throw),
            agents[1].act_async(_observe(-score, theirs, mine, cheat), Throw),
        )
        my_throw, their_throw = (pending.get() for pending in both)
        if my_throw is None or their_throw is None:
            return
        if my_throw.beats(their_throw):
            score += 2 if my_throw is mine else 1
        elif their_throw.beats(my_throw):
            score -= 2 if their_throw is theirs else 1
    agents[0].game_over(Obs(score))
    agents[1].game_over(Obs(-score))


def _observe(score: int, mine: Throw, theirs: Throw, cheat: bool) -> Obs:
    obs = Obs(score).entities([Player(mine)]).entities([Opponent(theirs)])
    return obs.visible(Opponent, [cheat])


rock_paper_scissors = Game(play, entities=(Player, Opponent), actions=(Throw,), num_agents=2)
