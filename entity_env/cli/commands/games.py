"""`entity-env games`: what there is to play."""

from __future__ import annotations

import inspect
import re

import click
from rich.console import Console
from rich.table import Table

from entity_env.authoring.game import Game
from entity_env.cli.load_game import NAMED


@click.command("games")
def list_games() -> None:
    """List the games, with their agents and settings."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("game", no_wrap=True)
    table.add_column("agents", justify="right")
    table.add_column("settings", overflow="fold")
    table.add_column("what it is")
    for name, game in NAMED.items():
        table.add_row(name, str(game.num_agents), _settings(game), _summary(game))
    Console().print(table)


def _settings(game: Game) -> str:
    """The settings a line each, as `--set` takes them: `board_size=10`."""
    return "\n".join(map(_setting, game.parameters.values())) or "none"


def _setting(parameter: inspect.Parameter) -> str:
    """A setting with what it is unless one says otherwise."""
    if parameter.default is parameter.empty:
        return f"{parameter.name} (needed)"
    shown = "none" if parameter.default in (None, "") else parameter.default
    return f"{parameter.name}={shown}"


def _summary(game: Game) -> str:
    """The first line of what the game's file says of itself, else of its `play`.

    A file of one game calls that `play`; a file of several says what they share.
    """
    is_alone = getattr(game.play, "__name__", "") == "play"
    module = inspect.getmodule(game.play) if is_alone else None
    text = (module and inspect.getdoc(module)) or inspect.getdoc(game.play) or ""
    line = text.partition("\n")[0]
    title, _, rest = line.partition(": ")
    return rest if re.sub(r"\W+", "_", title.lower()) == game.name else line
