"""`Episodes`: episodes that measure agents, in blocks that any process can play."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import is_failure, summary_of
from entity_env.authoring.local_run import CANNOT_PLAY, AgentFailure, RunLimits, Turn
from entity_env.core.episode import ERROR_METRIC, MAX_STEPS, Episode
from entity_env.core.seeding import EpisodeSeeds, SeedsFrom
from entity_env.replay.failures import FailureWriter
from entity_env.vec.evaluation.games import for_all, opponent_choice
from entity_env.vec.evaluation.starts import OnStep, play_starts
from entity_env.vec.options import OnError
from entity_env.vec.vec_env import VecEnv

MAX_COPIES: Final = 64
_BATCHED: Final = 500
"""Number of episodes per block: at its end, few environments play, which costs little with this
many episodes."""
_ONE_BY_ONE: Final = 100
_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PlayedEpisode:
    """An episode that measured agents.

    Args:
        number: index of the episode in its run.
        episodes: one per agent that took part, by agent.
        is_cut: it did not end within the step limit, or an agent failed.
        failure: the agent's failure, if one ended it.
    """

    number: int
    episodes: Sequence[Episode]
    is_cut: bool = False
    failure: AgentFailure | None = None


OnEpisode = Callable[[PlayedEpisode], None]
"""Called once per episode when it ends, in any order."""


def _nothing(number: int, step: int) -> None:
    pass


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Episodes that measure agents, in blocks that depend only on their numbers.

    Episode `i` has the seed `EpisodeSeeds(seed)[i]`, so all agents play the same episodes.

    Args:
        players: makes the agents of a block. Agents that sample must play a block the same way,
            whatever was played before.
        count: number of episodes.
        seed: of the run.
        is_batched: one agent decides for batches; otherwise episodes are played one by one.
        num_envs, num_workers: environments per batch, and processes.
        max_steps: actions of an agent after which an episode is truncated; None = no limit.
        step_timeout_s, on_error, failures: as for `VecEnv`. The timeout is also that of decisions
            of agents that are asked one by one; their episodes also end if an agent fails. With
            "restart", failed episodes are truncated, and count with their score until then.
        on_step: called while episodes are played, see `OnStep`.
    """

    game: Game
    players: Callable[[int], Sequence[Agent]]
    count: int
    seed: int
    is_batched: bool = True
    num_envs: int = MAX_COPIES
    num_workers: int = 0
    max_steps: int | None = MAX_STEPS
    step_timeout_s: float | None = None
    on_error: OnError = "raise"
    failures: Path | None = None
    on_step: OnStep = _nothing

    @property
    def num_blocks(self) -> int:
        return -(-self.count // self._block_size)

    def play(self, blocks: range, on_episode: OnEpisode) -> list[PlayedEpisode]:
        """Plays blocks; returns the episodes in order."""
        if not self.is_batched:
            return [each for block in blocks for each in self._play_singly(block, on_episode)]
        copies = min(self.count, self.num_envs)
        played: list[PlayedEpisode] = []
        with VecEnv(
            self.game,
            copies,
            min(self.num_workers, copies),
            autoreset="disabled",
            step_timeout_s=self.step_timeout_s,
            on_error=self.on_error,
            failures=self.failures,
        ) as vec:
            for block in blocks:
                [agent], found = self.players(block), list[PlayedEpisode]()
                for episodes, is_cut in play_starts(
                    vec,
                    for_all(opponent_choice(vec, agent)),
                    self._numbers(block),
                    self.seed,
                    max_length=self.max_steps,
                    on_step=self.on_step,
                ):
                    found.append(PlayedEpisode(episodes[0].number, episodes, is_cut))
                    on_episode(found[-1])
                played += sorted(found, key=lambda each: each.number)
        return played

    @property
    def _block_size(self) -> int:
        return _BATCHED if self.is_batched else _ONE_BY_ONE

    def _numbers(self, block: int) -> range:
        first = block * self._block_size
        return range(first, min(first + self._block_size, self.count))

    def _play_singly(self, block: int, on_episode: OnEpisode) -> list[PlayedEpisode]:
        numbers, players = self._numbers(block), self.players(block)
        watch = _Watching(self.game, numbers.start, self.on_step, on_episode)
        while watch.next < numbers.stop:
            try:
                self.game.run(
                    *players,
                    seed=self.seed,
                    episodes=numbers.stop - watch.next,
                    watch=watch if self.failures is None else FailureWriter(self.failures, watch),
                    step_timeout_s=self.step_timeout_s,
                    limits=RunLimits(
                        first_episode=watch.next,
                        max_steps=self.max_steps,
                        agent_timeout_s=self.step_timeout_s,
                        on_failure=None if self.on_error == "raise" else watch.fail,
                    ),
                )
            except BaseException as error:
                cannot_play = isinstance(error, CANNOT_PLAY)
                if self.on_error == "raise" or cannot_play or not is_failure(error):
                    raise
                seed, reason = watch.lose(EpisodeSeeds(self.seed)), summary_of(error)
                _logger.warning("an episode failed (seed %d): %s", seed, reason.partition("\n")[0])
            else:
                break
        return watch.finish()


class _Watching:
    """Gathers the episodes of a run, and reports each as soon as no agent plays it."""

    takes_plain = True

    def __init__(self, game: Game, first: int, on_step: OnStep, on_episode: OnEpisode) -> None:
        self.next = first
        """Number of the next episode."""
        self._num_agents = game.num_agents
        self._on_episode = on_episode
        self._on_step = on_step
        self._playing: dict[int, tuple[float, Turn]] = {}
        """By agent: its first score in this episode, and its last turn."""
        self._open: dict[int, list[Episode]] = {}
        """By number: of the agents whose episode has ended."""
        self._cut: set[int] = set()
        self._has_ended = False
        """An episode has ended since the game failed, if it ever did."""
        self._failures: dict[int, AgentFailure] = {}
        self.played: list[PlayedEpisode] = []

    def __call__(self, turn: Turn) -> None:
        if turn.episode is None:
            first_score, _ = self._playing.get(turn.agent_id, (turn.score, turn))
            self._playing[turn.agent_id] = first_score, turn
            self._on_step(turn.number, turn.step)
            return
        for earlier in [number for number in self._open if number < turn.number]:
            self._close(earlier)  # some agents had no part in it
        if turn.is_cut:
            self._cut.add(turn.number)
        self._end(turn.episode)

    def fail(self, failure: AgentFailure) -> None:
        self._failures[failure.number] = failure

    def lose(self, seeds: EpisodeSeeds) -> int:
        """Truncates the episode in which the game failed; returns its seed."""
        lost = [
            (i, turn.number, turn.step + 1, turn.score - first_score)
            for i, (first_score, turn) in self._playing.items()
        ]
        if not lost and not self._open:
            if self._has_ended:  # probably failed after that; otherwise, the next one fails again
                self._has_ended = False
                return seeds[self.next - 1]
            lost = [(i, self.next, 0, 0.0) for i in range(self._num_agents)]
        for i, number, length, reward in lost:
            failed = {ERROR_METRIC: 1.0}
            self._end(Episode(reward, length, False, True, seeds[number], number, 0, i, failed))
        self.finish()
        self._has_ended = False
        return seeds[self.next - 1]

    def finish(self) -> list[PlayedEpisode]:
        """All episodes in order."""
        for number in list(self._open):
            self._close(number)
        return sorted(self.played, key=lambda each: each.number)

    def _end(self, episode: Episode) -> None:
        self._playing.pop(episode.agent_id, None)
        ended = self._open.setdefault(episode.number, [])
        ended.append(episode)
        if len(ended) == self._num_agents:
            self._close(episode.number)

    def _close(self, number: int) -> None:
        self.next = max(self.next, number + 1)
        self._has_ended = True
        episodes = sorted(self._open.pop(number), key=lambda each: each.agent_id)
        failure = self._failures.get(number)
        self.played.append(PlayedEpisode(number, episodes, number in self._cut, failure))
        self._on_episode(self.played[-1])


def block_seed(seed: int, block: int) -> int:
    """Seed of the agents of a block; those of the first block have the run's seed."""
    return SeedsFrom(seed)[block]
