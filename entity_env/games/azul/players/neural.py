"""EntityAgent: an agent of the game `azul`, which sees entities, among those that answer ids.

Example:
    >>> from entity_env.agents import RandomAgent
    >>> from entity_env.games.azul import EntityAgent, GreedyAgent, play_game
    >>> play_game([EntityAgent(RandomAgent(seed=1)), GreedyAgent()], seed=1).shares
    (0.0, 1.0)
"""

from __future__ import annotations

from typing import Final

import numpy as np

from entity_env.authoring.agent import Agent
from entity_env.authoring.local_run import AgentRun
from entity_env.errors import ProtocolError
from entity_env.games.azul.game import (
    AzulGame,
    ask_for_id,
    ask_for_option,
    azul,
    azul_by_id,
    observe,
)
from entity_env.games.azul.players.scripted import AgentInput, required_state


class EntityAgent:
    """Lets an agent choose that sees entities: a trained network, as `load_agent` returns it.

    It is asked as in `azul.run`, and keeps its draws to itself: the `rng` of `select_action` is not
    used.

    Args:
        agent: who chooses; no other game may use it meanwhile.
        game: which game it knows: `azul`, or `azul_by_id`, whose moves are chosen by id.

    Raises:
        ProtocolError: an agent that is driven from elsewhere.
    """

    needs_state: Final = True

    def __init__(self, agent: Agent, game: AzulGame = azul) -> None:
        self._agent = agent
        self._ask = ask_for_id if game.play is azul_by_id.play else ask_for_option
        agent.join(AgentRun(game.schema))

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        """The id of a legal action.

        Raises:
            CheckpointError: a network that was trained for another game.
            ProtocolError: the agent has hung up.
            UsageError: there is no position in the input.
        """
        state = required_state(agent_input, self)
        action_id = self._ask(self._agent, observe(state, agent_input.current_player), state)
        if action_id is None:
            raise ProtocolError(f"{type(self._agent).__name__} has hung up in the middle of a game")
        return action_id
