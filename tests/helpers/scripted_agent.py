"""ScriptedAgent: an agent for tests of rules that gets the game's own objects."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

from entity_env import Obs
from entity_env.agents import Agent
from entity_env.authoring.agent import Answered

T = TypeVar("T")


@dataclass(frozen=True)
class End:
    """The end of an episode.

    Args:
        obs: the final observation.
        scores: the score of every observation, including the final one.
        truncated: whether it was truncated.
    """

    obs: Obs
    scores: Sequence[float]
    truncated: bool

    @property
    def score(self) -> float:
        """The final score."""
        return self.scores[-1]

    @property
    def num_steps(self) -> int:
        """Number of actions in the episode."""
        return len(self.scores) - 1

    @property
    def gains(self) -> list[float]:
        """The reward of every step."""
        return [after - before for before, after in pairwise(self.scores)]


class ScriptedAgent(Agent):
    """Decides with a function of the observation.

    Args:
        answer: returns the action for an observation; None leaves the game.
        seeds: seeds of the episodes after the first.
        episodes: number of episodes before it leaves.
    """

    def __init__(
        self,
        answer: Callable[[Obs], object],
        seeds: Sequence[int] = (),
        episodes: int | None = None,
    ) -> None:
        self.ends: list[End] = []
        self._answer = answer
        self._seeds = seeds
        self._episodes = episodes
        self._scores: list[float] = []

    @property
    def seed(self) -> int:
        played = len(self.ends)
        return self._seeds[played - 1] if 1 <= played <= len(self._seeds) else 0

    def act(self, obs: Obs, /, *actions: object) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        if len(self.ends) == self._episodes:
            return None
        self._scores.append(obs.score)
        return self._answer(obs)

    def act_async(self, obs: Obs, /, *actions: object) -> Any:  # noqa: ANN401 - the overloads of Agent say more
        return Answered(self.act(obs, *actions))

    def game_over(self, obs: Obs | None = None, *, truncated: bool = False) -> None:
        assert obs is not None
        self.ends.append(End(obs, [*self._scores, obs.score], truncated))
        self._scores.clear()

    @property
    def end(self) -> End:
        """The end of the only episode."""
        [end] = self.ends
        return end


def in_turn(answers: Sequence[T]) -> Callable[[Obs], T | None]:
    """Returns these actions in order, and then leaves."""
    left = iter(answers)
    return lambda obs: next(left, None)
