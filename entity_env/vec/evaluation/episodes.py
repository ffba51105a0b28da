"""`Episodes`: episodes that measure agents, in blocks that any process can play."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn, Watch
from entity_env.core.episode import Episode
from entity_env.core.seeding import SeedsFrom
from entity_env.replay.failures import FailureWriter
from entity_env.vec.evaluation.games import for_all, opponent_choice
from entity_env.vec.evaluation.starts import play_starts
from entity_env.vec.options import OnError
from entity_env.vec.vec_env import VecEnv

_MAX_COPIES: Final = 64
_BATCHED: Final = 500
"""Number of episodes per block: at its end, few environments play, which costs little with this
many episodes."""
_ONE_BY_ONE: Final = 100


@dataclass(frozen=True, kw_only=True)
class Episodes:
    """Episodes that measure agents, in blocks that depend only on their numbers.

    Args:
        players: makes the agents of a block. Agents that sample must play a block the same way,
            whatever was played before.
        count: number of episodes.
        seed: of the run. If one agent decides for batches, episode `i` has the seed
            `EpisodeSeeds(seed)[i]`, so all agents play the same episodes; otherwise each block
            starts a run with its `block_seed`.
        is_batched: one agent decides for batches; otherwise episodes are played one by one.
        num_envs, num_workers: environments per batch, and processes.
        step_timeout_s, on_error, failures: as for `VecEnv`.
    """

    game: Game
    players: Callable[[int], list[Agent]]
    count: int
    seed: int
    is_batched: bool = True
    num_envs: int = _MAX_COPIES
    num_workers: int = 0
    step_timeout_s: float | None = None
    on_error: OnError = "raise"
    failures: Path | None = None

    @property
    def num_blocks(self) -> int:
        return -(-self.count // self._block_size)

    def play(self, blocks: range, on_episode: Callable[[Episode], None]) -> list[Episode]:
        """Plays blocks; returns the episodes in order.

        `on_episode` is called once per episode when it ends, in any order.
        """
        if not self.is_batched:
            return self._play_singly(blocks, on_episode)
        copies = min(self.count, self.num_envs)
        played: list[Episode] = []
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
                [agent], found = self.players(block), list[Episode]()
                decide = for_all(opponent_choice(vec, agent))
                for [episode], _ in play_starts(vec, decide, self._numbers(block), self.seed):
                    found.append(episode)
                    on_episode(episode)
                played += sorted(found, key=lambda episode: episode.number)
        return played

    @property
    def _block_size(self) -> int:
        return _BATCHED if self.is_batched else _ONE_BY_ONE

    def _numbers(self, block: int) -> range:
        first = block * self._block_size
        return range(first, min(first + self._block_size, self.count))

    def _play_singly(self, blocks: range, on_episode: Callable[[Episode], None]) -> list[Episode]:
        played: list[Episode] = []
        for block in blocks:
            numbers, watch = self._numbers(block), _watching(on_episode)
            found = self.game.run(
                *self.players(block),
                seed=block_seed(self.seed, block),
                episodes=len(numbers),
                watch=watch if self.failures is None else FailureWriter(self.failures, watch),
                step_timeout_s=self.step_timeout_s,
            )
            played += [replace(each, number=numbers.start + each.number) for each in found]
        return played


def _watching(on_episode: Callable[[Episode], None]) -> Watch:
    """Reports each episode once, for its first agent."""
    seen: set[int] = set()

    def watch(turn: Turn) -> None:
        if turn.episode is not None and turn.number not in seen:
            seen.add(turn.number)
            on_episode(turn.episode)

    return watch


def block_seed(seed: int, block: int) -> int:
    """Seed of a block; the first block has the run's seed."""
    return SeedsFrom(seed)[block]
