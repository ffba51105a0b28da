"""`entity-env watch`: training runs in a page, live."""

from __future__ import annotations

from dataclasses import dataclass

from entity_env.cli.commands.runs import RUNS, DrawnGames, RunFolders
from entity_env.cli.options import DrawingLimits, IsOpened


@dataclass(frozen=True, kw_only=True)
class Watch:
    """Watch training in the browser: curves, the table of runs, and their replays, live.

    RUN is the folder of a training run, or a folder of such folders.  [default: runs]

    The page is served to this machine alone, until Ctrl-C.
    """

    folders: RunFolders = ()
    games: DrawnGames = ()
    limits: DrawingLimits
    is_opened: IsOpened = True

    def run(self) -> None:
        """Serves the page."""
        from entity_env.cli.browser.watch import watch_runs

        watch_runs(
            self.folders or RUNS,
            games=self.games,
            limits=self.limits.limits,
            is_opened=self.is_opened,
        )
