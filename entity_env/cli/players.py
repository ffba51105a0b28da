"""Fills the seats of a game with the agents that a user named."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from entity_env.agents import Agent
from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.load import load_agent
from entity_env.authoring.game import Game
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.errors import UsageError

HUMAN = "human"


def seat_names(game: Game, names: Sequence[str]) -> tuple[str, ...]:
    """A name for every agent of a game: those given, then random ones.

    Raises:
        UsageError: more names than the game has agents.
    """
    if len(names) > game.num_agents:
        agents = "1 agent" if game.num_agents == 1 else f"{game.num_agents} agents"
        raise UsageError(f"{game.name} is for {agents}, got {len(names)}: {', '.join(names)}")
    return (*names, *["random"] * (game.num_agents - len(names)))


def load_agents(
    names: Sequence[str],
    seed: int,
    *,
    greedy: bool = False,
    temperature: float = 1.0,
    adapt: bool = False,
    view: TerminalView | None = None,
) -> list[Agent]:
    """An agent for each seat; people see the game through `view`, if there is one.

    Raises:
        UsageError, CheckpointError, MissingExtraError: as `load_agent`.
    """
    return [
        HumanAgent(show=partial(view.show, agent_id))
        if name == HUMAN and view is not None
        # Agents of one seed would make the same choices.
        else load_agent(
            name, greedy=greedy, temperature=temperature, adapt=adapt, seed=seed + agent_id
        )
        for agent_id, name in enumerate(names)
    ]
