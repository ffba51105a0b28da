"""Agents that play by action ids: scripted, searching, human and trained.

Example:
    >>> import numpy as np
    >>> from entity_env.games.azul import AgentInput, AzulEnv, EnvConfig, GreedyAgent
    >>> env = AzulEnv(EnvConfig(include_full_state_in_step=True), seed=1)
    >>> agent, rng = GreedyAgent(), np.random.default_rng(1)
    >>> step = env.reset()
    >>> while not step.done:
    ...     step = env.step(agent.select_action(AgentInput.of(step), rng))
    >>> sum(env.state.scores) > 20
    True
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from entity_env.agents import Agent, AgentRun
from entity_env.core.validation import checked_count, is_number
from entity_env.errors import ProtocolError, UsageError
from entity_env.games.azul.engine.actions import EpisodeDone
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.env import EnvStep
from entity_env.games.azul.game import (
    AzulGame,
    ask_for_id,
    ask_for_option,
    azul,
    azul_by_id,
    observe,
)
from entity_env.games.azul.kernels.heuristics import GREEDY, RUSH, best_action_id
from entity_env.games.azul.kernels.kernel import copied_words, fastest
from entity_env.games.azul.players.mcts import Search, Tree
from entity_env.games.azul.viewer import draw_state, read_move

_CHUNK_S: Final = 0.02
"""Approximate seconds between clock readings."""


class AgentInput(NamedTuple):
    """Input of an agent.

    Attributes:
        observation: `(obs_size,)` float32, seen by the current player.
        legal_action_mask: `(300,)` bool.
        current_player: player to move.
        state: position; required only by agents with `needs_state`.
    """

    observation: NDArray[np.float32]
    legal_action_mask: NDArray[np.bool_]
    current_player: int
    state: GameState | None = None

    @classmethod
    def of(cls, step: EnvStep) -> AgentInput:
        """Input for the current player of a step."""
        player = step.current_player
        return cls(step.observations[player], step.legal_action_mask, player, step.state)


class AzulAgent(Protocol):
    """Chooses among the legal actions."""

    @property
    def needs_state(self) -> bool:
        """Whether `AgentInput.state` must be given."""

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        """Id of a legal action.

        Args:
            agent_input: may be read-only.
            rng: source of all random draws.

        Raises:
            EpisodeDone: the game is over.
        """


class RandomAgent:
    """Chooses uniformly among the legal actions."""

    needs_state: Final = False

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        legal = np.flatnonzero(agent_input.legal_action_mask)
        if not len(legal):
            raise _no_action(self)
        return int(rng.choice(legal))


class _HeuristicAgent:
    needs_state: Final = True
    _idea: int

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        state = required_state(agent_input, self)
        return int(fastest(best_action_id)(copied_words(state.words), self._idea))


class GreedyAgent(_HeuristicAgent):
    """Looks one move ahead: maximizes points now minus the floor cost.

    Started lines and shares of the final bonuses also count (formula in `kernels.heuristics`);
    moves of other players do not. Ties go to the lowest id.
    """

    _idea = GREEDY


class RushAgent(_HeuristicAgent):
    """Aims at a full row as soon as possible: fills the top lines first, whatever they score."""

    _idea = RUSH


class MCTSAgent:
    """Monte Carlo tree search over the rest of the round; see `kernels.mcts`.

    A rollout follows `GreedyAgent`'s rule to the end of the round and for `rounds` more rounds.
    With `rounds` 1, a rollout takes about three times as long as with 0, but the agent wins more
    games in equal time.

    Args:
        seconds: wall-clock time per move; None = no limit except `rollouts`.
        rollouts: maximum visits per move; None = as many as the time allows. If both are None, one
            second.
        rounds: number of rounds that a rollout plays after the current one.

    Attributes:
        num_moves, num_visits: totals of all searches so far.

    Raises:
        UsageError: an invalid value.
    """

    needs_state: Final = True

    def __init__(
        self,
        *,
        seconds: float | None = None,
        rollouts: int | None = None,
        rounds: int = 1,
    ) -> None:
        if seconds is None and rollouts is None:
            seconds = 1.0
        time_s: object = seconds
        is_time = is_number(time_s) and not isinstance(time_s, bool)
        if seconds is not None and not (is_time and 0 < seconds < float("inf")):
            raise UsageError(
                f"MCTSAgent: seconds must be above 0 and finite, or None: got {seconds!r}"
            )
        if rollouts is not None:
            checked_count("MCTSAgent: rollouts", rollouts)
        self._seconds = seconds
        self._rollouts = rollouts
        self._rounds = checked_count("MCTSAgent: rounds", rounds, 0)
        self._tree = Tree.empty()
        self.num_moves = 0
        self.num_visits = 0

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        state = required_state(agent_input, self)
        tree = self._tree
        tree.clear()
        search = Search(state, tree, self._rounds, int(rng.integers(2**63)))
        self.num_visits += self._run(search)
        self.num_moves += search.num_moves
        return tree.best_action_id()

    def _run(self, search: Search) -> int:
        limit = self._rollouts
        if self._seconds is None and limit is not None:
            search.run(limit)
            return limit
        start = now = time.perf_counter()
        end = start + (self._seconds or 0.0)
        done, chunk = 0, 1
        while True:
            chunk = chunk if limit is None else min(chunk, limit - done)
            search.run(chunk)
            done += chunk
            before, now = now, time.perf_counter()
            if now >= end or done == limit:
                return done
            if now - before < _CHUNK_S / 2:
                chunk *= 2
            per_visit = (now - start) / done
            chunk = max(1, min(chunk, int((end - now) / per_visit)))


def required_state(agent_input: AgentInput, agent: object) -> GameState:
    """Position of an input; UsageError if missing, EpisodeDone if the game is over."""
    if agent_input.state is None:
        raise UsageError(
            f"{type(agent).__name__} needs AgentInput.state: make the environment with "
            "EnvConfig(include_full_state_in_step=True)"
        )
    if agent_input.state.is_over:
        raise _no_action(agent)
    return agent_input.state


def _no_action(agent: object) -> EpisodeDone:
    return EpisodeDone(f"{type(agent).__name__} has no legal action: the game is over")


PROMPT: Final = "source, color, line: "


class HumanAgent:
    """Human player: shows the table and asks until the answer is a legal move.

    Args:
        ask: shows a prompt and returns a line, like `input`; its errors pass through.
        show: shows text and adds a line end, like `print`.
        colours: `show` supports ANSI colors; see `has_colours`.
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


class EntityAgent:
    """Adapts an agent of the game `azul`, such as a trained network from `load_agent`.

    The agent uses its own random draws, not the `rng` of `select_action`.

    Args:
        agent: an agent that is not used by another game at the same time.
        game: `azul`, or `azul_by_id` for moves chosen by id.
        run: of the agent; None = a new one.

    Raises:
        ProtocolError: the agent belongs to an environment.

    Example:
        >>> from entity_env import agents
        >>> from entity_env.games.azul import EntityAgent, GreedyAgent, play_game
        >>> play_game([EntityAgent(agents.RandomAgent(seed=1)), GreedyAgent()], seed=1).shares
        (0.0, 1.0)
    """

    needs_state: Final = True

    def __init__(self, agent: Agent, game: AzulGame = azul, run: AgentRun | None = None) -> None:
        self._agent = agent
        self._ask = ask_for_id if game.play is azul_by_id.play else ask_for_option
        agent.join(AgentRun(game.schema) if run is None else run)

    def select_action(self, agent_input: AgentInput, rng: np.random.Generator) -> int:
        """Id of a legal action.

        Raises:
            CheckpointError: a network that was trained for another game.
            ProtocolError: the agent stopped.
            UsageError: no position in the input.
        """
        state = required_state(agent_input, self)
        action_id = self._ask(self._agent, observe(state, agent_input.current_player), state)
        if action_id is None:
            raise ProtocolError(f"{type(self._agent).__name__} stopped in the middle of a game")
        return action_id
