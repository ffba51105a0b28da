"""Records as curves, histograms and texts of TensorBoard."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from entity_env.episodes.record import Record, RecordValue, require_step
from entity_env.errors import ClosedError, MissingExtraError

if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter


class TensorBoardRecorder:
    """Writes records for TensorBoard: numbers as curves, arrays as histograms, texts as texts.

    What TensorBoard cannot draw is left out: numbers that are not finite, such elements of an
    array, and arrays that hold nothing else. Needs the package tensorboard, but no torch.

    Args:
        folder: where the event file goes; made if there is none.

    Raises:
        MissingExtraError: tensorboard is not installed.
    """

    def __init__(self, folder: Path | str) -> None:
        try:
            # Here and not above: it takes half a second to import.
            from tensorboard.summary.writer.event_file_writer import EventFileWriter
        except ImportError as error:
            raise MissingExtraError("tensorboard", "train", "writing curves") from error
        self._folder = str(folder)
        self._writer: EventFileWriter | None = EventFileWriter(self._folder)

    def write(self, record: Record, step: int) -> None:
        """See `Recorder`; the file has it after `flush` or `close`, or after two minutes.

        Raises:
            ClosedError: after `close`.
            UsageError: a step that is no integer.
        """
        from tensorboard.compat.proto.event_pb2 import Event

        writer = self._open_writer()
        at, now_s = require_step(step), time.time()
        for name, value in record.items():
            summary = _summary(name, value)
            if summary is not None:
                writer.add_event(Event(wall_time=now_s, step=at, summary=summary))

    def flush(self) -> None:
        """Waits until the file has everything.

        Raises:
            ClosedError: after `close`.
        """
        self._open_writer().flush()

    def close(self) -> None:
        """See `Recorder`."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def __enter__(self) -> TensorBoardRecorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_writer(self) -> EventFileWriter:
        if self._writer is None:
            raise ClosedError(f"{self._folder} is closed: make a new TensorBoardRecorder")
        return self._writer


def _summary(name: str, value: RecordValue) -> Any:  # noqa: ANN401 - tensorboard ships no types
    """One value as TensorBoard's own message; None when it cannot be drawn."""
    from tensorboard.plugins.histogram.summary_v2 import histogram_pb
    from tensorboard.plugins.scalar.summary_v2 import scalar_pb
    from tensorboard.plugins.text.summary_v2 import text_pb

    if isinstance(value, str):
        return text_pb(name, value)
    if isinstance(value, float):
        return scalar_pb(name, value) if math.isfinite(value) else None
    finite = value[np.isfinite(value)]
    return histogram_pb(name, finite) if finite.size else None
