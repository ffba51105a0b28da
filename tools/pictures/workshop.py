"""A temporary folder with the files that pages of the docs contain, in which commands run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.golden_replays import ROOT

_FILE: Final = re.compile(r"^```python\n# ([\w]+\.py)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_PAGES: Final = ("tutorials", "how-to")


class Workshop:
    """Runs commands as a reader of the docs does.

    Args:
        folder: empty, or new; it also takes the place of the home folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self._made: set[str] = set()
        self.variables = {
            **{name: value for name, value in os.environ.items() if name not in _DISPLAYS},
            "HOME": str(folder),
            "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "PYTHONUNBUFFERED": "1",
            "SDL_VIDEODRIVER": "dummy",
            "SDL_AUDIODRIVER": "dummy",
        }
        for page in sorted(path for part in _PAGES for path in (ROOT / "docs" / part).glob("*.md")):
            for name, text in _FILE.findall(page.read_text("utf-8")):
                (folder / name).write_text(text)
        self._move_looks()
        (folder / "examples").symlink_to(ROOT / "examples")

    def _move_looks(self) -> None:
        """Moves looks to a separate folder: next to their games, all pictures would use them."""
        (self.folder / "looks").mkdir()
        for look in self.folder.glob("*_look.py"):
            look.rename(self.folder / "looks" / look.name)

    def words(self, command: str) -> list[str]:
        """A command from a page, split into words, run by this interpreter."""
        program, *others = shlex.split(command)
        if program == "entity-env":
            return [sys.executable, "-m", "entity_env", *others]
        return [sys.executable if program == "python" else program, *others]

    def run(self, command: str) -> None:
        """Runs a command to its end; raises `RuntimeError` with its output if it fails."""
        found = subprocess.run(
            self.words(command),
            cwd=self.folder,
            env=self.variables,
            capture_output=True,
            text=True,
            check=False,
        )
        if found.returncode:
            raise RuntimeError(f"{command}: {found.stdout}{found.stderr}")

    def need(self, commands: Sequence[str]) -> None:
        """Runs those commands that have not been run before."""
        for command in commands:
            if command not in self._made:
                self.run(command)
                self._made.add(command)

    def start(self, command: str) -> subprocess.Popen[str]:
        """Starts a command whose output is read while it runs."""
        pipe = subprocess.PIPE
        words: Sequence[str] = self.words(command)
        return subprocess.Popen(
            words, cwd=self.folder, env=self.variables, stdout=pipe, stderr=pipe, text=True
        )


_DISPLAYS: Final = ("DISPLAY", "WAYLAND_DISPLAY", "COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
"""Variables that would change what is shown."""
