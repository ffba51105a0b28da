"""Plays many episodes of a game at once, with an agent that decides for all of them together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from entity_env.agents.batch_policy import BatchPolicy
from entity_env.authoring.game import Game
from entity_env.core.episode import Episode
from entity_env.vec import VecEnv
from entity_env.vec.in_process.base import OnError

_MAX_COPIES: Final = 64


def play_many(
    game: Game,
    agent: BatchPolicy,
    episodes: int,
    *,
    seed: int,
    num_workers: int,
    num_envs: int = _MAX_COPIES,
    on_episode: Callable[[Episode], None],
    step_timeout_s: float | None = None,
    on_error: OnError = "raise",
) -> list[Episode]:
    """Plays a number of episodes of a game for one agent.

    Episode `ix` has the seed `EpisodeSeeds(seed)[ix]`, as in `Game.run` and in
    `EpisodeEnv.reset_with_index(ix)`, so that all agents meet the same starts. A copy of the game
    that ends takes the next start, and every episode is played to its end: were the first to end
    counted, short ones would count more often. Workers do not change the episodes, nor do copies,
    but for an agent that draws lots: it decides for all copies together.

    Args:
        game: what to play.
        agent: who plays.
        episodes: how many.
        seed: decides the starts.
        num_workers: processes that play; 0 = none.
        num_envs: how many to play at once, at most.
        on_episode: told of each, in the order in which they end.
        step_timeout_s, on_error: as for `VecEnv`.

    Returns:
        The episodes by their number.
    """
    copies = min(episodes, num_envs)
    starts = np.arange(copies)
    played: list[Episode] = []
    with VecEnv(
        game,
        copies,
        min(num_workers, copies),
        autoreset="disabled",
        step_timeout_s=step_timeout_s,
        on_error=on_error,
    ) as vec:
        obs = vec.reset(seed, starts=starts)
        while True:
            for episode in obs.episodes:
                if episode.number < episodes:  # not one that only keeps its copy busy to the end
                    played.append(replace(episode, env_id=0))
                    on_episode(played[-1])
            if len(played) == episodes:
                return sorted(played, key=lambda episode: episode.number)
            done = obs.done
            if done.any():
                starts[done] = starts.max() + 1 + np.arange(np.count_nonzero(done))
                obs = vec.reset_envs(done, seed, starts=starts)
            else:
                obs = vec.act(agent.decide_batch(obs, game.schema))
