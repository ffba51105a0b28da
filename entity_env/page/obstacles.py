"""`find_obstacles`: what a game needs that a page lacks, and the files that a page needs."""

from __future__ import annotations

import linecache
import os
import pickle
import sys
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

from entity_env.authoring.game import Game
from entity_env.authoring.identity import place_of
from entity_env.authoring.load_module import place_in_package
from entity_env.errors import ReplayError, UsageError, WorkerError
from entity_env.page.lacks import PACKAGE, PACKAGE_FOLDER, Lack, Trial, TrialJob
from entity_env.page.live.questions import Json
from entity_env.replay.new_process import run_main
from entity_env.replay.writer import settings_to_json
from entity_env.views.scene import one_line

_GAMES: Final = os.path.join(PACKAGE_FOLDER, "games")
_INSTALLED: Final = ("site-packages", "dist-packages")
_LONGEST_S: Final = 30.0
"""Time after which no further obstacle is looked for."""
_FIXES: Final = {
    "package": "a page has no package {name}: use a Pyodide folder that contains it, or let the "
    "game work without it",
    "numpy": "a page has no package {name}: use --pyodide cdn, or a Pyodide folder that contains "
    "it (make pyodide), or let the game work without it",
    "python": "Python in a page has no module {name}: let the game work without it",
    "outside": "the module {name} is not in the game's folder {folder}: move it there",
    "compiled": "a page cannot load the compiled module {name}: use its Python source",
    "thread": "a page cannot start threads: let the game do this work itself",
    "process": "a page cannot start programs: let the game do this work itself",
    "network": "the game has no network in a page: read the data from a file in its folder",
    "library": "a page cannot load the library {name}: use Python",
    "input": "a page has no terminal to type text: ask an agent, with act",
    "file": "a page has only files in the game's folder {folder}, not {name}: move it there, and "
    "open it relative to __file__",
}
"""Problem and fix, by `Lack.kind`, or for the package of that name."""


Play: TypeAlias = Callable[[Mapping[str, Json], str], None]
"""See `find_obstacles`."""


@dataclass(frozen=True)
class Obstacle:
    """Something that a game needs and a page lacks.

    Args:
        file: of the game, relative to its folder; the module of this package or of another one if
            no line of the game needs it.
        line: number of the line, from 1; 0 if there is none.
        source: the line.
        problem: what is lacking, and how to fix it.
    """

    file: str
    line: int
    source: str
    problem: str

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: {self.source}" if self.line else self.file
        return one_line(f"{place}: {self.problem}")


@dataclass(frozen=True)
class PageContents:
    """Contents of a game's page.

    Args:
        obstacles: what the game needs and a page lacks, in the order of use; empty if it can run.
        folder: the folder of the game, as an absolute path; None for a game of this package.
        files: the game's own files, relative to `folder`, with slashes: its modules, the whole
            package if it is one, and the data that it read or listed.
        file: that of the game's module, for `load_module(folder / file, first=True)`; "" for a game
            of this package.
        module: the name of the game's module.
        name: the name of the game in the module.
        settings: of the game, as JSON.
        modules: modules of this package that were imported.
        packages: available packages that were imported, by the names of their modules.
    """

    obstacles: tuple[Obstacle, ...]
    folder: Path | None
    files: tuple[str, ...]
    file: str
    module: str
    name: str
    settings: Mapping[str, Json]
    modules: tuple[str, ...]
    packages: tuple[str, ...]

    @property
    def package(self) -> Path | None:
        """The folder of the package that the game is in; None for a single file."""
        return _package(self.folder, self.file, self.module)

    @property
    def config(self) -> dict[str, Json]:
        """The part of a page's configuration that says which game it is."""
        return config_of(self.file, self.module, self.name, self.settings)


def config_of(file: str, module: str, name: str, settings: Mapping[str, Json]) -> dict[str, Json]:
    """`PageContents.config`."""
    return {
        "place": file or module,
        "name": name,
        "is_file": bool(file),
        "source": "",
        "settings": settings,
    }


def find_obstacles(
    game: Game,
    *,
    available: Collection[str] = (),
    bots: Collection[Path] = (),
    play: Play | None = None,
    episodes: int = 10,
    num_decisions: int = 2000,
    time_s: float = 10.0,
    timeout_s: float = 60.0,
) -> PageContents:
    """Plays a game in a new process that has only what a page has.

    A page has the standard library, the game's folder and this package without numpy; no threads,
    programs or network. If the game fails by what a page lacks, it gets that and is played again,
    until it succeeds. Optional imports are therefore not obstacles.

    Args:
        game: with its settings; defined at the top level of a file.
        available: names of the packages in the Pyodide folder.
        bots: files of agents, which have only what the game has.
        play: plays the game in the process as the page does, given its configuration and folder;
            pickled. None = random agents play it, and what they observe is drawn.
        episodes, num_decisions, time_s: the game is stopped after so many episodes, decisions of
            random agents, or seconds of playing.
        timeout_s: limit for each process.

    Raises:
        UsageError: the game is not defined at the top level of a file, or has a setting that JSON
            cannot represent.
        WorkerError: the game raises an exception also with everything, hangs, or its process died.
    """
    job = trial_job(game)
    job = job._replace(
        available=frozenset(available),
        roots=(*job.roots, *(str(each.resolve()) for each in bots)),
        play=b"" if play is None else pickle.dumps(partial(play, _config(job), job.folder)),
        episodes=episodes,
        num_decisions=num_decisions,
        time_s=time_s,
    )
    lacks: list[Lack] = []
    until_s = time.monotonic() + _LONGEST_S
    while True:
        trial = _played(
            game, job._replace(allowed=frozenset(each.key for each in lacks)), timeout_s
        )
        lacks += trial.fatal
        if not (trial.error and trial.fatal) or time.monotonic() > until_s:
            break
    obstacles = [_obstacle(job, each) for each in lacks]
    if trial.error and not trial.fatal:
        obstacles += _unexplained(game, job, trial, timeout_s, is_alone=not obstacles)
    return _contents(job, trial, dict.fromkeys(obstacles))


def _unexplained(
    game: Game, job: TrialJob, trial: Trial, timeout_s: float, *, is_alone: bool
) -> list[Obstacle]:
    """The obstacle of a game that fails in a page, but not by an error for what a page lacks.

    Args:
        is_alone: there is no other obstacle.

    Raises:
        WorkerError: it fails also with everything, and there is no other obstacle.
    """
    unblocked = _played(game, job._replace(is_blocked=False), timeout_s)
    if unblocked.error and is_alone:
        where = f" at {_relative(unblocked.file, job)}:{unblocked.line}" if unblocked.line else ""
        raise WorkerError(one_line(f"{game.name} raised {unblocked.error}{where}"))
    words = f"in a page, this raises {trial.error}{_without(trial.others)}"
    return [] if unblocked.error else [_at_line(job, trial.file, trial.line, words)]


def trial_job(game: Game) -> TrialJob:
    """The job with default limits."""
    game.require_settings()
    if isinstance(program := getattr(game, "source", None), str):
        raise UsageError(
            f"{game.name} runs in a program, {program}, and a page made by this command contains "
            "games written in Python only: add the game and its client to a page of your own; the "
            "client for JavaScript runs in browsers"
        )
    place = place_of(game)
    module = None if place is None else sys.modules[place[0]]
    file = getattr(module, "__file__", None)
    if place is None or file is None or place[0] == "__main__":
        raise UsageError(
            f"{game.name} is not defined at the top level of a Python file, which a page could "
            "contain: write game = Game(play, ...) in one"
        )
    try:
        settings = settings_to_json(game)
    except ReplayError as error:
        raise UsageError(str(error)) from error
    path = Path(file).resolve()
    job = TrialJob("", *place, settings, os.path.dirname(PACKAGE_FOLDER), (_GAMES,))
    if place[0].partition(".")[0] == PACKAGE:
        return job
    name, root = place_in_package(path)
    top = name.partition(".")[0]
    is_package = path.parent != root
    roots: tuple[str, ...] = (str(root),)
    if root.name in _INSTALLED:
        roots = (str(root / top if is_package else path),)
    return job._replace(file=str(path), module=name, folder=str(root), roots=roots)


def _config(job: TrialJob) -> dict[str, Json]:
    return config_of(_relative(job.file, job), job.module, job.name, job.settings)


def _played(game: Game, job: TrialJob, timeout_s: float) -> Trial:
    try:
        found: Trial = run_main("entity_env.page.lacks", pickle.dumps(job), game.name, timeout_s)
    except ReplayError as error:
        raise WorkerError(str(error)) from error
    return found


def _contents(job: TrialJob, trial: Trial, obstacles: Iterable[Obstacle]) -> PageContents:
    found = {each for each in trial.files if Path(each).is_relative_to(job.folder)}
    folder, file = Path(job.folder) if job.file else None, _relative(job.file, job)
    if (package := _package(folder, file, job.module)) is not None:
        found.update(map(str, package.rglob("*.py")))
    return PageContents(
        tuple(obstacles),
        folder,
        tuple(sorted(_relative(each, job) for each in found)) if job.file else (),
        file,
        job.module,
        job.name,
        job.settings,
        tuple(sorted(trial.modules)),
        tuple(trial.packages),
    )


def _package(folder: Path | None, file: str, module: str) -> Path | None:
    return folder / module.partition(".")[0] if folder is not None and "/" in file else None


def _obstacle(job: TrialJob, lack: Lack) -> Obstacle:
    is_package = lack.kind == "package" and lack.name in _FIXES
    problem = _FIXES[lack.name if is_package else lack.kind].format(
        name=lack.name, folder=job.folder
    )
    if lack.via and lack.file:
        who = "this" if lack.via.partition(".")[0] == PACKAGE else f"here {lack.via}"
        problem = f"{who} needs {lack.name or 'more'}: {problem}"
    return _at_line(job, lack.file, lack.line, problem, lack.via)


def _at_line(job: TrialJob, file: str, line: int, problem: str, otherwise: str = "") -> Obstacle:
    if not file:
        return Obstacle(otherwise or job.module, 0, "", problem)
    return Obstacle(_relative(file, job), line, linecache.getline(file, line).strip(), problem)


def _without(others: Sequence[Lack]) -> str:
    names = dict.fromkeys(each.name for each in others if each.kind in ("package", "python"))
    return f", where it lacks {', '.join(names)}" if names else ""


def _relative(file: str, job: TrialJob) -> str:
    return Path(os.path.relpath(os.path.realpath(file), job.folder)).as_posix() if file else ""
