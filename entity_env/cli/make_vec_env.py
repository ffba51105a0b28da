"""Many copies of a game that a user named: as a batch environment where there is one."""

from __future__ import annotations

from functools import partial

from entity_env.authoring.game import Game
from entity_env.core.validation import has_numba
from entity_env.games import BATCH_GAMES
from entity_env.games.azul import AzulTables, azul
from entity_env.vec import VecEnv
from entity_env.vec.batch_env.vec_env import BatchVecEnv
from entity_env.vec.in_process.base import OnError


def is_batch(game: Game) -> bool:
    """Tells whether copies of a game are a batch environment."""
    found = BATCH_GAMES.get(game.name)
    return found is not None and found.game.play is game.play


def many(
    game: Game,
    num_envs: int,
    num_workers: int = 0,
    step_timeout_s: float | None = None,
    on_error: OnError = "raise",
) -> VecEnv:
    """Copies of a game, with its settings.

    Args:
        game: what is copied.
        num_envs: how many copies.
        num_workers: processes that play them; 0 = none.
        step_timeout_s, on_error: as for `VecEnv`; batch environments, which are our own, neither
            hang nor raise, but take long to compile.

    Raises:
        UsageError: a setting that has no default has no value.
    """
    if not is_batch(game):
        return VecEnv(game, num_envs, num_workers, step_timeout_s=step_timeout_s, on_error=on_error)
    game.require_settings()
    batch = partial(BATCH_GAMES[game.name].batch, **game.settings)
    return BatchVecEnv(batch, num_envs, num_workers)


def is_tables(game: Game) -> bool:
    """Tells whether a game is learnt at tables where others play, too: Azul for two, compiled."""
    is_whole = game.num_agents == 2 and not game.settings.get("max_rounds")
    return game.play is azul.play and is_whole and has_numba()


def to_learn_from(
    game: Game,
    num_envs: int,
    num_workers: int = 0,
    step_timeout_s: float | None = None,
    on_error: OnError = "raise",
) -> VecEnv | AzulTables:
    """Copies of a game for a trainer; `AzulTables` where there are such, and no workers."""
    if num_workers == 0 and is_tables(game):
        return AzulTables(num_envs)
    return many(game, num_envs, num_workers, step_timeout_s, on_error)
