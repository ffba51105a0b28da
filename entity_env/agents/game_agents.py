"""`GameAgents`: agents that come with a game, such as a human who types moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import TypeAlias, TypeVar

from entity_env.agents.ratings import Result
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import AgentFailure, AgentRun, RunLimits, Turn
from entity_env.authoring.schema import Schema
from entity_env.authoring.step_timeout import StepTimeout
from entity_env.core.observation import Observation
from entity_env.errors import UsageError

T = TypeVar("T")
Ask: TypeAlias = Callable[[Observation, Sequence[str]], str | None]
"""Shows an observation with these lines below it, and returns the line that the player types.

None = the player leaves.
"""


class GameAgents:
    """Agents that come with a game; override what the game needs.

    `Game(players="module:name")` names an instance, which is imported when agents are loaded.

    Attributes:
        names: names of the agents, for messages.
    """

    names: Sequence[str] = ()

    def seated(self, game: Game, count: int) -> Game:
        """The game for `count` agents, if it can change its number of seats; else the same game."""
        return game

    def load(self, name: str, seed: int) -> Agent | None:
        """The game's own agent with this name, if it has one.

        Raises:
            UsageError: the name is incomplete.
        """
        return None

    def adapted(self, agent: Agent) -> Agent:
        """Adapts an agent from `load_agent`, such as one trained for a variant of this game."""
        return agent

    def human(self, ask: Ask) -> Agent | None:
        """Human agent that reads typed moves; None = `HumanAgent`, which reads keys."""
        return None

    def play_match_game(
        self,
        game: Game,
        names: Sequence[str],
        agents: Sequence[Agent],
        *,
        seed: int,
        step_timeout_s: float | None = None,
        max_steps: int | None = None,
    ) -> Result:
        """Plays one game of a match; `names` and `agents` have one item per seat.

        An agent that raises, hangs or answers with an illegal action loses the game. The result
        omits seats that took no part.

        Args:
            seed: of the episode.
            step_timeout_s: maximum seconds of a step of the game, and of a decision of an agent.
            max_steps: actions of an agent after which the game is truncated.
        """
        failures, ends = list[AgentFailure](), _Ends()
        limits = RunLimits(
            max_steps=max_steps, agent_timeout_s=step_timeout_s, on_failure=failures.append
        )
        episodes = game.play_episode(
            *agents, seed=seed, watch=ends, step_timeout_s=step_timeout_s, limits=limits
        )
        scores = {episode.agent_id: episode.reward for episode in episodes}
        if failures:
            return Result.lost(names, scores, failures[0])
        return Result(
            tuple(names[seat] for seat in scores),
            tuple(scores.values()),
            seats=tuple(scores),
            is_cut=ends.is_cut,
        )

    def match_runs(
        self,
        schema: Schema,
        num_agents: int,
        agent_timeout_s: float | None,
        on_failure: Callable[[AgentFailure], None],
    ) -> list[AgentRun]:
        """Runs for the agents of a game that `play_match_game` plays without `Game.run`.

        If an agent fails, `on_failure` is called and its `act` returns None. Play within the
        context `AgentRun.timeout`, which all of them share.
        """
        limits = RunLimits(agent_timeout_s=agent_timeout_s, on_failure=on_failure)
        timeout = StepTimeout(None, agent_timeout_s)
        return [AgentRun(schema, i, timeout=timeout, limits=limits) for i in range(num_agents)]

    def summary(self, names: Sequence[str], ends: Sequence[Turn]) -> str | None:
        """One-line summary of an episode from each agent's last turn; None = the usual summary."""
        return None


class _Ends:
    """Watcher that sees whether the run ended an episode, not the game."""

    takes_plain = True
    is_cut = False

    def __call__(self, turn: Turn) -> None:
        self.is_cut |= turn.is_cut


def game_agents(game: Game) -> GameAgents:
    """The agents that come with a game; an empty instance if it has none.

    Raises:
        UsageError: `Game.players` does not name a `GameAgents`.
    """
    return GameAgents() if game.players is None else named_part(game, "players", GameAgents)


def named_part(game: Game, keyword: str, kind: type[T]) -> T:
    """Imports the object that a keyword of a game names as `module:name`.

    Raises:
        UsageError: the object does not exist, or is not an instance of `kind`.
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
