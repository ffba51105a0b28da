"""Callbacks observe, extend and stop a run; their errors name them, and nothing is lost."""

from __future__ import annotations

import dataclasses
import itertools
import math
from pathlib import Path

import pytest
import torch

from entity_env.agents import load_agent
from entity_env.agents.ppo import (
    Callback,
    CheckpointHistory,
    EvaluationResult,
    PPOConfig,
    StopAtReward,
    TrainState,
    train,
)
from entity_env.agents.rogue_net import RogueNetConfig, load_checkpoint
from entity_env.agents.rogue_net.neural_agent import TrainedAgent
from entity_env.agents.training.tracking.runs import read_run
from entity_env.core.vec_obs import VecObs
from entity_env.errors import CheckpointError, UsageError
from tests.agents.ppo.small_envs import VecSigns

CONFIG = PPOConfig(
    total_steps=512, net=RogueNetConfig(d_model=16, n_layer=1), num_steps=2, minibatch_size=64
)
METHODS = ("on_start", "on_step", "on_update", "on_evaluation", "on_end")


class Diary(Callback):
    """Records every call; evaluates in the second update."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.steps: list[int] = []
        self.num_rows: set[int] = set()
        self.error: BaseException | None = None
        """Evaluations at the end."""

    def on_start(self, state: TrainState) -> None:
        self.calls.append("on_start")
        assert not state.is_resumed

    def on_step(self, state: TrainState, obs: VecObs) -> None:
        self.calls.append("on_step")
        self.num_rows.add(len(obs))

    def on_update(self, state: TrainState) -> None:
        self.calls.append("on_update")
        self.steps.append(state.progress.step)
        if state.progress.update == 2:
            state.add_evaluation(EvaluationResult(state.progress.step, 0.5, 0.1, 7.0, 3, {"w": 1}))

    def on_evaluation(self, state: TrainState, evaluation: EvaluationResult) -> None:
        self.calls.append("on_evaluation")
        assert evaluation.mean_reward == 0.5

    def on_end(self, state: TrainState) -> None:
        self.calls.append("on_end")
        self.error = state.error


@pytest.mark.slow
def test_every_method_is_called_in_its_place() -> None:
    diary, vec = Diary(), VecSigns()
    result = train(vec, CONFIG, callbacks=[diary])
    calls = [(name, len(list(group))) for name, group in itertools.groupby(diary.calls)]
    update = [("on_step", CONFIG.num_steps), ("on_update", 1)]
    num_updates = result.progress.update
    evaluated = [*update, *update, ("on_evaluation", 1)]
    assert calls == [("on_start", 1), *evaluated, *update * (num_updates - 2), ("on_end", 1)]
    assert diary.num_rows == {vec.num_rows}
    assert diary.steps[-1] == result.progress.step
    assert (result.stop_reason, diary.error) == (None, None)


@pytest.mark.slow
def test_what_is_recorded_is_in_curves_and_progress(tmp_path: Path) -> None:
    class Recorder(Callback):
        def on_step(self, state: TrainState, obs: VecObs) -> None:
            state.record("own/rows", len(obs))

        def on_update(self, state: TrainState) -> None:
            state.record("own/update", state.progress.update)
            state.record("own/nothing", math.nan)

    seen = []
    diary = Diary()
    callbacks = [Recorder(), diary]
    train(
        VecSigns(),
        CONFIG,
        out=tmp_path,
        callbacks=callbacks,
        on_update=lambda progress: seen.append(progress.metrics),
    )
    curves = read_run(tmp_path).curves
    assert curves["own/update"].values.tolist() == list(range(1, len(seen) + 1))
    assert curves["own/update"].steps.tolist() == diary.steps
    assert curves["evaluation/mean_reward"].values.tolist() == [0.5]
    assert curves["evaluation/w"].steps.tolist() == [diary.steps[1]]
    assert "own/nothing" not in curves
    assert [each["own/update"] for each in seen] == list(range(1, len(seen) + 1))
    assert set(curves["own/rows"].values.tolist()) == diary.num_rows


@pytest.mark.slow
@pytest.mark.parametrize("method", ["on_start", "on_step", "on_update", "on_evaluation"])
def test_a_callback_stops_the_run_with_a_checkpoint(tmp_path: Path, method: str) -> None:
    def stop(self: Diary, state: TrainState, *_: object) -> None:
        if method != "on_step" or state.progress.update:
            state.stop("enough")

    stopper = type("Stopper", (Diary,), {method: stop})()
    result = train(VecSigns(), CONFIG, out=tmp_path, callbacks=[stopper])
    assert (result.stop_reason, result.is_interrupted) == ("enough", False)
    assert result.progress.step < CONFIG.total_steps
    assert stopper.calls[-1] == "on_end"
    assert load_checkpoint(tmp_path).training["step"] == result.progress.step
    resumed = train(VecSigns(), CONFIG, out=tmp_path, resume=True)
    assert (resumed.stop_reason, resumed.progress.step) == (None, CONFIG.total_steps)


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_what_a_callback_raises_names_it_and_nothing_is_lost(tmp_path: Path, method: str) -> None:
    def fail(self: Diary, state: TrainState, *_: object) -> None:
        if method != "on_step" or state.progress.update:
            raise LookupError("boom")

    failing = type("Failing", (Diary,), {method: fail})()
    other = Diary()
    with pytest.raises(LookupError, match="boom") as caught:
        train(VecSigns(), CONFIG, out=tmp_path, callbacks=[failing, other])
    assert any(f"Failing.{method}" in note for note in caught.value.__notes__)
    if method != "on_start":
        step = load_checkpoint(tmp_path).training["step"]
        kept = f"has step {step}: resume continues from it"
        assert any(kept in note for note in caught.value.__notes__)
    assert (failing.calls + other.calls).count("on_end") == (1 if method == "on_end" else 2)
    assert not any("failed, too" in note for note in caught.value.__notes__)
    assert other.error is caught.value


@pytest.mark.slow
def test_callbacks_end_after_an_error_that_they_see() -> None:
    seen = []

    class Ending(Callback):
        def on_end(self, state: TrainState) -> None:
            seen.append(state.error)
            raise OSError("full")

    error = RuntimeError("boom")

    def fail(progress: object) -> None:
        raise error

    with pytest.raises(RuntimeError, match="boom"):
        train(VecSigns(), CONFIG, callbacks=[Ending()], on_update=fail)
    assert seen == [error]
    assert any("Ending.on_end failed" in note for note in error.__notes__)


@pytest.mark.slow
def test_a_copy_of_the_run_is_a_checkpoint_of_its_own(tmp_path: Path) -> None:
    class Copier(Callback):
        def on_update(self, state: TrainState) -> None:
            if state.progress.update == 2:
                state.save_copy(tmp_path / "copy")

    train(VecSigns(), CONFIG, callbacks=[Copier()])
    kept = load_checkpoint(tmp_path / "copy")
    config = dataclasses.replace(CONFIG, anneal_learning_rate=False, anneal_entropy=False)
    assert kept.training["update"] == 2
    ahead = train(VecSigns(), config, resume=tmp_path / "copy")
    assert ahead.progress.step == CONFIG.total_steps


@pytest.mark.slow
def test_callbacks_that_only_look_change_nothing() -> None:
    plain = train(VecSigns(), CONFIG).net.state_dict()
    seen = train(VecSigns(), CONFIG, callbacks=[Diary(), Diary()]).net.state_dict()
    assert all(torch.equal(plain[name], seen[name]) for name in plain)


def test_what_is_no_callback_is_refused() -> None:
    with pytest.raises(UsageError, match="must be instances of Callback"):
        train(VecSigns(), CONFIG, callbacks=[print])  # type: ignore[list-item]


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.slow
def test_checkpoints_are_spread_over_a_run_and_play(tmp_path: Path) -> None:
    train(VecSigns(), CONFIG, out=tmp_path, callbacks=[CheckpointHistory(2)])
    folder, step = tmp_path / "checkpoints", "step-000000256"
    assert names_in(folder) == [step, "step-000000512"]
    assert names_in(folder / step) == ["config.json", "model.safetensors"]
    kept = load_checkpoint(folder / step)
    assert (kept.training["step"], kept.optimizer) == (256, {})
    assert isinstance(load_agent(folder / step), TrainedAgent)
    with pytest.raises(UsageError, match=step):
        load_agent(folder / "step-256")
    with pytest.raises(
        CheckpointError, match="to start a new run from it, use entity-env train --init-from"
    ):
        train(VecSigns(), CONFIG, resume=folder / step)


@pytest.mark.slow
def test_checkpoints_of_a_resumed_run_join_those_that_are_there(tmp_path: Path) -> None:
    class Stopper(Callback):
        def on_update(self, state: TrainState) -> None:
            if state.progress.step >= 256:
                state.stop()

    def history() -> CheckpointHistory:
        return CheckpointHistory(every=128, folder=tmp_path / "kept")

    train(VecSigns(), CONFIG, out=tmp_path, callbacks=[history(), Stopper()])
    first = (tmp_path / "kept" / "step-000000128" / "config.json").read_bytes()
    assert names_in(tmp_path / "kept") == ["step-000000128", "step-000000256"]
    train(VecSigns(), CONFIG, out=tmp_path, resume=True, callbacks=[history()])
    steps = [f"step-{step:09}" for step in (128, 256, 384, 512)]
    assert names_in(tmp_path / "kept") == steps
    assert (tmp_path / "kept" / "step-000000128" / "config.json").read_bytes() == first


def test_bad_checkpoint_histories_are_refused() -> None:
    for num, every in ((None, None), (3, 5)):
        with pytest.raises(UsageError, match="exactly one of num"):
            CheckpointHistory(num, every=every)
    with pytest.raises(UsageError, match="num"):
        CheckpointHistory(0)
    with pytest.raises(UsageError, match="this run has none"):
        train(VecSigns(), CONFIG, callbacks=[CheckpointHistory(1)])


@pytest.mark.slow
def test_a_run_stops_at_a_reward() -> None:
    result = train(VecSigns(), CONFIG, callbacks=[Diary(), StopAtReward(0.5)])
    assert result.stop_reason == "the evaluation reward 0.500 has reached 0.5"
    assert result.progress.update == 2
    result = train(VecSigns(), CONFIG, callbacks=[Diary(), StopAtReward(0.6)])
    assert (result.stop_reason, result.progress.step) == (None, CONFIG.total_steps)
