"""`entity-env eval`: rewards of an agent over many episodes, or matches between agents."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Final, TypeAlias, TypeVar, cast, get_args

from rich.console import RenderableType
from rich.table import Table

from entity_env.agents import Agent
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.ratings import Match, Result
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.training.tracking.runs import read_about
from entity_env.authoring.game import Game, Transport
from entity_env.cli.command import CliOption
from entity_env.cli.display.console import Console, ProgressBar, cut_words, echo, plain_table
from entity_env.cli.display.match_tables import (
    failure_lines,
    failures_json,
    match_json,
    match_lines,
    match_table,
)
from entity_env.cli.game_errors import game_errors
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
    MaxSteps,
    OnErrorChoice,
    RayAddress,
    SeedNumber,
    StepTimeout,
    TransportChoice,
    Workers,
    default_workers,
    step_limit,
)
from entity_env.core.episode import ERROR_METRIC
from entity_env.errors import UsageError
from entity_env.interrupts import INTERRUPTED
from entity_env.vec.evaluation.episodes import Episodes, PlayedEpisode, block_seed
from entity_env.vec.evaluation.evaluate import AgentScores, is_batched
from entity_env.vec.evaluation.matches import MatchGames
from entity_env.vec.evaluation.starts import OnStep

T = TypeVar("T", PlayedEpisode, Result)
_Play: TypeAlias = Callable[[range, Callable[[T], None]], list[T]]
"""Plays blocks, and passes every result on immediately."""
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


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure the rewards of an agent over many episodes.

    Prints the mean reward with half of its 95 % confidence interval, the standard deviation, the
    mean length, and how many episodes were truncated: these count with their reward until then.
    --json adds the reward and the seed of every episode. In a game for several agents, its object
    holds the figures of the first agent, and those of all agents under `agents`. After Ctrl-C, the
    figures are those of the first episodes, as far as all of them have ended.

    With --agents, agents play matches against each other, and the command prints win rates with
    95 % confidence intervals, Elo ratings, and win rates by seat. If there are fewer agents than
    seats, each agent takes several seats. An agent named twice (A,A) plays against its own copy. An
    agent that raises, or takes longer than --step-timeout, loses the game. Agents that come with a
    game can take part: `entity-env games` lists them.
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
    """Seed of the run. With the same seed, all agents play the same episodes, which do not occur in
    training."""
    num_workers: Annotated[Workers | None, CliOption(default="one per core")] = None
    """Number of worker processes; 0 = none. Games for several agents are played one at a time,
    without workers."""
    max_steps: MaxSteps = None
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
            is_batched=is_batched(players),
            num_workers=num_workers,
            max_steps=self._limit,
            step_timeout_s=self.step_timeout_s,
            on_error=self.on_error,
            failures=self.failures,
        )
        played, is_whole = self._spread(
            game,
            lambda at: replace(planned, on_step=at).play,
            planned.num_blocks,
            self.episodes,
        )
        played = played if is_whole else _first(played)
        scores = [AgentScores.of(played, agent_id) for agent_id in range(game.num_agents)]
        failures = [each.failure for each in played if each.failure is not None]
        more = {"failures": failures_json(failures)} if failures else {}
        _report(_as_json(scores) | more, _table(names, scores), self.as_json)
        for line in self._notes(played):
            echo(line, err=self.as_json)
        if not self.as_json:
            for line in _policies(names, players):
                echo(line)
        _end(is_whole, len(played), self.episodes, "episodes")

    @property
    def _limit(self) -> int | None:
        return step_limit(self.max_steps)

    def _notes(self, played: Sequence[PlayedEpisode]) -> Iterator[str]:
        """Reasons other than the game for which episodes ended."""
        num_cut = sum(each.is_cut and each.failure is None for each in played)
        if num_cut:
            yield cut_words(num_cut, len(played), self._limit)
        num_failed = sum(
            any(ERROR_METRIC in episode.metrics for episode in each.episodes) for each in played
        )
        if num_failed:
            failed = f"{num_failed} of {len(played)} episodes failed"
            yield f"{failed}, and count with their reward until then"
        failures = [each.failure for each in played if each.failure is not None]
        yield from (f"an agent ended {line}" for line in failure_lines(failures, "episode"))

    def _run_match(self, game: Game, entrants: Mapping[str, str]) -> None:
        tell_of_changes(game, entrants.values())
        if self.agents.agents:
            raise UsageError("--agents lets agents play against each other: leave out --agent")
        if self.failures is not None:
            raise UsageError("--failures is for episodes of --agent, not for matches")
        games = MatchGames(
            game=game,
            names=tuple(entrants),
            make=partial(_entrant, game, entrants, self.agents.load),
            num_games=self.num_games,
            seed=self.seed,
            step_timeout_s=self.step_timeout_s,
            max_steps=self._limit,
            on_error=self.on_error,
            words=entrants,
        )
        games.members(games.names, self.seed)  # refuses unknown ones first
        total = games.num_games_of_all
        played, is_whole = self._spread(game, lambda _: games.play, len(games.blocks), total)
        match = Match(tuple(entrants), tuple(played))
        _report(match_json(match), match_table(match), self.as_json)
        num_cut = sum(each.is_cut for each in played)
        cut = [cut_words(num_cut, len(played), self._limit)] if num_cut else []
        for line in (*match_lines(match), *cut):
            echo(line, err=self.as_json)
        _end(is_whole, len(played), total, "games")

    def _spread(
        self, game: Game, play: Callable[[OnStep], _Play[T]], num_blocks: int, total: int
    ) -> tuple[list[T], bool]:
        """Results of all blocks, played in this process or by tasks on a Ray cluster.

        After Ctrl-C, the results so far, and False.
        """
        found: list[T] = []
        with ProgressBar(total, max_steps=self._limit) as progress:

            def count(result: T) -> None:
                found.append(result)
                progress.count()

            try:
                if self.address is None:
                    return _play_here(game, play(progress.at), range(num_blocks), count), True
                from entity_env.cluster.matches import play_blocks

                there = partial(_play_here, game, play(_nothing))
                address = self.address
                return play_blocks(there, num_blocks, address=address, on_result=count), True
            except KeyboardInterrupt:
                if not found:
                    raise
                return found, False


def _policies(players: Sequence[str], agents: Sequence[Agent]) -> Iterator[str]:
    """How trained agents chose their actions."""
    ways = {
        name: "their most probable actions (see --sample)"
        if agent.greedy
        else "sampled actions (see --greedy)"
        for name, agent in zip(players, agents, strict=True)
        if isinstance(agent, TrainedAgent)
    }
    for way in dict.fromkeys(ways.values()):
        names = ", ".join(name for name, each in ways.items() if each == way)
        yield f"{'trained agents' if len({*ways.values()}) == 1 else names} played {way}"


def _entrant(game: Game, entrants: Mapping[str, str], load: Load, name: str, seed: int) -> Agent:
    return load_player(game, entrants[name], seed, load)


def _first(played: Sequence[PlayedEpisode]) -> list[PlayedEpisode]:
    """The first episodes, up to one that has not ended: of all, most that have ended are short."""
    ended = sorted(played, key=lambda each: each.number)
    return [each for i, each in enumerate(ended) if each.number == i]


def _end(is_whole: bool, num: int, total: int, what: str) -> None:
    """Ends the command after Ctrl-C."""
    if not is_whole:
        echo(f"interrupted: these are the first {num} of {total} {what}", err=True)
        raise SystemExit(INTERRUPTED)


def _nothing(episode: int, step: int) -> None:
    pass


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
        Console.for_tables().print(table)


def _as_json(scores: Sequence[AgentScores]) -> dict[str, object]:
    first: dict[str, object] = dict(vars(scores[0]))
    return first if len(scores) == 1 else {**first, "agents": [vars(each) for each in scores]}


def _table(names: Sequence[str], scores: Sequence[AgentScores]) -> Table:
    columns = ["mean reward", "ci95", "std", "mean length", "episodes", "truncated"]
    table = plain_table("agent", *columns, gap=_GAP)
    for name, each in zip(names, scores, strict=True):
        numbers = [
            f"{each.mean_reward:.3f}",
            "-" if each.ci95 is None else f"{each.ci95:.3f}",
            f"{each.std_reward:.3f}",
            f"{each.mean_length:.1f}",
        ]
        counts = str(each.episodes), str(each.truncated)
        table.add_row(name, *(numbers if each.episodes else "----"), *counts)
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
