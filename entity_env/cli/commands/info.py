"""`entity-env games` and `entity-env doctor`: what there is to play, and what is installed."""

from __future__ import annotations

import inspect
import platform
import re
from importlib.metadata import PackageNotFoundError, version
from typing import Final

import click
from greenlet import greenlet
from rich.console import Console

from entity_env.authoring.game import Game
from entity_env.cli.display.console import plain_table
from entity_env.cli.load_game import NAMED

_REQUIRED: Final = ("entity-env", "numpy", "greenlet", "click", "rich")
_EXTRAS: Final = {
    "train": ("torch", "safetensors", "tensorboard"),
    "fast": ("numba",),
    "pixel": ("torch", "warp-lang"),
    "gymnasium": ("gymnasium",),
    "pettingzoo": ("pettingzoo",),
}


@click.command("games")
def list_games() -> None:
    """List the games with their number of agents and their settings."""
    table = plain_table()
    table.add_column("game", no_wrap=True)
    table.add_column("agents", justify="right")
    table.add_column("settings", overflow="fold")
    table.add_column("what it is")
    for name, game in NAMED.items():
        settings = "\n".join(map(_setting, game.parameters.values())) or "none"
        table.add_row(name, str(game.num_agents), settings, _summary(game))
    Console().print(table)


def _setting(parameter: inspect.Parameter) -> str:
    """A setting with its default, as `--set` takes it: `board_size=10`."""
    if parameter.default is parameter.empty:
        return f"{parameter.name} (needed)"
    shown = "none" if parameter.default in (None, "") else parameter.default
    return f"{parameter.name}={shown}"


def _summary(game: Game) -> str:
    """The first docstring line of the game's module if its function is `play`, else of `play`."""
    is_alone = getattr(game.play, "__name__", "") == "play"
    module = inspect.getmodule(game.play) if is_alone else None
    text = (module and inspect.getdoc(module)) or inspect.getdoc(game.play) or ""
    line = text.partition("\n")[0]
    title, _, rest = line.partition(": ")
    return rest if re.sub(r"\W+", "_", title.lower()) == game.name else line


@click.command()
def doctor() -> None:
    """Report installed versions, missing packages, and whether greenlets work."""
    click.echo(f"python       {platform.python_version()}  {platform.platform()}")
    for package in _REQUIRED:
        click.echo(f"{package:<12} {_version(package) or 'missing: pip install entity-env'}")
    click.echo(f"suspending   {'works' if _can_suspend() else 'broken: reinstall greenlet'}")
    for extra, packages in _EXTRAS.items():
        click.echo(f"[{extra}]".ljust(13) + _describe(extra, packages))


def _describe(extra: str, packages: tuple[str, ...]) -> str:
    versions = {package: _version(package) for package in packages}
    missing = [package for package, found in versions.items() if found is None]
    if missing:
        return f"{' and '.join(missing)} missing: pip install 'entity-env[{extra}]'"
    return ", ".join(f"{package} {found}" for package, found in versions.items())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _can_suspend() -> bool:
    """Passes a number into a suspended greenlet and back."""
    here = greenlet.getcurrent()
    other = greenlet(lambda value: here.switch(value + 1) + 1)
    return bool(other.switch(1) == 2 and other.switch(2) == 3)
