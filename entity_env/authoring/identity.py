"""`identity_of`: which rules a game has, by digest of the source, version, package and commit."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from types import ModuleType
from typing import Final, TypeAlias

from entity_env.authoring.game import Game
from entity_env.authoring.load_module import NamedFileLoader
from entity_env.core.files import code_digest

Identity: TypeAlias = Mapping[str, str | int]
"""See `identity_of`, as JSON."""

_PACKAGE: Final = __name__.partition(".")[0]
_OWN_GAMES: Final = f"{_PACKAGE}.games"
"""A package whose modules are games of their own."""
_GIT_TIMEOUT_S: Final = 5.0
_NUM_DIGITS: Final = 12
"""Of a digest that people compare."""
_MAX_SHOWN: Final = 64
_NAMES: Final = {"sha256": "source digest", "version": "version"}
"""What two games of the same rules have in common."""


def identity_of(game: Game) -> dict[str, str | int]:
    """What identifies the rules of a game, as JSON.

    `source` is where it is defined, as in replays; `sha256` the digest of the file of its `play`
    as it is now on disk, or of all Python files of the package that this file is in; `version` that
    of the `Game`; `package` name and version of the distribution; `git` what `git describe --always
    --dirty` says of the repository that holds the source. What is not known is left out.
    """
    found: dict[str, str | int | None] = {"source": source_of(game), "version": game.version}
    module = _module_of(game)
    if module is not None and (path := _code_of(module)) is not None:
        with suppress(OSError, ValueError):
            found["sha256"] = code_digest(path)
        found |= {"package": _distribution_of(module, path), "git": _commit_of(path)}
    return {name: value for name, value in found.items() if value not in (None, "")}


def about_game(game: Game) -> dict[str, object]:
    """What `run.json` says of a game: settings, number of agents, name and identity."""
    return {
        "settings": all_settings(game),
        "num_agents": game.num_agents,
        "game_name": game.name,
        "identity": identity_of(game),
    }


def all_settings(game: Game) -> dict[str, object]:
    """The settings of a game, defaults included; without those that have no value."""
    defaults = {name: each.default for name, each in game.parameters.items()}
    known = {name: each for name, each in defaults.items() if each is not inspect.Parameter.empty}
    return {**known, **game.settings}


def changed_rules(before: object, now: Identity) -> str:
    """What differs between two identities of one game, in words; "" if the rules are the same.

    What one of them lacks is not compared: older files have no identity.
    """
    if not isinstance(before, Mapping):
        return ""
    differing = [
        f"{words} {_short(before[name])}, now {_short(now[name])}"
        for name, words in _NAMES.items()
        if name in before and name in now and before[name] != now[name]
    ]
    for name in ("package", "git"):
        old, new = (_short(each.get(name) or "none", _MAX_SHOWN) for each in (before, now))
        if differing and old != new:
            differing.append(f"{old}, now {new}")
    return "; ".join(differing)


def source_of(game: Game) -> str:
    """Where a game is defined, `module:name`, or `file.py:name` for a script; "" if unknown."""
    place = place_of(game)
    if place is None:
        return ""
    home, name = place
    module = sys.modules[home]
    file = getattr(module, "__file__", None)
    if "." in home or file is None or _is_installed(module, Path(file)):
        return f"{home}:{name}"
    return f"{_below(Path(file))}:{name}"


def place_of(game: Game) -> tuple[str, str] | None:
    """Module and name of a game at the top level of the module of its `play`."""
    home = getattr(inspect.unwrap(game.play), "__module__", None) or ""
    module = sys.modules.get(home)
    for name, value in vars(module).items() if module is not None else ():
        if issubclass(type(value), Game) and value.play is game.play and value.name == game.name:
            return home, name
    return None


def _is_installed(module: ModuleType, file: Path) -> bool:
    """Whether a module is imported by its name from wherever the program runs."""
    spec = getattr(module, "__spec__", None)
    is_named = spec is None or isinstance(spec.loader, NamedFileLoader)  # a script, or its file
    return not is_named and not file.resolve().is_relative_to(Path.cwd())


def _below(file: Path) -> str:
    """The path of a file from the current folder; of others the name alone."""
    try:
        return file.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        return file.name


def _short(value: object, length: int = _NUM_DIGITS) -> str:
    """What a file says, in one line."""
    return " ".join(str(value)[:_MAX_SHOWN].split())[:length]


def _module_of(game: Game) -> ModuleType | None:
    """The module of the rules; of an environment of another library that of its class."""
    play = inspect.unwrap(game.play)
    rules = getattr(play, "rules", None) or getattr(play, "func", play)
    return sys.modules.get(getattr(rules, "__module__", None) or "")


def _code_of(module: ModuleType) -> Path | None:
    """The file of a module, or the folder of its package."""
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    package = getattr(module, "__package__", None)
    is_inside = bool(package) and package != _OWN_GAMES and (path.parent / "__init__.py").is_file()
    return path.parent if is_inside else path


def _distribution_of(module: ModuleType, path: Path) -> str:
    """Name and version of the installed package of a module, such as `gymnasium 1.2.0`."""
    top = module.__name__.partition(".")[0]
    with suppress(PackageNotFoundError):
        if top == _PACKAGE:
            return f"entity-env {version('entity-env')}"
        if {"site-packages", "dist-packages"} & set(path.parts):  # the search takes a while
            for name in packages_distributions().get(top, ()):
                return f"{name} {version(name)}"
    return ""


def _commit_of(path: Path) -> str:
    """The commit of the repository that has a file, or a package, under version control."""
    file = path / "__init__.py" if path.is_dir() else path
    try:
        _git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
        return _git(file.parent, "describe", "--always", "--dirty")
    except (OSError, ValueError):
        return ""


def _git(folder: Path, *words: str) -> str:
    """What git prints; an OSError if it fails, is not installed or takes too long."""
    import subprocess  # takes 10 ms

    # Neither the programs nor the locks that the settings of a repository ask for.
    command = ("git", "-c", "core.fsmonitor=false", "-C", str(folder), *words)
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            command, capture_output=True, check=True, timeout=_GIT_TIMEOUT_S, env=environment
        )
    except subprocess.SubprocessError as error:
        raise OSError(f"git failed: {error}") from error
    return done.stdout.decode(errors="replace").strip()
