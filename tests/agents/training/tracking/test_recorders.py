"""Recorders get settings and curves; a failing recorder is reported and does not stop the run."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import IO, Any, cast

import pytest

from entity_env.agents.ppo import (
    MLflowRecorder,
    PPOConfig,
    Recorder,
    Schedule,
    TensorBoardRecorder,
    TrainingRun,
    WandbRecorder,
    train,
)
from entity_env.agents.rogue_net import RogueNetConfig, load_checkpoint
from entity_env.agents.training.tracking import recorders, run_writer
from entity_env.agents.training.tracking.runs import CURVES_FILE, read_run
from entity_env.errors import MissingExtraError, UsageError
from tests.agents.ppo.small_envs import VecSigns

CONFIG = PPOConfig(
    total_steps=512,
    net=RogueNetConfig(d_model=16, n_layer=1),
    num_steps=2,
    minibatch_size=64,
    learning_rate=Schedule([(0, 0.003), (1, 0)]),
)


class Notebook:
    """Stores its arguments; fails in one of its calls."""

    def __init__(self, failing: str = "", at: int = 0) -> None:
        self.failing, self.at = failing, at
        self.calls: list[str] = []
        self.runs: list[TrainingRun] = []
        self.points: list[tuple[int, dict[str, float]]] = []

    def note(self, call: str) -> None:
        self.calls.append(call)
        if call == self.failing and self.calls.count(call) > self.at:
            raise OSError("no space left\nat all")

    def start(self, run: TrainingRun) -> None:
        self.runs.append(run)
        self.note("start")

    def write(self, step: int, points: Mapping[str, float]) -> None:
        self.note("write")
        self.points.append((step, dict(points)))

    def close(self) -> None:
        self.note("close")


@pytest.fixture(autouse=True)
def without_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disables TensorBoard's files, which take most of the time."""
    monkeypatch.setattr(run_writer, "_has_tensorboard", lambda: False)


@pytest.mark.slow
def test_a_recorder_gets_what_the_folder_gets(tmp_path: Path) -> None:
    notebook: Notebook = Notebook()
    out = tmp_path / "fast"
    train(VecSigns(), CONFIG, out=out, recorders=[notebook], about={"game": "signs"})
    lines = [json.loads(line) for line in (out / CURVES_FILE).read_text().splitlines()]
    assert [{"step": step, **points} for step, points in notebook.points] == [
        {name: value for name, value in line.items() if name != "elapsed_s"} for line in lines
    ]
    [run] = notebook.runs
    assert (run.name, run.game, run.seed) == ("fast", "signs", CONFIG.seed)
    assert run.settings()["learning_rate"] == "0:0.003 1:0"
    assert run.settings()["net.d_model"] == 16
    assert notebook.calls == ["start", *["write"] * len(lines), "close"]
    # A resumed run counts as the same run, a new one does not.
    longer = replace(CONFIG, total_steps=768)
    train(VecSigns(), longer, out=out, resume=True, recorders=[notebook])
    train(VecSigns(), replace(CONFIG, total_steps=1), recorders=[notebook])
    first, resumed, other = (each.id for each in notebook.runs)
    assert first == resumed == read_run(out).id != other != ""


@pytest.mark.slow
def test_a_recorder_that_fails_is_told_once_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    failing, other = Notebook("write", at=2), Notebook()
    result = train(VecSigns(), CONFIG, out=tmp_path, recorders=[failing, other])
    assert result.progress.step == CONFIG.total_steps
    assert failing.calls == ["start", *["write"] * 3, "close"]
    assert len(other.points) == result.progress.update == 4
    told = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    step = other.points[2][0]
    assert [each for each in told if "Notebook" in each] == [
        f"Notebook no longer records, from step {step} on: no space left"
    ]


@pytest.mark.slow
def test_an_end_that_fails_is_told(caplog: pytest.LogCaptureFixture) -> None:
    failing, other = Notebook("close"), Notebook()
    train(VecSigns(), CONFIG, recorders=[other, failing])
    assert "Notebook did not close cleanly: no space left" in caplog.text
    assert other.calls[-1] == "close"


def test_a_recorder_that_cannot_start_ends_the_run_before_it(tmp_path: Path) -> None:
    other, failing = Notebook(), Notebook("start")
    with pytest.raises(UsageError, match=r"Notebook cannot record the run: no space left$"):
        train(VecSigns(), CONFIG, out=tmp_path, recorders=[other, failing])
    assert other.calls == ["start", "close"]
    assert not (tmp_path / CURVES_FILE).read_bytes()
    with pytest.raises(UsageError, match="recorders need start, write and close, got 3"):
        train(VecSigns(), CONFIG, recorders=[3])  # type: ignore[list-item]


@pytest.mark.slow
def test_recorders_are_closed_after_an_error(tmp_path: Path) -> None:
    def fail(progress: object) -> None:
        raise RuntimeError("boom")

    notebook = Notebook()
    with pytest.raises(RuntimeError, match="boom"):
        train(VecSigns(), CONFIG, out=tmp_path, recorders=[notebook], on_update=fail)
    assert notebook.calls == ["start", "write", "close"]
    assert load_checkpoint(tmp_path).training["update"] == 1


@pytest.mark.slow
def test_tensorboard_has_curves_and_settings(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recorder = TensorBoardRecorder(tmp_path / "events")
    train(VecSigns(), CONFIG, out=tmp_path / "run", recorders=[recorder])
    events = EventAccumulator(str(tmp_path / "events"))
    events.Reload()
    assert len(events.Scalars("losses/entropy")) == 4
    [text] = events.Tensors("settings")[0].tensor_proto.string_val
    assert "| learning_rate | 0:0.003 1:0 |" in text.decode()
    assert "_hparams_/session_start_info" in events.Tags()["tensors"]
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_events_on_a_full_disk_are_told_and_leave_no_file_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("tensorboard")
    opened: list[IO[bytes]] = []

    def full(*_: object) -> IO[bytes]:
        opened.append(open("/dev/full", "ab"))  # noqa: SIM115 - the recorder closes it
        return opened[-1]

    monkeypatch.setattr(recorders, "open", full, raising=False)
    run = SimpleNamespace(path=tmp_path)
    with pytest.raises(OSError, match="No space left"):
        TensorBoardRecorder().start(cast("Any", run))
    with pytest.raises(UsageError, match=r"TensorBoardRecorder cannot record the run.*No space"):
        train(VecSigns(), CONFIG, out=tmp_path, recorders=[TensorBoardRecorder()])
    assert [each.closed for each in opened] == [True, True]
    assert "did not close cleanly" not in caplog.text


class Leaves:
    """A recorder that ends the program in one of its methods."""

    def __init__(self, method: str) -> None:
        self._method = method

    def start(self, run: TrainingRun) -> None:
        self._leave("start")

    def write(self, step: int, points: Mapping[str, float]) -> None:
        self._leave("write")

    def close(self) -> None:
        self._leave("close")

    def _leave(self, method: str) -> None:
        if method == self._method:
            sys.exit(3)


def test_sys_exit_in_a_recorder_is_an_error_of_the_recorder(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(UsageError, match=r"Leaves\.start: sys\.exit\(3\) was called at .*_leave"):
        train(VecSigns(), CONFIG, out=tmp_path, recorders=[Leaves("start")])
    with pytest.raises(UsageError, match=r"Leaves\.write: sys\.exit\(3\) was called at .*_leave"):
        train(VecSigns(), CONFIG, out=tmp_path, recorders=[Leaves("write")])
    train(VecSigns(), CONFIG, out=tmp_path / "close", recorders=[Leaves("close")])
    assert "Leaves.close: sys.exit(3) was called at" in caplog.text


# ------------------------------------------------------------------ other packages


class Fake:
    """Records every method call; `answers` are the return values."""

    def __init__(self, **answers: object) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.answers = answers

    def __getattr__(self, name: str) -> Callable[..., object]:
        def call(*arguments: object, **settings: object) -> object:
            self.calls.append((name, arguments, settings))
            return self.answers.get(name)

        return call

    def of(self, name: str) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        return [(arguments, settings) for each, arguments, settings in self.calls if each == name]


def module(name: str, **content: object) -> ModuleType:
    made = ModuleType(name)
    vars(made).update(content)
    return made


def record(recorder: Recorder, out: Path) -> None:
    about = {"game": "gymnasium:My Game-v1"}
    train(VecSigns(), CONFIG, out=out, recorders=[recorder], about=about)


@pytest.mark.slow
def test_wandb_gets_settings_and_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = Fake()
    wandb = Fake(init=run)
    monkeypatch.delenv("WANDB_PROJECT", raising=False)
    monkeypatch.setitem(sys.modules, "wandb", module("wandb", init=wandb.init))
    record(WandbRecorder(group="mine"), tmp_path)
    [(_, given)] = wandb.of("init")
    assert given["project"] == "gymnasium-My-Game-v1"
    assert (given["id"], given["group"]) == (read_run(tmp_path).id, "mine")
    assert given["config"]["net.d_model"] == 16
    points = [arguments[0] for arguments, _ in run.of("log")]
    assert [each["step"] for each in points] == [128, 256, 384, 512]
    assert all("losses/entropy" in each for each in points)
    assert len(run.of("finish")) == 1


@pytest.mark.slow
def test_mlflow_gets_settings_and_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = SimpleNamespace(info=SimpleNamespace(run_id="r1"), data=SimpleNamespace(params={}))
    client = Fake(create_experiment="7", create_run=info, search_runs=[])
    entities = module("mlflow.entities", Param=lambda *a: a, Metric=lambda *a: a)
    monkeypatch.delenv("MLFLOW_EXPERIMENT_NAME", raising=False)
    monkeypatch.setitem(sys.modules, "mlflow", module("mlflow", MlflowClient=lambda uri: client))
    monkeypatch.setitem(sys.modules, "mlflow.entities", entities)
    record(MLflowRecorder(), tmp_path)
    assert client.of("create_experiment") == [(("gymnasium:My Game-v1",), {})]
    batches = [settings for _, settings in client.of("log_batch")]
    params = dict(pair for batch in batches for pair in batch.get("params", ()))
    assert (params["net.d_model"], params["learning_rate"]) == ("16", "0:0.003 1:0")
    steps = [batch["metrics"][0][3] for batch in batches if "metrics" in batch]
    assert steps == [128, 256, 384, 512]
    assert client.of("set_terminated") == [(("r1",), {})]
    # Resumed: the same run, without duplicate parameters.
    client.answers["search_runs"] = [
        SimpleNamespace(info=info.info, data=SimpleNamespace(params=params))
    ]
    client.calls.clear()
    longer = replace(CONFIG, total_steps=640)
    train(VecSigns(), longer, out=tmp_path, resume=True, recorders=[MLflowRecorder()])
    assert not client.of("create_run")
    assert not [settings for _, settings in client.of("log_batch") if "params" in settings]


@pytest.mark.parametrize(
    ("recorder", "package"), [(WandbRecorder, "wandb"), (MLflowRecorder, "mlflow")]
)
def test_packages_that_are_missing_are_named(
    recorder: type[WandbRecorder | MLflowRecorder],
    package: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.entities", None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'entity-env\[{package}\]'"):
        train(VecSigns(), CONFIG, recorders=[recorder()])
