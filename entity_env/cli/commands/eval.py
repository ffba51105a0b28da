"""`entity-env eval`: rewards of an agent over many episodes, or matches between agents."""

from __future__ import annotations

import json
import shlex
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias, TypeVar, cast, get_args

from rich.console import Group, RenderableType
from rich.table import Table

from entity_env.agents import Agent, BatchPolicy
from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.intervals import mean_of
from entity_env.agents.ratings import Match, Result, Standing, match_groups, seatings
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.training.tracking.runs import read_about
from entity_env.authoring.game import Game, Transport
from entity_env.authoring.game_traceback import add_note
from entity_env.cli.command import CliOption
from entity_env.cli.display.console import Console, ProgressBar, echo, plain_table
from entity_env.cli.game_errors import SEATS, game_errors
from entity_env.cli.load_game import (
    Load,
    load_game,
    load_player,
    load_players,
    player_names,
    tell_of_changes,
)
from entity_env.cli.options import (
    AgentOptions,
    Count,
    Failures,
    GameName,
    GameSettings,
    OnErrorChoice,
    RayAddress,
    SeedNumber,
    StepTimeout,
    TransportChoice,
    Workers,
    default_workers,
)
from entity_env.core.episode import Episode
from entity_env.core.seeding import SeedsFrom
from entity_env.errors import UsageError
from entity_env.vec.evaluation.episodes import Episodes, block_seed
from entity_env.vec.in_process.base import ERROR_METRIC

T = TypeVar("T")
_Play: TypeAlias = Callable[[range, Callable[[T], None]], list[T]]
"""Plays blocks, and passes every result on immediately."""
_SETS: Final = 10
_NUM_GAMES: Final = 100
_GAP: Final = 3


def _transport_of(agents: Sequence[str]) -> Transport | None:
    """Transport of these agents' training, if they are runs."""
    for name in agents:
        with suppress(UsageError, OSError, ValueError):  # not a path, or not our run
            options = read_about(Path(name)).get("options")
            found = options.get("transport") if isinstance(options, dict) else None
            if found in get_args(Transport):
                return cast(Transport, found)
    return None


@dataclass(frozen=True)
class Figures:
    """Statistics over episodes of an agent.

    Args:
        mean_reward, std_reward: mean and sample standard deviation; 0 deviation for one episode.
        ci95: half of the mean's 95 % confidence interval, by Student's t; None for fewer than two
            episodes.
        mean_length: number of actions.
        episodes: number of episodes.
        rewards, seeds: of every episode, in order.
    """

    mean_reward: float
    std_reward: float
    ci95: float | None
    mean_length: float
    episodes: int
    rewards: Sequence[float] = ()
    seeds: Sequence[int] = ()

    @classmethod
    def of(cls, episodes: Sequence[Episode]) -> Figures:
        """Statistics over these episodes; zeros without episodes."""
        rewards = [episode.reward for episode in episodes]
        if not rewards:
            return cls(0.0, 0.0, None, 0.0, 0)
        mean = mean_of(rewards)
        return cls(
            mean_reward=mean.value,
            std_reward=statistics.stdev(rewards) if len(rewards) > 1 else 0.0,
            ci95=mean.half if mean.is_known else None,
            mean_length=statistics.fmean(episode.length for episode in episodes),
            episodes=len(rewards),
            rewards=rewards,
            seeds=[episode.seed for episode in episodes],
        )


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure the rewards of an agent over many episodes.

    Prints the mean reward with half of its 95 % confidence interval, the standard deviation and
    the mean length. --json adds the reward and the seed of every episode. In a game for several
    agents, its object holds the figures of the first agent, and those of all agents under `agents`.

    With --agents, agents play matches against each other, and the command prints win rates with
    95 % confidence intervals, and Elo ratings. If there are fewer agents than seats, each agent
    takes several seats. An agent named twice (A,A) plays against its own copy. Agents that come
    with a game can take part: `entity-env games` lists them.
    """

    game: GameName
    agents: AgentOptions
    episodes: Count = 100
    """Number of episodes to play."""
    entrants: Annotated[str | None, CliOption(name="--agents", metavar="A,B,...")] = None
    """Let these agents play matches against each other; each plays every seat equally often."""
    num_games: Annotated[Count | None, CliOption(name="--games", default="about 100")] = None
    """With --agents: number of games per group of opponents."""
    seed: SeedNumber = 0
    """Seed of the run. With the same seed, all agents play the same episodes."""
    num_workers: Annotated[Workers | None, CliOption(default="one per core")] = None
    """Number of worker processes; 0 = none. Games for several agents are played one at a time,
    without workers."""
    step_timeout_s: StepTimeout = 30
    on_error: OnErrorChoice = "raise"
    transport: TransportChoice = None
    failures: Failures = None
    address: RayAddress = None
    as_json: Annotated[bool, CliOption(name="--json")] = False
    """Print one JSON object."""
    settings: GameSettings

    def run(self) -> None:
        agents = self.agents.agents
        game = load_game(self.game, self.settings.texts)
        game = game.with_transport(self.transport or _transport_of(agents))
        if self.entrants is not None:
            self._run_match(game, split_names(self.entrants))
            return
        tell_of_changes(game, agents)
        if self.num_games is not None:
            raise UsageError("--games goes with --agents A,B; without --agents, use --episodes")
        names, load = player_names(game, agents), self.agents.load
        if HUMAN in names:
            raise UsageError(
                "eval does not support human players: use entity-env play --agent human"
            )
        players = load_players(game, names, self.seed, load)
        is_batched = isinstance(players[0], BatchPolicy) and len(players) == 1
        if not is_batched:
            self._require_raise()
        if self.address is not None and self.num_workers:
            raise UsageError(
                "--num-workers cannot be combined with --ray, whose tasks have one process each"
            )
        num_workers = self.num_workers
        if num_workers is None:
            num_workers = default_workers(self.episodes) if self.address is None else 0
        planned = Episodes(
            game=game,
            players=lambda block: load_players(game, names, block_seed(self.seed, block), load),
            count=self.episodes,
            seed=self.seed,
            is_batched=is_batched,
            num_workers=num_workers,
            step_timeout_s=self.step_timeout_s,
            on_error=self.on_error,
            failures=self.failures,
        )
        played = _spread(game, planned.play, planned.num_blocks, self.episodes, self.address)
        _report_episodes(names, played, players, self.as_json)

    def _run_match(self, game: Game, entrants: Mapping[str, str]) -> None:
        tell_of_changes(game, entrants.values())
        if self.agents.agents:
            raise UsageError("--agents lets agents play against each other: leave out --agent")
        self._require_raise()
        if self.failures is not None:
            raise UsageError("--failures is for episodes of --agent, not for matches")
        match = run_match(
            game,
            entrants,
            self.num_games,
            seed=self.seed,
            load=self.agents.load,
            step_timeout_s=self.step_timeout_s,
            address=self.address,
        )
        _report(match_json(match), match_table(match), self.as_json)

    def _require_raise(self) -> None:
        if self.on_error != "raise":
            raise UsageError(
                "--on-error restart is for one agent that decides for batches (random or trained); "
                "all other games are played one at a time"
            )


def _report_episodes(
    players: Sequence[str],
    played: Sequence[Episode],
    agents: Sequence[Agent],
    as_json: bool,
) -> None:
    """Prints the figures of each player, and how trained agents chose their actions."""
    num_failed = sum(ERROR_METRIC in episode.metrics for episode in played)
    if num_failed:
        failed = f"{num_failed} of {len(played)} episodes failed"
        echo(f"{failed}, and count with their reward until then", err=True)
    figures = [
        Figures.of([episode for episode in played if episode.agent_id == agent_id])
        for agent_id in range(len(players))
    ]
    _report(_as_json(figures), _table(players, figures), as_json)
    ways = {
        name: "their most probable actions (see --sample)"
        if agent.greedy
        else "sampled actions (see --greedy)"
        for name, agent in zip(players, agents, strict=True)
        if isinstance(agent, TrainedAgent) and not as_json
    }
    for way in dict.fromkeys(ways.values()):
        names = ", ".join(name for name, each in ways.items() if each == way)
        echo(f"{'trained agents' if len({*ways.values()}) == 1 else names} played {way}")


def _spread(
    game: Game, play: _Play[T], num_blocks: int, total: int, address: str | None
) -> list[T]:
    """Results of all blocks, played in this process or by tasks on a Ray cluster."""
    with ProgressBar(total) as progress:
        if address is None:
            return _play_here(game, play, range(num_blocks), progress.count)
        from entity_env.cluster.matches import play_blocks

        there = partial(_play_here, game, play)
        return play_blocks(there, num_blocks, address=address, on_result=progress.count)


def _play_here(
    game: Game,
    play: _Play[T],
    blocks: range,
    on_result: Callable[[T], None] = lambda result: None,
) -> list[T]:
    with game_errors(game):
        return play(blocks, on_result)


def _report(figures: Mapping[str, object], table: RenderableType, as_json: bool) -> None:
    if as_json:
        echo(json.dumps(figures))
    else:
        Console().print(table)


def _as_json(figures: Sequence[Figures]) -> dict[str, object]:
    first: dict[str, object] = dict(vars(figures[0]))
    return first if len(figures) == 1 else {**first, "agents": [vars(each) for each in figures]}


def _table(names: Sequence[str], figures: Sequence[Figures]) -> Table:
    table = plain_table("agent", "mean reward", "ci95", "std", "mean length", "episodes", gap=_GAP)
    for name, each in zip(names, figures, strict=True):
        numbers = [
            f"{each.mean_reward:.3f}",
            "-" if each.ci95 is None else f"{each.ci95:.3f}",
            f"{each.std_reward:.3f}",
            f"{each.mean_length:.1f}",
        ]
        table.add_row(name, *(numbers if each.episodes else "----"), str(each.episodes))
    return table


# ------------------------------------------------------------------ matches


def split_names(text: str) -> dict[str, str]:
    """Agents separated by commas, by name; repeated ones are `a` and `a#2`."""
    given = [name.strip() for name in text.split(",")]
    if not all(given):
        raise UsageError(
            f"--agents needs names separated by commas, such as random,greedy: got {text!r}"
        )
    if HUMAN in given:
        raise UsageError(
            "a match does not support human players: use entity-env play --agent human"
        )
    numbers = [given[:i].count(name) + 1 for i, name in enumerate(given)]
    return {
        f"{name}#{number}" if number > 1 else name: name
        for name, number in zip(given, numbers, strict=True)
    }


def run_match(
    game: Game,
    agents: Mapping[str, str],
    num_games: int | None,
    *,
    seed: int,
    load: Load,
    step_timeout_s: float | None = None,
    address: str | None = None,
) -> Match[Any]:
    """Plays every group of agents, one per seat; each plays every seat equally often.

    `agents` maps names in the tables to names for `load`. If there are fewer agents than seats,
    each takes several seats: see `match_groups`. `num_games` is per group; None = 100, rounded up
    to a multiple of the seats. Agents are reloaded every 10 sets of games, so games on the Ray
    cluster at `address` equal games played here. `address` is None without Ray.
    """
    seats, names = game.num_agents, tuple(agents)
    if seats == 1:
        raise UsageError(
            f"{game.name} is for 1 agent, and --agents lets several play against each other: "
            "measure one after the other with --agent"
        )
    if len(names) < 2:
        raise UsageError(
            f"--agents needs at least two agents, got {names[0]}; to play an agent "
            f"against itself: --agents {names[0]},{names[0]}"
        )
    num_games = -(-_NUM_GAMES // seats) * seats if num_games is None else num_games
    if num_games % seats:
        raise UsageError(
            f"--games must be a multiple of {seats} so that every agent plays each seat equally "
            f"often: got {num_games}"
        )
    groups, sets = match_groups(names, seats), range(num_games // seats)
    blocks = [
        (group, sets[first : first + _SETS])
        for group in groups
        for first in range(0, len(sets), _SETS)
    ]
    games = _MatchGames(game, agents, seed, load, step_timeout_s, blocks)
    games.members(names, seed)  # refuses unknown ones first
    total = len(groups) * num_games
    played = _spread(game, games.play, len(blocks), total, address)
    return Match(names, tuple(played))


@dataclass(frozen=True)
class _MatchGames:
    """Games of a match, in blocks with reloaded agents.

    Args:
        blocks: a group of agents, and numbers of sets of its games; in a set, each agent has every
            seat once.
    """

    game: Game
    agents: Mapping[str, str]
    seed: int
    load: Load
    step_timeout_s: float | None
    blocks: Sequence[tuple[tuple[str, ...], range]]

    def play(self, numbers: range, on_result: Callable[[Result], None]) -> list[Result]:
        results, seeds, rules = list[Result](), SeedsFrom(self.seed), game_agents(self.game)
        for number in numbers:
            group, sets = self.blocks[number]
            members = self.members(group, block_seed(self.seed, number))
            for seated, index in seatings(members, len(group), len(sets) * len(group)):
                names, players = zip(*seated, strict=True)
                try:
                    result = rules.play_match_game(
                        self.game,
                        names,
                        players,
                        seed=seeds[sets[index]],
                        step_timeout_s=self.step_timeout_s,
                    )
                except Exception as error:
                    add_note(error, f"{SEATS}{shlex.join(self.agents[name] for name in names)}")
                    raise
                results.append(result)
                on_result(result)
        return results

    def members(self, group: Sequence[str], seed: int) -> list[tuple[str, Agent]]:
        """Name and agent of each place of a group; seeds depend on the places among all names."""
        names, found = list(self.agents), list[tuple[str, Agent]]()
        for i, name in enumerate(group):
            place = names.index(name) + len(names) * group[:i].count(name)
            agent = load_player(self.game, self.agents[name], seed + place, self.load)
            found.append((name, agent))
        return found


def match_table(match: Match[Any]) -> RenderableType:
    """Ratings and win rates, best first; for more than two agents also the win rate per pair."""
    table = plain_table("agent", "Elo", "win rate", "95 %", "mean score", "games", gap=_GAP)
    rows, short = match.table(), distinct_ends(match.names)
    for row in rows:
        table.add_row(
            short[row.name],
            f"{row.elo:+.0f}",
            f"{row.win_rate:.1%}",
            f"{row.low:.1%} to {row.high:.1%}",
            f"{row.mean_score:.2f}",
            str(row.num_games),
        )
    return table if len(rows) < 3 else Group(table, "", _duels(match, rows, short))


def distinct_ends(names: Sequence[str]) -> dict[str, str]:
    """Paths without leading folders, as short as possible but distinct, to fit a table."""
    found = {name: name for name in names}
    for count in reversed(range(1, max(name.count("/") for name in names) + 1)):
        ends = ["/".join(name.split("/")[-count:]) for name in names]
        found |= {name: end for name, end in zip(names, ends, strict=True) if ends.count(end) == 1}
    return found


def match_json(match: Match[Any]) -> dict[str, object]:
    """`match_table` as numbers."""
    return {
        "agents": [vars(row) for row in match.table()],
        "duels": [
            {"name": name, "other": other, "win_rate": rate, "low": low, "high": high}
            for name, other in combinations(match.names, 2)
            if match.has_met(name, other)
            for rate, low, high in [match.win_rate(name, other)]
        ],
        "num_games": len(match.games),
    }


def _duels(match: Match[Any], rows: Sequence[Standing], short: Mapping[str, str]) -> Table:
    names = [row.name for row in rows]
    table = plain_table("ahead of", *(short[name] for name in names), gap=_GAP)
    for name in names:
        rates = [
            f"{match.win_rate(name, other)[0]:.1%}" if match.has_met(name, other) else ""
            for other in names
        ]
        table.add_row(short[name], *rates)
    return table
