"""`Evaluator`: evaluates a network during training and keeps the best one."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

import numpy as np

from entity_env.agents.random import RandomAgent
from entity_env.agents.rogue_net.checkpoints.folder import (
    CONFIG,
    SUBFOLDER,
    note_training,
    read_header,
    require_place,
)
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.training.callbacks import Callback, EvaluationResult, TrainState
from entity_env.agents.training.tracking.rewards import (
    GREEDY as GREEDY,
    PLAYS,
    SAMPLED as SAMPLED,
)
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import add_note
from entity_env.core.validation import checked_count, checked_seed
from entity_env.replay.play_again import same_random_states
from entity_env.replay.training_replays import keep_episode
from entity_env.vec.evaluation.final import (
    BEST as BEST,
    BEST_OTHER_POLICY,
    LAST,
    MATCH,
    OTHER_POLICY,
    Deadline,
    figures,
    is_clearly_better,
    is_much_worse,
    last_wins,
    play_rounds,
    players_of,
    plays_greedily,
)
from entity_env.vec.evaluation.games import EvaluationGames, Played, quick
from entity_env.vec.evaluation.pace import Pace
from entity_env.vec.vec_env import VecEnv

_logger = logging.getLogger(__name__)

_LEAST_LENGTH: Final = 300
_TIMES_AS_LONG: Final = 10
"""Maximum length, relative to the mean in training, because greedy episodes may never end."""


class Evaluator(Callback):
    """Evaluates a network during training and keeps the best one; a callback of `train`.

    At intervals the network plays episodes in separate environments, always from the same starts,
    which training does not use. The results go to `on_evaluation` of all callbacks and to the
    curves: `evaluation/mean_reward`, `std_reward`, `mean_length`, `num_episodes`, means of the
    game's metrics at the end of episodes, and the shares `cut` and `failed` of truncated and failed
    episodes, if any. The network with the highest mean reward is kept in a folder for `load_agent`,
    without the optimizer; ties go to the last network, which has trained longest. A resumed run
    keeps the best network found in the folder; a new run's first evaluation replaces it.

    At the end, the best and the last network play `5 * episodes` episodes each, at least 100, from
    fresh starts, on which neither was selected, and the better network is kept. In a game for
    several agents with random opponents, games between the two networks decide. If there is no
    time, the last network is kept only if it was evaluated and the best one is not clearly better.
    Both networks play greedily and by sampling. The better policy is stored with the network, and
    agents that load it play so by default: greedily only if that earns more on the same starts
    than chance explains, and does not leave more episodes without an end. Nothing is stored if
    fewer than 100 episodes do not show this.
    Episodes at the end start within a fifth of the run's time (at least 0.25 s, at most 60 s) and
    stop after twice that, or after 1.5 s if a signal ended the run. The scores are stored in
    `run.json` as "evaluated". If greedy play is much worse than sampled play, its worst episode is
    kept in `replays/greedy.replay`; this needs `replays`, and a game for one agent.

    In a game for several agents the network has one seat, which changes with each episode, and an
    opponent has all others, unless they belong to bots of `against`. Figures are the network's.
    `win_rate` is its share of the highest reward: 1 for a win, 1/2 if two agents share it, 0 for a
    loss; against bots, the mean of the metrics of `against`.

    Does not affect the network or any random state of training. An error in a game ends the run,
    as in training, and names the evaluation. In a process group, rank 0 evaluates and the others
    wait.

    Args:
        source: the game; or a function that makes a given number of environments, with autoreset
            "disabled". They are made at the first evaluation and closed at the end.
        episodes: number of episodes per evaluation.
        interval: number of training decisions between evaluations. The last update is always
            evaluated, even if `stop` ends the run, but not after a signal or an error. None = a
            twentieth of the run if evaluations take at most 5 % of its time; otherwise a tenth,
            with as many episodes as fit in 10 % of the time, at least 4. Times and numbers of
            evaluation episodes then depend on the machine.
        greedy: the network takes its most probable actions; otherwise it samples, with the same
            seed each time.
        opponent: given a seed, makes an agent that decides for batches (`BatchPolicy`).
        seed: of starts and draws, independent of the run's seed, so runs with different seeds are
            evaluated on the same episodes.
        max_length: steps after which an episode is truncated, since a greedy agent may go in
            circles; its reward so far counts. None = ten times the mean length in training, at
            least 300.
        folder: of the best checkpoint; None = `best` in the folder of the run, if any.
        at_start: also evaluates a new run before its first update, so a run that starts from a
            trained network never keeps a worse network. Ignored for resumed runs.
        replays: the game, if its replays can be kept in the folder of the run.

    Raises:
        UsageError: an invalid number. When the run starts: `folder` holds something other than a
            checkpoint. At the first evaluation: environments with another autoreset mode, or an
            opponent that does not decide for batches.

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
        replays: Game | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self._source = source
        self._max_length = None if max_length is None else checked_count("max_length", max_length)
        self._greedy = greedy
        self._opponent = opponent
        self._seed = checked_seed(seed)
        self._folder = None if folder is None else Path(folder)
        self._at_start = at_start
        self._replays = replays
        interval = None if interval is None else checked_count("interval", interval)
        self._pace = Pace(checked_count("episodes", episodes), interval, clock)
        self._games: EvaluationGames | None = None
        self._best = -np.inf
        self._best_step: int | None = None
        self._best_result: EvaluationResult | None = None
        self._last_result: EvaluationResult | None = None
        self._start_step = self._evaluated_step = 0
        self._told = False

    def on_start(self, state: TrainState) -> None:
        if state.rank:
            return
        self._pace.start(state.progress)
        self._start_step = self._evaluated_step = state.progress.step
        if self._folder is None and state.out is not None:
            self._folder = state.out / BEST
        if self._folder is not None:
            require_place(self._folder)
            if state.is_resumed and (self._folder / CONFIG).is_file():
                self._best = best_reward(self._folder)
                step = read_header(self._folder).training.get("step")
                self._best_step = step if isinstance(step, int) else -1
        if self._at_start and not state.is_resumed:
            with same_random_states():
                self._evaluate(state, self._pace.episodes, lambda: state.is_interrupted)
        state.reserve_time(np.inf)

    def on_update(self, state: TrainState) -> None:
        if state.rank:
            return
        if num_episodes := self._pace.num_due(state.progress):
            with same_random_states():
                self._evaluate(state, num_episodes, lambda: state.is_interrupted)
            state.reserve_time(self._pace.reserve_s(state.progress))

    def on_end(self, state: TrainState) -> None:
        has_learned = state.progress.step > self._start_step
        try:
            if has_learned and not state.rank and state.error is None:
                with same_random_states():
                    self._finish(state)
        finally:
            games, self._games = self._games, None
            if games is not None:
                with same_random_states():
                    games.close()

    def _require_games(self) -> EvaluationGames:
        if self._games is None:
            episodes = self._pace.episodes
            self._games = EvaluationGames(self._source, episodes, self._opponent, self._seed)
        return self._games

    def _evaluate(self, state: TrainState, num_episodes: int, is_over: Callable[[], bool]) -> None:
        """Evaluates the network from the first starts; keeps it if no earlier one was better.

        A signal ends the evaluation without a result.
        """
        begin, step, length = self._pace.clock(), state.progress.step, self._length(state)
        try:
            games = self._require_games()
            agent = self._agent(state, self._greedy)
            played = games.play(agent, range(num_episodes), max_length=length, is_over=is_over)
        except Exception as error:
            add_note(error, f"in an evaluation, after {step:,} decisions of training")
            raise
        if state.is_interrupted:
            return
        found = games.summary(played, step, greedy=self._greedy)
        self._warn_of_cut(found, length)
        self._evaluated_step, self._last_result = step, found
        state.add_evaluation(found)
        num_decisions = sum(one.length for one in played.mine)
        seconds = self._pace.clock() - begin
        self._pace.add(state.progress, num_episodes, num_decisions, seconds)
        if found.mean_reward >= self._best:
            self._best_result = found
            self._keep(state, found.mean_reward, found.num_episodes)

    def _finish(self, state: TrainState) -> None:
        """Evaluates the last network, then keeps either it or the best so far."""
        deadline = Deadline(state, self._pace)
        step = state.progress.step
        if step != self._evaluated_step and not state.is_interrupted:
            self._evaluate(state, self._pace.num_last(state.progress), deadline)
        try:
            found = self._final_rounds(state, deadline)
        except Exception as error:
            add_note(error, f"in the evaluation at the end, after {step:,} decisions of training")
            raise
        if LAST not in found:  # there was no time
            best, last = self._best_result, self._last_result
            if best and last and last.step == step and not is_clearly_better(best, last):
                self._keep(state, last.mean_reward, last.num_episodes)
            return
        facts: dict[str, object] = {"policy": GREEDY if self._greedy else SAMPLED}
        facts[LAST] = figures(found[LAST], step)
        if BEST in found:
            facts[BEST] = figures(found[BEST], self._best_step or 0)
        if MATCH in found:
            wins = found[MATCH].wins
            facts[MATCH] = {"win_rate": float(np.mean(wins)), "num_episodes": len(wins)}
        if BEST in found and not last_wins(found, self._require_games().vec.num_agents):
            facts["kept"] = self._best_step
        elif BEST in found or self._best_step is None:
            rewards = found[LAST].rewards
            self._keep(state, float(np.mean(rewards)), len(rewards))
        facts.setdefault("kept", self._best_step)
        if OTHER_POLICY in found:
            facts |= self._compare_policies(state, found)
            self._note_policies(state, found)
        state.describe(evaluated=facts)

    def _final_rounds(self, state: TrainState, deadline: Deadline) -> dict[str, Played]:
        """Final episodes of the compared networks; empty if there is no time."""
        games, step = self._require_games(), state.progress.step
        best = None
        if self._folder is not None and self._best_step not in (None, step):
            best = partial(self._kept_agent, state, self._folder)
        last = partial(self._agent, state)
        has_match = not games.is_alone and self._opponent is RandomAgent
        players = players_of(last, best, greedy=self._greedy, has_match=has_match)
        # Whether to play greedily matters most, so this may take the time of grace.
        num = self._pace.num_in_round(deadline.most_s, len(players), state.progress)
        if not num:
            for name in {*players} & {OTHER_POLICY, BEST_OTHER_POLICY}:
                del players[name]
            num = self._pace.num_in_round(deadline.left_s, len(players), state.progress)
        if not num:
            return {}
        length = self._length(state)
        return play_rounds(games, players, num, max_length=length, deadline=deadline)

    def _compare_policies(self, state: TrainState, found: dict[str, Played]) -> dict[str, object]:
        """Figures of the other policy, and a replay of greedy play if it is much worse."""
        other = figures(found[OTHER_POLICY], state.progress.step)
        facts: dict[str, object] = {OTHER_POLICY: other}
        greedy, drawn = self._by_policy(found, LAST, OTHER_POLICY)
        if (is_better := plays_greedily(greedy, drawn)) is not None:
            facts[PLAYS] = GREEDY if is_better else SAMPLED
        if not is_much_worse(greedy, drawn):
            return facts
        facts["greedy_is_worse"] = True
        if self._replays is not None and state.out is not None and self._replays.num_agents == 1:
            worst = min(greedy.mine, key=lambda one: one.reward)
            path = state.out / "replays" / "greedy.replay"
            agent = state.make_agent(self._seed, greedy=True)
            if keep_episode(self._replays, agent, worst.seed, path, self._length(state)):
                facts["replay"] = str(path.relative_to(state.out))
        return facts

    def _by_policy(self, found: dict[str, Played], name: str, other: str) -> tuple[Played, Played]:
        """Episodes of greedy and of sampled play."""
        one, two = found[name], found[other]
        return (one, two) if self._greedy else (two, one)

    def _note_policies(self, state: TrainState, found: dict[str, Played]) -> None:
        """Stores with the last and the best network which policy plays better, if that is known."""
        of_last = self._by_policy(found, LAST, OTHER_POLICY)
        of_best = of_last
        if self._best_step != state.progress.step and BEST_OTHER_POLICY in found:
            of_best = self._by_policy(found, BEST, BEST_OTHER_POLICY)
        checkpoint = None if state.out is None else state.out / SUBFOLDER
        for folder, played in ((checkpoint, of_last), (self._folder, of_best)):
            greedy = plays_greedily(*played)
            if greedy is not None and folder is not None and (folder / CONFIG).is_file():
                note_training(folder, {"greedy": greedy})

    def _keep(self, state: TrainState, mean_reward: float, num_episodes: int) -> None:
        self._best, self._best_step = mean_reward, state.progress.step
        if self._folder is not None:
            notes = {
                "mean_reward": mean_reward,
                "num_episodes": num_episodes,
                "policy": GREEDY if self._greedy else SAMPLED,
            }
            state.save_copy(self._folder, resumable=False, notes={"evaluation": notes})

    def _length(self, state: TrainState) -> int:
        mean_length = state.progress.mean_length
        if self._max_length is not None:
            return self._max_length
        times = int(_TIMES_AS_LONG * mean_length) if np.isfinite(mean_length) else 0
        return max(_LEAST_LENGTH, times)

    def _agent(self, state: TrainState, greedy: bool) -> TrainedAgent:
        return quick(state.make_agent(self._seed, greedy=greedy), self._seed, greedy=greedy)

    def _kept_agent(self, state: TrainState, folder: Path, greedy: bool) -> TrainedAgent:
        agent = state.load_agent(folder, self._seed, greedy=greedy)
        return quick(agent, self._seed, greedy=greedy)

    def _warn_of_cut(self, found: EvaluationResult, length: int) -> None:
        if "cut" in found.metrics and not self._told:
            self._told = True
            _logger.warning(
                "%.0f %% of the evaluation episodes did not end in %s steps, and count with the "
                "reward until then",
                100 * found.metrics["cut"],
                f"{length:,}",
            )


def best_reward(folder: Path) -> float:
    """Mean reward of an `Evaluator`'s checkpoint; -inf for other checkpoints.

    Raises:
        CheckpointError: no checkpoint, or it cannot be read.
    """
    notes = read_header(folder).training.get("notes")
    found = notes.get("evaluation") if isinstance(notes, dict) else None
    reward = found.get("mean_reward") if isinstance(found, dict) else None
    return float(reward) if isinstance(reward, int | float) else -np.inf
