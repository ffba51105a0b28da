"""End of an evaluated run: selects the best network and detects weak greedy play."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.training.callbacks import EvaluationResult, TrainState
from entity_env.vec.evaluation.games import FRESH_STARTS, NO_GAMES, EvaluationGames, Played
from entity_env.vec.evaluation.pace import Pace

LAST: Final = "last"
BEST: Final = "best"
"""The best network so far; also its folder in a run."""
OTHER_POLICY: Final = "other_policy"
"""The last network with the other policy: sampled if the others are greedy."""
MATCH: Final = "match"
"""The last network against the best; both sample their actions."""
_ROUNDS: Final = 5
_STANDARD_ERRORS: Final = 3.0
_CLEAR_ERRORS: Final = 2.0
_LEAST_COMPARED: Final = 8
_LEAST_LOSS: Final = 0.1
"""Greedy play is much worse if it loses at least this share of the larger mean."""


class Deadline:
    """Time limit for the end of a run; shorter after a signal.

    Work that started before the limit may continue until twice the limit, except after a signal.
    """

    def __init__(self, state: TrainState, pace: Pace) -> None:
        self._state, self._pace = state, pace
        self._was_interrupted = state.is_interrupted
        seconds = pace.end_s(state.progress, is_interrupted=self._was_interrupted)
        self._end = pace.clock() + seconds
        self._grace_s = 0.0 if self._was_interrupted else seconds

    @property
    def left_s(self) -> float:
        """Seconds left for starting more work."""
        now = self._pace.clock()
        if self._state.is_interrupted and not self._was_interrupted:
            self._was_interrupted = True
            most = self._pace.end_s(self._state.progress, is_interrupted=True)
            self._end = min(self._end, now + most)
            self._grace_s = 0.0
        return self._end - now

    def __call__(self) -> bool:
        """True if everything must stop at once."""
        return self.left_s + self._grace_s <= 0


class Player(NamedTuple):
    """A playing network, and the network in the other seats; None = the opponent."""

    agent: TrainedAgent
    other: TrainedAgent | None = None


def play_rounds(
    games: EvaluationGames,
    players: Mapping[str, Player],
    num_episodes: int,
    *,
    max_length: int,
    deadline: Deadline,
) -> dict[str, Played]:
    """Plays up to five rounds of episodes from fresh starts, as long as time permits.

    In a round all players play the same starts. Only rounds that all players have finished count.

    Args:
        players: by `LAST`, `BEST`, `OTHER_POLICY`, `MATCH`; `OTHER_POLICY` plays only one round.
        num_episodes: per player and round.
        max_length: steps after which an episode is truncated.

    Returns:
        The episodes of each player; empty if no round was finished.
    """
    found: dict[str, Played] = {}
    for i in range(_ROUNDS):
        before_s = deadline.left_s
        starts = range(i * num_episodes, (i + 1) * num_episodes)
        played = {}
        for name, (agent, other) in players.items():
            if i and name == OTHER_POLICY:  # one round shows any large difference
                continue
            played[name] = games.play(
                *(agent, starts, FRESH_STARTS),
                max_length=max_length,
                is_over=deadline,
                other=other,
            )
            if deadline():
                return found
        found |= {name: found.get(name, NO_GAMES) + each for name, each in played.items()}
        if before_s - deadline.left_s > deadline.left_s:
            break
    return found


def last_wins(found: Mapping[str, Played], num_agents: int) -> bool:
    """True if the last network is at least as good as the best, by their episodes.

    Compares their games against each other if any, otherwise their mean rewards.
    """
    if MATCH in found:
        return statistics.fmean(found[MATCH].wins) >= 1 / num_agents
    return statistics.fmean(found[LAST].rewards) >= statistics.fmean(found[BEST].rewards)


def is_clearly_better(one: EvaluationResult, other: EvaluationResult) -> bool:
    """True if the mean reward of `one` is higher, by more than chance and selection explain."""
    error = math.hypot(
        *(each.std_reward / math.sqrt(max(each.num_episodes - 1, 1)) for each in (one, other))
    )
    return one.mean_reward - other.mean_reward > _CLEAR_ERRORS * error


def figures(played: Played, step: int) -> dict[str, object]:
    """Entry in `run.json` for a network's episodes."""
    return {
        "step": step,
        "mean_reward": statistics.fmean(played.rewards),
        "std_reward": statistics.pstdev(played.rewards),
        "num_episodes": len(played.mine),
        "cut": played.num_cut / len(played.mine),
    }


def is_much_worse(one: Played, other: Played) -> bool:
    """True if the mean reward of `one` is lower by a tenth and by more than chance explains.

    False if either has fewer than 8 episodes.
    """
    if min(len(one.mine), len(other.mine)) < _LEAST_COMPARED:
        return False
    means = [statistics.fmean(each.rewards) for each in (one, other)]
    error = math.hypot(
        *(statistics.pstdev(each.rewards) / math.sqrt(len(each.mine)) for each in (one, other))
    )
    loss, size = means[1] - means[0], max(map(abs, means))
    return loss > _STANDARD_ERRORS * error and loss > _LEAST_LOSS * size


MakePlayer = Callable[[bool], TrainedAgent]
"""Makes an agent that plays a network, greedily or not."""


def players_of(
    last: MakePlayer, best: MakePlayer | None, *, greedy: bool, has_match: bool
) -> dict[str, Player]:
    """Players at the end of a run.

    Args:
        last: makes players of the last network.
        best: makes players of the best network so far; None if it is the last network, or if there
            is none.
        greedy: compare by greedy play.
        has_match: the best and the last network can play against each other.
    """
    found = {LAST: Player(last(greedy))}
    if best is not None:
        found[BEST] = Player(best(greedy))
        if has_match:
            found[MATCH] = Player(last(False), best(False))
    return {**found, OTHER_POLICY: Player(last(not greedy))}
