"""`CopyEpisodes`: seeds, scores and lengths of the episodes that a program plays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import MAX_IDLE_EPISODES
from entity_env.core.episode_stats import (
    AGENT,
    LAST_REWARD,
    LENGTH,
    NUM_INTS,
    NUM_METRICS,
    NUMBER,
    REWARD,
    ROW,
    SEED,
    TERMINATED as TERMINATED_INT,
    TRUNCATED as TRUNCATED_INT,
)
from entity_env.core.seeding import SEEDS_PER_BLOCK, EpisodeSeeds, Run
from entity_env.vec.external.frames import (
    FAILED,
    IS_NEW,
    STARTED,
    TERMINATED,
    TRUNCATED,
    WAITS,
    Ends,
    StepMessage,
)


class CopyEpisodes:
    """The current episode of every row; env 0 is the first of the program.

    Args:
        num_envs, num_agents: rows are `env_id * num_agents + agent_id`.
        refuse: raises an error about a step that contradicts earlier ones.

    Attributes:
        number: `(num_envs,)` int64, index of the last episode that each environment has started.
        seed, next_seed: `(num_envs,)` uint64, of that episode and of the following one.
        waits: `(num_envs,)` bool, True between two episodes.
        is_playing: `(num_rows,)` bool, True from an episode's first observation to its end.
        asks: `(num_rows,)` bool, True for rows that ask for actions.
    """

    def __init__(self, num_envs: int, num_agents: int, refuse: Callable[[str], NoReturn]) -> None:
        num_rows = num_envs * num_agents
        self._num_agents = num_agents
        self._refuse = refuse
        self._seeds = [EpisodeSeeds(0, env_id) for env_id in range(num_envs)]
        self._blocks: NDArray[np.uint64] = np.zeros((num_envs, SEEDS_PER_BLOCK), np.uint64)
        """By environment, the seeds of the block that has the next episode's."""
        self._runs: dict[int, Run] = {}
        self._all, self._all_rows = np.arange(num_envs), np.arange(num_rows)
        self.env_of = np.repeat(np.arange(num_envs), num_agents)
        self.number: NDArray[np.int64] = np.full(num_envs, -1, dtype=np.int64)
        self.seed: NDArray[np.uint64] = np.zeros(num_envs, dtype=np.uint64)
        self.next_seed: NDArray[np.uint64] = np.zeros(num_envs, dtype=np.uint64)
        self.waits = np.zeros(num_envs, dtype=np.bool_)
        self.is_playing = np.zeros(num_rows, dtype=np.bool_)
        self.asks = np.zeros(num_rows, dtype=np.bool_)
        self._num_idle: NDArray[np.int64] = np.zeros(num_envs, dtype=np.int64)
        self._first_score = np.zeros(num_rows)
        self._score = np.zeros(num_rows)
        self._length: NDArray[np.int64] = np.zeros(num_rows, dtype=np.int64)

    def rows_of(self, env_ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """`(len(env_ids) * num_agents,)`: the rows of some environments."""
        first = env_ids[:, np.newaxis] * self._num_agents
        rows: NDArray[np.int64] = (first + np.arange(self._num_agents)).reshape(-1)
        return rows

    def begin_run(self, env_id: int, run: Run) -> None:
        """Starts a run of episodes at the next `begin`."""
        self._runs[env_id] = run

    def begin(self, env_ids: NDArray[np.int64]) -> None:
        """Abandons the episodes of some environments, and chooses seeds for the next ones."""
        for env_id in env_ids.tolist():
            if env_id in self._runs:
                self._seeds[env_id], number = self._runs.pop(env_id)
                self.number[env_id] = number - 1
            self._fill_block(env_id, (int(self.number[env_id]) + 1) // SEEDS_PER_BLOCK)
        self._choose_seeds(env_ids)
        rows = self.rows_of(env_ids)
        self.is_playing[rows] = self.asks[rows] = False
        self.waits[env_ids] = True

    def act(self) -> None:
        """Counts an action for every row that asks."""
        self._length += self.asks

    def lost(self, row: int) -> tuple[tuple[int, bool, bool, int, int], tuple[float, float]]:
        """Numbers and rewards of a row's episode for `EpisodeCollector.add`, truncated now."""
        env_id = int(self.env_of[row])
        seed, number = int(self.seed[env_id]), int(self.number[env_id])
        reward = float(self._score[row] - self._first_score[row])
        return (int(self._length[row]), False, True, seed, number), (reward, 0.0)

    def note(self, step: StepMessage, env_ids: NDArray[np.int64] | None) -> Noted:
        """Updates the episodes after a step of some environments; None = all."""
        ends, flags = step.ends, step.copies
        is_quiet = env_ids is None and ends is None and not flags.any()
        if is_quiet and step.asks.all() and self.is_playing.all():
            rewards = step.scores - self._score
            self._score[:] = step.scores
            self.asks[:] = True
            return Noted(rewards)
        envs = self._all if env_ids is None else env_ids
        rows = self._all_rows if env_ids is None else self.rows_of(env_ids)
        noted = Noted(np.zeros(len(self.is_playing)))
        if ends is not None:
            noted.local_rows = ends.rows
            self._note_ends(noted, ends, rows[ends.rows])
        has_started, waits = (flags & STARTED) != 0, (flags & WAITS) != 0
        self._start(envs[has_started])
        self.waits[envs] = waits
        if waits.any() or self._num_idle.any():
            self._note_idle(envs, waits, has_started)
        self._note_scores(step, rows, noted.rewards)
        self._require_progress(envs)
        return noted

    def _note_ends(self, noted: Noted, ends: Ends, rows: NDArray[np.int64]) -> None:
        """Notes episodes that have ended, before those that started in this step."""
        flags = ends.flags
        env_ids = self.env_of[rows]
        is_new = (flags & IS_NEW) != 0
        if (self.waits[env_ids] & ~is_new).any():
            self._refuse("an environment between two episodes has ended one")
        noted.was_playing = was_playing = self.is_playing[rows] & ~is_new
        has_failed = (flags & FAILED) != 0
        scores = np.where(has_failed, self._score[rows], ends.scores)
        seeds = np.where(is_new, self.next_seed[env_ids], self.seed[env_ids])
        noted.ints = ints = np.empty((NUM_INTS, len(rows)), dtype=np.int64)
        ints[ROW] = rows
        ints[AGENT] = rows % self._num_agents
        ints[LENGTH] = self._length[rows] * was_playing
        ints[TERMINATED_INT] = (flags & TERMINATED) != 0
        ints[TRUNCATED_INT] = (flags & (TRUNCATED | FAILED)) != 0
        ints[SEED] = seeds
        ints[NUMBER] = self.number[env_ids] + is_new
        ints[NUM_METRICS] = 0
        noted.floats = floats = np.empty((2, len(rows)))
        floats[REWARD] = (scores - self._first_score[rows]) * was_playing
        floats[LAST_REWARD] = last_rewards = (scores - self._score[rows]) * was_playing
        self.is_playing[rows] = False
        np.add.at(noted.rewards, rows, last_rewards)

    def _start(self, env_ids: NDArray[np.int64]) -> None:
        """Notes that environments have started their next episodes."""
        if not len(env_ids):
            return
        if self.is_playing[self.rows_of(env_ids)].any():
            self._refuse(
                "an environment started an episode, but an agent has not ended the last one"
            )
        self.number[env_ids] += 1
        self.seed[env_ids] = self.next_seed[env_ids]
        following = self.number[env_ids] + 1
        for i in np.flatnonzero(following % SEEDS_PER_BLOCK == 0).tolist():
            self._fill_block(int(env_ids[i]), int(following[i]) // SEEDS_PER_BLOCK)
        self._choose_seeds(env_ids)

    def _fill_block(self, env_id: int, block: int) -> None:
        """Computes the seeds of a block of episodes, as `EpisodeSeeds` does one by one."""
        seeds = self._seeds[env_id]
        if type(seeds) is EpisodeSeeds:
            sequence = np.random.SeedSequence(seeds.seed, spawn_key=(seeds.env_id, block))
            self._blocks[env_id] = sequence.generate_state(SEEDS_PER_BLOCK, np.uint64) >> 1
        else:
            first = block * SEEDS_PER_BLOCK
            self._blocks[env_id] = [seeds[first + i] for i in range(SEEDS_PER_BLOCK)]

    def _choose_seeds(self, env_ids: NDArray[np.int64]) -> None:
        following = (self.number[env_ids] + 1) % SEEDS_PER_BLOCK
        self.next_seed[env_ids] = self._blocks[env_ids, following]

    def _note_idle(
        self,
        envs: NDArray[np.int64],
        waits: NDArray[np.bool_],
        has_started: NDArray[np.bool_],
    ) -> None:
        self._num_idle[envs[~waits]] = 0
        self._num_idle[envs[waits & has_started]] += 1
        if self._num_idle.max(initial=0) > MAX_IDLE_EPISODES:
            self._refuse(
                f"{MAX_IDLE_EPISODES} episodes in a row ended without asking any agent, so there "
                "is nothing to train"
            )

    def _note_scores(
        self, step: StepMessage, rows: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        asks, scores = step.asks, step.scores
        if len(asks) == len(self.asks) and asks.all():  # without indexing
            playing = self.is_playing
            rewards += (scores - self._score) * playing
            np.copyto(self._first_score, scores, where=~playing)
            self._length *= playing
            self.asks[:] = playing[:] = True
            self._score[:] = scores
            return
        self.asks[rows] = asks
        asking = rows[asks]
        scores = scores[asks]
        playing = self.is_playing[asking]
        rewards[asking[playing]] += (scores - self._score[asking])[playing]
        fresh = asking[~playing]
        self._first_score[fresh] = scores[~playing]
        self._length[fresh] = 0
        self.is_playing[asking] = True
        self._score[asking] = scores

    def _require_progress(self, envs: NDArray[np.int64]) -> None:
        if self.asks.all() and not self.waits.any():
            return
        asks = self.asks.reshape(-1, self._num_agents)[envs].any(axis=1)
        is_playing = self.is_playing.reshape(-1, self._num_agents)[envs].any(axis=1)
        waits = self.waits[envs]
        if (waits & (asks | is_playing)).any():
            self._refuse("an environment waits for a seed while its agents play")
        if not (waits | asks).all():
            self._refuse("an environment neither asks an agent nor waits for a seed")


@dataclass
class Noted:
    """Result of `CopyEpisodes.note`.

    Args:
        rewards: `(num_rows,)` float64.
        local_rows: `(num_ends,)` row of each end in the message.
        was_playing: `(num_ends,)` bool, False if the agent was not asked in that episode.
        ints, floats: as for `FinishedEpisodes`, one column for each end.
    """

    rewards: NDArray[np.float64]
    local_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    was_playing: NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, np.bool_))
    ints: NDArray[np.int64] = field(default_factory=lambda: np.zeros((NUM_INTS, 0), np.int64))
    floats: NDArray[np.float64] = field(default_factory=lambda: np.zeros((2, 0)))
