"""`EvaluationGames`: environments in which networks of a run play outside training."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.bots import METRIC, has_bots
from entity_env.agents.policy_agent import BatchPolicy
from entity_env.agents.ratings import Result
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.agents.training.callbacks import EvaluationResult
from entity_env.agents.training.tracking.rewards import Spread
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.core.episode import ERROR_METRIC, Episode
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EVALUATED_ENV, EpisodeSeeds
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.errors import UsageError, shown
from entity_env.vec.evaluation.starts import Decide, play_starts
from entity_env.vec.vec_env import VecEnv

Choose: TypeAlias = Callable[[VecObs], VecActions]
"""Chooses the actions of a batch."""

_MAX_COPIES: Final = 64
_OWN_FIGURES: Final = ("mean_reward", "std_reward", "mean_length", "num_episodes")
SAME_STARTS: Final = 1
"""Kind of starts: those of all evaluations during a run."""
FRESH_STARTS: Final = 2
"""Kind of starts: those that were not used to select a network."""


class Played(NamedTuple):
    """Episodes of a network, one per start.

    Args:
        mine: the network's episodes.
        wins: the network's share of the highest reward in each episode.
        num_cut: number of truncated episodes.
    """

    mine: list[Episode]
    wins: list[float]
    num_cut: int

    @property
    def rewards(self) -> list[float]:
        return [one.reward for one in self.mine]

    @property
    def spread(self) -> Spread:
        rewards = self.rewards
        return Spread(statistics.fmean(rewards), statistics.pstdev(rewards), len(rewards))

    @property
    def rewards_by_start(self) -> list[float]:
        return [one.reward for one in sorted(self.mine, key=lambda one: one.number)]

    def __add__(self, other: object) -> Played:
        if not isinstance(other, Played):
            return NotImplemented
        return Played(self.mine + other.mine, self.wins + other.wins, self.num_cut + other.num_cut)


NO_GAMES: Final = Played([], [], 0)


class EvaluationGames:
    """Environments of a game, and the player of the other seats.

    Args:
        source, opponent, seed: as for `Evaluator`.
        episodes: number of episodes per evaluation, which determines the number of environments.

    Raises:
        UsageError: environments with another autoreset mode.
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
        self.vec = make_disabled(source, episodes)
        self.is_alone = asks_one(self.vec)
        """True if the network decides for all rows that are ready."""

    def _fit(self, num_episodes: int) -> None:
        """Replaces the environments if their number is off by a factor of two or more."""
        wanted = min(num_episodes, _MAX_COPIES)
        if not wanted / 2 < self.vec.num_envs < wanted * 2:
            self.vec.close()
            self.vec = make_disabled(self._source, wanted)

    def close(self) -> None:
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
        """Plays episodes from some starts, each to its end or until it is truncated.

        Args:
            kind: `SAME_STARTS` or `FRESH_STARTS`, which share no episodes.
            max_length, is_over: see `play_starts`.
            other: a network in the other seats, instead of the opponent.

        Raises:
            UsageError: an opponent that does not decide for batches, or a network that takes part
                in no episode.
            WorkerError: a game failed.
        """
        self._fit(len(starts))
        seed = EpisodeSeeds(self._seed, EVALUATED_ENV)[kind]
        decide = self._decide(learner, other)
        played = play_starts(self.vec, decide, starts, seed, max_length=max_length, is_over=is_over)
        return self._of_learner(list(played))

    def _decide(self, learner: TrainedAgent, other: TrainedAgent | None) -> Decide:
        if self.is_alone:
            return for_all(learner.choose_batch)
        if other is not None:
            return seated(self.vec, learner.choose_batch, other.choose_batch)
        theirs = opponent_choice(self.vec, self._opponent(self._seed))
        return seated(self.vec, learner.choose_batch, theirs)

    def _of_learner(self, played: Sequence[tuple[Sequence[Episode], bool]]) -> Played:
        """Episodes of the learner: in a game for several agents, one per start."""
        mine: list[Episode] = []
        wins: list[float] = []
        num_agents = 1 if self.is_alone else self.vec.num_agents
        for episodes, _ in played:
            for i, one in enumerate(episodes):
                if num_agents == 1 or one.agent_id == seat_of(one.number, num_agents):
                    mine.append(one)
                    rewards = tuple(each.reward for each in episodes)
                    wins.append(Result(("",) * len(rewards), rewards).shares[i])
        if not mine:
            raise UsageError("the network had no part in any of the evaluation episodes")
        return Played(mine, wins, sum(is_cut for _, is_cut in played))

    def summary(self, played: Played, step: int, *, greedy: bool) -> EvaluationResult:
        """Figures of the network's episodes at a step of training."""
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
    """The agent; for an MLP, a `NumpyAgent` with its network, three times as fast as torch."""
    net = getattr(agent, "net", None)
    if net is not None and isinstance(net.net_config, MLPConfig):
        return NumpyAgent(net.weights(), greedy=greedy, seed=seed)
    return agent


def make_disabled(source: Game | Callable[[int], VecEnv], num_starts: int) -> VecEnv:
    """Makes environments for `play_starts` from the source of an `Evaluator`.

    Raises:
        UsageError: the source makes no `VecEnv`, or one with another autoreset mode.
    """
    copies = min(num_starts, _MAX_COPIES)
    if isinstance(source, Game):
        return VecEnv(source, copies, autoreset="disabled")
    vec: object = source(copies)
    if not isinstance(vec, VecEnv) or vec.autoreset != "disabled":
        got = f"autoreset={vec.autoreset!r}" if isinstance(vec, VecEnv) else shown(vec)
        raise UsageError(f'an evaluation needs a VecEnv with autoreset="disabled", got {got}')
    return vec


def asks_one(vec: VecEnvironment) -> bool:
    """True if only one agent is asked for actions: a game for one agent, or against bots."""
    game = getattr(vec, "game", None)
    return getattr(vec, "num_agents", 1) == 1 or (isinstance(game, Game) and has_bots(game))


def for_all(choose: Choose) -> Decide:
    """Applies one policy to all environments and seats."""
    return lambda obs, starts: choose(obs)


def seated(vec: VecEnv, choose: Choose, theirs: Choose) -> Decide:
    """Gives the learner one seat, which changes with each episode; `theirs` plays the others."""

    def decide(obs: VecObs, starts: NDArray[np.int64]) -> VecActions:
        is_mine = obs.agent_id == seat_of(starts[obs.env_id], vec.num_agents)
        chosen, others = choose(obs), theirs(obs)
        return {
            name: _chosen(is_mine[mask.actors.row_index], chosen[name], others[name])
            for name, mask in obs.action_masks.items()
        }

    return decide


def opponent_choice(vec: VecEnv, opponent: Agent) -> Choose:
    """Function by which an opponent chooses actions for a batch.

    Raises:
        UsageError: the opponent does not decide for batches, or `vec` does not play a `Game`.
    """
    game = vec.game
    if not isinstance(opponent, BatchPolicy) or game is None:
        raise UsageError(
            "an opponent must decide for batches (decide_batch), as random and trained agents "
            f"do, and play a Game: got {shown(opponent)}"
        )
    return lambda obs: opponent.decide_batch(obs, game.schema)


def seat_of(start: Any, num_agents: int) -> Any:  # noqa: ANN401 - an integer, or an array of them
    """Seat of the learner in an episode."""
    return start % num_agents


def _chosen(
    is_mine: NDArray[np.bool_],
    mine: NDArray[Any] | RaggedArray[Any],
    theirs: NDArray[Any] | RaggedArray[Any],
) -> NDArray[Any]:
    """Merges the actions of the learner's actors and the opponent's."""
    parts = [each.values if isinstance(each, RaggedArray) else each for each in (mine, theirs)]
    return np.where(is_mine.reshape(-1, *[1] * (parts[0].ndim - 1)), *parts)
