"""`EvaluationGames`: environments in which networks of a run play apart from training."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.against import METRIC, has_bots
from entity_env.agents.policy_agent import BatchPolicy
from entity_env.agents.ppo.callbacks import EvaluationResult
from entity_env.agents.ratings import Result
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.core.episode import Episode
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.errors import UsageError, shown
from entity_env.vec.in_process.base import ERROR_METRIC
from entity_env.vec.starts import EVALUATED_ENV, Decide, play_starts
from entity_env.vec.vec_env import VecEnv

_MAX_COPIES: Final = 64
_OWN_FIGURES: Final = ("mean_reward", "std_reward", "mean_length", "num_episodes")
SAME_STARTS: Final = 1
"""Starts of every evaluation along a run, see `EvaluationGames.play`."""
FRESH_STARTS: Final = 2
"""Starts that no network was chosen by."""


class Played(NamedTuple):
    """Episodes of a network, from one start each.

    Args:
        mine: those of the network.
        wins: its share of the highest rewards in each.
        num_cut: number of starts whose episode was cut.
    """

    mine: list[Episode]
    wins: list[float]
    num_cut: int

    @property
    def rewards(self) -> list[float]:
        """Of the network."""
        return [one.reward for one in self.mine]

    def __add__(self, other: object) -> Played:
        """The episodes of both."""
        if not isinstance(other, Played):
            return NotImplemented
        return Played(self.mine + other.mine, self.wins + other.wins, self.num_cut + other.num_cut)


NO_GAMES: Final = Played([], [], 0)


class EvaluationGames:
    """Environments of a game, and who plays the other seats.

    Args:
        source: the game; or a function that makes as many environments as it is asked for, with
            autoreset "disabled".
        episodes: most episodes that are played at a time.
        opponent: makes what plays the other seats from a seed.
        seed: of starts and draws.

    Raises:
        UsageError: environments with another autoreset.
    """

    def __init__(
        self,
        source: Game | Callable[[int], VecEnv],
        episodes: int,
        opponent: Callable[[int], Agent],
        seed: int,
    ) -> None:
        self._source = source
        self._opponent = opponent
        self._seed = seed
        self.vec = self._make(min(episodes, _MAX_COPIES))
        game = self.vec.game
        self.is_alone = self.vec.num_agents == 1 or (game is not None and has_bots(game))
        """Whether the network decides for all rows that are ready."""

    def _make(self, num_envs: int) -> VecEnv:
        if isinstance(self._source, Game):
            return VecEnv(self._source, num_envs, autoreset="disabled")
        return _checked(self._source(num_envs))

    def _fit(self, num_episodes: int) -> None:
        """Makes other environments if these are twice as many as needed, or half as many."""
        wanted = min(num_episodes, _MAX_COPIES)
        if not wanted / 2 < self.vec.num_envs < wanted * 2:
            self.vec.close()
            self.vec = self._make(wanted)

    def close(self) -> None:
        """Closes the environments."""
        self.vec.close()

    def play(
        self,
        learner: TrainedAgent,
        starts: range,
        kind: int = SAME_STARTS,
        *,
        max_length: int,
        is_over: Callable[[], bool] = lambda: False,
        other: TrainedAgent | None = None,
    ) -> Played:
        """Plays episodes from some starts, each to its end.

        Args:
            learner: the network.
            starts: their numbers.
            kind: `SAME_STARTS` or `FRESH_STARTS`, which have no episode in common.
            max_length, is_over: see `play_starts`.
            other: a network that plays the other seats, in place of the opponent.

        Raises:
            UsageError: an opponent that cannot play, or a network without a part in any episode.
            WorkerError: a game raised.
        """
        self._fit(len(starts))
        seed = EpisodeSeeds(self._seed, EVALUATED_ENV)[kind]
        decide = self._decide(learner, other)
        played = play_starts(self.vec, decide, starts, seed, max_length=max_length, is_over=is_over)
        return self._of_learner(list(played))

    def _decide(self, learner: TrainedAgent, other: TrainedAgent | None) -> Decide:
        if self.is_alone:
            return lambda obs, starts: learner.choose_batch(obs)
        theirs = other.choose_batch if other is not None else self._opponent_choice()

        def decide(obs: VecObs, starts: NDArray[np.int64]) -> VecActions:
            is_mine = obs.agent_id == _seat(starts[obs.env_id], self.vec.num_agents)
            chosen, others = learner.choose_batch(obs), theirs(obs)
            return {
                name: _chosen(is_mine[mask.actors.row_index], chosen[name], others[name])
                for name, mask in obs.action_masks.items()
            }

        return decide

    def _opponent_choice(self) -> Callable[[VecObs], VecActions]:
        opponent, game = self._opponent(self._seed), self.vec.game
        if not isinstance(opponent, BatchPolicy) or game is None:
            raise UsageError(
                "an opponent must decide for batches (decide_batch), as random and trained agents "
                f"do, and play a Game: got {shown(opponent)}"
            )
        return lambda obs: opponent.decide_batch(obs, game.schema)

    def _of_learner(self, played: Sequence[tuple[Sequence[Episode], bool]]) -> Played:
        """The episodes of the learner: of one agent in a game for several, else all of them."""
        mine: list[Episode] = []
        wins: list[float] = []
        num_agents = 1 if self.is_alone else self.vec.num_agents
        for episodes, _ in played:
            for i, one in enumerate(episodes):
                if num_agents == 1 or one.agent_id == _seat(one.number, num_agents):
                    mine.append(one)
                    rewards = tuple(each.reward for each in episodes)
                    wins.append(Result(("",) * len(rewards), rewards).shares[i])
        if not mine:
            raise UsageError("the network had no part in any of the evaluation episodes")
        return Played(mine, wins, sum(is_cut for _, is_cut in played))

    def summary(self, played: Played, step: int, *, greedy: bool) -> EvaluationResult:
        """The figures of episodes of the network at a step of training."""
        mine, num_cut = played.mine, played.num_cut
        values: dict[str, list[float]] = {}
        for one in mine:
            for name, value in one.metrics.items():
                values.setdefault(name, []).append(value)
        num_failed = len(values.pop(ERROR_METRIC, ()))
        metrics = {name: statistics.fmean(each) for name, each in values.items()}
        against = [each for name, each in metrics.items() if name.startswith(f"{METRIC}/")]
        if against:
            metrics["win_rate"] = statistics.fmean(against)
        if not self.is_alone:
            metrics["win_rate"] = statistics.fmean(played.wins)
        for name, count in (("cut", num_cut), ("failed", num_failed)):
            if count:
                metrics[name] = count / len(mine)
        return EvaluationResult(
            step,
            mean_reward=statistics.fmean(played.rewards),
            std_reward=statistics.pstdev(played.rewards),
            mean_length=statistics.fmean(one.length for one in mine),
            num_episodes=len(mine),
            metrics={name: each for name, each in metrics.items() if name not in _OWN_FIGURES},
            greedy=greedy,
        )


def quick(agent: TrainedAgent, seed: int, *, greedy: bool) -> TrainedAgent:
    """The same network in numpy, where that is three times as fast as in torch."""
    net = getattr(agent, "net", None)
    if net is not None and isinstance(net.net_config, MLPConfig):
        return NumpyAgent(net.weights(), greedy=greedy, seed=seed)
    return agent


def _checked(vec: object) -> VecEnv:
    if not isinstance(vec, VecEnv) or vec.autoreset != "disabled":
        got = f"autoreset={vec.autoreset!r}" if isinstance(vec, VecEnv) else shown(vec)
        raise UsageError(f'an Evaluator needs a VecEnv with autoreset="disabled", got {got}')
    return vec


def _seat(start: Any, num_agents: int) -> Any:  # noqa: ANN401 - an integer, or an array of them
    """The learner's seat in the episode with this number."""
    return start % num_agents


def _chosen(
    is_mine: NDArray[np.bool_],
    mine: NDArray[Any] | RaggedArray[Any],
    theirs: NDArray[Any] | RaggedArray[Any],
) -> NDArray[Any]:
    """The actions of the learner's actors and of the opponent's."""
    parts = [each.values if isinstance(each, RaggedArray) else each for each in (mine, theirs)]
    return np.where(is_mine.reshape(-1, *[1] * (parts[0].ndim - 1)), *parts)
