"""Finds the `EpisodeEnv` that fits a source."""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, Final

from entity_env.authoring.game import Game
from entity_env.core.environment import Environment
from entity_env.episodes.single import EpisodeOfEnvironment
from entity_env.errors import SchemaError, UsageError

if TYPE_CHECKING:
    from entity_env.episodes.base import ManyEnvs, OneEnv
    from entity_env.episodes.episode_of_game import EpisodeOfGame
    from entity_env.episodes.vectorized import EpisodeVec

# By name, and only when asked for: the contract does not know of agents and vec.
_OF_GAME: Final = "entity_env.episodes.episode_of_game:EpisodeOfGame"
_OF_MANY: Final = "entity_env.episodes.vectorized:EpisodeVec"


def episode_env_of(
    source: object, num_envs: int | None, num_workers: int, seed: int
) -> OneEnv | ManyEnvs:
    """See `EpisodeEnv.of`."""
    if num_envs is None and num_workers:
        raise UsageError(f"num_workers={num_workers} needs num_envs: how many environments")
    if _is_vec(source):
        return _of_vec(source, num_envs, seed)
    if isinstance(source, Environment):
        return _of_environment(source, num_envs, seed)
    if not isinstance(source, Game) and not callable(source):
        raise SchemaError(
            "an EpisodeEnv needs a Game, an Environment, its class or a function that returns one, "
            f"or a VecEnv: got {source!r}"
        )
    if num_envs is not None:
        of_many: type[EpisodeVec] = resolve_name(_OF_MANY)
        return of_many.of_copies(source, num_envs, num_workers, seed)
    if isinstance(source, Game):
        of_game: type[EpisodeOfGame] = resolve_name(_OF_GAME)
        return of_game(source, seed)
    return EpisodeOfEnvironment.build(source, seed)


def _of_vec(source: Any, num_envs: int | None, seed: int) -> ManyEnvs:  # noqa: ANN401 - checked
    if num_envs is not None:
        raise UsageError(f"{type(source).__name__} has its number of environments: leave it out")
    of_many: type[EpisodeVec] = resolve_name(_OF_MANY)
    return of_many(source, seed)


def _of_environment(env: Environment, num_envs: int | None, seed: int) -> OneEnv:
    if num_envs is not None:
        raise UsageError(
            f"num_envs={num_envs} needs a game, or a class or function that makes environments: "
            f"got one {type(env).__name__} object"
        )
    return EpisodeOfEnvironment(env, seed)


def _is_vec(source: object) -> bool:
    return not isinstance(source, type) and all(
        hasattr(source, name) for name in ("num_rows", "reset", "act", "send", "recv")
    )
