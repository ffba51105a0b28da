"""Plays many episodes of a game at once, with an agent that decides for all of them together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from entity_env.agents.batch_policy import BatchPolicy
from entity_env.episode import Episode
from entity_env.game import Game
from entity_env.vec import VecEnv

_MAX_COPIES: Final = 64


def play_many(
    game: Game,
    agent: BatchPolicy,
    episodes: int,
    *,
    seed: int,
    num_workers: int,
    on_episode: Callable[[Episode], None],
) -> list[Episode]:
    """Plays a number of episodes of a game for one agent.

    Every copy of the game plays its share, whose size is fixed beforehand: were the first to end
    taken, short episodes would count more often. The workers do not change the episodes.

    Args:
        game: what to play.
        agent: who plays.
        episodes: how many.
        seed: the same seed gives every agent the same starts.
        num_workers: processes that play; 0 = none.
        on_episode: told of each that counts.
    """
    copies = min(episodes, _MAX_COPIES)
    left = [episodes // copies + (i < episodes % copies) for i in range(copies)]
    played: list[Episode] = []
    with VecEnv(game, copies, min(num_workers, copies), seed=seed) as vec:
        obs = vec.reset()
        while len(played) < episodes:
            obs = vec.act(agent.decide_batch(obs, game.schema))
            for episode in obs.episodes:
                if left[episode.env_id]:
                    left[episode.env_id] -= 1
                    played.append(episode)
                    on_episode(episode)
    return played
