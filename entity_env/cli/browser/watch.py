"""`watch_runs`: the live report of training runs in a page."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, TypeAlias

from entity_env.agents.training.tracking.runs import (
    CURVES_FILE,
    REPLAY_FOLDERS,
    RUN_FILE,
    TrainingRun,
)
from entity_env.cli.browser.server import Page, PageServer
from entity_env.cli.commands.replay import replay_animation
from entity_env.cli.display.console import plain
from entity_env.cli.game_errors import GameFailed
from entity_env.cli.report.page import report_body, report_style
from entity_env.cli.report.replays import replay_id
from entity_env.cli.run_tables import SEARCH_DEPTH, find_runs
from entity_env.errors import EntityEnvError, ReplayError, UsageError
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits

_PAGE: Final = Path(__file__).with_name("watch.html")
_POLL_S: Final = 1.0
_MAX_PAGES: Final = 8
"""Number of cached replay pages."""

State: TypeAlias = tuple[tuple[Path, int, int], ...]
"""Files with times and sizes."""


def watch_runs(
    folders: Sequence[Path], *, games: Sequence[str], limits: PlayLimits, is_opened: bool
) -> None:
    """Serves the report of training runs until Ctrl-C, and updates it.

    Args:
        folders: as for `find_runs`.
        games, limits: as for `replay_animation`.
        is_opened: open the browser, if there is a screen.

    Raises:
        UsageError: no runs.
    """
    page = RunPage(folders, games, limits)
    with page.server, suppress(KeyboardInterrupt):
        page.server.announce("Training runs", is_opened=is_opened)
        while True:
            time.sleep(_POLL_S)
            page.update()


class RunPage:
    """The report of training runs, and the pages of their replays; close its `server`.

    Raises:
        UsageError: no runs.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        games: Sequence[str] = (),
        limits: PlayLimits = PLAY_LIMITS,
    ) -> None:
        self._folders = folders
        self._games = games
        self._limits = limits
        self._page = Page.of(_PAGE, report_style())
        self._state: State = ()
        self._files: dict[str, Path] = {}
        self._pages: dict[tuple[Path, int], Page] = {}
        self._lock = threading.Lock()
        found = find_runs(folders)
        if not found.runs:
            raise UsageError("; ".join(map(plain, found.problems)))
        self.server = PageServer(self._get)
        self.update()

    def update(self) -> None:
        """Sends what has changed since the last call."""
        state = tuple(_state_of(self._folders))
        if state == self._state:
            return
        self._state = state
        runs, problems = find_runs(self._folders)
        replays = [(path, run) for run in runs for path in _replays(run.path)]
        self._files = {replay_id(path): path for path, _ in replays}
        report = report_body(runs, (), {path: "" for path, _ in replays})
        self.server.send("report", {"html": report, "problems": [*map(plain, problems)]})
        self.server.send("replays", [_shown(path, run) for path, run in replays])

    def _get(self, route: str) -> Page | None:
        if not route:
            return self._page
        path = self._files.get(route)
        return None if path is None else self._replay_page(path)

    def _replay_page(self, path: Path) -> Page:
        """The animation of a replay. Drawn in this thread; other threads may draw other replays."""
        try:
            key = path, path.stat().st_mtime_ns
            with self._lock:
                page = self._pages.get(key)
            if page is None:
                animation = replay_animation(path, self._games, self._limits)
                page = Page.of_animation(animation.html())
        except (EntityEnvError, GameFailed, OSError) as error:
            raise ReplayError(f"it cannot be shown: {error}") from error
        with self._lock:
            self._pages[key] = page
            while len(self._pages) > _MAX_PAGES:
                self._pages.pop(next(iter(self._pages)))
        return page


def _shown(path: Path, run: TrainingRun) -> dict[str, str]:
    """A replay in the list of the page."""
    name = (
        path.relative_to(run.path).with_suffix("").as_posix().removeprefix(f"{REPLAY_FOLDERS[0]}/")
    )
    step = re.fullmatch(r"step-(\d{1,18})", name)
    title = f"step {int(step[1]):,}" if step else plain(name)
    texts = {"path": plain(str(path)), "run": plain(str(run.path)), "title": title}
    return {"id": replay_id(path), **texts}


def _replays(run: Path) -> Iterator[Path]:
    """The replays in a run's folders, except links that lead elsewhere."""
    inside = run.resolve()
    for folder in REPLAY_FOLDERS:
        for path in sorted((run / folder).glob("*.replay"), key=lambda p: (len(p.name), p)):
            if path.is_file() and path.resolve().is_relative_to(inside):
                yield path


def _state_of(folders: Sequence[Path]) -> Iterator[tuple[Path, int, int]]:
    """State of the files of all runs that `find_runs` would find."""
    patterns = ["/".join("*" * depth) for depth in range(1, SEARCH_DEPTH + 1)]
    inner = [found for pattern in patterns for folder in folders for found in folder.glob(pattern)]
    for run in sorted({*folders, *filter(Path.is_dir, inner)}):
        for path in (run / RUN_FILE, run / CURVES_FILE, *_replays(run)):
            with suppress(OSError):  # deleted in the meantime
                found = path.stat()
                yield path, found.st_mtime_ns, found.st_size
