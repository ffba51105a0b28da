"""Finds what a user named: games by name or file, settings, agents."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

from entity_env.authoring.game import Game
from entity_env.cli.error_messages import GameFailed, trace_from
from entity_env.errors import EntityEnvError, UsageError
from entity_env.games import BATCH_GAMES, GAMES

NAMED: Mapping[str, Game] = {**GAMES, **{name: each.game for name, each in BATCH_GAMES.items()}}
"""Every game that needs no file, by name."""


class _GameLoader(SourceFileLoader):
    """Marks modules that came from a file on the command line."""


def find_game(name: str, settings: Sequence[str] = ()) -> Game:
    """The game of that name or file, with settings as `board_size=6`.

    Raises:
        UsageError: there is no such game or setting.
        GameFailed: the file raises when it is loaded.
    """
    try:
        game = _game_of_file(name) if _is_file(name) else _game_of_name(name)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise UsageError(f"no game {name!r}: {error.strerror}") from error
    return game.with_settings(**_parse_settings(settings))


def nearest(name: str, known: Iterable[str]) -> str:
    """ "; did you mean snake?" for a name that is nearly one of those known, else ""."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _is_file(name: str) -> bool:
    return name.endswith(".py") or ".py:" in name or "/" in name or "\\" in name


def _game_of_name(name: str) -> Game:
    if name in NAMED:
        return NAMED[name]
    if Path(f"{name}.py").is_file():
        raise UsageError(f"no game {name!r}; did you mean the file {name}.py?")
    hint = nearest(name, NAMED)
    raise UsageError(
        f"no game {name!r}{hint or '; there are ' + ', '.join(NAMED)}"
        + ("" if hint else ", or a file of yours: path/to/file.py")
    )


def _game_of_file(name: str) -> Game:
    path, separator, wanted = name.rpartition(":")
    if not separator or not path.endswith(".py"):
        path, wanted = name, ""
    games = _games_in(_load(Path(path)))
    if not games:
        raise UsageError(f"{path} holds no game: make one at its top level, game = Game(play, ...)")
    if wanted:
        if wanted not in games:
            hint = nearest(wanted, games) or f"; it has {', '.join(games)}"
            raise UsageError(f"{path} holds no game {wanted!r}{hint}")
        return games[wanted]
    different = {id(game): name for name, game in games.items()}
    if len(different) > 1:
        choices = ", ".join(f"{path}:{name}" for name in different.values())
        raise UsageError(f"{path} holds {len(different)} games, choose one: {choices}")
    return next(iter(games.values()))


def _games_in(module: ModuleType) -> Mapping[str, Game]:
    """The games of a file; those that it imports count only when it makes none of its own."""
    games = {name: value for name, value in vars(module).items() if isinstance(value, Game)}
    own = {name: g for name, g in games.items() if g.play.__module__ == module.__name__}
    return own or games


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        files = [str(path.parent / file.name) for file in path.parent.glob("*.py")]
        raise UsageError(f"no file {path}{nearest(str(path), files)}")
    file = str(path.resolve())
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)  # as Python does for a script: modules beside it are found
    name = _module_name(path.stem)
    spec = spec_from_file_location(name, file, loader=_GameLoader(name, file))
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        del sys.modules[name]
        raise _unloadable(path, file, error) from error
    return module


def _module_name(stem: str) -> str:
    """The name of the file, unless that would hide a module which is loaded already."""
    loaded = sys.modules.get(stem)
    is_ours = isinstance(getattr(loaded, "__loader__", None), _GameLoader)
    return stem if loaded is None or is_ours else f"{stem}_game"


def _unloadable(path: Path, file: str, error: BaseException) -> BaseException:
    """What to raise for a file that cannot be loaded."""
    match error:
        case SyntaxError(filename=filename) if filename == file:
            return UsageError(f"{path}, line {error.lineno}: {error.msg}")
        case EntityEnvError():
            return UsageError(f"{path}, line {_line_in(error, file)}: {error}")
        case Exception():
            return GameFailed(trace_from(error, file) or f"{path}: {error!r}\n")
        case SystemExit():
            return UsageError(f"{path} ends the program when it is loaded: sys.exit({error.code})")
    return error


def _line_in(error: BaseException, file: str) -> int | None:
    """The line of a file that an error went through first."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename != file:
        trace = trace.tb_next
    return trace.tb_lineno if trace is not None else None


def _parse_settings(settings: Sequence[str]) -> dict[str, str]:
    parsed = {}
    for setting in settings:
        name, separator, value = setting.partition("=")
        if not name or not separator:
            raise UsageError(f"--set needs name=value, got {setting!r}")
        parsed[name] = value
    return parsed
