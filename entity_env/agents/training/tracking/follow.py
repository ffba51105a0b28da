"""Metrics of a run in another process, from its curve file."""

from __future__ import annotations

from pathlib import Path

from entity_env.agents.training.tracking.runs import CURVES_FILE, parse_point


class FollowedRun:
    """The latest point of every curve in the folder of a run.

    Attributes:
        step: number of decisions so far.
        figures: the last value of every curve.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / CURVES_FILE
        self._offset = 0
        self.step = 0
        self.figures: dict[str, float] = {}

    def read(self) -> None:
        """Reads the lines written since the last call, if any."""
        try:
            with open(self._path, "rb") as file:
                if file.seek(0, 2) < self._offset:  # truncated by a resumed run
                    self._offset = 0
                file.seek(self._offset)
                text = file.read()
        except OSError:  # it does not exist yet
            return
        text = text[: text.rfind(b"\n") + 1]  # without an incomplete line
        self._offset += len(text)
        for line in text.splitlines():
            step, values = parse_point(line)
            if step >= 0:
                self.step = step
                self.figures |= {name: value for name, value in values.items() if value is not None}
