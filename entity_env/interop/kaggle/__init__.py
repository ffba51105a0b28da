"""Games of the package `kaggle-environments` as games of entity_env, such as `kaggle:orbit_wars`.

An adapter says what a player sees of a game and what its decisions are; `orbit_wars.py` and
`planet_wars.py` are adapters. The rules and bots are those of the package, which `INSTALL`
installs. Code that works for other libraries belongs elsewhere.

Any other game of the package is added the same way, in a file of yours::

    class Kargo(KaggleAdapter):
        environment = "kargo"
        ...  # show, moves and, for bots and replays, answer

    def play(agents, *, seed: int, players: int = 2, turns: int = 0) -> None:
        play_kaggle(Kargo, agents, seed=seed, players=players, turns=turns)

    kargo = KaggleGame(play, adapter=Kargo, entities=..., name="kargo")
    bots = KaggleBots(Kargo)
"""

from __future__ import annotations

from typing import Final

from entity_env.interop.kaggle.bots import KaggleBots as KaggleBots
from entity_env.interop.kaggle.game import (
    INSTALL as INSTALL,
    KaggleAdapter as KaggleAdapter,
    KaggleGame as KaggleGame,
    adapted_game as adapted_game,
    kaggle_env as kaggle_env,
    play_kaggle as play_kaggle,
)

ADAPTED: Final = ("orbit_wars", "planet_wars")
"""Games with an adapter: each is a module of this package, with a `Game` of the same name."""
