"""Recorders: additional destinations for curves and settings of a run."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from entity_env.authoring.game_traceback import no_exits, require_error
from entity_env.errors import MissingExtraError, UsageError, shown

if TYPE_CHECKING:
    from entity_env.agents.training.tracking.runs import TrainingRun

_LOGGER: Final = logging.getLogger("entity_env.agents.ppo")
_TENSORBOARD: Final = "tensorboard"
_RUN_TAG: Final = "entity_env.run"
_MAX_PARAMS: Final = 100
_MAX_PARAM: Final = 500


class Recorder(Protocol):
    """Records settings and curves of a training run; passed to `train(recorders=[...])`.

    Exceptions from `start` end the run before its first step. An exception from `write` closes the
    recorder, with a warning, and the run continues. Only rank 0 records, in the training thread.
    """

    def start(self, run: TrainingRun) -> None:
        """Starts recording; a resumed run keeps its `id`, and may repeat points."""

    def write(self, step: int, points: Mapping[str, float]) -> None:
        """Adds a finite point to each of these curves, at `step` decisions."""

    def close(self) -> None:
        """Stops recording, also after an error in `start` or `write`; called once."""


class TensorBoardRecorder:
    """Writes event files for TensorBoard, with the settings as text and as hyperparameters.

    Args:
        folder: None = `tensorboard` in the folder of the run.
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self._folder = None if folder is None else Path(folder)
        self._file: Any = None
        self._path = Path()

    def start(self, run: TrainingRun) -> None:
        try:
            from tensorboard.compat.proto.event_pb2 import Event
            from tensorboard.compat.proto.summary_pb2 import Summary
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError as error:
            raise MissingExtraError(_TENSORBOARD, "train", "TensorBoardRecorder") from error
        self._event, self._summary = Event, Summary
        folder = self._folder or run.path / _TENSORBOARD
        folder.mkdir(parents=True, exist_ok=True)
        now = f"{time.time_ns() / 1e9:.6f}"
        self._path = folder / f"events.out.tfevents.{now}.{os.getpid()}"
        self._file = open(self._path, "xb")  # noqa: SIM115 - closed by `close`
        self._records = RecordWriter(self._file)
        self._append(file_version="brain.Event:2")
        if settings := _known(run):
            self._append(step=0, summary=_hyperparameters(settings))
            self._append(step=0, summary=self._text(run))

    def write(self, step: int, points: Mapping[str, float]) -> None:
        values = [
            self._summary.Value(tag=name, simple_value=value) for name, value in points.items()
        ]
        self._append(step=step, summary=self._summary(value=values))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _append(self, **content: object) -> None:
        try:
            # In this thread: torch's SummaryWriter would raise in its own thread.
            self._records.write(self._event(wall_time=time.time(), **content).SerializeToString())
            self._file.flush()
        except OSError as error:
            error.filename = str(self._path)
            with suppress(OSError):  # what is left in its buffer fails again
                self.close()
            raise

    def _text(self, run: TrainingRun) -> Any:  # noqa: ANN401 - without type hints
        from tensorboard.compat.proto.tensor_pb2 import TensorProto
        from tensorboard.plugins.text.metadata import create_summary_metadata

        rows = [f"| {name} | {value} |" for name, value in _known(run).items()]
        text = "\n".join(["| setting | value |", "|---|---|", *rows])
        tensor = TensorProto(dtype="DT_STRING", string_val=[text.encode()])
        metadata = create_summary_metadata("settings", "")
        value = self._summary.Value(tag="settings", metadata=metadata, tensor=tensor)
        return self._summary(value=[value])


def _known(run: TrainingRun) -> dict[str, Any]:
    """The settings of a run that are not None."""
    return {name: value for name, value in run.settings().items() if value is not None}


def _hyperparameters(settings: Mapping[str, object]) -> Any:  # noqa: ANN401 - without type hints
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb

    return hparams_pb(settings)


class WandbRecorder:
    """Records with Weights & Biases; the x axis of the curves is the step.

    Files go to the folder of the run. W&B's environment variables, such as `WANDB_MODE`, apply.

    Args:
        project: None = `WANDB_PROJECT`, or the game.
        settings: further arguments of `wandb.init`, such as `group` and `tags`.
    """

    def __init__(self, project: str | None = None, **settings: object) -> None:
        self._project = project
        self._settings = settings
        self._run: Any = None

    def start(self, run: TrainingRun) -> None:
        try:
            wandb: Any = import_module("wandb")
        except ImportError as error:
            raise MissingExtraError("wandb", "wandb", "WandbRecorder") from error
        project = self._project or os.environ.get("WANDB_PROJECT")
        given: dict[str, Any] = {
            "project": project or re.sub(r"[^\w-]+", "-", run.game) or "entity_env",
            "name": run.name,
            "id": run.id,
            "resume": "allow",
            "reinit": "create_new",  # a run that the program itself has started stays untouched
            "dir": str(run.path),
            "config": {**_known(run), "seed": run.seed, "game": run.game},
            "allow_val_change": True,  # a resumed run may have other settings
        }
        self._run = wandb.init(**{**given, **self._settings})
        # Our own step metric: W&B's drops points at steps that it has seen, as after a resume.
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def write(self, step: int, points: Mapping[str, float]) -> None:
        self._run.log({"step": step, **points})

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()


class MLflowRecorder:
    """Records with MLflow.

    Args:
        experiment: None = `MLFLOW_EXPERIMENT_NAME`, or the game.
        tracking_uri: of the server, or a folder; None = `MLFLOW_TRACKING_URI`.
    """

    def __init__(self, experiment: str | None = None, tracking_uri: str | None = None) -> None:
        self._experiment = experiment
        self._tracking_uri = tracking_uri
        self._client: Any = None
        self._entities: Any = None
        self._run_id = ""

    def start(self, run: TrainingRun) -> None:
        try:
            self._entities = import_module("mlflow.entities")
            mlflow: Any = import_module("mlflow")
        except ImportError as error:
            raise MissingExtraError("mlflow", "mlflow", "MLflowRecorder") from error
        client = mlflow.MlflowClient(self._tracking_uri)
        name = self._experiment or os.environ.get("MLFLOW_EXPERIMENT_NAME") or run.game
        name = name or "entity_env"
        found = client.get_experiment_by_name(name)
        experiment = client.create_experiment(name) if found is None else found.experiment_id
        runs = client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{run.id}'", max_results=1)
        if runs:
            self._run_id = runs[0].info.run_id
            client.update_run(self._run_id, status="RUNNING")
        else:
            tags = {_RUN_TAG: run.id, "game": run.game}
            self._run_id = client.create_run(experiment, tags=tags, run_name=run.name).info.run_id
        before = runs[0].data.params if runs else {}  # MLflow does not allow changing these
        settings = {**_known(run), "seed": run.seed}
        params = [
            self._entities.Param(_mlflow_name(name), str(value)[:_MAX_PARAM])
            for name, value in settings.items()
            if _mlflow_name(name) not in before
        ]
        for begin in range(0, len(params), _MAX_PARAMS):
            client.log_batch(self._run_id, params=params[begin : begin + _MAX_PARAMS])
        self._client = client

    def write(self, step: int, points: Mapping[str, float]) -> None:
        now, metric = int(time.time() * 1000), self._entities.Metric
        metrics = [metric(_mlflow_name(name), x, now, step) for name, x in points.items()]
        self._client.log_batch(self._run_id, metrics=metrics)

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run_id)


def _mlflow_name(name: str) -> str:
    return re.sub(r"[^\w\-./ ]", "_", name)[:250].strip("/") or "_"


RECORDERS: Final[Mapping[str, type[TensorBoardRecorder | WandbRecorder | MLflowRecorder]]] = {
    _TENSORBOARD: TensorBoardRecorder,
    "wandb": WandbRecorder,
    "mlflow": MLflowRecorder,
}


class Recording:
    """The recorders of a run that have not failed."""

    def __init__(self, recorders: Sequence[Recorder], run: TrainingRun) -> None:
        self._started: list[Recorder] = []
        try:
            for recorder in recorders:
                self._started.append(recorder)
                _start(recorder, run)
        except BaseException:
            self.close()
            raise

    def write(self, step: int, points: Mapping[str, float]) -> None:
        """Writes points; closes a recorder that fails, with a warning.

        Raises:
            UsageError: a recorder called `sys.exit()`.
        """
        for recorder in list(self._started):
            try:
                recorder.write(step, points)
            except Exception as error:
                name, reason = type(recorder).__name__, _line(error)
                _LOGGER.warning("%s no longer records, from step %d on: %s", name, step, reason)
                self._started.remove(recorder)
                with suppress(Exception):
                    recorder.close()
            except BaseException as error:
                require_error(error, f"{type(recorder).__name__}.write")

    def close(self) -> None:
        """Closes all recorders; logs their exceptions as warnings."""
        while self._started:
            recorder = self._started.pop()
            try:
                with no_exits(f"{type(recorder).__name__}.close"):
                    recorder.close()
            except Exception as error:
                name, reason = type(recorder).__name__, _line(error)
                _LOGGER.warning("%s did not close cleanly: %s", name, reason)


def _start(recorder: Recorder, run: TrainingRun) -> None:
    try:
        with no_exits(f"{type(recorder).__name__}.start"):
            recorder.start(run)
    except (UsageError, MissingExtraError):
        raise
    except Exception as error:
        name = type(recorder).__name__
        raise UsageError(f"{name} cannot record the run: {_line(error)}") from error


def require_recorders(recorders: Sequence[object]) -> None:
    """Raises `UsageError` if a value is not a recorder."""
    for each in recorders:
        if not all(callable(getattr(each, name, None)) for name in ("start", "write", "close")):
            raise UsageError(f"recorders need start, write and close, got {shown(each)}")


def _line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
