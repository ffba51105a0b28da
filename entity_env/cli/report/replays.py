"""Replays along runs: their pages in a report."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from html import escape
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from entity_env.agents.training.tracking.runs import TrainingRun, replays_of
from entity_env.cli.commands.replay import replay_animation
from entity_env.cli.display.console import ProgressBar, plain
from entity_env.cli.game_errors import GameFailed
from entity_env.cli.report.figures import Mark
from entity_env.errors import CheckpointError, EntityEnvError
from entity_env.replay.new_process import PLAY_LIMITS, PlayLimits

_NUM_DIGITS: Final = 16

Pages: TypeAlias = Mapping[Path, str]
"""HTML pages of replays, by file."""


class ShownReplay(NamedTuple):
    """A replay in a report.

    Args:
        name: of the run.
        step: decisions of training before it.
        id: of its element, see `replay_id`.
        page: "" if the page of the report does not contain it.
    """

    name: str
    step: int
    id: str
    page: str

    @property
    def mark(self) -> Mark:
        return Mark(self.step, self.title, f"#{self.id}")

    @property
    def title(self) -> str:
        return f"the agent of {self.name} at step {self.step:,}"

    def iframe(self) -> str:
        """The page in a sandboxed frame, which is loaded when it is shown."""
        return (
            f'<iframe class="player" sandbox="allow-scripts" loading="lazy" '
            f'title="{escape(f"Replay: {self.title}")}" srcdoc="{escape(self.page)}"></iframe>'
        )


def replay_id(path: Path) -> str:
    """Fragment of a report's links to a replay; it does not reveal the path."""
    digest = sha256(str(path).encode("utf-8", "surrogatepass")).hexdigest()
    return f"replay-{digest[:_NUM_DIGITS]}"


def shown_replays(run: TrainingRun, name: str, pages: Pages) -> list[ShownReplay]:
    """The replays of a run that have a page."""
    return [
        ShownReplay(plain(name), step, replay_id(path), pages[path])
        for step, path in (replays_of(run) if pages else ())
        if path in pages
    ]


def replay_pages(
    runs: Sequence[TrainingRun], games: Sequence[str] = (), limits: PlayLimits = PLAY_LIMITS
) -> tuple[Pages, list[str]]:
    """Pages of the replays along the runs, and a sentence for each that cannot be shown.

    Args:
        games, limits: as for `replay_animation`; `timeout_s` covers all replays together.
    """
    found: list[tuple[int, Path]] = []
    pages, problems = {}, []
    for run in runs:
        try:
            found += replays_of(run)
        except CheckpointError as error:
            problems.append(str(error))
    begin = time.monotonic()
    with ProgressBar(len(found), "drawing replays") as bar:
        for i, (step, path) in enumerate(found):
            left = limits
            if limits.timeout_s is not None:
                left = limits._replace(timeout_s=begin + limits.timeout_s - time.monotonic())
                if left.timeout_s is not None and left.timeout_s <= 0:
                    problems.append(
                        f"{len(found) - i} of {len(found)} replays are not shown: drawing them "
                        f"takes longer than {limits.timeout_s:g} s: raise the limit, --timeout"
                    )
                    break
            try:
                drawn = replay_animation(path, games, left)
                about = [("trained for", f"{step:,} decisions"), *drawn.about]
                pages[path] = replace(drawn, about=about).html()
            except (EntityEnvError, GameFailed, OSError) as error:
                problems.append(f"{path} cannot be shown: {error}")
            bar.count()
    return pages, problems
