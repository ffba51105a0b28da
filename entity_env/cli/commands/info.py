"""`entity-env games`, `check`, `bench` and `doctor`: games, their validity and speed, packages."""

from __future__ import annotations

import inspect
import platform
import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Annotated, Final

import numpy as np
from rich.table import Table

from entity_env.agents import RandomAgent, random_actions
from entity_env.agents.game_agents import game_agents
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import game_traceback, is_a, text_of
from entity_env.authoring.local_run import RunLimits, Turn
from entity_env.check import check_game
from entity_env.cli.command import CliOption
from entity_env.cli.display.console import Console, StageDisplay, echo, plain_table
from entity_env.cli.game_errors import GameFailed, game_errors
from entity_env.cli.load_game import installed_game, installed_games, load_game
from entity_env.cli.options import (
    Count,
    Envs,
    GameName,
    GameSettings,
    Seconds,
    SeedNumber,
    StepTimeout,
    TransportChoice,
)
from entity_env.core.episode import MAX_STEPS
from entity_env.errors import ContractError, MissingExtraError, UsageError
from entity_env.games import GAMES
from entity_env.vec.game_training import is_batch, make_vec_env

_REQUIRED: Final = ("entity-env", "numpy", "greenlet", "click", "rich")
_KAGGLE: Final = ("kaggle-environments", "jsonschema", "requests")
_NOT_FOR_USERS: Final = ("all", "dev", "test", "docs")
"""Extras that `doctor` leaves out."""


@dataclass(frozen=True)
class ListGames:
    """List the games with their agents and settings.

    The games are grouped by package. A package registers its games as entry points of the group
    entity_env.games: see `entity-env new`.
    """

    def run(self) -> None:
        """Prints a table per package, and a line for each game that is not usable by name."""
        own = f"entity-env {_version('entity-env') or ''}".rstrip()
        tables = {own: [_row(name, game) for name, game in GAMES.items()]}
        problems = list[str]()
        for each in installed_games():
            package = f"{each.package} {each.version}"
            others = [g.place for g in installed_games() if g.name == each.name and g != each]
            if each.name in GAMES or others:
                also = f"a game of {own}" if each.name in GAMES else ", ".join(others)
                found = f"{each.name} of {package} has the name of {also}"
                problems.append(f"{found}: use {each.place}")
            try:
                row = _row(each.name, installed_game(each.place, each.name))
                tables.setdefault(package, []).append(row)
            except Exception as error:
                line = text_of(error).strip().splitlines()[-1]  # may be a traceback
                problems.append(f"{each.name} of {package} cannot be loaded: {line}")
        for package, rows in tables.items():
            echo(*([] if package == own else [""]), package)
            Console.for_tables().print(_table_of(rows))
        for problem in problems:
            echo(problem, err=True)


def _row(name: str, game: Game) -> tuple[str, ...]:
    settings = "\n".join(map(_setting, game.parameters.values())) or "none"
    own = ", ".join(game_agents(game).names)
    about = f"{summary(game)}\nagents: {own}" if own else summary(game)
    return name, str(game.num_agents), settings, about


def _table_of(rows: Iterable[Sequence[str]]) -> Table:
    table = plain_table()
    table.add_column("game", no_wrap=True)
    table.add_column("agents", justify="right")
    table.add_column("settings", overflow="fold")
    table.add_column("what it is")
    for row in rows:
        table.add_row(*row)
    return table


def _setting(parameter: inspect.Parameter) -> str:
    """A setting with its default, as for `--set`: `board_size=10`."""
    if parameter.default is parameter.empty:
        return f"{parameter.name} (needed)"
    shown = "none" if parameter.default in (None, "") else parameter.default
    return f"{parameter.name}={shown}"


def summary(game: Game) -> str:
    """First line of a docstring, without the game's name and a colon in front.

    It is the module's docstring if the game's function is named `play`, else the function's. If the
    module has none, it is also the function's.
    """
    is_alone = getattr(game.play, "__name__", "") == "play"
    module = inspect.getmodule(game.play) if is_alone else None
    text = (module and inspect.getdoc(module)) or inspect.getdoc(game.play) or ""
    line = text.partition("\n")[0]
    title, _, rest = line.partition(": ")
    return rest if re.sub(r"\W+", "_", title.lower()) == game.name else line


_UNFINISHED: Final = 3
"""Exit code of `check` if the time ran out."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """Check that a game follows the rules of entity_env.

    Also checks that a seed reproduces an episode. Plays with random actions, like check_game in
    entity_env.check. Lists all violations and exits with code 1 if there are any, and with code 3
    if the time runs out before all episodes have been played; likely mistakes are warnings.
    """

    game: GameName
    episodes: Count = 3
    """Number of episodes, or more if they are short. Each one is played again to compare."""
    max_steps: Count = 2000
    """Longest episode that is not reported as an error."""
    seed: SeedNumber = 0
    """Seed of the episodes and of the random actions."""
    max_time_s: Annotated[Seconds, CliOption(name="--max-time", metavar="SECONDS")] = 60
    """Approximate time after which no more steps are checked."""
    step_timeout_s: StepTimeout = 30
    transport: TransportChoice = None
    settings: GameSettings

    def run(self) -> None:
        game = load_game(self.game, self.settings.texts).with_transport(self.transport)
        try:
            with StageDisplay() as display:
                num_played = check_game(
                    game,
                    episodes=self.episodes,
                    max_steps=self.max_steps,
                    seed=self.seed,
                    step_timeout_s=self.step_timeout_s,
                    max_time_s=self.max_time_s,
                    on_step=display.show,
                )
        except ContractError as error:
            cause, trace = error.__cause__, ""
            if cause is not None and is_a(cause, UsageError):  # a setting, or a file it requires
                raise cause from None
            if cause is not None and is_a(cause, Exception):
                trace = f"\n{game_traceback(cause)}"
            raise GameFailed(f"{error}{trace}") from error
        played = f"{num_played} episode{'s' * (num_played > 1)}"
        if num_played >= self.episodes:
            echo(f"{game.name}: no violation of the contract in {played}")
            return
        if not num_played:
            played = "the first steps of an episode"
        echo(
            f"{game.name}: unfinished, no violation of the contract in {played} before the time "
            f"ran out: try --max-time {max(1, 4 * self.max_time_s):g}"
        )
        raise SystemExit(_UNFINISHED)


@dataclass(frozen=True)
class Doctor:
    """Report installed versions and missing packages.

    Also checks that greenlets work.
    """

    def run(self) -> None:
        echo(f"python       {platform.python_version()}  {platform.platform()}")
        for package in _REQUIRED:
            echo(f"{package:<12} {_version(package) or 'missing: pip install entity-env'}")
        echo(f"suspending   {'works' if _can_suspend() else 'broken: reinstall greenlet'}")
        for extra, packages in _extras().items():
            echo(f"[{extra}]".ljust(13) + _describe(extra, packages))
        echo(f"kaggle:NAME  {_describe_kaggle()}")


def _extras() -> dict[str, tuple[str, ...]]:
    """The packages of every extra, as the installed distribution declares them."""
    found: dict[str, list[str]] = {}
    for text in requires("entity-env") or ():
        package, _, marker = text.partition(";")
        name = re.match(r"[\w.-]+", package)
        for extra in re.findall(r"extra == ['\"]([\w-]+)['\"]", marker):
            if name is not None and extra not in _NOT_FOR_USERS:
                found.setdefault(extra, []).append(name[0])
    return {extra: tuple(names) for extra, names in found.items()}


def _describe(extra: str, packages: tuple[str, ...]) -> str:
    versions = {package: _version(package) for package in packages}
    missing = [package for package, found in versions.items() if found is None]
    if missing:
        return f"{' and '.join(missing)} missing: pip install 'entity-env[{extra}]'"
    return ", ".join(f"{package} {found}" for package, found in versions.items())


def _describe_kaggle() -> str:
    """Versions of what games of kaggle-environments need. No extra installs it: its own list of
    dependencies is far longer."""
    from entity_env.interop.kaggle import INSTALL

    versions = {package: _version(package) for package in _KAGGLE}
    if missing := [package for package, found in versions.items() if found is None]:
        return f"{' and '.join(missing)} missing: {INSTALL}"
    return ", ".join(f"{package} {found}" for package, found in versions.items())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _can_suspend() -> bool:
    """Passes a number to a suspended greenlet and back."""
    try:
        from entity_env.agents.channels.greenlet_channel import getcurrent, greenlet
    except MissingExtraError:
        return False
    here = getcurrent()
    other = greenlet.greenlet(lambda value: here.switch(value + 1) + 1)
    return bool(other.switch(1) == 2 and other.switch(2) == 3)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """Measure the steps per second of a game.

    Plays random actions: one copy of the game first, then many.
    """

    game: GameName
    num_envs: Envs = 64
    """Number of copies."""
    seconds: Seconds = 2.0
    """Duration of each of the two measurements."""
    transport: TransportChoice = None
    settings: GameSettings

    def run(self) -> None:
        game = load_game(self.game, self.settings.texts).with_transport(self.transport)
        with game_errors(game):
            rate = _direct(game, self.seconds)
            echo(f"one game, called directly  {rate:>12,.0f} steps/s")
            rate, statistics = _vectorized(game, self.num_envs, self.seconds)
            copies = f"{self.num_envs} copies in a {'BatchVecEnv' if is_batch(game) else 'VecEnv'}"
            echo(f"{copies:<25}  {rate:>12,.0f} steps/s  ({statistics})")


def _direct(game: Game, seconds: float) -> float:
    num_steps = 0

    def count(turn: Turn) -> None:
        nonlocal num_steps
        num_steps += turn.episode is None

    agents = [RandomAgent(seed) for seed in range(game.num_agents)]
    start_s = time.perf_counter()
    episode = 0
    while time.perf_counter() - start_s < seconds:
        game.run(*agents, seed=episode, watch=count, limits=RunLimits(max_steps=MAX_STEPS))
        episode += 1
    return num_steps / (time.perf_counter() - start_s)


def _vectorized(game: Game, num_envs: int, seconds: float) -> tuple[float, str]:
    """Steps per second of many environments, and the statistics of the `VecEnv`."""
    rng = np.random.default_rng(0)
    with make_vec_env(game, num_envs) as vec:
        space = vec.action_space()
        obs = vec.reset()
        start_s = time.perf_counter()
        num_steps = 0
        while time.perf_counter() - start_s < seconds:
            obs = vec.act(random_actions(obs, space, rng))
            num_steps += num_envs
        return num_steps / (time.perf_counter() - start_s), str(vec.statistics())
