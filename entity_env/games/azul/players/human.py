"""HumanAgent: a person who reads the table and writes moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from entity_env.errors import UsageError
from entity_env.games.azul.players.scripted import AgentInput, required_state
from entity_env.games.azul.viewer import draw_state, read_move

PROMPT: Final = "source, colour, line: "


class HumanAgent:
    """Asks a person, again until the answer is a legal move.

    Args:
        ask: shows a prompt and returns a line, as `input` does; what it raises passes through.
        show: shows text, lines without the last end, as `print` does.
        colours: whether `show` knows ANSI colours; see `has_colours`.
    """

    needs_state: Final = True

    def __init__(
        self, ask: Callable[[str], str], show: Callable[[str], object], *, colours: bool = False
    ) -> None:
        self._ask = ask
        self._show = show
        self._colours = colours

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        state = required_state(agent_input, self)
        player = agent_input.current_player
        self._show(draw_state(state, colours=self._colours, viewpoint=player))
        while True:
            try:
                return read_move(self._ask(PROMPT), state)
            except UsageError as error:
                self._show(str(error))
