"""Azul's agents by name, and human players, for `azul` and `azul_by_id`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from entity_env import (
    Action,
    ActionName,
    Game,
    Observation,
    ProtocolError,
    SelectEntityActionSpace,
    Turn,
    UsageError,
)
from entity_env.agents import Agent, GameAgents, PolicyAgent
from entity_env.agents.ratings import Result
from entity_env.games.azul.engine.actions import ACTION_SPACE_SIZE
from entity_env.games.azul.engine.engine import legal_ids, winners
from entity_env.games.azul.engine.rules import MAX_PLAYERS
from entity_env.games.azul.engine.state import GameState
from entity_env.games.azul.game import azul, azul_by_id
from entity_env.games.azul.look import move_of, position_of
from entity_env.games.azul.players.agents import (
    AgentInput,
    AzulAgent,
    EntityAgent,
    GreedyAgent,
    MCTSAgent,
    RandomAgent,
    RushAgent,
)
from entity_env.games.azul.players.match import play_game
from entity_env.games.azul.viewer import describe_end, legal_moves, read_move
from entity_env.views import SeenObservation

_AGENTS: Final[Mapping[str, Callable[[], AzulAgent]]] = {
    "random": RandomAgent,
    "greedy": GreedyAgent,
    "rush": RushAgent,
    "mcts": MCTSAgent,
}
_MCTS: Final = "mcts:"
_HINT: Final = "Source, color, line: '2 red 3', 'c black floor'.  ? shows all, q leaves."
_HELP: Final = ("?", "h", "help")

Choose: TypeAlias = Callable[[GameState, Observation], int | None]
"""Chooses the id of a legal move in a position with the player in seat 0; None = leave."""


class PositionAgent(PolicyAgent):
    """Plays `azul` and `azul_by_id` from the position, reconstructed from observations."""

    def __init__(self, choose: Choose, agent: AzulAgent | None = None) -> None:
        super().__init__()
        self._choose = choose
        self.agent = agent
        """The Azul agent that chooses, if any."""

    def decide(self, observation: Observation) -> Mapping[ActionName, Action] | None:
        [question] = self.questions(observation)
        seen = SeenObservation(observation, self.schema.obs_space())
        action_id = self._choose(position_of(seen), observation)
        if action_id is None:
            return None
        if isinstance(question.space, SelectEntityActionSpace):
            action_id = [move_of(option) for option in seen["Option"]].index(action_id)
        return {question.name: question.action([action_id])}


def _playing(agent: AzulAgent, seed: int) -> PositionAgent:
    rng = np.random.default_rng(seed)
    nothing = np.zeros(0, np.float32)

    def choose(state: GameState, _: Observation) -> int:
        mask = np.zeros(ACTION_SPACE_SIZE, np.bool_)
        mask[legal_ids(state)] = True
        return agent.select_action(AgentInput(nothing, mask, 0, state), rng)

    return PositionAgent(choose, agent)


class AzulPlayers(GameAgents):
    """Random, greedy, rushing and searching agents; human players type moves such as `2 red 3`."""

    names = (*_AGENTS, f"{_MCTS}SECONDS")

    def seated(self, game: Game, count: int) -> Game:
        if "num_players" in game.settings or count <= game.num_agents:
            return game
        return game.with_settings(num_players=min(count, MAX_PLAYERS))

    def load(self, name: str, seed: int) -> Agent | None:
        if name.startswith(_MCTS):
            return _playing(_searching(name), seed)
        return _playing(_AGENTS[name](), seed) if name in _AGENTS else None

    def adapted(self, agent: Agent) -> Agent:
        trained_on = getattr(getattr(agent, "weights", None), "action_space", ())
        if set(trained_on) == set(azul_by_id.action_space()):
            return _playing(EntityAgent(agent, azul_by_id), 0)
        return agent

    def human(self, ask: Callable[[Observation, Sequence[str]], str | None]) -> Agent:
        def choose(state: GameState, observation: Observation) -> int | None:
            notes: list[str] = []
            while True:
                answer = ask(observation, [*notes, _HINT])
                if answer is None:
                    return None
                if answer.lower() in _HELP:
                    notes = legal_moves(state)
                    continue
                try:
                    return read_move(answer, state)
                except UsageError as error:
                    notes = [str(error)]

        return PositionAgent(choose)

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
        """See `play_game`; compiled if numba is installed. Games end long before a step limit."""
        failures: list[Any] = []
        runs = self.match_runs(azul.schema, len(agents), step_timeout_s, failures.append)
        own = [
            getattr(agent, "agent", None) or EntityAgent(agent, azul, run)
            for agent, run in zip(agents, runs, strict=True)
        ]
        max_rounds = game.settings.get("max_rounds", 0) or None
        try:
            with runs[0].timeout:
                runs[0].timeout.stop()
                return play_game(own, seed=seed, names=names, max_rounds=max_rounds)
        except ProtocolError:  # the agent stopped
            if not failures:
                raise
            return Result.lost(names, {}, failures[0])

    def summary(self, names: Sequence[str], ends: Sequence[Turn]) -> str:
        state = position_of(
            SeenObservation(ends[0].observation, azul.obs_space(), ends[0].agent_id)
        )
        scores = ", ".join(
            f"{name} {score}" for name, score in zip(names, state.scores, strict=True)
        )
        if state.end is None:
            return f"{scores}; truncated after {state.round - 1} rounds"
        first = [names[player] for player in winners(state)]
        won = "won by" if len(first) == 1 else "shared by"
        return (
            f"{scores}; {won} {' and '.join(first)} after {state.round} rounds "
            f"({describe_end(state.end)})"
        )


def _searching(name: str) -> MCTSAgent:
    try:
        return MCTSAgent(seconds=float(name.removeprefix(_MCTS)))
    except (ValueError, UsageError) as error:
        raise UsageError(
            f"mcts needs seconds per move, above 0, as in {_MCTS}0.5: got {name!r}"
        ) from error


players = AzulPlayers()
