"""End of an evaluated run: selects the best network and detects weak greedy play."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

import numpy as np

from entity_env.agents.intervals import mean_interval
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.training.callbacks import EvaluationResult, TrainState
from entity_env.agents.training.tracking.rewards import (
    LAST as LAST,
    OTHER_POLICY as OTHER_POLICY,
    VERDICT_EPISODES,
    Spread,
)
from entity_env.vec.evaluation.games import FRESH_STARTS, NO_GAMES, EvaluationGames, Played
from entity_env.vec.evaluation.pace import Pace

BEST: Final = "best"
"""The best network so far; also its folder in a run."""
BEST_OTHER_POLICY: Final = "best_other_policy"
"""The best network with the other policy: sampled if the others are greedy."""
MATCH: Final = "match"
"""The last network against the best; both sample their actions."""
_TIMES: Final = 5
"""Number of episodes at the end, in evaluations."""
_STANDARD_ERRORS: Final = 3.0
_CLEAR_ERRORS: Final = 2.0
_POLICY_INTERVALS: Final = 1.2
"""Gain of greedy play in half-widths of its 95 % interval, since it is tested after both rounds."""
_LEAST_COMPARED: Final = 8
"""Fewest episodes that can show such a gain; that there is none needs `VERDICT_EPISODES`."""
_MORE_CUT: Final = 0.05
"""Greedy play that reaches an end less often than sampled play, by this share, is not better."""
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

    @property
    def most_s(self) -> float:
        """Seconds left until everything must stop at once."""
        return self.left_s + self._grace_s

    def __call__(self) -> bool:
        """True if everything must stop at once."""
        return self.most_s <= 0


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
    """Plays two rounds of episodes from fresh starts, as long as time permits.

    In a round all players play the same starts. Only rounds that all players have finished count.
    The second round brings every player to `VERDICT_EPISODES`, or to five times the first.

    Args:
        players: by `LAST`, `OTHER_POLICY`, `BEST`, `BEST_OTHER_POLICY`, `MATCH`.
        num_episodes: per player in the first round.
        max_length: steps after which an episode is truncated.

    Returns:
        The episodes of each player; empty if no round was finished.
    """
    found: dict[str, Played] = {}
    begin_s = deadline.left_s
    most = max(VERDICT_EPISODES, _TIMES * num_episodes)
    for starts in (range(num_episodes), range(num_episodes, most)):
        played = {}
        for name, (agent, other) in players.items():
            played[name] = games.play(
                *(agent, starts, FRESH_STARTS),
                max_length=max_length,
                is_over=deadline,
                other=other,
            )
            if deadline():
                return found
        found |= {name: found.get(name, NO_GAMES) + each for name, each in played.items()}
        # More episodes at once: the second round takes about twice the time of the first.
        if 2 * (begin_s - deadline.left_s) > deadline.left_s:
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
    spreads = (
        Spread(each.mean_reward, each.std_reward, each.num_episodes - 1) for each in (one, other)
    )
    return next(spreads).is_above(next(spreads), _CLEAR_ERRORS)


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

    False if either has fewer than `VERDICT_EPISODES`.
    """
    if min(len(one.mine), len(other.mine)) < VERDICT_EPISODES:
        return False
    worse, better = one.spread, other.spread
    size = max(abs(worse.mean), abs(better.mean))
    is_large = better.mean - worse.mean > _LEAST_LOSS * size
    return is_large and better.is_above(worse, _STANDARD_ERRORS)


def plays_greedily(greedy: Played | None, sampled: Played | None) -> bool | None:
    """True if greedy play earns more than sampled play, by more than chance explains.

    Compares them on equal starts, of which 8 can show a gain. False if `VERDICT_EPISODES` show
    none, or if greedy play reaches an end clearly less often; None = unknown.
    """
    if greedy is None or sampled is None:
        return None
    num = len(greedy.mine)
    if num != len(sampled.mine) or num < _LEAST_COMPARED:
        return None
    gains = np.subtract(greedy.rewards_by_start, sampled.rewards_by_start)
    is_endless = greedy.num_cut > sampled.num_cut + _MORE_CUT * num
    gain = float(gains.mean())
    error = mean_interval(gain, float(gains.std(ddof=1)), num).half
    if not is_endless and gain > _POLICY_INTERVALS * error:
        return True
    return False if num >= VERDICT_EPISODES else None


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
    found = {LAST: Player(last(greedy)), OTHER_POLICY: Player(last(not greedy))}
    if best is not None:
        found |= {BEST: Player(best(greedy)), BEST_OTHER_POLICY: Player(best(not greedy))}
        if has_match:
            found[MATCH] = Player(last(False), best(False))
    return found
