"""`entity-env runs`, `report`, `watch` and `export`: training runs and their results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Final, TypeAlias

from rich.text import Text

from entity_env.agents.rogue_net.checkpoints.agent_file import SUFFIX, agent_bytes, write_agent
from entity_env.agents.rogue_net.checkpoints.reader import read_network
from entity_env.agents.rogue_net.onnx_net.file import ONNX_SUFFIX, write_onnx
from entity_env.agents.rogue_net.weights import Weights
from entity_env.agents.training.tracking.comparison import game_trained_on, mixed_rules
from entity_env.agents.training.tracking.runs import TrainingRun, read_about
from entity_env.cli.command import Argument, CliOption
from entity_env.cli.display.console import Console, echo, plain_table
from entity_env.cli.load_game import load_game
from entity_env.cli.options import DrawingLimits, File, IsOpened
from entity_env.cli.report.files import report_csv, report_svg, require_curves
from entity_env.cli.report.page import report_html
from entity_env.cli.report.replays import replay_pages
from entity_env.cli.run_tables import (
    TextTable,
    find_runs,
    run_table,
    runs_csv,
    runs_json,
    seed_table,
)
from entity_env.core.files import write_file
from entity_env.errors import UsageError

_RUNS: Final = (Path("runs"),)
"""Default folders of runs."""
_FAILED: Final = 1
_MOST_LINES: Final = 6
"""Settings of a run in a narrow table."""
_WRITERS: Final[dict[str, Callable[[Sequence[TrainingRun], Sequence[str]], str]]] = {
    ".html": report_html,
    ".svg": report_svg,
    ".csv": report_csv,
}

RunFolders: TypeAlias = Annotated[tuple[Path, ...], Argument("[RUN]...")]
DrawnGames: TypeAlias = Annotated[
    tuple[str, ...],
    CliOption(
        "A game of the runs; its code may then be run to draw replays. May be repeated.",
        name="--game",
        metavar="GAME",
        default="games of the package, of runs trained here, and those you have named here before",
    ),
]


@dataclass(frozen=True, kw_only=True)
class ListRuns:
    """Compare training runs in a table, best first.

    RUN is the folder of a training run, or a folder of runs.  [default: runs]

    Settings are shown where they differ. Runs are compared by their last evaluation: its mean
    reward ± half of the 95 % confidence interval over its episodes; `training` is the mean of the
    last episodes of training. Runs that differ only in their seed are also combined into one line
    of a second table: the mean with Student's interval over seeds, the interquartile mean (IQM),
    and the probability that a run of the first line is better.
    """

    folders: RunFolders = ()
    as_json: Annotated[bool, CliOption(name="--json")] = False
    """Print one JSON object."""
    as_csv: Annotated[bool, CliOption(name="--csv")] = False
    """Print CSV, one line per run."""

    def run(self) -> None:
        if self.as_json and self.as_csv:
            raise UsageError("--json and --csv are two formats: leave out one of them")
        runs, code = _read(self.folders)
        if self.as_json:
            echo(json.dumps(runs_json(runs)))
        elif self.as_csv:
            echo(*runs_csv(runs).rstrip("\n").split("\n"))
        else:
            print_tables(runs)
        raise SystemExit(code)


def print_tables(runs: Sequence[TrainingRun]) -> None:
    """Prints the table of these runs, and the table over seeds, if any."""
    console = Console.for_tables()
    _print_table(run_table(runs), console)
    if (seeds := seed_table(runs)) is not None:
        console.print()
        _print_table(seeds, console)


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write the curves of training runs to one file.

    RUN is the folder of a training run, or a folder of runs.  [default: runs]

    Runs of the same game that differ only in their seed are drawn as thin lines, with their mean
    and its interval. The page also shows command, settings, seeds, machine and versions of the
    runs, without absolute paths.
    """

    folders: RunFolders = ()
    out: File = Path("report.html")
    """File to write: *.html has curves and the table, *.svg the curves, *.csv the numbers."""
    names: Annotated[tuple[str, ...], CliOption(name="--curve", metavar="NAME")] = ()
    """A curve to draw, such as losses/entropy, as named in curves.jsonl. May be repeated."""
    games: DrawnGames = ()
    limits: DrawingLimits

    def run(self) -> None:
        out = self.out
        write = _WRITERS.get(self.out.suffix.lower())
        if write is None:
            raise UsageError(f"--out must be named *.html, *.svg or *.csv, got {out}")
        runs, code = _read(self.folders)
        require_curves(runs, self.names)
        if write is report_html:
            pages, problems = replay_pages(runs, self.games, self.limits.limits)
            code = _tell(problems) or code
            text = report_html(runs, self.names, pages)
        else:
            text = write(runs, self.names)
        try:
            write_file(self.out, text.encode())
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error.strerror}") from error
        what = "1 run" if len(runs) == 1 else f"{len(runs)} runs"
        echo(f"{out}: {what}, {len(text.encode()) / 1024:.0f} KiB")
        raise SystemExit(code)


def _read(folders: Sequence[Path]) -> tuple[Sequence[TrainingRun], int]:
    """The runs, and the exit code; reports folders that are not runs."""
    found = find_runs(folders or _RUNS)
    if not found.runs:
        raise UsageError("; ".join(found.problems))
    for line in mixed_rules(found.runs):
        echo(line, err=True)
    return found.runs, _tell(found.problems)


def _tell(problems: Sequence[str]) -> int:
    """Prints a line per problem; returns the exit code."""
    for problem in problems:
        echo(f"entity-env: {problem}", err=True)
    return _FAILED if problems else 0


def _print_table(found: TextTable, console: Console) -> None:
    """Prints a table with a column per setting; if too wide, with one column for all settings."""
    labels, settings, columns, rows, notes = found
    for is_wide in (True, False):
        table = plain_table()
        for name in labels:
            table.add_column(name, overflow="fold")
        for name in settings if is_wide else ["settings"][: len(settings)]:
            table.add_column(name, justify="right" if is_wide else "left", overflow="fold")
        shown = [i for i in range(len(columns)) if any(texts[i] != "-" for *_, texts in rows)]
        for i in shown:
            table.add_column(columns[i], justify="right", no_wrap=True)
        for names, values, texts in rows:
            pairs = zip(settings, values, strict=True)
            joined = ["\n".join(_some(f"{name}={each}" for name, each in pairs if each != "-"))]
            own = values if is_wide else joined[: len(settings)]
            cells = (*names, *own, *(texts[i] for i in shown))
            table.add_row(*map(Text, cells))  # not as markup
        wanted = console.measure(table, options=console.options.update(width=10_000)).maximum
        if wanted <= console.width:
            break
    console.print(table)
    for note in notes:
        console.print(Text(note, style="dim"))


def _some(lines: Iterable[str]) -> list[str]:
    """A handful of lines, and how many others there are."""
    found = list(lines)
    rest = len(found) - _MOST_LINES
    return [*found[:_MOST_LINES], f"{rest} more: --json"] if rest > 1 else found


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Watch training runs live in the browser.

    RUN is the folder of a training run, or a folder of runs.  [default: runs]

    The page shows curves, the table of runs and their replays. It is served only to this machine,
    until Ctrl-C.
    """

    folders: RunFolders = ()
    games: DrawnGames = ()
    limits: DrawingLimits
    is_opened: IsOpened = True

    def run(self) -> None:
        from entity_env.cli.browser.watch import watch_runs

        watch_runs(
            self.folders or _RUNS,
            games=self.games,
            limits=self.limits.limits,
            is_opened=self.is_opened,
        )


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained network to one file, to ship it.

    CHECKPOINT is the folder of a checkpoint or training run, from entity-env or enn-trainer, a
    .roguenet archive, or an exported *.agent file. FILE is the file to write. To play NAME.agent,
    only numpy is needed. NAME.onnx is for other engines, such as Unity and Godot; it is written
    only if ONNX Runtime computes the same decisions for random observations. With --kaggle, NAME.py
    plays in the runner of kaggle-environments, and needs only numpy there.
    """

    checkpoint: Annotated[Path, Argument("CHECKPOINT")]
    out: Annotated[Path, Argument("FILE")]
    has_visible: Annotated[bool, CliOption(name="--visible")] = False
    """For *.onnx: add inputs that mark entities as hidden from the policy."""
    kaggle: bool = False
    """Write NAME.py, with the network and all code that it needs, for an agent that was trained for
    a game of kaggle-environments."""
    game: Annotated[str, CliOption(metavar="GAME", default="the game of the package that fits")] = (
        ""
    )
    """With --kaggle: the game that the agent was trained for, such as a file with your own adapter.
    Its code is run."""
    greedy: Annotated[
        bool | None,
        CliOption(
            "The agent takes the most probable action, or samples, unless a program that loads it "
            "chooses otherwise.",
            name="--greedy/--sample",
            default="what plays better, as measured at the end of its training; else --sample",
        ),
    ] = None

    def run(self) -> None:
        out = self.out
        if self.greedy is not None and out.suffix == ONNX_SUFFIX:
            raise UsageError(f"a file named *{ONNX_SUFFIX} computes logits: the engine chooses")
        if self.game and not self.kaggle:
            raise UsageError("--game is for --kaggle: other files do not contain the game")
        if self.kaggle:
            self._write_submission()
            return
        if out.suffix not in (SUFFIX, ONNX_SUFFIX):
            raise UsageError(f"the file must be named *{SUFFIX} or *{ONNX_SUFFIX}, got {out}")
        if self.has_visible and out.suffix != ONNX_SUFFIX:
            raise UsageError(f"--visible is for a file named *{ONNX_SUFFIX}, got {out}")
        weights = self._weights()
        ports: tuple[str, ...] = ()
        try:
            if out.suffix == SUFFIX:
                write_agent(out, weights)
            else:
                game = _game_of(self.checkpoint)
                ports = write_onnx(out, weights, game=game, has_visible=self.has_visible)
        except OSError as error:
            raise UsageError(f"cannot write {out}: {error}") from error
        num_parameters = sum(tensor.size for tensor in weights.tensors.values())
        shown = [*weights.obs_space.entities]
        if features := weights.obs_space.global_features:
            shown.append(f"the global features {', '.join(features)}")
        entities = ", ".join(shown) or "no entities"
        actions = ", ".join(weights.action_space) or "none"
        size = out.stat().st_size / 1024
        echo(f"{out}: {num_parameters} numbers, {size:.0f} KiB")
        echo(f"sees {entities}; actions {actions}")
        if weights.game:
            version = "".join(f", {each}" for each in _versions(weights.game))
            echo(f"trained for {weights.game.get('name')}{version}")
        for line in ports:
            echo(line)

    def _weights(self) -> Weights:
        found = read_network(self.checkpoint)
        known = game_trained_on(self.checkpoint)
        found = replace(
            found, game={key: x for key, x in known.items() if isinstance(x, str | int)}
        )
        return found if self.greedy is None else replace(found, greedy=self.greedy)

    def _write_submission(self) -> None:
        from entity_env.interop.kaggle import ADAPTED, adapted_game
        from entity_env.interop.kaggle.submission import trained_game, write_submission

        if self.out.suffix != ".py":
            raise UsageError(f"with --kaggle, the file must be named *.py, got {self.out}")
        weights = self._weights()
        games = [load_game(self.game)] if self.game else [*map(adapted_game, ADAPTED)]
        game = trained_game((weights.obs_space, weights.action_space), games)
        try:
            write_submission(self.out, agent_bytes(weights), game)
        except OSError as error:
            raise UsageError(f"cannot write {self.out}: {error}") from error
        echo(f"{self.out}: an agent for {game.name}, {self.out.stat().st_size / 1024:.0f} KiB")


def _versions(game: Mapping[str, str | int]) -> Iterator[str]:
    """The version, package and commit of a game's rules, as far as known."""
    yield from (f"{name} {game[name]}" for name in ("version", "package", "git") if name in game)


def _game_of(checkpoint: Path) -> str:
    """The name of the game that a run was trained on; "" if unknown."""
    for folder in (checkpoint, *checkpoint.absolute().parents[:2]):
        with suppress(UsageError, OSError):
            game = read_about(folder).get("game_name")
            if isinstance(game, str):
                return game
    return ""
