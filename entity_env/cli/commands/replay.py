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
from entity_env.views import Look, find_look
from entity_env.views.animation import Animation
from entity_env.views.find_look import named_look

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


look_option = click.option("--look", metavar="FILE.py|MODULE:NAME", help="Draw it by this look.")


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


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option(
    "--out",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write; its ending is the format: .html .svg .png .gif .webp .mp4",
)
@click.option("--at", type=click.IntRange(min=0), help="Draw this picture alone: .png or .svg.")
@look_option
@game_option
def draw(file: Path, out: Path, at: int | None, look: str | None, game: str | None) -> None:
    """Draw the replay FILE: as a page to play and step through, as pictures, or as a video.

    .html is one file that needs no network; .svg moves, too, unless --at is given; .gif, .webp and
    .png need Pillow, .mp4 needs ffmpeg.
    """
    replay = Replay.load(file)
    animation = animation_of(replay, look, game)
    animation.write(out, at)
    size = out.stat().st_size / 1024
    click.echo(f"{out}: {len(animation)} pictures, {size:.0f} KiB")


def animation_of(replay: Replay, look: str | None, game: str | None) -> Animation:
    """The animation of a replay; its game is needed for its look, or if nothing was kept."""
    if replay.has_observations and game is None:
        try:
            chosen = game_of(replay, None)
        except ReplayError:  # it can be drawn without
            return replay.animation(None, Look() if look is None else named_look(look))
    else:
        chosen = game_of(replay, game)
    return replay.animation(chosen, None if look is None else find_look(chosen, look))


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
