"""Records as JSON lines: one object a line, in a file that grows."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import IO, Any, Final

import numpy as np

from entity_env.core.files import read_file
from entity_env.episodes.record import Record, RecordValue, require_step
from entity_env.errors import ClosedError, UsageError

STEP: Final = "step"
"""The name of the step in every line; no value of a record may have it."""
_ESCAPE: Final = re.compile(rb"\\.")
_MAX_BYTES: Final = 1 << 30


class JsonLinesRecorder:
    """Appends records to a file, a line each: `{"step": 3, "loss": 0.5, "name": "a"}`.

    A line is written at once and whole, so that whoever reads along, and whatever is left after a
    crash, has all lines but perhaps the last one. A line that a crash has cut off is ended before
    the first new one. Every line is JSON as the standard has it: NaN is `null`, an infinity is
    `1e999` or `-1e999`, a number that no float can hold, which nearly all readers take for one.

    Args:
        path: the file; made if there is none, with its folders.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file: IO[bytes] | None = self._path.open("ab", buffering=0)
        if _ends_in_a_line(self._path):
            self._file.write(b"\n")

    def write(self, record: Record, step: int) -> None:
        """See `Recorder`.

        Raises:
            ClosedError: after `close`.
            UsageError: a step that is no integer, or a value that is called `step`. Nothing is
                written then.
        """
        if self._file is None:
            raise ClosedError(f"{self._path} is closed: make a new JsonLinesRecorder")
        at = require_step(step)
        if STEP in record:
            raise UsageError(f"a value called {STEP!r} has no place in {self._path}: rename it")
        pairs = [f"{json.dumps(STEP)}: {at}"]
        pairs += [f"{json.dumps(name)}: {_encoded(value)}" for name, value in record.items()]
        self._file.write(f"{{{', '.join(pairs)}}}\n".encode())

    def close(self) -> None:
        """See `Recorder`."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __enter__(self) -> JsonLinesRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_json_lines(path: Path | str) -> list[tuple[int, Record]]:
    """Reads what a `JsonLinesRecorder` has written.

    Numbers come back bit for bit, only that every NaN is the usual one. So do arrays, but one
    without rows comes back with the shape (0,). A line that a crash has cut off is left out.

    Args:
        path: the file.

    Returns:
        Every step with its record, in the order of the lines.

    Raises:
        OSError: the file cannot be read, is no regular one, or is longer than 1 GiB.
        UsageError: a line is no record; the message names it.
    """
    records: list[tuple[int, Record]] = []
    for number, line in enumerate(read_file(Path(path), _MAX_BYTES).splitlines(), start=1):
        if _is_cut_off(line):
            continue
        try:
            values = json.loads(line)
            step = require_step(values.pop(STEP))
            records.append((step, Record({n: _decoded(v) for n, v in values.items()})))
        except (
            LookupError,
            AttributeError,
            TypeError,
            ValueError,
            OverflowError,
            RecursionError,
        ) as error:
            raise UsageError(f"{path}, line {number}, is no record: {error!r}") from error
    return records


def _encoded(value: RecordValue) -> str:
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, float):
        return _number(value)
    return _list(value.tolist())


def _list(values: Any) -> str:  # noqa: ANN401 - what `tolist` makes of any number of dimensions
    if isinstance(values, float):
        return _number(values)
    return f"[{', '.join(map(_list, values))}]"


def _number(value: float) -> str:
    if math.isfinite(value):
        return repr(value)
    if math.isnan(value):
        return "null"
    return "1e999" if value > 0 else "-1e999"


def _decoded(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, list):
        return np.array(value, dtype=np.float64)  # takes None for NaN
    return math.nan if value is None else value


def _is_cut_off(line: bytes) -> bool:
    """The beginning of an object: without its end, or with an end that lies inside of a text."""
    is_in_text = _ESCAPE.sub(b"", line).count(b'"') % 2 == 1
    return line.startswith(b"{") and (is_in_text or not line.endswith(b"}"))


def _ends_in_a_line(path: Path) -> bool:
    """The file holds something, and its last line is not ended."""
    with path.open("rb") as file:
        if not file.seek(0, 2):
            return False
        file.seek(-1, 2)
        return file.read() != b"\n"
