"""`entity-env record`, `replay` and `verify`: episodes as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePath

import click

from entity_env.authoring.game import Game
from entity_env.cli.load_game import NAMED, load_game
from entity_env.cli.options import FiniteRange
from entity_env.errors import EntityEnvError, ReplayError
from entity_env.replay import Replay, verify_in_new_process

game_option = click.option(
    "--game",
    metavar="GAME",
    help="The game of the replay.  [default: the one it names, if it is one of the package or a "
    "file in this folder]",
)


def game_of(replay: Replay, given: str | None) -> Game:
    """The game of a replay: the given one, or the one that it names.

    Of those that it names only games of the package, environments by their id, and files at or
    below the current folder are loaded: a replay may come from anywhere.

    Raises:
        ReplayError: it has to be given.
    """
    if given is not None:
        return load_game(given)
    name, source = replay.header.game, replay.header.source
    if name in NAMED and (not source or source.startswith("entity_env.")):
        return NAMED[name]
    package, _, rest = source.partition(":")
    if package in ("gymnasium", "pettingzoo") and ":" not in rest:
        return load_game(source)
    path = PurePath(package)
    is_below = path.suffix == ".py" and not path.is_absolute() and ".." not in path.parts
    if is_below and Path(path).is_file():
        return load_game(source)
    where = f" in {source}" if source else ""
    raise ReplayError(
        f"{replay.name} is of the game {name!r}{where}, which is not here: give it, --game FILE.py"
    )


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@game_option
@click.option(
    "--timeout",
    "timeout_s",
    type=FiniteRange(min=0, min_open=True, max=1e6),
    default=600,
    metavar="SECONDS",
    help="Time that playing a file again may take.",
)
def verify(files: Sequence[Path], game: str | None, timeout_s: float) -> None:
    """Play replays again, and say where their games differ.

    Each in a new process with another hash seed, so that the order of sets shows, too. Exit code 0:
    all are the same; 1: one diverged; 2: one cannot be played.
    """
    worst = 0
    for path in files:
        try:
            replay = Replay.load(path)
            found = verify_in_new_process(game_of(replay, game), [replay], timeout_s=timeout_s)[0]
        except EntityEnvError as error:
            click.echo(f"{path}: cannot be played: {' '.join(str(error).split())}", err=True)
            worst = 2
            continue
        if found is not None:
            click.echo(f"{path}: diverged: {found}{_other_versions(replay)}")
            worst = max(worst, 1)
        else:
            end = "" if replay.is_whole else ", as far as it goes"
            click.echo(f"{path}: same, {replay.num_decisions} decisions{end}")
    raise SystemExit(worst)


def _other_versions(replay: Replay) -> str:
    """Which versions differ from those that the replay was made with."""
    from entity_env.replay.writer import versions

    now = versions()
    changed = [
        f"{name} {was}, now {now[name]}"
        for name, was in replay.header.made_with.items()
        if name in now and was != now[name]
    ]
    return f" (made with {'; '.join(changed)})" if changed else ""
