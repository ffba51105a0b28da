"""EpisodeOfGame: one game whose episodes the caller begins."""

from __future__ import annotations

from typing import Self

from entity_env.agents.channels.channel import Transport
from entity_env.agents.channels.train_agent_env import TrainAgentEnv
from entity_env.authoring.game import Game
from entity_env.core.observation import Observation
from entity_env.episodes.single import EpisodeOfEnvironment
from entity_env.errors import UsageError


class EpisodeOfGame(EpisodeOfEnvironment):
    """Steps a game for one agent; the seed of episode `n` is that of episode `n` of `Game.run`.

    A game that goes on by itself from episode to episode does so here as well, unless one is cut
    short, or begun by its index.

    Args:
        game: what to play.
        seed: decides the starts.
        transport: how the game waits for its actions; see `TrainAgentEnv`.

    Raises:
        UsageError: a seed that is no integer, or negative; or a game for several agents.
    """

    def __init__(self, game: Game, seed: int = 0, *, transport: Transport = "greenlet") -> None:
        if game.num_agents != 1:
            raise UsageError(
                f"{game.name} is for {game.num_agents} agents, and an EpisodeEnv shows one: "
                "step it as a TrainAgentEnv or VecEnv"
            )
        self._game_env = _GameEnv(game, seed=seed, transport=transport)
        self._run_seed = seed
        super().__init__(self._game_env, seed)

    @classmethod
    def build(cls, config: Game, seed: int) -> Self:  # type: ignore[override]  # see EpisodeEnv
        """A new environment.

        Args:
            config: the game, with its settings.
            seed: decides the starts.

        Raises:
            UsageError: as for the constructor.
        """
        return cls(config, seed)

    def _begin(self, number: int, has_jumped: bool) -> Observation:
        if has_jumped:
            return self._game_env.begin(self._run_seed, number)
        return self._game_env.reset()


class _GameEnv(TrainAgentEnv):
    """Can also begin a run with a later episode than the first."""

    def begin(self, seed: int, number: int) -> Observation:
        """Begins episode `number` of the run of a seed; a game in the middle of one is unwound."""
        self._seed = None
        self._ends.ended.clear()
        self._observations = []
        self._host.restart(seed, number)
        return self._observe_all()[0]
