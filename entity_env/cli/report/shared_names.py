"""Names of runs, files and commands for a file that is sent to others: without local folders."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, count
from pathlib import Path
from typing import Final

from entity_env.agents.training.tracking.runs import TrainingRun
from entity_env.cli.display.console import plain

_FOLDERS: Final = re.compile(r"(?:^|(?<=[=:,@ ]))(?:~[^\\/]*|[A-Za-z]:)?[\\/](?:[^,=@]*[\\/])?")
"""The folders of absolute paths, also after `NAME=` and before `:CLASS`."""


def without_folders(word: str) -> str:
    """A word of a command or a file's name, with absolute paths reduced to their last part."""
    word = plain(word)
    if "://" in word and "file://" not in word.lower():
        return word
    return _FOLDERS.sub("", word.rstrip("\\/"))


def shared_command(command: object) -> str:
    """A recorded command line as others can type it; "" if there is none."""
    words = [each for each in command if isinstance(each, str)] if isinstance(command, list) else []
    if not words:
        return ""
    program = re.split(r"[\\/]", plain(words[0]))[-1]
    begin = [program.removesuffix(".exe")]
    if program == "__main__.py":
        begin = ["entity-env"]
    elif program.endswith(".py"):
        begin = ["python", program]
    return shlex.join([*begin, *map(without_folders, words[1:])])


def shared_runs(runs: Sequence[TrainingRun]) -> list[TrainingRun]:
    """The runs with names instead of absolute paths, of folders and games.

    A relative path is its own name. Absolute paths are shortened by the folder that all of them
    are in.
    """
    games = list(dict.fromkeys(run.game for run in runs))
    short = dict(zip(games, _different(map(without_folders, games)), strict=True))
    return [
        replace(run, path=Path(path), about={**run.about, "game": short[run.game]})
        for run, path in zip(runs, _different(_short_paths(runs)), strict=True)
    ]


def _different(names: Iterable[str]) -> list[str]:
    """The names, with numbers where they would be equal."""
    found: dict[str, None] = {}
    for name in names:
        numbered = chain([name], (f"{name} ({i})" for i in count(2)))
        found[next(each for each in numbered if each not in found)] = None
    return list(found)


def _short_paths(runs: Sequence[TrainingRun]) -> Iterator[str]:
    drives: dict[str, list[Path]] = {}
    for run in runs:
        drives.setdefault(run.path.anchor, []).append(run.path.parent)
    for run in runs:
        path = run.path
        if path.is_absolute():
            yield str(path.relative_to(os.path.commonpath(drives[path.anchor])))
        elif not path.name or path.name == os.pardir:
            yield path.resolve().name or run.game or "run"
        else:
            yield str(path)
