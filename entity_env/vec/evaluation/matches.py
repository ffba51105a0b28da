"""`MatchGames`: games between agents that exchange seats, in blocks that any process plays."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from entity_env.agents.game_agents import game_agents
from entity_env.agents.ratings import Match, Result, match_groups, seatings
from entity_env.authoring.agent import Agent
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import SEATS, add_note, summary_of
from entity_env.core.episode import MAX_STEPS
from entity_env.core.seeding import EpisodeSeeds
from entity_env.errors import UsageError
from entity_env.vec.evaluation.episodes import block_seed
from entity_env.vec.options import OnError

_SETS: Final = 10
_NUM_GAMES: Final = 100
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class MatchGames:
    """Games of a match: every group of agents, one per seat, with every agent in every seat.

    In a set of games, each agent of the group has every seat once, with the same episode seed: set
    `i` has the seed `EpisodeSeeds(seed)[i]`, as episode `i` of an evaluation. Agents are made again
    every 10 sets, so a block of games depends only on its number.

    An agent that raises, hangs or answers with an illegal action loses the game.

    Args:
        names: of the agents. If there are fewer agents than seats, each takes several seats: see
            `match_groups`.
        make: makes the agent with a name, from a seed.
        num_games: per group, a multiple of the number of seats; None = 100, rounded up.
        seed: of the run.
        step_timeout_s: maximum seconds of a step of the game, and of a decision of an agent.
        max_steps: actions of an agent after which a game is truncated; None = no limit.
        on_error: "restart" leaves out games in which the game itself fails.
        words: the agents by name, as typed, for messages; default: the names.

    Raises:
        UsageError: the game is for one agent, fewer than two agents, or an impossible number of
            games.
    """

    game: Game
    names: Sequence[str]
    make: Callable[[str, int], Agent]
    num_games: int | None = None
    seed: int = 0
    step_timeout_s: float | None = None
    max_steps: int | None = MAX_STEPS
    on_error: OnError = "raise"
    words: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        seats, names = self.game.num_agents, self.names
        if seats == 1:
            raise UsageError(
                f"{self.game.name} is for 1 agent, and --agents lets several play against each "
                "other: measure one after the other with --agent"
            )
        if len(names) < 2:
            raise UsageError(
                f"--agents needs at least two agents, got {names[0]}; to play an agent "
                f"against itself: --agents {names[0]},{names[0]}"
            )
        if self.num_in_group % seats:
            raise UsageError(
                f"--games must be a multiple of {seats} so that every agent plays each seat "
                f"equally often: got {self.num_games}"
            )

    @property
    def num_in_group(self) -> int:
        """Number of games per group."""
        seats = self.game.num_agents
        return -(-_NUM_GAMES // seats) * seats if self.num_games is None else self.num_games

    @property
    def num_games_of_all(self) -> int:
        return len(match_groups(self.names, self.game.num_agents)) * self.num_in_group

    @property
    def blocks(self) -> list[tuple[tuple[str, ...], range]]:
        """A group of agents, and the numbers of some sets of its games."""
        sets = range(self.num_in_group // self.game.num_agents)
        return [
            (group, sets[first : first + _SETS])
            for group in match_groups(self.names, self.game.num_agents)
            for first in range(0, len(sets), _SETS)
        ]

    def run(self) -> Match[Result]:
        """Plays all games in this process."""
        return Match(tuple(self.names), tuple(self.play(range(len(self.blocks)), _nothing)))

    def play(self, numbers: range, on_result: Callable[[Result], None]) -> list[Result]:
        """Plays blocks of games; `on_result` is called after each game."""
        results, seeds, rules = list[Result](), EpisodeSeeds(self.seed), game_agents(self.game)
        blocks = self.blocks
        for number in numbers:
            group, sets = blocks[number]
            members = self.members(group, block_seed(self.seed, number))
            for seated, index in seatings(members, len(group), len(sets) * len(group)):
                names, players = zip(*seated, strict=True)
                seed = seeds[sets[index]]
                try:
                    result = rules.play_match_game(
                        self.game,
                        names,
                        players,
                        seed=seed,
                        step_timeout_s=self.step_timeout_s,
                        max_steps=self.max_steps,
                    )
                except Exception as error:
                    seats = shlex.join(self.words.get(name, name) for name in names)
                    if self.on_error == "restart":
                        _logger.warning(
                            "a game of %s failed and does not count (episode seed %d): %s",
                            *(seats, seed, summary_of(error)),
                        )
                        continue
                    add_note(error, f"{SEATS}{seats}")
                    raise
                results.append(result)
                on_result(result)
        return results

    def members(self, group: Sequence[str], seed: int) -> list[tuple[str, Agent]]:
        """Name and agent of each place of a group; seeds depend on the places among all names."""
        names, found = list(self.names), list[tuple[str, Agent]]()
        for i, name in enumerate(group):
            place = names.index(name) + len(names) * group[:i].count(name)
            found.append((name, self.make(name, seed + place)))
        return found


def _nothing(result: Result) -> None:
    pass
