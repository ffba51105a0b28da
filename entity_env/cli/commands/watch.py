"""`entity-env watch`: training runs in a page, live."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from entity_env.cli.commands.runs import folders_argument, games_option
from entity_env.cli.options import drawing_limit_options, open_option
from entity_env.replay.new_process import PlayLimits


@click.command()
@folders_argument
@games_option
@drawing_limit_options
@open_option
def watch(
    folders: Sequence[Path], games: Sequence[str], limits: PlayLimits, is_opened: bool
) -> None:
    """Watch training in the browser: curves, the table of runs, and their replays, live.

    RUN is the folder of a training run, or a folder of such folders.  [default: runs]

    The page is served to this machine alone, until Ctrl-C.
    """
    from entity_env.cli.browser.watch import watch_runs

    watch_runs(folders, games=games, limits=limits, is_opened=is_opened)
