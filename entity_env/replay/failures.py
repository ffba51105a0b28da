"""Replays of failed episodes: `FailureFolder`, and `FailureWriter` for `Game.run`."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from entity_env.authoring.game_traceback import add_note
from entity_env.authoring.local_run import Turn, Watch
from entity_env.errors import ReplayError
from entity_env.replay.file import SUFFIX
from entity_env.replay.replay import Replay
from entity_env.replay.writer import ReplayWriter

_MAX_FAILURES: Final = 100
"""Maximum replays that one `FailureFolder` writes, because a game may fail repeatedly."""


class FailureFolder:
    """Writes up to 100 replays of failures, `GAME-env12-episode3.replay`, to a folder.

    Creates the folder when it is needed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._num_written = 0
        self._is_full = False

    def save(self, make: Callable[[], tuple[Replay, str]]) -> tuple[Path | None, str]:
        """Writes a replay to a new file. Raises nothing, because the game's error has priority.

        Args:
            make: returns the replay and a note, or ""; called only if there is room.

        Returns:
            The file, or None if it was not written; and the note, or why it was not written. If
            the folder is full, only the first call says so.
        """
        if self._num_written >= _MAX_FAILURES:
            is_first, self._is_full = not self._is_full, True
            return None, f"no more replays are written: {self._path} has {_MAX_FAILURES}" * is_first
        try:
            replay, note = make()
            path = _save_as_new(replay, self._path)
        except Exception as problem:
            return None, f"its replay could not be written: {problem}"
        self._num_written += 1
        return path, note


def _save_as_new(replay: Replay, folder: Path) -> Path:
    run = replay.header.run
    name = re.sub(r"[^\w.-]", "_", replay.header.game)
    name += "".join(f"-{key}{run[key]}" for key in ("env", "episode") if key in run)
    path = folder / f"{name}{SUFFIX}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number_of = 1
        while not _is_new(path):
            number_of += 1
            path = folder / f"{name}-{number_of}{SUFFIX}"
    except (OSError, ValueError) as error:
        raise ReplayError(f"cannot write {path}: {error}") from error
    try:
        replay.save(path)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def _is_new(path: Path) -> bool:
    """Creates an empty file, which reserves the name; False if it exists."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


class FailureWriter(ReplayWriter):
    """Watches `Game.run`, and writes a replay of a failing episode; `watch` is called too."""

    def __init__(self, folder: Path, watch: Watch) -> None:
        super().__init__(see=False, watch=watch)
        self._folder = FailureFolder(folder)

    def __call__(self, turn: Turn) -> None:
        super().__call__(turn)
        self.replays.clear()

    def end_run(self, error: BaseException | None) -> None:
        """Adds a note to the error: the file, or why there is none."""
        super().end_run(error)
        for replay in self.replays:
            if error is not None and replay.failure:
                path, note = self._folder.save(partial(lambda one: (one, ""), replay))
                if path is not None:
                    note = f"replay: {path}; --debug -1 stops just before the failure"
                if note:
                    add_note(error, note)
