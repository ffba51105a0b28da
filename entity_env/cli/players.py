"""Agents by name, for the agents of a game: random, human, trained, and Azul's own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from entity_env.agents import Agent, load_agent
from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent
from entity_env.authoring.game import Game
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.cli.load_game import nearest
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

HUMAN: Final = "human"
AZUL_AGENTS: Final[dict[str, Callable[[], AzulAgent]]] = {
    "random": RandomAgent,
    "greedy": GreedyAgent,
    "rush": RushAgent,
    "mcts": MCTSAgent,
}
_MCTS: Final = "mcts:"
_AZUL_NAMES: Final = f"{', '.join(AZUL_AGENTS)}, {_MCTS}SECONDS"
_MAX_AZUL_PLAYERS: Final = 4


@dataclass(frozen=True)
class AgentLoader:
    """Loads an agent by name and seed; the fields are arguments of `load_agent`."""

    greedy: bool = False
    temperature: float = 1.0
    adapt: bool = False

    def __call__(self, name: str, seed: int) -> Agent:
        return load_agent(name, seed=seed, **vars(self))


def player_names(game: Game, names: Sequence[str]) -> tuple[str, ...]:
    """A name for every agent of a game: the given ones, then "random"."""
    if len(names) > game.num_agents:
        agents = "1 agent" if game.num_agents == 1 else f"{game.num_agents} agents"
        raise UsageError(f"{game.name} is for {agents}, got {len(names)}: {', '.join(names)}")
    return (*names, *["random"] * (game.num_agents - len(names)))


def load_players(
    names: Sequence[str], seed: int, load: AgentLoader, view: TerminalView | None = None
) -> list[Agent]:
    """One agent per name; human ones see the game through `view`, if there is one."""
    return [
        HumanAgent(show=partial(view.show, agent_id))
        if name == HUMAN and view is not None
        else load(name, seed + agent_id)  # agents with one seed would make the same choices
        for agent_id, name in enumerate(names)
    ]


def azul_agent(name: str, seed: int, load: Callable[[str, int], Agent]) -> AzulAgent:
    """An agent for Azul's own `play_game`: one of `AZUL_AGENTS`, `mcts:SECONDS` or trained."""
    if name in AZUL_AGENTS:
        return AZUL_AGENTS[name]()
    if name.startswith(_MCTS):
        return MCTSAgent(seconds=_seconds(name))
    try:
        agent = load(name, seed)
    except UsageError as error:
        if hint := nearest(name, [*AZUL_AGENTS, HUMAN]):
            raise UsageError(f"no agent {name!r}{hint}") from None
        raise UsageError(f"azul is played by {_AZUL_NAMES}, and trained agents: {error}") from error
    trained_on = agent.weights.action_space if isinstance(agent, NumpyAgent) else ()
    is_by_id = set(trained_on) == set(azul_by_id.action_space())
    return EntityAgent(agent, azul_by_id if is_by_id else azul)


def azul_players(game: AzulGame, names: Sequence[str]) -> tuple[AzulGame, tuple[str, ...]]:
    """The game with at least as many players as names, if it can, and all its player names."""
    num_players = game.num_agents
    if "num_players" not in game.settings:
        num_players = max(num_players, min(len(names), _MAX_AZUL_PLAYERS))
    game = game.with_settings(num_players=num_players)
    return game, player_names(game, names)


def has_azul_agent(game: Game, names: Sequence[str]) -> bool:
    """Whether one of the names is an agent that only Azul has."""
    return isinstance(game, AzulGame) and any(
        name != "random" and (name in AZUL_AGENTS or name.startswith(_MCTS)) for name in names
    )


def max_rounds_of(game: AzulGame) -> int | None:
    """The setting `max_rounds`; None = no limit."""
    max_rounds = int(game.settings.get("max_rounds", 0))
    if max_rounds < 0:
        raise UsageError(f"{game.name}: max_rounds must be 0 or more, got {max_rounds}")
    return max_rounds or None


def _seconds(name: str) -> float:
    try:
        seconds = float(name.removeprefix(_MCTS))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise UsageError(f"mcts takes seconds above 0 a move, as in {_MCTS}0.5: got {name!r}")
    return seconds
