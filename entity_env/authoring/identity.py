"""Identity of a game's rules: source digest, version, package, commit; versions of packages."""

from __future__ import annotations

import hashlib
import inspect
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Final, TypeAlias

from entity_env.authoring.game import Game
from entity_env.authoring.named_code.finder import NamedFileLoader
from entity_env.core.files import below, code_digest
from entity_env.lazy_imports import late_module

if TYPE_CHECKING:
    import platform
    from importlib import metadata
else:  # slow to import, and needed once per run
    platform, metadata = late_module("platform"), late_module("importlib.metadata")

Identity: TypeAlias = Mapping[str, str | int]
"""Result of `identity_of`, as JSON."""

_PACKAGE: Final = __name__.partition(".")[0]
_OWN_GAMES: Final = f"{_PACKAGE}.games"
"""A package in which each module is a separate game."""
_GIT_TIMEOUT_S: Final = 5.0
_NUM_DIGITS: Final = 12
"""Number of digits of a digest that are shown when digests differ."""
_MAX_SHOWN: Final = 64
_NAMES: Final = {"sha256": "source digest", "version": "version"}
"""Keys that are equal for equal rules."""


def identity_of(game: Game) -> dict[str, str | int]:
    """Identifies the rules of a game, as JSON.

    `source` is where it is defined, as in replays. `sha256` is the digest of the package that
    defines `play`, of all its Python files as currently on disk; without a package, of the one
    file. It also covers the module of `Game.training`, and the folder `NAME_batch` of a game of
    this package. `version` is the version of the `Game`; `package` is the name and version of the
    distribution; `git` is the output of `git describe --always --dirty` in the repository of the
    source. Unknown values are omitted.
    """
    found: dict[str, str | int | None] = {"source": source_of(game), "version": game.version}
    module = _module_of(game)
    if hasattr(game, "code_digest"):  # the rules are in a program
        with suppress(OSError):
            found["sha256"] = game.code_digest()
    elif module is not None and (path := _code_of(module)) is not None:
        with suppress(OSError, ValueError):
            digests = [code_digest(each) for each in (path, *_more_code(game, path))]
            found["sha256"] = digests[0]
            if len(digests) > 1:
                found["sha256"] = hashlib.sha256("\n".join(digests).encode()).hexdigest()
        found |= {"package": _distribution_of(module, path), "git": _commit_of(path)}
    return {name: value for name, value in found.items() if value not in (None, "")}


def about_game(game: Game) -> dict[str, object]:
    """The game's entries in `run.json`: settings, number of agents, name and identity."""
    return {
        "settings": all_settings(game),
        "num_agents": game.num_agents,
        "game_name": game.name,
        "identity": identity_of(game),
    }


def known_game(about: Mapping[str, object]) -> dict[str, str | int]:
    """Name and identity of the game in a `run.json`, as `.agent` files keep them; {} if unknown."""
    identity, name = about.get("identity"), about.get("game_name")
    if not isinstance(identity, Mapping) or not isinstance(name, str):
        return {}
    return {"name": name, **identity}


def all_settings(game: Game) -> dict[str, object]:
    """The settings of a game that have a value, including defaults."""
    defaults = {name: each.default for name, each in game.parameters.items()}
    known = {name: each for name, each in defaults.items() if each is not inspect.Parameter.empty}
    return {**known, **game.settings}


def changed_rules(before: object, now: Identity) -> str:
    """Differences between two identities of a game, in words; "" if the rules are the same.

    Compares the source digest and the version if both identities have them (older files have none).
    If one differs, also names the packages and commits that differ.
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


@cache
def _version_of(package: str) -> str:
    return metadata.version(package)  # reads a file


def package_versions(*packages: str) -> dict[str, str]:
    """Versions of Python, and of the packages that are installed."""
    found = {"python": platform.python_version()}
    for package in packages:
        with suppress(metadata.PackageNotFoundError):
            found[package] = _version_of(package)
    return found


def source_of(game: Game) -> str:
    """Where a game is defined, as `module:name` or `file.py:name`; "" if unknown.

    The file stands for a top-level module that cannot be imported from any folder: a script, a
    module loaded by file name, or one below the current folder. `exec:COMMAND` or `NAME.toml` for a
    program.
    """
    if isinstance(program := getattr(game, "source", None), str):
        return program
    place = place_of(game)
    if place is None:
        return ""
    home, name = place
    module = sys.modules[home]
    file = getattr(module, "__file__", None)
    if "." in home or file is None or _is_installed(module, Path(file)):
        return f"{home}:{name}"
    return f"{below(Path(file))}:{name}"


def place_of(game: Game) -> tuple[str, str] | None:
    """Module and name of a game, if the module of its `play` defines it at top level; else None."""
    home = getattr(inspect.unwrap(game.play), "__module__", None) or ""
    module = sys.modules.get(home)
    for name, value in vars(module).items() if module is not None else ():
        if issubclass(type(value), Game) and value.play is game.play and value.name == game.name:
            return home, name
    return None


def _is_installed(module: ModuleType, file: Path) -> bool:
    """Whether a module can be imported by name from any folder."""
    spec = getattr(module, "__spec__", None)
    is_named = spec is None or isinstance(spec.loader, NamedFileLoader)  # a script or a named file
    return not is_named and not file.resolve().is_relative_to(Path.cwd())


def _short(value: object, length: int = _NUM_DIGITS) -> str:
    return " ".join(str(value)[:_MAX_SHOWN].split())[:length]


def _module_of(game: Game) -> ModuleType | None:
    """The module of the rules; for another library's environment the module of its class."""
    play = inspect.unwrap(game.play)
    rules = getattr(play, "rules", None) or getattr(play, "func", play)
    return sys.modules.get(getattr(rules, "__module__", None) or "")


def _code_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    package = getattr(module, "__package__", None)
    is_inside = bool(package) and package != _OWN_GAMES and (path.parent / "__init__.py").is_file()
    return path.parent if is_inside else path


def _more_code(game: Game, path: Path) -> Iterator[Path]:
    """Code of the rules outside the file or package of `play`: of its batch environments."""
    batch = path.with_name(f"{path.stem}_batch")
    if path.parent.name == "games" and (batch / "__init__.py").is_file():
        yield batch
    training = game.training
    if isinstance(training, str):
        with suppress(ImportError, ValueError):
            spec = find_spec(training.partition(":")[0])
            file = None if spec is None or spec.origin is None else Path(spec.origin).resolve()
            if file is not None and file != path and not file.is_relative_to(path):
                yield file


def _distribution_of(module: ModuleType, path: Path) -> str:
    """Name and version of a module's installed package, such as `gymnasium 1.2.0`."""
    top = module.__name__.partition(".")[0]
    with suppress(metadata.PackageNotFoundError):
        if top == _PACKAGE:
            return f"entity-env {metadata.version('entity-env')}"
        if {"site-packages", "dist-packages"} & set(path.parts):  # the search is slow
            for name in metadata.packages_distributions().get(top, ()):
                return f"{name} {metadata.version(name)}"
    return ""


def _commit_of(path: Path) -> str:
    file = path / "__init__.py" if path.is_dir() else path
    try:
        _git(file.parent, "ls-files", "--error-unmatch", "--", file.name)
        return _git(file.parent, "describe", "--always", "--dirty")
    except (OSError, ValueError):
        return ""


def _git(folder: Path, *words: str) -> str:
    """Output of git; OSError if it fails, is not installed or takes too long."""
    from entity_env.processes import run_group  # takes 10 ms

    # Do not run programs or take locks that a repository's settings request.
    command = ("git", "-c", "core.fsmonitor=false", "-C", str(folder), *words)
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    done = run_group(command, timeout_s=_GIT_TIMEOUT_S, env=environment)
    if done is None or done.code:
        raise OSError(f"git {words[0]} failed, or took too long")
    return done.output.decode(errors="replace").strip()
