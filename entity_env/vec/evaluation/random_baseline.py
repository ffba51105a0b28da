"""`RandomBaseline`: score of random play, measured before a network is trained."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Iterator
from contextlib import closing
from time import perf_counter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.random import RandomAgent, random_actions
from entity_env.agents.training.callbacks import Callback, TrainState
from entity_env.agents.training.tracking.rewards import RandomPlay
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.core.seeding import EVALUATED_ENV, EpisodeSeeds
from entity_env.core.validation import checked_count, checked_seed
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.errors import WorkerError
from entity_env.replay.play_again import same_random_states
from entity_env.vec.evaluation.games import (
    SAME_STARTS,
    asks_one,
    for_all,
    make_disabled,
    opponent_choice,
    seat_of,
    seated,
)
from entity_env.vec.evaluation.starts import Decide, play_starts
from entity_env.vec.vec_env import VecEnv

_logger = logging.getLogger(__name__)

_BATCHES: Final = (4, 16, 80)
"""Numbers of episodes that are played together; the draws of each episode depend on the others."""
_BUDGET_S: Final = 5.0
_MOST: Final = 2.0
"""Largest time of the first episodes, in budgets."""
_SHARE: Final = 0.05
"""Largest share of the run's time, if that is limited."""


class RandomBaseline(Callback):
    """Measures the score of uniformly random legal actions before the first step of a run.

    A callback of `train`. It plays the first episodes of an `Evaluator` with the same arguments, in
    separate environments, which it closes. The result is `TrainProgress.random_play` and is kept in
    `run.json`, so a resumed run does not measure it again. Does not affect the network or any
    random state of training.

    Plays 4 episodes, then 16 and 80 more if that takes at most five seconds (or a twentieth of
    `max_train_time_s`). Runs are judged only by 100 episodes. If the first four take over ten
    seconds (twice that share) or never end, nothing is measured, because the short episodes alone
    would be biased. If the game fails, nothing is measured and a warning is logged.

    In a game for several agents, random play has one seat, which changes with each episode, and the
    opponent has all others. Against a `RandomAgent`, the reward of an episode is the mean over all
    seats, since they play alike; so in a zero-sum game it is 0.

    Args:
        source, opponent, seed: as for `Evaluator`; equal arguments make the figures comparable.
        episodes: maximum number of episodes; never more than 100.

    Raises:
        UsageError: see `Evaluator`.

    Example:
        >>> from entity_env.agents.ppo import PPOConfig, train
        >>> from entity_env.games import snake
        >>> from entity_env.vec import RandomBaseline, VecEnv
        >>> with VecEnv(snake, 64) as vec:  # doctest: +SKIP
        ...     result = train(vec, PPOConfig(), callbacks=[RandomBaseline(snake)])
        >>> result.progress.random_play.mean_reward  # doctest: +SKIP
        0.04
    """

    def __init__(
        self,
        source: Game | Callable[[int], VecEnv],
        *,
        episodes: int = 100,
        opponent: Callable[[int], Agent] = RandomAgent,
        seed: int = 0,
    ) -> None:
        self._source = source
        self._episodes = checked_count("episodes", episodes)
        self._opponent = opponent
        self._seed = checked_seed(seed)

    def on_start(self, state: TrainState) -> None:
        if state.rank or state.progress.random_play is not None:
            return
        try:
            with same_random_states():
                limit_s = state.config.max_train_time_s
                budget_s = min(_BUDGET_S, _SHARE * (limit_s or math.inf))
                found = self._measure(state.vec, budget_s)
        except WorkerError as error:
            _logger.warning("random play cannot be measured: %s", error)
            return
        if found is None:
            most_s = _MOST * budget_s
            _logger.info("random play is not measured: its episodes take over %g s", most_s)
        else:
            state.add_random_play(found)

    def _measure(self, training: VecEnvironment, budget_s: float) -> RandomPlay | None:
        clock = _Clock(_MOST * budget_s)
        episodes: list[tuple[float, float]] = []
        is_like_training, cost_s = False, 0.0
        # Whole batches only: when time is up, the episodes that have ended are the short ones.
        for size in _BATCHES:
            starts = range(len(episodes), min(len(episodes) + size, self._episodes))
            if not starts or cost_s * len(starts) > budget_s - clock.spent_s:
                break
            with closing(make_disabled(self._source, len(starts))) as vec:
                is_like_training = asks_one(vec) and _game_of(vec) == _game_of(training)
                try:
                    begin_s, before_s = perf_counter(), clock.spent_s
                    episodes += [*self._play(vec, starts, clock)]
                    free_s = perf_counter() - begin_s - (clock.spent_s - before_s)
                    if not starts.start and free_s > budget_s:  # it compiled: time it again
                        before_s = clock.spent_s
                        list(self._play(vec, starts, clock))
                except _TimeIsOver:
                    break
            cost_s = (clock.spent_s - before_s) / len(starts)
        if not any(length for _, length in episodes):
            return None
        rewards = [reward for reward, length in episodes if length]
        return RandomPlay(
            statistics.fmean(rewards),
            statistics.pstdev(rewards),
            statistics.fmean(length for _, length in episodes if length),
            len(rewards),
            is_like_training,
        )

    def _play(self, vec: VecEnv, starts: range, clock: _Clock) -> Iterator[tuple[float, float]]:
        """Reward and length of these episodes; length 0 if the learner took no part."""
        decide, has_one_seat = self._policy(vec, starts.start)
        run_seed = EpisodeSeeds(self._seed, EVALUATED_ENV)[SAME_STARTS]
        for episodes, _ in play_starts(vec, clock.timed(decide), starts, run_seed):
            mine = [
                each
                for each in episodes
                if not has_one_seat or each.agent_id == seat_of(each.number, vec.num_agents)
            ]
            yield (
                statistics.fmean(each.reward for each in mine) if mine else 0.0,
                statistics.fmean(each.length for each in mine) if mine else 0.0,
            )

    def _policy(self, vec: VecEnv, start: int) -> tuple[Decide, bool]:
        """Decision for all seats, and whether the learner has one of several seats."""
        rng, space = np.random.default_rng([self._seed, start]), vec.action_space()

        def choose(obs: VecObs) -> VecActions:
            return random_actions(obs, space, rng)

        opponent = None if asks_one(vec) else self._opponent(self._seed)
        if opponent is None or type(opponent) is RandomAgent:
            return for_all(choose), False
        return seated(vec, choose, opponent_choice(vec, opponent)), True


class _TimeIsOver(Exception):
    """Ends episodes that take too long."""


class _Clock:
    """Seconds of play, without the first step, which may compile the game."""

    def __init__(self, most_s: float) -> None:
        self.spent_s = 0.0
        self._most_s = most_s
        self._num_calls = 0
        self._before_s = 0.0

    def timed(self, decide: Decide) -> Decide:
        """Wraps `decide` to stop when time is up."""

        def decide_in_time(obs: VecObs, starts: NDArray[np.int64]) -> VecActions:
            now_s, self._num_calls = perf_counter(), self._num_calls + 1
            if self._num_calls > 2:
                self.spent_s += now_s - self._before_s
            self._before_s = now_s
            if self.spent_s > self._most_s:
                raise _TimeIsOver
            return decide(obs, starts)

        return decide_in_time


def _game_of(vec: VecEnvironment) -> str | None:
    game = getattr(vec, "game", None)
    return game.name if isinstance(game, Game) else None
