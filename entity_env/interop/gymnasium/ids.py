"""Gymnasium ids of the package's games, such as `entity_env/Snake-v0`."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any, Final

import gymnasium

from entity_env.authoring.game import Game
from entity_env.games.versions import VERSIONS
from entity_env.interop.gymnasium.env import GameEnv, make_vector_env
from entity_env.interop.gymnasium.vector_env import VectorEnvBase

_NAMESPACE: Final = "entity_env"


class NamedGameEnv(GameEnv):
    """`GameEnv` of one of the package's games."""

    def __init__(self, game: str, **given: Any) -> None:  # noqa: ANN401 - of any keyword
        super().__init__(_game(game), **given)


def make_named_games(game: str, num_envs: int = 1, **given: Any) -> VectorEnvBase:  # noqa: ANN401
    """`make_vector_env` for one of the package's games, by name."""
    return make_vector_env(_game(game), num_envs, **given)


def game_ids() -> dict[str, str]:
    """Ids of single-agent games, by name of the game."""
    return {
        name: f"{_NAMESPACE}/{_camel_case(name)}-v{version}" for name, version in VERSIONS.items()
    }


def register_games() -> None:
    """Registers the ids without loading games."""
    for name, env_id in game_ids().items():
        if env_id not in gymnasium.registry:
            gymnasium.register(
                env_id,
                entry_point=f"{__name__}:{NamedGameEnv.__name__}",
                vector_entry_point=f"{__name__}:{make_named_games.__name__}",
                kwargs={"game": name},
            )


def _camel_case(name: str) -> str:
    return "".join(word.capitalize() for word in re.split("[_:]", name))


def _game(name: str) -> Game:
    game: Game = getattr(import_module("entity_env.games"), name.replace(":", "_"))
    return game
