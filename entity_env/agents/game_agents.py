"""`GameAgents`: the agents that come with a game, and how people enter moves in it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TypeAlias, TypeVar

from entity_env.agents.ratings import Result
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.core.observation import Observation
from entity_env.errors import UsageError

T = TypeVar("T")
Ask: TypeAlias = Callable[[Observation, Sequence[str]], str | None]
"""Draws an observation with some lines below it, and returns the line that a person typed; None =
the person leaves."""


class GameAgents:
    """The agents that come with a game; override what differs from other games.

    `Game(players="module:name")` names an instance, which is imported when agents are loaded.

    Attributes:
        names: of the agents, for messages.
    """

    names: Sequence[str] = ()

    def seated(self, game: Game, count: int) -> Game:
        """The game for as many agents as were named, if it can be played by so many."""
        return game

    def load(self, name: str, seed: int) -> Agent | None:
        """The agent with a name; None = it is none of the game's own.

        Raises:
            UsageError: the name is incomplete.
        """
        return None

    def adapted(self, agent: Agent) -> Agent:
        """An agent of `load_agent` for this game, such as one trained for another form of it."""
        return agent

    def human(self, ask: Ask) -> Agent | None:
        """A person who types moves as lines; None = `HumanAgent` asks by keys."""
        return None

    def play_match_game(
        self,
        game: Game,
        names: Sequence[str],
        agents: Sequence[Agent],
        *,
        seed: int,
        step_timeout_s: float | None = None,
    ) -> Result:
        """The result of one game of a match; `names` and `agents` by seat.

        A seat without a part in this game is none of the result's.
        """
        episodes = game.run(*agents, seed=seed, step_timeout_s=step_timeout_s)
        return Result(
            tuple(names[episode.agent_id] for episode in episodes),
            tuple(episode.reward for episode in episodes),
        )

    def summary(self, names: Sequence[str], ends: Sequence[Turn]) -> str | None:
        """How an episode went, in one line, by the last turn of every agent; None = as others."""
        return None


def game_agents(game: Game) -> GameAgents:
    """The agents that come with a game; an instance without any if it has none.

    Raises:
        UsageError: `Game.players` names no `GameAgents`.
    """
    return GameAgents() if game.players is None else named_part(game, "players", GameAgents)


def named_part(game: Game, keyword: str, kind: type[T]) -> T:
    """What a keyword of a game names as `module:name`, imported.

    Raises:
        UsageError: there is none, or none of this class.
    """
    place: str = getattr(game, keyword)
    module, _, name = place.partition(":")
    try:
        found = getattr(import_module(module), name, None)
    except (ImportError, ValueError) as error:
        raise UsageError(f"{game.name}: {keyword}={place!r}: {error}") from error
    if not isinstance(found, kind):
        raise UsageError(
            f"{game.name}: {keyword}={place!r} must name an instance of {kind.__name__} as "
            f"'module:name', got {found!r}"
        )
    return found
