"""Bots of kaggle-environments by name, such as `starter`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from entity_env.agents import Agent, GameAgents, ScriptedAgent
from entity_env.authoring.action_type import ActionKey
from entity_env.authoring.game import Game
from entity_env.authoring.obs import Obs
from entity_env.core.validation import num_positional
from entity_env.errors import UsageError
from entity_env.interop.kaggle.game import KaggleAdapter, KaggleObs, OwnRandom, kaggle_env


class KaggleBot(ScriptedAgent):
    """A bot of kaggle-environments, whose actions become the nearest decisions of the adapter.

    Args:
        function: `bot(observation, configuration)`, or without the configuration.
        seed: of the random numbers that it draws from `random` and `numpy.random`.
    """

    def __init__(self, function: Any, seed: int) -> None:  # noqa: ANN401 - untyped library
        from kaggle_environments.utils import Struct

        self._seen: Callable[..., Any] = Struct  # a dict whose items are attributes, too
        self._function = function
        self._takes = num_positional(function, 2)
        self._random = OwnRandom(seed)

    def choose(self, obs: Obs, *actions: ActionKey) -> object:
        if not isinstance(obs, KaggleObs):
            raise UsageError("bots of kaggle-environments play only its games")
        seen = self._seen(**obs.raw)
        with self._random:
            moves = self._function(*(seen, obs.seats.configuration)[: self._takes])
        return obs.seats.answer(moves, obs.player)


class KaggleBots(GameAgents):
    """The bots that come with a game of kaggle-environments."""

    def __init__(self, adapter: type[KaggleAdapter]) -> None:
        self._environment = adapter.environment

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        return tuple(kaggle_env(self._environment).agents)

    def seated(self, game: Game, count: int) -> Game:
        allowed = kaggle_env(self._environment).specification.agents
        fitting = [each for each in allowed if each >= count]
        if "players" in game.settings or count <= game.num_agents or not fitting:
            return game
        return game.with_settings(players=min(fitting))

    def load(self, name: str, seed: int) -> Agent | None:
        function = kaggle_env(self._environment).agents.get(name)
        return None if function is None else KaggleBot(function, seed)
