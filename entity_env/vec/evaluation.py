"""Episodes from fixed starts, and `Evaluator`, which plays them while a network is trained."""

from __future__ import annotations

import logging
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.against import METRIC, has_bots
from entity_env.agents.policy_agent import BatchPolicy
from entity_env.agents.ppo.callbacks import Callback, EvaluationResult, TrainState
from entity_env.agents.random import RandomAgent
from entity_env.agents.ratings import Result
from entity_env.agents.rogue_net.checkpoints.folder import (
    CONFIG,
    read_header,
    require_place,
)
from entity_env.agents.rogue_net.config import MLPConfig
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.core.episode import Episode
from entity_env.core.ragged import RaggedArray
from entity_env.core.seeding import EpisodeSeeds, env_seeds
from entity_env.core.validation import checked_count, checked_seed
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.errors import UsageError, shown
from entity_env.vec.action_log import same_random_states
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from entity_env.vec.in_process.base import ERROR_METRIC
from entity_env.vec.vec_env import VecEnv

_logger = logging.getLogger(__name__)

Decide: TypeAlias = Callable[[VecObs, NDArray[np.int64]], VecActions]
"""Actions of a batch; the second argument is the start of each environment."""

EVALUATED_ENV: Final = 2**31 - 1
"""No environment has this index, so that no episode of training has the seed."""
BEST: Final = "best"
"""Folder of the best checkpoint, in the folder of the run."""
_MAX_COPIES: Final = 64
_NUM_MOMENTS: Final = 20
_TIME_SHARE: Final = 0.015
"""Of the run, without an interval; the first and the last evaluation add to it."""
_OWN_FIGURES: Final = ("mean_reward", "std_reward", "mean_length", "num_episodes")
_LEAST_LENGTH: Final = 1000
_TIMES_AS_LONG: Final = 10
"""As training episodes: episodes of a greedy agent may never end."""


def play_starts(
    vec: VecEnv, decide: Decide, starts: range, seed: int, *, max_length: int | None = None
) -> Iterator[tuple[list[Episode], bool]]:
    """Plays the episodes with these numbers of a run, each to its end.

    Which environment plays an episode changes nothing: it depends on its number alone.

    Args:
        vec: environments, with autoreset "disabled".
        decide: chooses the actions.
        starts: numbers of the episodes; see `starts` of `VecEnv.reset_envs`.
        seed: of the run.
        max_length: steps after which an episode is cut; None = never.

    Yields:
        The episodes of all agents of one start, with its number, and whether it was cut here: then
        they are truncated, with the reward until then. In the order in which they end.

    Raises:
        WorkerError: a game raised.
    """
    # Every episode is played to its end: taking the first ones that end would favour short ones.
    shape = vec.num_envs, vec.num_agents
    number = starts.start + np.arange(vec.num_envs)
    rewards, lengths, is_done = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, bool)
    age = np.zeros(vec.num_envs, np.int64)
    ended: dict[int, list[Episode]] = {}
    num_left = len(starts)
    obs = vec.reset(seed, starts=number)
    while True:
        is_ready = obs.is_ready.reshape(shape)
        rewards += obs.reward.reshape(shape)
        is_done |= obs.done.reshape(shape)
        for episode in obs.episodes:
            ended.setdefault(episode.env_id, []).append(episode)
        # An agent without a part in an episode does not end.
        is_over = is_done.all(axis=1) | (is_done.any(axis=1) & ~is_ready.any(axis=1))
        is_cut = ~is_over & (age >= np.inf if max_length is None else age >= max_length)
        for env_id in np.flatnonzero(is_over | is_cut).tolist():
            found, start = ended.pop(env_id, []), int(number[env_id])
            if start not in starts:
                continue  # it only kept a copy busy until the others end
            if is_cut[env_id]:
                parts = (rewards[env_id], lengths[env_id], ~is_done[env_id])
                found += _cut_episodes(*parts, _episode_seed(vec, seed, start))
            yield [replace(each, number=start, env_id=0) for each in found], bool(is_cut[env_id])
            num_left -= 1
        if not num_left:
            return
        again = is_over | is_cut
        if again.any():
            number[again] = number.max() + 1 + np.arange(np.count_nonzero(again))
            rewards[again], lengths[again], is_done[again], age[again] = 0, 0, False, 0
            obs = vec.reset_envs(again, seed, starts=number)
        else:
            lengths += is_ready
            age += 1
            obs = vec.act(decide(obs, number))


def _cut_episodes(
    rewards: NDArray[np.float64],
    lengths: NDArray[np.int64],
    is_running: NDArray[np.bool_],
    seed: int,
) -> list[Episode]:
    """The episodes of the agents of one environment that have not ended."""
    return [
        Episode(float(rewards[i]), int(lengths[i]), False, True, seed, agent_id=i)
        for i in np.flatnonzero(is_running).tolist()
    ]


def _episode_seed(vec: VecEnv, seed: int, start: int) -> int:
    if isinstance(vec, BatchVecEnv):
        return int(env_seeds(seed, np.array([start]))[0])
    return EpisodeSeeds(seed)[start]


class Evaluator(Callback):
    """Evaluates a network while it is trained, and keeps the best one; a callback of `train`.

    At an interval the network plays a number of episodes, always from the same starts, which
    training does not have, in environments of its own. What comes out is given to `on_evaluation`
    of all callbacks, and to the curves: `evaluation/mean_reward`, `std_reward`, `mean_length`,
    `num_episodes`, means of the game's own numbers at the end of an episode, and the shares `cut`
    and `failed`, if there are such episodes. The network with the highest mean reward, of equals
    the last one, which has learnt for longest, is kept in a folder that `load_agent` takes, without
    the optimizer. A run that is resumed goes on with the best one there; otherwise the first
    evaluation replaces it.

    In a game for several agents the network has one seat, another one in each episode, and an
    opponent all others, unless they are those of the bots of `against`. Figures are those of the
    network, and `win_rate` is its share of the highest rewards: 1 for a win, 1/2 if two share it,
    0; against bots the mean of the metrics of `against`.

    The network and all random states of training stay as they would be without this. An error of
    a game ends the run, as in training, and says that it was in an evaluation. In a process group
    rank 0 evaluates, and the others wait.

    Args:
        source: the game; or a function that makes as many environments as it is asked for, with
            autoreset "disabled". They are made at the first evaluation, and closed at the end.
        episodes: number of episodes of an evaluation.
        interval: decisions of training between evaluations; the last update is always evaluated,
            also where `stop` ends the run, but not after a signal or an error.
            None = a twentieth of the run, and later if evaluations take over 1.5 % of its time,
            so that when they take place is not the same on every machine.
        greedy: whether the network takes its most probable actions; otherwise it draws them, with
            the same seed each time.
        opponent: makes an agent, which decides for batches (`BatchPolicy`), from a seed.
        seed: of starts and draws. It is not that of the run: runs with different seeds are
            evaluated on the same episodes.
        max_length: steps after which an episode is cut, since a greedy agent may go round in
            circles; it counts with the reward until then. None = ten times the mean of training,
            1000 at least.
        folder: of the best checkpoint; None = `best` in the folder of the run, if it has one.
        at_start: whether a new run is also evaluated before its first update: one that begins with
            a trained network never keeps less than that. A run that is resumed is not.

    Raises:
        UsageError: a number that cannot be. When the run starts: `folder` holds something else.
            At the first evaluation: environments with another autoreset, an opponent that does not
            decide for batches.

    Example:
        >>> from entity_env.agents.ppo import PPOConfig, train
        >>> from entity_env.games import snake
        >>> from entity_env.vec import Evaluator, VecEnv
        >>> with VecEnv(snake, 64) as vec:  # doctest: +SKIP
        ...     train(vec, PPOConfig(), out="runs/snake", callbacks=[Evaluator(snake)])
    """

    def __init__(
        self,
        source: Game | Callable[[int], VecEnv],
        *,
        episodes: int = 20,
        interval: int | None = None,
        greedy: bool = True,
        opponent: Callable[[int], Agent] = RandomAgent,
        seed: int = 0,
        max_length: int | None = None,
        folder: str | Path | None = None,
        at_start: bool = False,
    ) -> None:
        self._source = source
        self._at_start = at_start
        self._episodes = checked_count("episodes", episodes)
        self._interval = None if interval is None else checked_count("interval", interval)
        self._max_length = None if max_length is None else checked_count("max_length", max_length)
        self._greedy = greedy
        self._opponent = opponent
        self._seed = checked_seed(seed)
        self._folder = None if folder is None else Path(folder)
        self._vec: VecEnv | None = None
        self._best = -np.inf
        self._step = 0
        """Of training, when it was last seen."""
        self._evaluated_step = 0
        self._began = self._spent_s = self._last_s = 0.0
        """Times in evaluations: all, and the last one."""
        self._told = False
        self._is_alone = True
        """Whether the network decides for all rows that are ready."""

    def on_start(self, state: TrainState) -> None:
        if state.rank:
            return
        self._began, self._step = perf_counter(), state.progress.step
        if self._folder is None and state.out is not None:
            self._folder = state.out / BEST
        if self._folder is not None:
            require_place(self._folder)
            if state.is_resumed and (self._folder / CONFIG).is_file():
                self._best = best_reward(self._folder)
        if self._at_start and not state.is_resumed:
            with same_random_states():
                self._evaluate(state)
            self._began = perf_counter()

    def on_update(self, state: TrainState) -> None:
        if not state.rank and self._is_due(state.progress.step, state.progress.total):
            begin = perf_counter()
            with same_random_states():
                self._evaluate(state)
            self._last_s = perf_counter() - begin
            self._spent_s += self._last_s

    def on_end(self, state: TrainState) -> None:
        was_stopped = state.stop_reason is not None and state.error is None
        if was_stopped and not state.rank and 0 < state.progress.step != self._evaluated_step:
            with same_random_states():
                self._evaluate(state)
        vec, self._vec = self._vec, None
        if vec is not None:
            with same_random_states():
                vec.close()

    def _is_due(self, step: int, total: int) -> bool:
        interval = self._interval or max(1, total // _NUM_MOMENTS)
        before, self._step = self._step, step
        if step >= total:
            return True
        if step // interval == before // interval:
            return False
        elapsed_s = perf_counter() - self._began
        is_cheap = self._spent_s + self._last_s <= _TIME_SHARE * elapsed_s
        return self._interval is not None or is_cheap or not self._spent_s

    def _evaluate(self, state: TrainState) -> None:
        step, mean_length = state.progress.step, state.progress.mean_length
        length = self._max_length or _LEAST_LENGTH
        if self._max_length is None and np.isfinite(mean_length):
            length = max(length, int(_TIMES_AS_LONG * mean_length))
        seeds = EpisodeSeeds(self._seed, EVALUATED_ENV)
        run_seed = seeds[1]
        try:
            if self._vec is None:
                self._vec = make_disabled(self._source, self._episodes)
            decide = self._policy(self._vec, state)
            starts = range(self._episodes)
            played = list(play_starts(self._vec, decide, starts, run_seed, max_length=length))
        except Exception as error:
            error.add_note(f"in an evaluation, after {step:,} decisions of training")
            raise
        found = _summary(played, step, 1 if self._is_alone else self._vec.num_agents)
        self._warn_of_cut(found, length)
        self._evaluated_step = step
        state.add_evaluation(found)
        if found.mean_reward >= self._best:
            self._best = found.mean_reward
            if self._folder is not None:
                notes = {"mean_reward": found.mean_reward, "num_episodes": found.num_episodes}
                state.save_copy(self._folder, resumable=False, notes={"evaluation": notes})

    def _policy(self, vec: VecEnv, state: TrainState) -> Decide:
        self._is_alone = asks_one(vec)
        learner: TrainedAgent = state.make_agent(self._seed, greedy=self._greedy)
        if isinstance(state.net.net_config, MLPConfig):  # in numpy three times as fast as in torch
            learner = NumpyAgent(state.net.weights(), greedy=self._greedy, seed=self._seed)
        if self._is_alone:
            return lambda obs, starts: learner.choose_batch(obs)
        return seated(vec, learner.choose_batch, self._opponent(self._seed))

    def _warn_of_cut(self, found: EvaluationResult, length: int) -> None:
        if "cut" in found.metrics and not self._told:
            self._told = True
            _logger.warning(
                "%.0f %% of the evaluation episodes did not end in %s steps, and count with the "
                "reward until then",
                100 * found.metrics["cut"],
                f"{length:,}",
            )


def make_disabled(source: Game | Callable[[int], VecEnv], num_starts: int) -> VecEnv:
    """Environments for `play_starts`, from the source of an `Evaluator`.

    Raises:
        UsageError: what the source makes has another autoreset, or is no `VecEnv`.
    """
    copies = min(num_starts, _MAX_COPIES)
    if isinstance(source, Game):
        return VecEnv(source, copies, autoreset="disabled")
    vec: object = source(copies)
    if not isinstance(vec, VecEnv) or vec.autoreset != "disabled":
        got = f"autoreset={vec.autoreset!r}" if isinstance(vec, VecEnv) else shown(vec)
        raise UsageError(f'an Evaluator needs a VecEnv with autoreset="disabled", got {got}')
    return vec


def asks_one(vec: VecEnvironment) -> bool:
    """Whether one agent alone is asked for actions: a game for one, or against bots."""
    game = getattr(vec, "game", None)
    return getattr(vec, "num_agents", 1) == 1 or (isinstance(game, Game) and has_bots(game))


def seated(vec: VecEnv, choose: Callable[[VecObs], VecActions], opponent: Agent) -> Decide:
    """Actions of a learner in one seat, another one in each episode, and an opponent in the others.

    Raises:
        UsageError: an opponent that does not decide for batches.
    """
    if not isinstance(opponent, BatchPolicy) or vec.game is None:
        raise UsageError(
            "an opponent must decide for batches (decide_batch), as random and trained agents "
            f"do, and play a Game: got {shown(opponent)}"
        )
    policy, schema = opponent, vec.game.schema

    def decide(obs: VecObs, starts: NDArray[np.int64]) -> VecActions:
        is_mine = obs.agent_id == seat_of(starts[obs.env_id], vec.num_agents)
        mine, theirs = choose(obs), policy.decide_batch(obs, schema)
        return {
            name: _chosen(is_mine[mask.actors.row_index], mine[name], theirs[name])
            for name, mask in obs.action_masks.items()
        }

    return decide


def best_reward(folder: Path) -> float:
    """Mean reward with which an `Evaluator` has kept a checkpoint; -inf if it has not.

    Raises:
        CheckpointError: there is none, or it cannot be read.
    """
    notes = read_header(folder).training.get("notes")
    found = notes.get("evaluation") if isinstance(notes, dict) else None
    reward = found.get("mean_reward") if isinstance(found, dict) else None
    return float(reward) if isinstance(reward, int | float) else -np.inf


def _summary(
    played: Sequence[tuple[Sequence[Episode], bool]], step: int, num_agents: int
) -> EvaluationResult:
    """The figures of the learner: of one agent in a game for several, else of all episodes."""
    mine: list[Episode] = []
    wins: list[float] = []
    for episodes, _ in played:
        for i, one in enumerate(episodes):
            if num_agents == 1 or one.agent_id == seat_of(one.number, num_agents):
                mine.append(one)
                rewards = tuple(each.reward for each in episodes)
                wins.append(Result(("",) * len(rewards), rewards).shares[i])
    if not mine:
        raise UsageError("the network had no part in any of the evaluation episodes")
    values: dict[str, list[float]] = {}
    for one in mine:
        for name, value in one.metrics.items():
            values.setdefault(name, []).append(value)
    num_failed = len(values.pop(ERROR_METRIC, ()))
    metrics = {name: statistics.fmean(each) for name, each in values.items()}
    against = [each for name, each in metrics.items() if name.startswith(f"{METRIC}/")]
    if against:
        metrics["win_rate"] = statistics.fmean(against)
    if num_agents > 1:
        metrics["win_rate"] = statistics.fmean(wins)
    for name, count in (("cut", sum(is_cut for _, is_cut in played)), ("failed", num_failed)):
        if count:
            metrics[name] = count / len(mine)
    own = [one.reward for one in mine]
    return EvaluationResult(
        step,
        mean_reward=statistics.fmean(own),
        std_reward=statistics.pstdev(own),
        mean_length=statistics.fmean(one.length for one in mine),
        num_episodes=len(mine),
        metrics={name: each for name, each in metrics.items() if name not in _OWN_FIGURES},
    )


def seat_of(start: Any, num_agents: int) -> Any:  # noqa: ANN401 - an integer, or an array of them
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
