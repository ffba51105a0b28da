"""`entity-env record`, `replay`, `verify` and `draw`: episodes as files."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath
from typing import Annotated, Any, Final, TypeAlias

from entity_env.agents import PolicyAgent, load_agent
from entity_env.agents.game_agents import game_agents
from entity_env.agents.human.keyboard import Keyboard
from entity_env.agents.human.prompt import HUMAN
from entity_env.agents.training.tracking.runs import REPLAY_FOLDERS, RUN_FILE, read_about
from entity_env.authoring.game import Game
from entity_env.authoring.identity import package_versions
from entity_env.authoring.local_run import RunLimits, Turn, Watch
from entity_env.cli.command import Argument, CliOption
from entity_env.cli.display.console import Console, LiveDisplay, ProgressBar, cut_words, echo
from entity_env.cli.display.terminal_view import Frames, Moment, TerminalView
from entity_env.cli.game_errors import GameFailed, game_errors
from entity_env.cli.load_game import (
    ENVIRONMENTS,
    game_code,
    load_game,
    load_players,
    player_names,
    setting_names,
)
from entity_env.cli.named import may_name, remember, was_named, was_recorded
from entity_env.cli.options import (
    AgentOptions,
    DrawingLimits,
    File,
    FrameRate,
    GameName,
    GameSettings,
    LimitOptions,
    LookName,
    MaxSteps,
    Number,
    PlayOptions,
    SeedNumber,
    any_seed,
    require_writable,
    step_limit,
)
from entity_env.core.validation import Range
from entity_env.errors import EntityEnvError, ReplayError, UsageError
from entity_env.games import GAMES
from entity_env.replay import Replay, ReplayWriter, verify_in_new_process
from entity_env.replay.file import SUFFIX, ReplayHeader
from entity_env.replay.new_process import PlayLimits, turns_in_new_process
from entity_env.replay.play_again import play_again
from entity_env.views import Animation, Look, find_look
from entity_env.views.describe import describe_number, shown_names
from entity_env.views.load_look import named_look
from entity_env.views.scene import one_line

_FOREVER_S: Final = 3600.0
_STEPS: Final = {"left": -1, "right": 1}
_SPEEDS: Final = {"up": 2.0, "down": 0.5}
GivenGame: TypeAlias = Annotated[
    str | None,
    CliOption(
        "Game of the replay.",
        metavar="GAME",
        default="the one that the replay names, if it is part of the package, or if you have named "
        "it here before and it has not changed since",
    ),
]
_File: TypeAlias = Annotated[Path, Argument("FILE")]


def game_of(replay: Replay, given: str | None = None, settings: Sequence[str] = ()) -> Game:
    """The game of a replay: the given one, or the game it names.

    A replay may come from anywhere: it may only name a game of the package, or code that the user
    has named before. Replays that `record` and `train` wrote here count as named. Of the replay's
    settings, the game has only those that could name a file and may be used; the others are set by
    `Replay.with_settings_of`.

    Args:
        replay: loaded from a file.
        given: GAME, as typed.
        settings: of the game, as typed.

    Raises:
        ReplayError: the game must be given.
    """
    header = replay.header
    path = Path(replay.name)
    run = _run_of(path, header.game)
    name = given or _game_in_package(header) or run.get("game") or _game_named(replay)
    try:
        game = load_game(name, settings)
    except UsageError as error:  # it holds no game, or imports code that must not run
        if given or name in GAMES:
            raise
        raise ReplayError(f"{replay.name}: the game that it names: {error}") from error
    of_run, is_own = run.get("settings", {}), was_named(path)
    named = {}
    for key, what in setting_names(game, header.settings).items():
        value = header.settings[key]
        is_of_run = is_own or (key in of_run and of_run[key] == value)
        if was_named(what) or (is_of_run and (isinstance(what, str) or was_recorded(what))):
            named[key] = value
    return game.with_settings(**named)


def _run_of(replay: Path, game: str) -> Mapping[str, Any]:
    """The `run.json` of the local run that wrote a replay of a game; empty if there is none."""
    file = replay.parent.parent / RUN_FILE
    if replay.parent.name not in REPLAY_FOLDERS or not was_named(file):
        return {}
    about = read_about(file.parent)
    code = game_code(str(about.get("game")))
    is_right = about.get("game_name") == game and (code is None or may_name(file, code))
    return about if is_right else {}


def _game_in_package(header: ReplayHeader) -> str | None:
    is_own = not header.source or header.source.startswith("entity_env.")
    return header.game if is_own and header.game in GAMES else None


def _game_named(replay: Replay) -> str:
    """GAME that a replay names; raises `ReplayError` if the replay may not load that code."""
    name, source = replay.header.game, replay.header.source
    package, _, rest = source.partition(":")
    path = PurePath(package)
    is_below = source and not path.is_absolute() and ".." not in path.parts
    try:
        code = game_code(source) if is_below else None
    except UsageError as error:  # several modules have the name
        raise ReplayError(f"{replay.name} is a replay of the game {source}: {error}") from error
    is_module = isinstance(code, str) and package not in ENVIRONMENTS
    if (
        code is None
        or (isinstance(code, Path) and not code.is_file())
        or (is_module and not may_name(Path(replay.name), code))
    ):
        where = f" in {source}" if source else ""
        raise ReplayError(
            f"{replay.name} is a replay of the game {name!r}{where}, which is not here: add --game "
            "FILE.py"
        )
    word = f"{code}:{rest}" if isinstance(code, Path) else source
    if game_code(word) != code or not may_name(Path(replay.name), code):
        what = f"the module {code}" if isinstance(code, str) else getattr(code, "name", "")
        if isinstance(code, Path):
            what = f"the file {code.resolve()}"
        raise ReplayError(
            f"{replay.name} is a replay of the game {word}, which you have not named here before "
            f"or which has changed since. The option --game {shlex.quote(word)} would run {what}. "
            "Add the option if you trust that code"
        )
    return word


@dataclass(frozen=True, kw_only=True)
class RecordEpisode:
    """Play one episode and save it as a replay.

    The replay stores what the game needs to repeat the episode. The game is drawn only with
    --agent human.
    """

    game: GameName
    agents: AgentOptions
    out: Annotated[File | None, CliOption(default="GAME.replay")] = None
    """File to write, NAME.replay."""
    see: bool = True
    """Keep the observations, so the replay can be drawn without the game."""
    think: bool = True
    """Keep the values that agents predict."""
    start: PlayOptions
    look: LookName = None
    settings: GameSettings

    def run(self) -> None:
        game, given = load_game(self.game, self.settings.texts), self.agents.agents
        game = game_agents(game).seated(game, len(given))
        out = self.out or Path(f"{game.name.replace(':', '_')}{SUFFIX}")
        require_writable(out.parent)
        names = player_names(game, given)
        self.start.require(names)
        # The writer finds a file's path relative to this folder.
        source = self.game if self.game.partition(":")[0] in ENVIRONMENTS else ""
        limit, timeout_s = step_limit(self.start.max_steps, names), self.start.step_timeout_s
        with _view_for_humans(game, names, self.look, limit, timeout_s) as (view, watch):
            seed, clock_s = self.start.seed, self.start.clock_s
            players = load_players(game, names, seed, self.agents.load, view, clock_s)
            writer = ReplayWriter(
                out, see=self.see, think=self.think, agents=names, source=source, watch=watch
            )
            self.start.play_in_terminal(game, players, writer, names=names)
        _describe_written(writer, out, limit)


@contextmanager
def _view_for_humans(
    game: Game,
    names: Sequence[str],
    look: str | None,
    max_steps: int | None,
    step_timeout_s: float | None,
) -> Iterator[tuple[TerminalView | None, Watch]]:
    """A view of the game if people play, and a watcher that draws it, or shows progress."""
    humans = tuple(i for i, name in enumerate(names) if name == HUMAN)
    if not humans:
        with ProgressBar(1, max_steps=max_steps) as bar:
            yield None, bar.watch
        return
    called = shown_names(names, humans)
    drawn_by = find_look(game, look, step_timeout_s=step_timeout_s)
    with TerminalView(game, Console(), humans=humans, names=called, look=drawn_by) as view:
        yield view, view


def _describe_written(writer: ReplayWriter, out: Path, max_steps: int | None) -> None:
    if not writer.replays:
        echo("left before the first decision: nothing was written")
        return
    remember(out)
    replay = writer.replays[0]
    rewards = ", ".join("-" if each is None else describe_number(each) for each in replay.rewards)
    echo(f"{out}: {replay.num_decisions} decisions, reward {rewards}, {out.stat().st_size} bytes")
    if any(line.end is not None and line.end.cut for line in replay.lines):
        echo(cut_words(1, 1, max_steps))
    echo(f"see it again: entity-env replay {shlex.quote(str(out))}")


@dataclass(frozen=True, kw_only=True)
class ShowReplay:
    """Show a replay in the terminal, step by step.

    Space pauses, left and right step, up and down change the speed, q quits. With --take-over, the
    game continues with other agents, or with you (--agent human).
    """

    file: _File
    first: Annotated[Number, CliOption(name="--from")] = 0
    """First frame to show."""
    fps: FrameRate = 10
    """Frames per second."""
    take_over: Annotated[Number | None, CliOption(metavar="N")] = None
    """Play the first N decisions again, then continue with the agents of --agent."""
    agents: AgentOptions
    out: Annotated[File | None, CliOption(default="FILE-from-N.replay")] = None
    """With --take-over: file for the new replay."""
    seed: SeedNumber = field(default_factory=any_seed)
    """With --take-over: seed of the agents."""
    max_steps: MaxSteps = None
    debug: Annotated[int | None, Range(-(10**15), 10**15), CliOption(metavar="N")] = None
    """Stop in the game, in pdb, after decision N; -1 = the last one."""
    look: LookName = None
    game: GivenGame = None
    settings: GameSettings
    limits: DrawingLimits

    def run(self) -> None:
        if self.debug is not None and self.take_over is not None:
            raise UsageError("--debug and --take-over cannot be combined: leave out one of them")
        if self.take_over is None and (self.agents.agents or self.out):
            raise UsageError("--agent and --out go with --take-over N: add --take-over")
        found = Replay.load(self.file)
        if self.debug is not None:
            _debug(found, game_of(found, self.game, self.settings.texts), self.debug)
        elif self.take_over is not None:
            self._take_over(found, self.take_over)
        else:
            limits, num_agents = self.limits.limits, found.header.num_agents
            game, look = game_and_look(
                found, self.look, self.game, self.settings.texts, limits.step_timeout_s
            )
            turns = _turns(found, game, limits)
            if num_agents * len(turns) > self.limits.max_shown:
                raise ReplayError(
                    f"{self.file} shows {num_agents} agents in {len(turns)} decisions, which is "
                    f"more than {self.limits.max_shown:,} lines to show: if you trust the file, "
                    "raise --max-shown"
                )
            _show(found, self.first, self.fps, turns, look)

    def _take_over(self, found: Replay, at: int) -> None:
        """Continues from a decision with other agents, and writes the new replay."""
        game = game_of(found, self.game, self.settings.texts)
        out = self.out or self.file.with_name(f"{self.file.stem}-from-{at}{SUFFIX}")
        found.require_decision(at)
        game = found.with_settings_of(game)
        # Raises if the settings ask for too much, before playing in this process.
        verify_in_new_process(game, [found], **_of_playing(self.limits.limits))
        names = player_names(game, self.agents.agents)
        parent = {"sha": found.sha, "at": at}
        limit = step_limit(self.max_steps, names)
        limit = None if limit is None else at + limit
        timeout_s = self.limits.step_timeout_s
        with _view_for_humans(game, names, self.look, limit, timeout_s) as (view, watch):
            players = load_players(game, names, self.seed, self.agents.load, view)
            source = found.header.source
            writer = ReplayWriter(
                out, think=True, agents=names, source=source, parent=parent, watch=watch
            )
            with game_errors(game):
                diverged, _ = play_again(
                    found,
                    game,
                    until=at,
                    then=players,
                    watch=writer,
                    limits=RunLimits(
                        max_steps=limit, agent_timeout_s=None if HUMAN in names else timeout_s
                    ),
                )
        if diverged is not None:
            raise ReplayError(f"{found.name} cannot be continued: {diverged}")
        _describe_written(writer, out, limit)


def _show(
    found: Replay, first: int, fps: float, turns: Sequence[Turn], drawn_by: Look | None
) -> None:
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
        echo(f"failed: {found.failure}")


class _Player:
    """Shows a replay in the terminal, and responds to keys."""

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
        """Shows the moments; outside of a terminal, all in sequence."""
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
        state = "paused" if self._is_paused else f"{self._fps:g} per second"
        note = f"{self._index}/{len(self._moments) - 1}, {state}"
        keys = ["", f"{note}   space pauses, arrows step and change the speed, q quits"]
        frame = self._frames.frame(
            self._moments[self._index],
            self._console.width,
            height,
            notes=keys if self._console.is_terminal else (),
        )
        self._display.show(frame, is_paced=False)


def _of_playing(limits: PlayLimits) -> dict[str, Any]:
    return {key: value for key, value in limits._asdict().items() if key != "max_shown"}


def _debug(found: Replay, game: Game, at: int) -> None:
    count = found.num_decisions
    if not -count <= at < count:
        raise UsageError(f"{found.name} has {count} decisions: there is no decision {at}")
    echo(f"decision {at % count} of {count}; then the game continues, in pdb")
    diverged, _ = play_again(found, game, until=at % count + 1, debug=True)
    if diverged is not None:
        echo(f"diverged: {diverged}")
    elif found.failure and at % count == count - 1:
        echo(f"the game failed as recorded: {found.failure}")
    else:
        echo("the game played as recorded")


@dataclass(frozen=True, kw_only=True)
class Verify:
    """Play replays again and report any differences.

    Each replay is played in a new process with a different hash seed, which also reveals games that
    depend on the order of sets. Exit code 0: no differences; 1: a replay diverged; 2: a replay
    cannot be played.
    """

    files: Annotated[tuple[Path, ...], Argument("FILES...")]
    game: GivenGame = None
    settings: GameSettings
    limits: LimitOptions

    def run(self) -> None:
        worst = 0
        for path in self.files:
            try:
                replay = Replay.load(path)
                game = game_of(replay, self.game, self.settings.texts)
                limits = _of_playing(self.limits.limits)
                [found] = verify_in_new_process(game, [replay], **limits)
            except EntityEnvError as error:
                echo(f"{path}: cannot be played: {error}", err=True)
                worst = 2
                continue
            if found is not None:
                echo(f"{path}: diverged: {found}{_other_versions(replay)}")
                worst = max(worst, 1)
            else:
                end = "" if replay.is_whole else ", as far as it goes"
                echo(f"{path}: same, {replay.num_decisions} decisions{end}")
        raise SystemExit(worst)


@dataclass(frozen=True, kw_only=True)
class Draw:
    """Draw a replay as a page, pictures or a video.

    .html is a page to play and step through, in one file that needs no network. .svg is animated
    unless --at is given. .gif, .webp and .png need Pillow; .mp4 needs ffmpeg.
    """

    file: _File
    out: File
    """File to write. Its suffix sets the format: .html .svg .png .gif .webp .mp4"""
    at: Annotated[Number | None, CliOption(default=".png draws the middle one")] = None
    """Draw only this picture, as .png or .svg."""
    agent: Annotated[str | None, CliOption(metavar="AGENT")] = None
    """Show the probabilities, values and attention of this trained agent for every decision."""
    look: LookName = None
    game: GivenGame = None
    settings: GameSettings
    limits: DrawingLimits

    def run(self) -> None:
        replay = Replay.load(self.file)
        thinker = None if self.agent is None else load_agent(self.agent)
        if thinker is not None and not isinstance(thinker, PolicyAgent):
            raise UsageError(f"{self.agent} does not compute probabilities to show")
        limits = self.limits.limits
        game, look = game_and_look(
            replay, self.look, self.game, self.settings.texts, limits.step_timeout_s
        )
        turns = _turns(replay, game, limits)
        animation = replay.animation(game, look, thinker=thinker, turns=turns)
        if thinker is not None and self.out.suffix.lower() != ".html":  # a page shows them
            animation = animation.with_thoughts()
        animation.write(self.out, self.at)
        size = self.out.stat().st_size / 1024
        is_film = self.out.suffix.lower() not in (".html", ".png") and self.at is None
        count = len(animation.film if is_film else animation)
        viewer = animation.viewer if is_film else None
        seen = "" if viewer is None else f", as {animation.names[viewer]} sees them"
        echo(f"{self.out}: {size:.0f} KiB, from {count} pictures{seen}")


def _turns(
    replay: Replay, game: Game | None, limits: PlayLimits, *, is_shown: bool = True
) -> list[Turn]:
    """The turns of a replay, played again if necessary; `is_shown` reports that on a terminal."""
    if replay.has_observations:
        return replay.turns(game, max_shown=limits.max_shown)
    shown = Console(stderr=True).status(one_line(f"playing {replay.name} again"))
    with shown if is_shown else nullcontext():
        [turns] = turns_in_new_process([replay], game or replay.find_game(), limits)
    return turns


def replay_animation(path: Path, games: Sequence[str], limits: PlayLimits) -> Animation:
    """The animation of a training run's replay.

    A replay with observations is drawn without its game if the game has changed or was not named.

    Args:
        games: GAMEs that the user named, to find the replay's game by name.
        limits: of playing it again.

    Raises:
        EntityEnvError, GameFailed: the replay cannot be shown.
    """
    replay = Replay.load(path)
    given = next((each for each in games if load_game(each).name == replay.header.game), None)
    game, look = None, None
    try:
        game = replay.with_settings_of(game_of(replay, given))
        look = find_look(game, step_timeout_s=limits.step_timeout_s)
    except (EntityEnvError, GameFailed):
        if not replay.has_observations:
            raise
    turns = _turns(replay, game, limits, is_shown=False)
    return replay.animation(game, look or Look(), turns=turns)


def game_and_look(
    replay: Replay,
    look: str | None,
    game: str | None,
    settings: Sequence[str],
    step_timeout_s: float | None,
) -> tuple[Game | None, Look | None]:
    """Game and look for drawing a replay.

    Args:
        look, game, settings: as typed; None = as the replay names.
        step_timeout_s: of the look.

    Returns:
        The game, and the given or the game's own look. Without a usable game, None and the given or
        the default look.

    Raises:
        ReplayError: the game cannot be used, although it was typed or the replay has no
            observations.
    """
    try:
        chosen = game_of(replay, game, settings)
    except ReplayError as error:
        if not replay.has_observations or game is not None:
            raise
        note = f"drawn without its game, so without its look and the size of its board: {error}"
        echo(note, err=True)
        named = Look() if look is None else named_look(look)
        return None, replace(named, step_timeout_s=step_timeout_s)
    chosen_look = find_look(replay.with_settings_of(chosen), look, step_timeout_s=step_timeout_s)
    return chosen, chosen_look


def _other_versions(replay: Replay) -> str:
    """Versions that differ from those of the replay."""
    from entity_env.replay.writer import PACKAGES

    now = package_versions(*PACKAGES)
    changed = [
        f"{name} {was}, now {now[name]}"
        for name, was in replay.header.made_with.items()
        if name in now and was != now[name]
    ]
    return f" (made with {'; '.join(changed)})" if changed else ""
