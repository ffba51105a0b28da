"""Loads games and agents that a user named: by name, file, package or module."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from os import X_OK, access
from pathlib import Path
from pkgutil import iter_modules
from shutil import which
from types import ModuleType
from typing import Final, NamedTuple, TypeAlias

from entity_env.agents import Agent, against, load_agent
from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.human_agent import HumanAgent
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.rogue_net.checkpoints.folder import find_checkpoint, read_header
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.scripted_agent import is_bot_file
from entity_env.agents.training.tracking.comparison import since_run
from entity_env.authoring.game import Game
from entity_env.authoring.game_traceback import file_of_error
from entity_env.authoring.identity import place_of
from entity_env.authoring.load_module import (
    import_installed,
    import_named,
    load_module,
    local_file,
    nearest as nearest,
    split_file_name,
)
from entity_env.authoring.named_code.finder import named_code
from entity_env.cli.display.console import echo
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.cli.game_errors import load_error
from entity_env.cli.named import Name, remember
from entity_env.errors import CheckpointError, EntityEnvError, UsageError, install_hint, shown
from entity_env.games import GAMES

Load: TypeAlias = Callable[[str, int], Agent]

ENTRY_POINTS: Final = "entity_env.games"
"""Entry point group in which packages name their games: `NAME = "module:game"`."""
ENVIRONMENTS: Final = ("gymnasium", "pettingzoo", "kaggle")
"""Libraries whose environments are games, such as `gymnasium:CartPole-v1`."""
_PROGRAM: Final = re.compile(r"exec(\+\w+)?:|listen:|.*\.toml$", re.DOTALL)
"""Names of games in other languages."""
_INTERPRETERS: Final = {".js": ":node", ".mjs": ":node", ".lua": "+stdio:lua5.4"}
_MAX_NAMED: Final = 8


# ------------------------------------------------------------------ by name or file


def load_game(name: str, settings: Sequence[str] = ()) -> Game:
    """Loads a game by name, file, package or module, with settings such as `board_size=6`.

    A name belongs to a game of this package, or of an installed package (see `ENTRY_POINTS`). A
    module is `mygame.game` or `mygame.game:NAME`, installed or below the current folder.
    Environments: `gymnasium:CartPole-v1`, `gymnasium:MODULE:ID` if a module registers it,
    `pettingzoo:connect_four_v3`, `pettingzoo:classic/connect_four_v3`, `pettingzoo:PACKAGE.MODULE`
    or `pettingzoo:MODULE:NAME` for other packages, `kaggle:orbit_wars`. Programs in other
    languages: `exec:node snake.mjs`, `listen:tcp:127.0.0.1:5005`, or a file `snake.toml`.

    Records the name and settings as named by the user, so check a name or settings from a file
    first, with `game_code` and `setting_names`.
    """
    parsed = _parse_settings(settings)
    try:
        if (code := game_code(name)) is not None:
            remember(code)
        installed = _installed_place(name)
        if installed is not None:
            game = installed_game(installed, name).with_settings(**parsed)
        elif _is_environment(name):
            game = _environment(name, parsed)
        elif _PROGRAM.match(name):
            from entity_env.vec.external.game import ExternalGame

            game = ExternalGame.named(name, parsed)
        else:
            game = (GAMES[name] if name in GAMES else found_game(name)).with_settings(**parsed)
    except OSError as error:  # the name is too long, or the folder unreadable
        raise UsageError(f"no game {name!r}: {error.strerror}") from error
    if code is not None and (place := place_of(game)) is not None:
        # The game's module, which its replays name.
        home = place[0]
        remember(home if isinstance(code, str) else Path(sys.modules[home].__file__ or home))
    for each in setting_names(game, parsed).values():
        remember(each)
    return game


def game_code(name: str) -> Name | None:
    """The code that a game's name runs, for `remember`; None for a game of this package.

    A file or package, or the name of an environment or installed module.

    Raises:
        UsageError: no file can have this name.
    """
    if name in GAMES:
        return None
    if (installed := _installed_place(name)) is not None:
        return installed.partition(":")[0]
    if _is_environment(name):
        return name
    if _PROGRAM.match(name):
        from entity_env.vec.external.game import program_code

        return program_code(name)
    try:
        place, _ = _split_name(name)
    except OSError as error:  # the name is too long
        raise UsageError(f"no game {shown(name)}: {error.strerror}") from error
    if isinstance(place, Path):
        return place
    return local_file(place) or place


def setting_names(game: Game, settings: Mapping[str, object]) -> dict[str, Name]:
    """Settings that could name a file, for `remember`: an existing path, or GAME NAME=VALUE."""
    found: dict[str, Name] = {}
    for name, value in game.open_settings(settings).items():
        found[name] = f"{game.name} {name}={value}"
        with suppress(OSError, ValueError):  # no path at all
            if Path(str(value)).exists():
                found[name] = Path(str(value))
    return found


class InstalledGame(NamedTuple):
    """A game listed as an entry point of an installed package.

    Args:
        place: `module:NAME`.
    """

    name: str
    place: str
    package: str
    version: str


@cache
def installed_games() -> tuple[InstalledGame, ...]:
    """The games of installed packages, by name; loads none."""
    with named_code().only_installed():
        found = [
            InstalledGame(each.name, each.value, each.dist.name, each.dist.version)
            for each in entry_points(group=ENTRY_POINTS)
            if each.dist is not None
        ]
    return tuple(sorted(found))


def _installed_place(name: str) -> str | None:
    """`module:NAME` for the name of an installed game; None for another name.

    Raises:
        UsageError: several packages have a game of this name.
    """
    places = {} if name in GAMES else {g.place: g for g in installed_games() if g.name == name}
    if len(places) > 1:
        packages = ", ".join(f"{g.package} ({place})" for place, g in places.items())
        raise UsageError(f"several packages have a game {name!r}; choose a module: {packages}")
    return next(iter(places), None)


def installed_game(place: str, name: str) -> Game:
    """The game at `module:NAME` of an installed package, never of a module in the current folder.

    Raises:
        UsageError: there is no such game.
        GameFailed: the code raised an exception.
    """
    module, _, wanted = place.partition(":")
    return _game_in(_load_named(module, name, import_installed), module, wanted)


def tell_of_changes(game: Game, agents: Iterable[str | Path]) -> None:
    """Prints a line for every agent whose run had another source or version of the game."""
    for agent in dict.fromkeys(agents):
        if agent and (line := since_run(Path(agent), game)):
            echo(line, err=True)


def _is_environment(name: str) -> bool:
    package, _, env_id = name.partition(":")
    return bool(env_id) and package in ENVIRONMENTS


def found_game(name: str) -> Game:
    """The game of a file, folder or module; does not record the name.

    Raises:
        UsageError: there is no such game.
        GameFailed: the code raised an exception.
    """
    place, wanted = _split_name(name)
    is_there = isinstance(place, Path) and (
        place.is_dir() or (place.suffix == ".py" and place.is_file())
    )
    if not is_there and (program := _program_in(name)):
        raise UsageError(f'no game {name!r}; did you mean "{program}"?')
    if not is_there and Path(name).is_file():
        raise UsageError(
            f"{name} is not a game: expected a Python file, *.py, or a program, exec:COMMAND"
        )
    if isinstance(place, Path):
        where = name.removesuffix(f":{wanted}") if wanted else name
        return _game_in(_load_file(place), where, wanted)
    if (wanted or "." in place) and all(map(str.isidentifier, place.split("."))):
        return _game_in(_load_named(place, name), place, wanted)
    if Path(f"{name}.py").is_file():
        raise UsageError(f"no game {name!r}; did you mean the file {name}.py?")
    raise _no_game(name)


def _program_in(name: str) -> str | None:
    """The name of a program that was named without `exec:`."""
    first, *words = name.split() or [""]
    if words and which(first):
        return f"exec:{name}"
    file = Path(name)
    if file.suffix == ".py" or not file.is_file():
        return None
    if interpreter := _INTERPRETERS.get(file.suffix):
        return f"exec{interpreter} {name}"
    return f"exec:./{file}" if access(file, X_OK) else None


def _split_name(name: str) -> tuple[Path | str, str]:
    """The file, folder or module of a name, and the game's name in it, or ""."""
    whole, _, inner = name.rpartition(":")
    is_split = whole.endswith(".py") or (bool(whole) and Path(whole).is_dir())
    path, wanted = (whole, inner) if is_split else (name, "")
    if path.endswith(".py") or "/" in path or "\\" in path:
        return Path(path), wanted
    if Path(path).is_dir() and (not wanted or Path(path, "__init__.py").is_file()):
        return Path(path), wanted
    module, _, wanted = name.partition(":")
    return module, wanted


def _no_game(name: str, reason: str = "") -> UsageError:
    names = [*GAMES, *sorted({each.name for each in installed_games()} - {*GAMES})]
    there = f"; there are {', '.join(names)}, or your own: path/to/file.py, package.module"
    shown = reason if "." in name else reason + there
    return UsageError(f"no game {name!r}{nearest(name, names) or shown}")


def _game_in(module: ModuleType, where: str, wanted: str) -> Game:
    """The game of a module, by name or the only one; errors call the module `where`."""
    games = _games_in(module)
    named = vars(module).get(wanted)
    if isinstance(named, Game):  # even if it is imported
        return named
    if not games:
        folders: Iterable[str] = getattr(module, "__path__", ())
        is_path = "/" in where or Path(where).is_dir()
        inside = [
            f"{where.rstrip('/')}/{name}{'' if is_package else '.py'}"
            if is_path
            else f"{where}.{name}"
            for _, name, is_package in iter_modules(folders)
        ]
        make = "make one at its top level, game = Game(play, ...)"
        if inside:
            make = f"import one there, or give its file or module: {', '.join(inside[:_MAX_NAMED])}"
        raise UsageError(f"{where} holds no game: {make}")
    if wanted:
        if wanted not in games:
            hint = nearest(wanted, games) or f"; it has {', '.join(games)}"
            raise UsageError(f"{where} holds no game {wanted!r}{hint}")
        return games[wanted]
    different = {id(game): name for name, game in games.items()}
    if len(different) > 1:
        choices = ", ".join(f"{where}:{name}" for name in different.values())
        raise UsageError(f"{where} holds {len(different)} games, choose one: {choices}")
    return next(iter(games.values()))


def _games_in(module: ModuleType) -> Mapping[str, Game]:
    """The games that a file or package defines; imported games if it defines none."""
    games = {name: value for name, value in vars(module).items() if issubclass(type(value), Game)}
    inside = f"{module.__name__}."
    own = {name: g for name, g in games.items() if f"{g.play.__module__}.".startswith(inside)}
    return own or games


def _load_file(path: Path) -> ModuleType:
    if path.is_dir() and not (path / "__init__.py").is_file():
        with suppress(CheckpointError):
            read_header(find_checkpoint(path))
            raise UsageError(
                f"{path} holds a trained agent, not a game: name the game, then --agent {path}"
            )
    try:
        return load_module(path, first=True)
    except BaseException as error:
        raise load_error(path, error) from error


def _load_named(
    module: str, name: str, load: Callable[[str], ModuleType] = import_named
) -> ModuleType:
    try:
        return load(module)
    except BaseException as error:
        own = file_of_error(error)
        if own is None and isinstance(error, UsageError):
            raise _no_game(name, f": {error}") from error
        raise load_error(Path(own or module), error) from error


def _parse_settings(settings: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not name or not separator:
            raise UsageError(f"--set needs name=value, got {setting!r}")
        parsed[name] = value
    return parsed


# ------------------------------------------------------------------ environments of packages

_FAMILIES: Final[Mapping[str, str]] = {
    "classic": "pettingzoo.classic",
    "mpe2": "mpe2",
    "butterfly": "pettingzoo.butterfly",
    "sisl": "pettingzoo.sisl",
    "atari": "pettingzoo.atari",
}
"""Modules of PettingZoo's families of environments, in search order."""


def _environment(name: str, settings: Mapping[str, str]) -> Game:
    """The game of an environment, drawn as text if possible."""
    package, _, env_id = name.partition(":")
    try:
        if package == "gymnasium":
            from entity_env.interop.gymnasium import from_gymnasium

            game: Game = from_gymnasium(env_id)
        elif package == "kaggle":
            game = _of_kaggle(env_id)
        else:
            game = _of_pettingzoo(env_id)
        game = game.with_settings(**settings)
        if "ansi" in getattr(game.play, "render_modes", ()) and "render_mode" not in settings:
            with suppress(UsageError):  # it may have the mode but no such argument
                game = game.with_settings(render_mode="ansi")
    except EntityEnvError:
        raise
    except ImportError as error:
        raise UsageError(f"{name}: {error}{install_hint(error, env_id)}") from error
    return game


def _of_kaggle(env_id: str) -> Game:
    from entity_env.interop.kaggle import ADAPTED, adapted_game, kaggle_env

    kaggle_env(env_id)  # a better error if the package or the game is missing
    if env_id not in ADAPTED:
        hint = nearest(env_id, ADAPTED) or f"; there are {', '.join(ADAPTED)}"
        raise UsageError(f"no adapter for 'kaggle:{env_id}'{hint}, or write a KaggleAdapter")
    return adapted_game(env_id)


def _of_pettingzoo(env_id: str) -> Game:
    from entity_env.interop.pettingzoo import from_pettingzoo

    place, _, attribute = env_id.partition(":")
    family, _, wanted = place.rpartition("/")
    if family and family not in _FAMILIES:
        hint = nearest(family, _FAMILIES) or f"; there are {', '.join(_FAMILIES)}"
        raise UsageError(f"pettingzoo has no family {family!r}{hint}")
    if family and find_spec(_FAMILIES[family]) is None:
        raise UsageError(f"pettingzoo:{env_id} needs a package: pip install {_FAMILIES[family]}")
    found = {
        module.name: f"{path}.{module.name}"
        for key, path in reversed(list(_FAMILIES.items()))  # if two have one name, the first stays
        if family in ("", key) and find_spec(path) is not None
        for module in iter_modules(import_module(path).__path__)
        if re.search(r"_v\d+$", module.name)
    }
    is_module = not family and (attribute or "." in wanted) and wanted[:1] not in ("", ".")
    path = wanted if is_module else found.get(wanted)
    if path is None:
        hint = nearest(wanted, found)
        if not hint and not family and find_spec(_FAMILIES["mpe2"]) is None:
            hint = "; mpe2 is a separate package: pip install mpe2"
        other = ". One of another package is pettingzoo:PACKAGE.MODULE or pettingzoo:MODULE:NAME"
        raise UsageError(f"no environment 'pettingzoo:{env_id}'{hint or other}")
    module = import_module(path)
    # Agents that act at the same time are asked at the same time.
    names = [attribute] if attribute else ["parallel_env", "env"]
    make = next((getattr(module, each) for each in names if hasattr(module, each)), None)
    if not callable(make):
        raise UsageError(
            f"pettingzoo:{env_id}: the module {path} has no {' or '.join(names)} that makes an "
            "environment of PettingZoo: name a function or class, pettingzoo:MODULE:NAME"
        )
    return from_pettingzoo(make, name=attribute or wanted.rpartition(".")[2])


# ------------------------------------------------------------------ agents by name


@dataclass(frozen=True)
class AgentLoader:
    """Loads an agent by name and seed; the fields are arguments of `load_agent`."""

    greedy: bool | None = None
    temperature: float = 1.0
    adapt: bool = False
    names: Mapping[str, str] | None = None

    def __call__(self, name: str, seed: int) -> Agent:
        file = split_file_name(name)
        if file is not None:
            remember(file[0])
        try:
            return load_agent(name, seed=seed, **vars(self))
        except (Exception, SystemExit) as error:
            if file is None:
                raise
            raise load_error(file[0], error) from error


def game_against(game: Game, names: Sequence[str]) -> Game:
    """`against` with bots or other agents by name.

    Raises:
        UsageError: as `against`, or a file that cannot be loaded.
        GameFailed: the code of a file raised.
    """
    for name in filter(is_bot_file, names):
        AgentLoader()(name, 0)  # a better error for a bad file
    return against(game, list(names))


def load_players(
    game: Game,
    names: Sequence[str],
    seed: int,
    load: Load,
    view: TerminalView | None = None,
    clock_s: float | None = None,
) -> list[Agent]:
    """One agent per name; humans see the game through `view`, and have `clock_s` per decision."""
    return [
        _human(game, view, agent_id, clock_s)
        if name == HUMAN and view is not None
        else load_player(game, name, seed + agent_id, load)  # with one seed all would act alike
        for agent_id, name in enumerate(names)
    ]


def load_player(game: Game, name: str, seed: int, load: Load) -> Agent:
    """One of the game's own agents, or another agent.

    Raises:
        UsageError: there is no such name or file.
    """
    own = game_agents(game)
    agent = own.load(name, seed)
    if agent is not None:
        return agent
    try:
        return own.adapted(load(name, seed))
    except UsageError as error:
        if not own.names or is_bot_file(name):
            raise
        if hint := nearest(name, [*own.names, HUMAN]):
            raise UsageError(f"no agent {name!r}{hint}") from None
        names = ", ".join(own.names)
        raise UsageError(
            f"{error}; the agents of {game.name} are {names}, and trained agents"
        ) from error


def load_opponent(game: Game, name: str, seed: int, load: Load, option: str) -> Agent:
    """Like `load_player`, for training: trained agents must fit the game.

    "random" is always the agent that decides for batches, not the game's own agent of that name.

    Raises:
        CheckpointError: the agent does not fit; the message names the option.
    """
    agent = load(name, seed) if name == "random" else load_player(game, name, seed, load)
    if isinstance(agent, TrainedAgent):
        try:
            agent.require_game(game.schema)
        except CheckpointError as error:
            raise CheckpointError(f"{option} {name}: {error}") from error
    return agent


def _human(game: Game, view: TerminalView, agent_id: int, clock_s: float | None) -> Agent:
    typing = game_agents(game).human(partial(view.ask, agent_id))
    if typing is None:
        return HumanAgent(board=view, clock_s=clock_s, look=view.look)
    if clock_s is not None:
        raise UsageError(
            f"--clock needs --browser here, because moves of {game.name} are typed in the terminal"
        )
    return typing


def player_names(game: Game, names: Sequence[str]) -> tuple[str, ...]:
    """A name for every agent of a game: the given names, then "random"."""
    if len(names) > game.num_agents:
        agents = "1 agent" if game.num_agents == 1 else f"{game.num_agents} agents"
        raise UsageError(f"{game.name} is for {agents}, got {len(names)}: {', '.join(names)}")
    return (*names, *["random"] * (game.num_agents - len(names)))
