"""`play_starts`: episodes from fixed starts, played to their ends or truncated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.core.episode import Episode
from entity_env.core.vec_obs import VecActions, VecObs
from entity_env.vec.vec_env import VecEnv

Decide: TypeAlias = Callable[[VecObs, NDArray[np.int64]], VecActions]
"""Chooses the actions of a batch, given the index of each environment's start."""
Flags: TypeAlias = NDArray[np.bool_]
OnStep: TypeAlias = Callable[[int, int], None]
"""Called at every step with index and number of actions of the longest running episode."""


def play_starts(
    vec: VecEnv,
    decide: Decide,
    starts: range,
    seed: int,
    *,
    max_length: int | None = None,
    is_over: Callable[[], bool] = lambda: False,
    on_step: OnStep = lambda number, step: None,
) -> Iterator[tuple[list[Episode], bool]]:
    """Plays episodes of a run to their ends; each depends only on the run's seed and its own index.

    Args:
        vec: with autoreset "disabled".
        starts, seed: indices of the episodes, and the run's seed; see `VecEnv.reset_envs`.
        max_length: actions of an agent after which an episode is truncated; None = never.
        is_over: called between steps; True truncates running episodes, and no others begin.

    Yields:
        One pair per start that has begun, in the order in which they end: the episodes of all
        agents, with the start as `number`; and True if this function truncated any of them. A
        truncated episode has its reward so far.
    """
    # Every start is played to its end: taking the first episodes to end would favor short ones.
    shape = vec.num_envs, vec.num_agents
    number = starts.start + np.arange(vec.num_envs)
    rewards, lengths, is_done = np.zeros(shape), np.zeros(shape, np.int64), np.zeros(shape, bool)
    ended: dict[int, list[Episode]] = {}
    num_left = len(starts)
    obs = vec.reset(seed, starts=number)
    while True:
        is_ready = obs.is_ready.reshape(shape)
        rewards += obs.reward.reshape(shape)
        is_done |= obs.done.reshape(shape)
        for episode in obs.episodes:
            ended.setdefault(episode.env_id, []).append(episode)
        # An environment that restarted after a failure is not over, but its agents were done.
        is_ended = vec.is_over | is_done.all(axis=1)
        is_long: Flags = np.any(is_ready & np.greater_equal(lengths, max_length or np.inf), axis=1)
        is_cut = ~is_ended & (is_long | (is_late := is_over()))
        again = is_ended | is_cut
        for env_id in np.flatnonzero(again).tolist():
            found, start = ended.pop(env_id, []), int(number[env_id])
            if start not in starts:
                continue  # it only kept an environment busy until the others ended
            if is_cut[env_id]:
                parts = (rewards[env_id], lengths[env_id], ~is_done[env_id])
                found += _cut_episodes(*parts, _episode_seed(vec, seed, start))
            yield [replace(each, number=start, env_id=0) for each in found], bool(is_cut[env_id])
            num_left -= 1
        if not num_left or is_late:
            return
        if again.any():
            number[again] = number.max() + 1 + np.arange(np.count_nonzero(again))
            rewards[again], lengths[again], is_done[again] = 0, 0, False
            obs = vec.reset_envs(again, seed, starts=number)
        else:
            lengths += is_ready
            on_step(*_longest(number, lengths))
            obs = vec.act(decide(obs, number))


def _longest(number: NDArray[np.int64], lengths: NDArray[np.int64]) -> tuple[int, int]:
    """Index and number of actions of the longest running episode."""
    most = lengths.max(axis=1)
    env_id = int(most.argmax())
    return int(number[env_id]), int(most[env_id])


def _cut_episodes(
    rewards: NDArray[np.float64],
    lengths: NDArray[np.int64],
    is_running: NDArray[np.bool_],
    seed: int,
) -> list[Episode]:
    """Episodes of an environment's agents that have not ended."""
    return [
        Episode(float(rewards[i]), int(lengths[i]), False, True, seed, agent_id=i)
        for i in np.flatnonzero(is_running).tolist()
    ]


def _episode_seed(vec: VecEnv, seed: int, start: int) -> int:
    seeds, number = vec.runs_of([0], seed, np.full(vec.num_envs, start))[0]
    return seeds[number]
