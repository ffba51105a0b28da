"""Writes `run.json` and the curves in a training run's folder; `runs.py` reads them."""

from __future__ import annotations

import json
import logging
import math
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final, Protocol

from entity_env.agents.training.tracking.progress import TrainProgress, WriteCurves
from entity_env.agents.training.tracking.provenance import machine
from entity_env.agents.training.tracking.recorders import Recorder, Recording, TensorBoardRecorder
from entity_env.agents.training.tracking.rewards import RandomPlay
from entity_env.agents.training.tracking.runs import (
    AGREEMENT,
    CURVES_FILE,
    DEFAULT_CONFIG,
    RANDOM_PLAY,
    REWARD,
    RUN_FILE,
    TrainingRun,
    eval_opponent,
    read_about,
)
from entity_env.agents.training.tracking.settings_file import RUN_FORMAT
from entity_env.authoring.identity import package_versions
from entity_env.core.files import write_file
from entity_env.core.vec_obs import Metric
from entity_env.errors import UsageError

_LOGGER: Final = logging.getLogger("entity_env.agents.ppo")
_LOSS_CURVES: Final = {"teacher_agreement": AGREEMENT}
"""Exceptions to the name `losses/FIELD` of curves."""
_BEGIN: Final = b'{"step":'
"""Start of every line in our curve files."""
_OF_THE_BEGIN: Final = ("init_from", "compiled_from_step", DEFAULT_CONFIG, RANDOM_PLAY)
"""Facts about the start of a run, kept when it is resumed."""


class RunSettings(Protocol):
    """Settings of a run, such as a `PPOConfig`."""

    @property
    def seed(self) -> int:
        """Seed of the run."""

    def to_json(self) -> dict[str, object]:
        """The settings as JSON."""


def write_run(
    out: Path | None, config: RunSettings, step: int, about: Mapping[str, object]
) -> TrainingRun:
    """Writes `run.json`: settings, command, machine, versions and date; returns its content.

    A resumed run, with `step` above 0, keeps its id, start date and facts about its start; but the
    results of random play only if the game and its players are equal. Writes nothing without a
    folder. `end_run` adds the end date and step.

    Raises:
        UsageError: the folder is not writable, or has another file with that name.
    """
    now = _now()
    before = {} if out is None else read_about(out)
    resumed = before.get("resumed")
    data = {
        "format": RUN_FORMAT,
        **({name: before[name] for name in _kept(before, about)} if step else {}),
        "command": sys.argv,
        **about,
        "id": (before.get("id") if step else None) or uuid.uuid4().hex[:16],
        "seed": config.seed,
        "began": before.get("began") if step else now,
        "resumed": [*(resumed if isinstance(resumed, list) else ()), [now, step]] if step else [],
        "versions": package_versions("entity-env", "numpy", "torch", "numba"),
        "machine": machine(),
        "config": config.to_json(),
    }
    if out is None:
        return TrainingRun(Path(), data)
    path = out / RUN_FILE
    try:
        _write_about(path, data)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error}") from error
    return TrainingRun(out, data)


def _kept(before: Mapping[str, object], about: Mapping[str, object]) -> list[str]:
    """Names of the facts about the start that a resumed run keeps, see `write_run`."""
    is_same = _played(before) == _played(about)
    return [name for name in _OF_THE_BEGIN if name in before and (is_same or name != RANDOM_PLAY)]


def _played(about: Mapping[str, object]) -> str:
    """The game and its players in a `run.json`, as JSON."""
    found = [about.get(name) for name in ("identity", "settings", "opponents")]
    return json.dumps([*found, eval_opponent(about)], default=str, sort_keys=True)


def end_run(out: Path | None, run: TrainingRun, step: int, facts: Mapping[str, object]) -> None:
    """Adds the date and step of a run's end, and facts, to `run.json`; warns if this fails.

    Args:
        run: result of `write_run`.
        step: number of decisions that the run has learned from.
    """
    note_run(out, run, {"ended": _now(), "steps": step, **facts})


def add_random_play(out: Path | None, run: TrainingRun, random_play: RandomPlay) -> TrainingRun:
    """Adds the results of random play to `run.json`; returns the updated run."""
    return note_run(out, run, {RANDOM_PLAY: random_play.to_json()})


def note_run(out: Path | None, run: TrainingRun, facts: Mapping[str, object]) -> TrainingRun:
    """Adds facts to `run.json`, or replaces them, if there is a folder; warns if this fails.

    Returns:
        The run with these facts.
    """
    found = replace(run, about={**run.about, **facts})
    if out is not None:
        try:
            _write_about(out / RUN_FILE, found.about)
        except OSError as error:
            _LOGGER.warning("cannot write %s: %s", out / RUN_FILE, error)
    return found


def _write_about(path: Path, data: Mapping[str, object]) -> None:
    write_file(path, (json.dumps(data, indent=2, default=str) + "\n").encode())


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


@contextmanager
def curve_writer(
    out: Path | None,
    step: int = 0,
    recorders: Sequence[Recorder] = (),
    run: TrainingRun | None = None,
) -> Iterator[WriteCurves]:
    """Context with a function that writes points of all curves to a run's `curves.jsonl`.

    Leaves out values that are not finite. `recorders` get the same points. If they have no
    `TensorBoardRecorder`, one is added if the run has a folder and tensorboard is installed.
    Removes lines of `curves.jsonl` after `step`, where training begins, because no checkpoint has
    these updates.

    Raises:
        MissingExtraError: a recorder's package is missing.
        OSError: a line of `curves.jsonl` cannot be written.
        UsageError: the folder is not writable, or has another file with that name; a recorder
            cannot start.
    """
    recorders = [*recorders]
    with ExitStack() as stack:
        file = None
        if out is not None:
            file = stack.enter_context(_curves_file(out / CURVES_FILE, step))
            has_own = any(isinstance(each, TensorBoardRecorder) for each in recorders)
            if not has_own and _has_tensorboard():
                recorders.append(TensorBoardRecorder())
        recording = Recording(recorders, run or TrainingRun(out or Path()))
        stack.callback(recording.close)

        def write(
            progress: TrainProgress, metrics: Mapping[str, Metric], recorded: Mapping[str, float]
        ) -> None:
            # Before the first update, only callbacks have points.
            figures = _curve_points(progress, metrics) if progress.step else {}
            points = {
                name: float(value)
                for name, value in {**recorded, **figures}.items()
                if math.isfinite(value)
            }
            if file is not None:
                seconds = round(progress.elapsed_s, 3)
                line = {"step": progress.step, "elapsed_s": seconds, **points}
                file.write(json.dumps(line).encode() + b"\n")
            recording.write(progress.step, points)

        yield write


class _Lines:
    """A file written line by line; errors name the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = open(path, "ab")  # noqa: SIM115 - closed below

    def write(self, line: bytes) -> None:
        try:
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            error.filename = str(self._path)
            raise

    def close(self) -> None:
        with suppress(OSError):  # failed writes were reported before
            self._file.close()


@contextmanager
def _curves_file(path: Path, step: int) -> Iterator[_Lines]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _cut_curves(path, step)
        lines = _Lines(path)
    except OSError as error:
        raise UsageError(f"cannot write curves to {path}: {error}") from error
    try:
        yield lines
    finally:
        lines.close()


def _has_tensorboard() -> bool:
    try:
        import tensorboard.compat.proto.event_pb2
        import tensorboard.summary.writer.record_writer  # noqa: F401
    except ImportError:
        return False
    return True


def _curve_points(progress: TrainProgress, metrics: Mapping[str, Metric]) -> dict[str, float]:
    return {
        "charts/steps_per_s": progress.steps_per_s,
        "charts/learning_rate": progress.learning_rate,
        "charts/ent_coef": progress.ent_coef,
        REWARD: progress.mean_reward,
        "episode/std_reward": progress.std_reward,
        "episode/mean_length": progress.mean_length,
        "episode/count": progress.num_episodes,
        "episode/window": progress.window,
        "episode/unfinished": progress.unfinished,
        **{
            _LOSS_CURVES.get(name, f"losses/{name}"): value
            for name, value in asdict(progress.losses).items()
        },
        **{
            f"metrics/{name}.{part}": getattr(metric, part)
            for part in ("mean", "min", "max")
            for name, metric in metrics.items()
        },
    }


def _cut_curves(path: Path, step: int) -> None:
    """Removes the lines after a step, and an incomplete line left by a kill."""
    if not path.exists():
        return
    if not path.is_file():
        raise UsageError(f"cannot write curves to {path}: it is not a file")
    with open(path, "rb+") as file:
        begin = file.read(len(_BEGIN))
        if begin != _BEGIN[: len(begin)]:
            raise UsageError(f"{path} was not written by entity_env: move it away")
        file.seek(0)
        end = 0
        for line in file:
            if not line.endswith(b"\n") or _step_of(line) > step:
                break
            end += len(line)
        file.truncate(end)


def _step_of(line: bytes) -> int:
    """The step of a line; 0 if it is damaged."""
    found = re.match(_BEGIN + rb"\s*(\d{1,19})\b", line)
    return int(found[1]) if found else 0
