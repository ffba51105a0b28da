"""Games between agents: single games and matches.

Example:
    >>> from entity_env.games.azul import GreedyAgent, RandomAgent, play_match
    >>> match = play_match({"greedy": GreedyAgent(), "random": RandomAgent()}, num_games=10)
    >>> [row.name for row in match.table()]
    ['greedy', 'random']
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from entity_env.agents.ratings import Match as Match, Result, Standing as Standing, seatings
from entity_env.core.seeding import EpisodeSeeds
from entity_env.core.validation import checked_seed, is_integer
from entity_env.errors import UsageError
from entity_env.games.azul.engine.actions import IllegalAction, InvalidActionId
from entity_env.games.azul.engine.state import End
from entity_env.games.azul.env import AzulEnv, EnvConfig, EnvStep
from entity_env.games.azul.kernels.engine import rows_of
from entity_env.games.azul.players.agents import AgentInput, AzulAgent

Watch = Callable[[EnvStep], None]


@dataclass(frozen=True)
class GameResult(Result):
    """Result of a game, by seat.

    Attributes:
        rows: full rows; the tie-breaker.
        end: why the game ended; None if truncated.
    """

    rows: tuple[int, ...]
    num_moves: int
    num_rounds: int
    end: End | None

    @property
    def ranks(self) -> tuple[tuple[float, ...], ...]:
        return tuple(zip(self.scores, self.rows, strict=True))


def play_game(
    agents: Sequence[AzulAgent],
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    starting_player: int = 0,
    max_rounds: int | None = None,
    watch: Watch | None = None,
) -> GameResult:
    """Plays one game.

    Args:
        agents: 2 to 4, by seat.
        seed: seed of the deals and of the agents' draws.
        names: names of the agents; default: their class names.
        starting_player: the seat that begins.
        max_rounds: rounds after which the game is truncated; None = never.
        watch: called with every step, including the first.

    Raises:
        UsageError: an invalid number of agents or value.
        InvalidActionId, IllegalAction: an agent chose an invalid or illegal action.
    """
    checked_seed(seed)
    if names is None:
        names = [type(agent).__name__ for agent in agents]
    if len(names) != len(agents):
        raise UsageError(f"play_game: {len(agents)} agents need as many names, got {len(names)}")
    config = EnvConfig(
        num_players=len(agents),
        starting_player=starting_player,
        include_full_state_in_step=any(agent.needs_state for agent in agents) or watch is not None,
        max_rounds=max_rounds,
    )
    deals, draws = np.random.SeedSequence(seed).generate_state(2, np.uint64).tolist()
    env, rng = AzulEnv(config, seed=deals), np.random.default_rng(draws)
    step = env.reset()
    num_moves = 0
    if watch is not None:
        watch(step)
    while not step.done:
        player = step.current_player
        action_id = agents[player].select_action(AgentInput.of(step), rng)
        step = _step(env, action_id, f"{names[player]} in seat {player}, move {num_moves}")
        num_moves += 1
        if watch is not None:
            watch(step)
    state = env.state
    return GameResult(
        names=tuple(names),
        scores=tuple(state.scores),
        rows=tuple(rows_of(player.wall) for player in state.players),
        num_moves=num_moves,
        num_rounds=state.round,
        end=state.end,
    )


def _step(env: AzulEnv, action_id: int, agent: str) -> EnvStep:
    try:
        return env.step(action_id)
    except (IllegalAction, InvalidActionId) as error:
        raise type(error)(f"{agent} chose an illegal action: {error}") from error


def play_match(
    agents: Mapping[str, AzulAgent],
    num_games: int,
    *,
    num_players: int = 2,
    seed: int = 0,
    max_rounds: int | None = None,
    on_game: Callable[[GameResult], None] | None = None,
) -> Match[GameResult]:
    """Plays a match: games of every group of `num_players` agents.

    Games come in sets of `num_players` with identical first-round deals. In a set every agent plays
    every seat once, and seat 0 begins, so all agents begin equally often.

    Args:
        agents: agents by name; at least `num_players`.
        num_games: games per group, a multiple of `num_players`.
        num_players: 2 to 4.
        seed: of the match; set `i` plays `play_game` with the seed `EpisodeSeeds(seed)[i]`, as in
            `entity-env eval azul --agents`.
        max_rounds: as for `play_game`.
        on_game: called with each result.

    Raises:
        UsageError: invalid numbers.
        InvalidActionId, IllegalAction: see `play_game`.
    """
    EnvConfig(num_players=num_players, max_rounds=max_rounds)
    if len(agents) < num_players:
        raise UsageError(
            f"play_match: {num_players} players need as many agents: got "
            f"{', '.join(agents) or 'none'}"
        )
    if not is_integer(num_games) or num_games < 1 or num_games % num_players:
        raise UsageError(
            f"play_match: num_games must be a multiple of {num_players} and above 0, since "
            f"every agent has every seat equally often: got {num_games!r}"
        )
    games, seeds = [], EpisodeSeeds(seed)
    for names, number in seatings(tuple(agents), num_players, num_games):
        result = play_game(
            [agents[name] for name in names],
            seed=seeds[number],
            names=names,
            max_rounds=max_rounds,
        )
        games.append(result)
        if on_game is not None:
            on_game(result)
    return Match(tuple(agents), tuple(games))
