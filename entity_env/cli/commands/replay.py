"""`entity-env record`, `replay` and `verify`: episodes as files."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path, PurePath
from typing import Final

import click
from rich.console import Console

from entity_env.agents import PolicyAgent, load_agent
from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.keyboard import Keyboard
from entity_env.authoring.game import Game
from entity_env.authoring.load_module import file_below
from entity_env.cli.display.console import LiveDisplay
from entity_env.cli.display.terminal_view import Frames, Moment, TerminalView, shown_names
from entity_env.cli.game_errors import game_errors
from entity_env.cli.load_game import (
    HUMAN,
    NAMED,
    AgentLoader,
    load_game,
    load_players,
    player_names,
    require_person,
    run_or_episode,
    single_keys,
)
from entity_env.cli.options import (
    SEED,
    FiniteRange,
    WholeRange,
    agent_options,
    clock_option,
    game_argument,
    look_option,
    require_writable,
    run_seed_option,
    set_option,
    step_timeout_option,
)
from entity_env.errors import EntityEnvError, ReplayError, UsageError
from entity_env.replay import Replay, ReplayWriter, verify_in_new_process
from entity_env.replay.file import SUFFIX
from entity_env.replay.play_again import play_again
from entity_env.views import Look, find_look
from entity_env.views.describe import describe_number
from entity_env.views.load_look import named_look
from entity_env.views.scene import one_line

_FOREVER_S: Final = 3600.0
_STEPS: Final = {"left": -1, "right": 1}
_SPEEDS: Final = {"up": 2.0, "down": 0.5}
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
    if (file := file_below(package)) is not None:
        return load_game(f"{file}:{rest}")
    where = f" in {source}" if source else ""
    raise ReplayError(
        f"{replay.name} is of the game {name!r}{where}, which is not here: give it, --game FILE.py"
    )


@click.command()
@game_argument
@agent_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="File to write, NAME.replay.  [default: GAME.replay]",
)
@click.option("--see/--no-see", default=True, help="Keep what was seen, to draw without the game.")
@click.option("--think/--no-think", default=True, help="Keep the value that agents predict.")
@run_seed_option
@click.option("--episode-seed", type=SEED, help="Seed of the episode, as play and errors name it.")
@clock_option
@look_option
@step_timeout_option
@set_option
def record(
    game: str,
    agents: Sequence[str],
    load: AgentLoader,
    out: Path | None,
    see: bool,
    think: bool,
    seed: int,
    episode_seed: int | None,
    clock_s: float | None,
    look: str | None,
    step_timeout_s: float | None,
    settings: Sequence[str],
) -> None:
    """Play one episode of GAME and write it to a file that plays it again.

    Only --agent human draws the game.
    """
    chosen = load_game(game, settings)
    chosen = game_agents(chosen).seated(chosen, len(agents))
    out = Path(f"{chosen.name.replace(':', '_')}{SUFFIX}") if out is None else out
    require_writable(out.parent)
    names = player_names(chosen, agents)
    require_person(names, clock_s)
    with _view_for_humans(chosen, names, look) as view:
        players = load_players(chosen, names, seed, load, view, clock_s)
        # Of a file the writer finds the path from this folder.
        source = game if game.partition(":")[0] in ("gymnasium", "pettingzoo") else ""
        writer = ReplayWriter(out, see=see, think=think, agents=names, source=source, watch=view)
        with game_errors(chosen), single_keys(clock_s):
            start = run_or_episode(chosen, seed, 1, episode_seed)
            start(*players, watch=writer, step_timeout_s=step_timeout_s)
    _describe_written(writer, out)


def _view_for_humans(
    game: Game, names: Sequence[str], look: str | None
) -> AbstractContextManager[TerminalView | None]:
    """Draws the game, if people play."""
    humans = tuple(i for i, name in enumerate(names) if name == HUMAN)
    if not humans:
        return nullcontext()
    called = shown_names(names, humans)
    drawn_by = find_look(game, look)
    return TerminalView(game, Console(), humans=humans, names=called, look=drawn_by)


def _describe_written(writer: ReplayWriter, out: Path) -> None:
    if not writer.replays:
        click.echo("left before the first decision: nothing was written")
        return
    replay = writer.replays[0]
    rewards = ", ".join("-" if each is None else describe_number(each) for each in replay.rewards)
    click.echo(
        f"{out}: {replay.num_decisions} decisions, reward {rewards}, {out.stat().st_size} bytes"
    )
    click.echo(f"see it again: entity-env replay {shlex.quote(str(out))}")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--from", "first", type=WholeRange(min=0), default=0, help="Begin here.")
@click.option("--fps", type=FiniteRange(min=0.001), default=10, help="Frames per second.")
@click.option(
    "--take-over",
    type=WholeRange(min=0),
    metavar="N",
    help="Play the first N decisions again, and let the agents of --agent go on.",
)
@agent_options
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --take-over: file of the new replay.  [default: FILE-from-N.replay]",
)
@click.option("--seed", type=SEED, help="With --take-over: seed of the agents.")
@click.option(
    "--debug",
    type=int,
    metavar="N",
    help="Stop in the game, in pdb, after decision N; -1 = the last one.",
)
@look_option
@game_option
def replay(
    file: Path,
    first: int,
    fps: float,
    take_over: int | None,
    agents: Sequence[str],
    load: AgentLoader,
    out: Path | None,
    seed: int | None,
    debug: int | None,
    look: str | None,
    game: str | None,
) -> None:
    """Show the replay FILE in the terminal, step by step in both directions.

    Space pauses, left and right step, up and down change the speed, q leaves. With --take-over the
    game goes on with other agents, or with you: --agent human.
    """
    if debug is not None and take_over is not None:
        raise UsageError("--debug and --take-over exclude each other: give one of them")
    if take_over is None and (agents or out):
        raise UsageError("--agent and --out are of --take-over: say from which decision on")
    found = Replay.load(file)
    if debug is not None:
        _debug(found, game_of(found, game), debug)
    elif take_over is not None:
        out = file.with_name(f"{file.stem}-from-{take_over}{SUFFIX}") if out is None else out
        _take_over(found, game_of(found, game), take_over, agents, load, out, look, seed)
    else:
        _show(found, first, fps, look, game)


def _show(found: Replay, first: int, fps: float, look: str | None, game: str | None) -> None:
    """Draws the episode in the terminal."""
    chosen, drawn_by = game_and_look(found, look, game)
    turns = found.turns(chosen)
    if first >= len(turns):
        raise UsageError(f"{found.name} has {len(turns)} frames: --from must be below, got {first}")
    console = Console()
    names = shown_names([agent.get("name", "") for agent in found.header.agents], ())
    frames = Frames(
        *found.spaces,
        drawn_by,
        name=found.header.game,
        num_agents=found.header.num_agents,
        agent_names=names,
        ascii_only=console.options.ascii_only,
    )
    player = _Player(frames, frames.moments(turns), console, fps, first)
    player.play()
    if found.failure:
        click.echo(f"failed: {one_line(found.failure)}")


class _Player:
    """Shows the moments of a replay in the terminal, and follows the keys."""

    def __init__(
        self, frames: Frames, moments: Sequence[Moment], console: Console, fps: float, first: int
    ) -> None:
        self._frames = frames
        self._moments = moments
        self._console = console
        self._display = LiveDisplay(console, fps=None)
        self._fps = fps
        self._index = first
        self._is_paused = False

    def play(self) -> None:
        """Shows them; outside of a terminal all, one after another."""
        keyboard = Keyboard(sys.stdin)
        if not (self._console.is_terminal and keyboard.is_terminal):
            for index in range(self._index, len(self._moments)):
                self._index = index
                self._draw()
            return
        try:
            with keyboard.single_keys():
                self._follow(keyboard)
        except KeyboardInterrupt:
            pass
        finally:
            self._display.close()

    def _follow(self, keyboard: Keyboard) -> None:
        while True:
            self._draw()
            is_last = self._index == len(self._moments) - 1
            wait_s = _FOREVER_S if self._is_paused or is_last else 1 / self._fps
            if not keyboard.has_key(wait_s):
                self._step(0 if self._is_paused else 1)
                continue
            key = keyboard.key()
            if key in ("q", ""):
                return
            if key == " ":
                if is_last:
                    self._index = 0
                self._is_paused = not self._is_paused and not is_last
            elif key in _STEPS:
                self._is_paused = True
                self._step(_STEPS[key])
            elif key in _SPEEDS:
                self._fps = min(max(self._fps * _SPEEDS[key], 0.25), 200.0)

    def _step(self, by: int) -> None:
        self._index = min(max(self._index + by, 0), len(self._moments) - 1)

    def _draw(self) -> None:
        height = self._console.height - 2 if self._console.is_terminal else None
        state = "paused" if self._is_paused else f"{self._fps:g} a second"
        note = f"{self._index}/{len(self._moments) - 1}, {state}"
        keys = ["", f"{note}   space pauses, arrows step and change the speed, q leaves"]
        frame = self._frames.frame(
            self._moments[self._index],
            self._console.width,
            height,
            notes=keys if self._console.is_terminal else (),
        )
        self._display.show(frame, is_paced=False)


def _take_over(
    found: Replay,
    game: Game,
    at: int,
    agents: Sequence[str],
    load: AgentLoader,
    out: Path,
    look: str | None,
    seed: int | None,
) -> None:
    """Goes on from a decision with other agents, and writes the new replay."""
    found.require_decision(at)
    game = found.with_settings_of(game)
    names = player_names(game, agents)
    seed = secrets.randbelow(2**31) if seed is None else seed
    parent = {"sha": found.sha, "at": at}
    with _view_for_humans(game, names, look) as view:
        players = load_players(game, names, seed, load, view)
        writer = ReplayWriter(
            out, think=True, agents=names, source=found.header.source, parent=parent, watch=view
        )
        with game_errors(game):
            diverged, _ = play_again(found, game, until=at, then=players, watch=writer)
    if diverged is not None:
        raise ReplayError(f"{found.name} cannot be gone on with: {diverged}")
    _describe_written(writer, out)


def _debug(found: Replay, game: Game, at: int) -> None:
    """Stops in the game after a decision."""
    count = found.num_decisions
    if not -count <= at < count:
        raise UsageError(f"{found.name} has {count} decisions: there is none {at}")
    click.echo(f"decision {at % count} of {count}; then the game goes on, in pdb")
    diverged, _ = play_again(found, game, until=at % count + 1, debug=True)
    if diverged is not None:
        click.echo(f"diverged: {diverged}")
    elif found.failure and at % count == count - 1:
        click.echo(f"the game failed as recorded: {found.failure}")
    else:
        click.echo("the game played as recorded")


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
@step_timeout_option
def verify(
    files: Sequence[Path], game: str | None, timeout_s: float, step_timeout_s: float | None
) -> None:
    """Play replays again, and say where their games differ.

    Each in a new process with another hash seed, so that the order of sets shows, too. Exit code 0:
    all are the same; 1: one diverged; 2: one cannot be played.
    """
    worst = 0
    for path in files:
        try:
            replay = Replay.load(path)
            [found] = verify_in_new_process(
                game_of(replay, game), [replay], timeout_s=timeout_s, step_timeout_s=step_timeout_s
            )
        except EntityEnvError as error:
            click.echo(f"{path}: cannot be played: {one_line(error)}", err=True)
            worst = 2
            continue
        if found is not None:
            text = one_line(f"{found}{_other_versions(replay)}")
            click.echo(f"{path}: diverged: {text}")
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
@click.option("--at", type=WholeRange(min=0), help="Draw this picture alone: .png or .svg.")
@click.option(
    "--agent",
    metavar="AGENT",
    help="Show what this trained agent thinks of every decision, and where it attends.",
)
@look_option
@game_option
def draw(
    file: Path, out: Path, at: int | None, agent: str | None, look: str | None, game: str | None
) -> None:
    """Draw the replay FILE: as a page to play and step through, as pictures, or as a video.

    .html is one file that needs no network; .svg moves, too, unless --at is given; .gif, .webp and
    .png need Pillow, .mp4 needs ffmpeg.
    """
    replay = Replay.load(file)
    thinker = None if agent is None else load_agent(agent)
    if thinker is not None and not isinstance(thinker, PolicyAgent):
        raise UsageError(f"{agent} computes no probabilities to be shown")
    animation = replay.animation(*game_and_look(replay, look, game), thinker=thinker)
    if thinker is not None and out.suffix.lower() != ".html":  # a page shows thoughts itself
        animation = animation.with_thoughts()
    animation.write(out, at)
    size = out.stat().st_size / 1024
    click.echo(f"{out}: {size:.0f} KiB, from {len(animation)} pictures")


def game_and_look(
    replay: Replay, look: str | None, game: str | None
) -> tuple[Game | None, Look | None]:
    """What a replay is drawn with; its game is needed for its look, or if nothing was kept."""
    if replay.has_observations and game is None:
        try:
            chosen = game_of(replay, None)
        except ReplayError:  # it can be drawn without
            return None, Look() if look is None else named_look(look)
    else:
        chosen = game_of(replay, game)
    return chosen, find_look(replay.with_settings_of(chosen), look)


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
