"""Who plays Azul on the command line: agents by name, trained ones, and people."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from entity_env.agents import Agent, load_agent
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.authoring.game import Game
from entity_env.errors import UsageError
from entity_env.games.azul import (
    AzulAgent,
    AzulGame,
    EntityAgent,
    GreedyAgent,
    MCTSAgent,
    RandomAgent,
    RushAgent,
    azul,
    azul_by_id,
)

Load: TypeAlias = Callable[[str, int], Agent]
"""A trained agent from a name and a seed; see `load_agent`."""

AGENTS: Final[dict[str, Callable[[], AzulAgent]]] = {
    "random": RandomAgent,
    "greedy": GreedyAgent,
    "rush": RushAgent,
    "mcts": MCTSAgent,
}
"""Agents that need no training."""

_MCTS: Final = "mcts:"
_NAMES: Final = f"{', '.join(AGENTS)}, {_MCTS}SECONDS"
_MAX_PLAYERS: Final = 4


def loading(*, greedy: bool = False, temperature: float = 1.0, adapt: bool = False) -> Load:
    """What loads trained agents that choose in some way; see `load_agent`."""

    def load(name: str, seed: int) -> Agent:
        return load_agent(name, greedy=greedy, temperature=temperature, adapt=adapt, seed=seed)

    return load


def azul_agent(name: str, seed: int, load: Load) -> AzulAgent:
    """An agent that a user named: one of `AGENTS`, `mcts:SECONDS`, or a trained one.

    Args:
        name: what the user wrote.
        seed: of a trained agent's draws.
        load: loads it.

    Raises:
        UsageError: there is no such agent; says which there are.
        CheckpointError, MissingExtraError: as `load_agent`.
    """
    if name in AGENTS:
        return AGENTS[name]()
    if name.startswith(_MCTS):
        return MCTSAgent(seconds=_seconds(name))
    try:
        agent = load(name, seed)
    except UsageError as error:
        close = difflib.get_close_matches(name, [*AGENTS, "human"], n=1)
        if close:
            raise UsageError(f"no agent {name!r}; did you mean {close[0]}?") from None
        raise UsageError(f"azul is played by {_NAMES}, and trained agents: {error}") from error
    return EntityAgent(agent, _game_of(agent))


def with_seats(game: AzulGame, names: Sequence[str]) -> tuple[AzulGame, tuple[str, ...]]:
    """A game with a seat for everybody, and who sits there: random ones where nobody was named.

    Raises:
        UsageError: more agents than the game has seats.
    """
    num_seats = game.num_agents
    if "num_players" not in game.settings:
        num_seats = max(num_seats, min(len(names), _MAX_PLAYERS))
    if len(names) > num_seats:
        raise UsageError(f"{game.name} is for {num_seats} agents, got {len(names)}")
    seated = (*names, *["random"] * (num_seats - len(names)))
    return game.with_settings(num_players=num_seats), seated


def is_azul_name(game: Game, names: Sequence[str]) -> bool:
    """Whether some agents are known to Azul only."""
    return isinstance(game, AzulGame) and any(
        name != "random" and (name in AGENTS or name.startswith(_MCTS)) for name in names
    )


def max_rounds_of(game: AzulGame) -> int | None:
    """After how many rounds a game is cut, by its settings; None = never.

    Raises:
        UsageError: below 0.
    """
    max_rounds = int(game.settings.get("max_rounds", 0))
    if max_rounds < 0:
        raise UsageError(f"{game.name}: max_rounds must be 0 or more, got {max_rounds}")
    return max_rounds or None


def _seconds(name: str) -> float:
    text = name.removeprefix(_MCTS)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"mcts takes seconds above 0 a move, as in {_MCTS}0.5: got {name!r}")
    return seconds


def _game_of(agent: Agent) -> AzulGame:
    """Which of the two games a trained agent knows."""
    knows = agent.weights.action_space if isinstance(agent, NumpyAgent) else ()
    return azul_by_id if set(knows) == set(azul_by_id.action_space()) else azul
