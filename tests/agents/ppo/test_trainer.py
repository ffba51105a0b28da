"""The trainer learns, is reproducible, reports, stops and resumes."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from numpy.typing import NDArray

from entity_env.agents.ppo import (
    Callback,
    PPOConfig,
    TrainingRun,
    TrainProgress,
    TrainState,
    run as ppo_run,
    train,
)
from entity_env.agents.rogue_net import RogueNetConfig, load_checkpoint
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.training.process import StoppedBySignal
from entity_env.agents.training.schedule import Schedule
from entity_env.agents.training.tracking import run_writer
from entity_env.agents.training.tracking.runs import read_about
from entity_env.agents.training.tracking.time_limit import TimeLimit
from entity_env.core.vec_obs import VecActions, VecEnvironment, VecObs
from entity_env.errors import (
    CheckpointError,
    MissingExtraError,
    SchemaError,
    TrainingDivergedError,
    UsageError,
    WorkerError,
)
from tests.agents.ppo.small_envs import Clock, VecCherryPick, VecSigns, VecTurns, VecXor

SMALL = RogueNetConfig(d_model=16, n_layer=1)
CONFIG = PPOConfig(
    total_steps=512,
    net=SMALL,
    num_steps=2,
    minibatch_size=64,
    learning_rate=0.005,
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("vec", "total_steps", "n_layer", "enough"),
    [
        (VecXor(), 10_000, 2, 0.95),
        (VecCherryPick(), 6_000, 1, 0.95),
        (VecSigns(), 10_000, 1, 0.85),
        (VecTurns(), 6_000, 1, 1.9),
    ],
    ids=["global", "select", "categorical", "turns"],
)
def test_it_learns(vec: VecEnvironment, total_steps: int, n_layer: int, enough: float) -> None:
    config = dataclasses.replace(
        CONFIG,
        total_steps=total_steps,
        net=RogueNetConfig(d_model=16, n_layer=n_layer),
        num_steps=4,
        minibatch_size=256,
    )
    rewards: list[float] = []
    result = train(vec, config, on_update=lambda progress: rewards.append(progress.mean_reward))
    assert rewards[0] < enough - 0.2
    assert result.progress.mean_reward > enough


def _same(a: Policy, b: Policy) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


@pytest.mark.slow
def test_a_seed_makes_it_repeat_itself() -> None:
    torch.manual_seed(7)
    first = train(VecSigns(), CONFIG).net
    torch.manual_seed(8)
    state = torch.get_rng_state()
    assert _same(first, train(VecSigns(), CONFIG).net)
    assert torch.equal(torch.get_rng_state(), state)
    assert not _same(first, train(VecSigns(), dataclasses.replace(CONFIG, seed=2)).net)


def test_progress_and_statistics() -> None:
    updates: list[TrainProgress] = []
    result = train(VecXor(64), CONFIG, on_update=updates.append)
    assert [p.step for p in updates] == [128, 256, 384, 512]
    assert updates[-1] == result.progress
    last = updates[-1]
    assert (last.total, last.update, last.num_episodes, last.mean_length) == (512, 4, 512, 1)
    assert last.steps_per_s > 0
    assert last.eta_s == 0
    assert last.metrics["asked"] == 1
    assert 0 <= last.metrics["episode/score"] <= 1
    assert last.losses.entropy > 0
    assert updates[0].learning_rate == CONFIG.learning_rate
    assert last.learning_rate == pytest.approx(CONFIG.learning_rate / 4)
    # Each decision counts once, including those on the first batch.
    assert result.net.state_dict()["embedding.embeddings.Input.0.count"] == 512
    assert not result.is_interrupted
    assert result.checkpoint is None


def test_the_last_rollout_is_no_longer_than_needed() -> None:
    result = train(VecXor(64), dataclasses.replace(CONFIG, total_steps=300))
    assert result.progress.step == 320


def test_a_run_that_could_not_be_saved_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    with pytest.raises(MissingExtraError, match="saving a network needs the package 'safetensors'"):
        train(VecCherryPick(), CONFIG, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_environments_stay_open() -> None:
    vec = VecXor(8)
    train(vec, dataclasses.replace(CONFIG, total_steps=16))
    assert vec.num_closed == 0


def test_torch_gets_its_threads_back() -> None:
    threads: list[int] = []
    before = torch.get_num_threads()
    config = dataclasses.replace(CONFIG, total_steps=16, num_threads=3)
    train(VecXor(8), config, on_update=lambda _: threads.append(torch.get_num_threads()))
    assert threads == [3]
    assert torch.get_num_threads() == before


@pytest.mark.slow
def test_entropy_counts_in_units_of_random_decisions() -> None:
    updates: list[TrainProgress] = []
    config = dataclasses.replace(CONFIG, ent_coef=0.1, anneal_entropy=False)
    normalized = dataclasses.replace(config, norm_entropy=True)
    train(VecXor(64), normalized, on_update=updates.append)
    unit = updates[0].rollouts.random_entropy
    assert unit == pytest.approx(math.log(2))
    assert [each.ent_coef for each in updates] == [0.1 / unit] * 4
    plain = train(VecXor(64), dataclasses.replace(config, ent_coef=0.1 / unit)).net
    assert _same(plain, train(VecXor(64), normalized).net)


def test_early_stop_by_divergence() -> None:
    strict = dataclasses.replace(CONFIG, target_kl=0.0, update_epochs=50, learning_rate=1e-3)
    assert train(VecXor(64), strict).progress.update == 4


@pytest.mark.parametrize("clip_vloss", [True, False])
@pytest.mark.parametrize("norm_adv", [True, False])
def test_switches(clip_vloss: bool, norm_adv: bool) -> None:
    config = dataclasses.replace(
        CONFIG,
        clip_vloss=clip_vloss,
        norm_adv=norm_adv,
        anneal_entropy=False,
        anneal_learning_rate=False,
        minibatch_size=1,
        total_steps=8,
        update_epochs=1,
    )
    result = train(VecXor(8), config)
    assert result.progress.learning_rate == config.learning_rate
    assert all(torch.isfinite(p).all() for p in result.net.parameters())


class Continuing(VecXor):
    """An environment whose `reset` repeats the last batch, so resumed runs are exact."""

    def reset(self, seed: int | None = None) -> VecObs:
        if self._last is None:
            return super().reset(seed)
        return self._last


class Stop:
    """Presses Ctrl-C after some updates."""

    def __init__(self, update: int) -> None:
        self._update = update

    def __call__(self, progress: TrainProgress) -> None:
        if progress.update == self._update:
            signal.raise_signal(signal.SIGINT)


@pytest.mark.slow
def test_resuming_equals_never_having_stopped(tmp_path: Path) -> None:
    whole = train(Continuing(), CONFIG)
    vec = Continuing()
    stopped = train(vec, CONFIG, out=tmp_path, on_update=Stop(2))
    assert stopped.is_interrupted
    assert stopped.checkpoint == tmp_path / "checkpoint"
    assert stopped.progress.update == 2
    updates: list[TrainProgress] = []
    resumed = train(vec, CONFIG, out=tmp_path, resume=True, on_update=updates.append)
    assert [p.update for p in updates] == [3, 4]
    assert updates[-1].num_episodes == 512
    assert updates[-1].elapsed_s > stopped.progress.elapsed_s
    assert _same(whole.net, resumed.net)
    assert _same(load_checkpoint(tmp_path).net, resumed.net)


@pytest.mark.slow
def test_resuming_what_is_done_does_nothing(tmp_path: Path) -> None:
    first = train(VecXor(), CONFIG, out=tmp_path)
    again = train(VecXor(), CONFIG, out=tmp_path, resume=True)
    assert _same(first.net, again.net)
    assert again.progress.step == 512


@pytest.mark.slow
def test_new_seeds_after_a_resume(tmp_path: Path) -> None:
    class Noting(VecXor):
        seeds: list[int | None]

        def reset(self, seed: int | None = None) -> VecObs:
            self.seeds = [*getattr(self, "seeds", []), seed]
            return super().reset(seed)

    vec = Noting()
    train(vec, CONFIG, out=tmp_path, on_update=Stop(1))
    train(vec, CONFIG, out=tmp_path, resume=tmp_path / "checkpoint", on_update=Stop(2))
    train(vec, CONFIG, out=tmp_path, resume=str(tmp_path))
    assert vec.seeds[0] == CONFIG.seed
    assert len(set(vec.seeds)) == 3


@pytest.mark.slow
def test_what_cannot_be_resumed_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name that folder"):
        train(VecXor(), CONFIG, resume=True)
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        train(VecXor(), CONFIG, out=tmp_path, resume=True)
    train(VecXor(), CONFIG, out=tmp_path)
    changed = r"the checkpoint has the entity 'Input', the game.* --init-from \S+ --adapt --out "
    with pytest.raises(CheckpointError, match=changed):
        train(VecSigns(), CONFIG, out=tmp_path, resume=True)
    larger = dataclasses.replace(CONFIG, net=RogueNetConfig(d_model=32))
    with pytest.raises(CheckpointError, match=r"d_model=16.*d_model=32"):
        train(VecXor(), larger, out=tmp_path, resume=True)
    optimizer = tmp_path / "checkpoint" / "optimizer.safetensors"
    tensors = safetensors.torch.load_file(optimizer)
    for key in ("exp_avg", "exp_avg_sq"):
        tensors[f"auxiliary_heads.value.weight.{key}"] = torch.zeros(3)
    safetensors.torch.save_file(tensors, optimizer)
    with pytest.raises(CheckpointError, match=r"state of auxiliary_heads\.value\.weight does not"):
        train(VecXor(), CONFIG, out=tmp_path, resume=True)
    optimizer.unlink()
    with pytest.raises(
        CheckpointError, match="kept along a run or shipped without their optimizer"
    ):
        train(VecXor(), CONFIG, out=tmp_path, resume=True)


class Signalling(VecXor):
    """Sends Ctrl-C to this process during its third step."""

    num_steps = 0

    def act(self, actions: VecActions) -> VecObs:
        self.num_steps += 1
        if self.num_steps == 3:
            os.kill(os.getpid(), signal.SIGINT)
        return super().act(actions)


def test_ctrl_c_stops_at_the_next_step_after_saving(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    vec = Signalling()
    result = train(vec, CONFIG, out=tmp_path)
    assert result.is_interrupted
    assert vec.num_steps == 3
    assert result.progress.step == 128
    assert load_checkpoint(tmp_path).training["step"] == 128
    assert signal.getsignal(signal.SIGINT) is handler


def test_it_trains_outside_the_main_thread() -> None:
    results = []
    config = dataclasses.replace(CONFIG, total_steps=16)
    thread = threading.Thread(target=lambda: results.append(train(VecXor(8), config)))
    thread.start()
    thread.join()
    assert results[0].progress.step == 16


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_ends_programs_saves_first(tmp_path: Path, signum: int) -> None:
    handler = signal.getsignal(signum)
    with pytest.raises(StoppedBySignal) as stop:
        train(VecXor(), CONFIG, out=tmp_path, on_update=lambda _: os.kill(os.getpid(), signum))
    assert stop.value.code == 128 + signum
    assert stop.value.result.is_interrupted
    assert load_checkpoint(tmp_path).training["update"] == 1
    assert signal.getsignal(signum) is handler


def test_a_program_that_handles_the_signal_goes_on(tmp_path: Path) -> None:
    came: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda signum, _: came.append(signum))
    try:
        press = functools.partial(os.kill, os.getpid(), signal.SIGTERM)
        result = train(VecXor(), CONFIG, out=tmp_path, on_update=lambda _: press())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert came == [signal.SIGTERM]
    assert result.is_interrupted
    assert load_checkpoint(tmp_path).training["update"] == 1


def test_a_hangup_that_is_ignored_stays_so(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        result = train(VecXor(), CONFIG, on_update=lambda _: os.kill(os.getpid(), signal.SIGHUP))
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not result.is_interrupted


class Breaking(VecXor):
    """Corrupts its n-th batch; the first is from `reset`."""

    def __init__(self, batch: int, spoil: Callable[[VecObs], None]) -> None:
        super().__init__()
        self._left = batch
        self._spoil = spoil

    def _observe(self, reward: NDArray[np.float32], done: NDArray[np.bool_]) -> VecObs:
        obs = super()._observe(reward, done)
        self._left -= 1
        if not self._left:
            self._spoil(obs)
        return obs


def _fail(obs: VecObs) -> None:
    raise WorkerError("the game raised")


@pytest.mark.slow
def test_a_game_that_fails_leaves_what_was_learnt(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="the game raised"):
        train(Breaking(8, _fail), CONFIG, out=tmp_path)
    assert load_checkpoint(tmp_path).training["update"] == 3
    with pytest.raises(WorkerError, match="the game raised"):
        train(Breaking(2, _fail), CONFIG, out=tmp_path / "early")
    assert not (tmp_path / "early" / "checkpoint").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rewards_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    def spoil(obs: VecObs) -> None:
        obs.reward[5] = value

    with pytest.raises(SchemaError, match=f"env 5, episode 6, step 1: the reward .*got {value}"):
        train(Breaking(8, spoil), CONFIG, out=tmp_path)
    assert load_checkpoint(tmp_path).training["update"] == 3


@pytest.mark.parametrize(("batch", "episode"), [(1, 0), (8, 7)])
def test_observations_that_are_not_finite_are_refused(batch: int, episode: int) -> None:
    def spoil(obs: VecObs) -> None:
        obs.features["Input"].values[7] = np.nan

    words = f"env 7, episode {episode}, step 0: feature 'is_set' of entity Input must be finite"
    with pytest.raises(SchemaError, match=words):
        train(Breaking(batch, spoil), CONFIG)


@pytest.mark.parametrize("size", [1e20, 3e38])
def test_rewards_that_are_too_large_end_the_run(tmp_path: Path, size: float) -> None:
    def spoil(obs: VecObs) -> None:
        obs.reward[::2] = size

    config = dataclasses.replace(CONFIG, checkpoint_interval_s=0)
    with pytest.raises(TrainingDivergedError, match=r"in update 4, after 384 .*has update 3\. Try"):
        train(Breaking(8, spoil), config, out=tmp_path)
    assert load_checkpoint(tmp_path).training["update"] == 3


def test_a_run_resumed_from_another_folder_has_saved_nothing_yet(tmp_path: Path) -> None:
    def spoil(obs: VecObs) -> None:
        obs.reward[::2] = 1e20

    train(VecXor(), CONFIG, out=tmp_path / "old", on_update=Stop(1))
    for out, kept in (("new", "nothing was saved"), ("old", "old/checkpoint has update 1")):
        with pytest.raises(TrainingDivergedError, match=rf"in update 2, .*; \S*{kept}\. Try"):
            train(Breaking(2, spoil), CONFIG, out=tmp_path / out, resume=tmp_path / "old")


def test_observations_that_are_too_large_end_the_run(tmp_path: Path) -> None:
    """Features beyond 1e18 count as 1e18: their squares soon exceed float32."""

    class Large(VecXor):
        def _observe(self, reward: NDArray[np.float32], done: NDArray[np.bool_]) -> VecObs:
            obs = super()._observe(reward, done)
            obs.features["Input"].values[::2] = 3e38
            return obs

    with pytest.raises(TrainingDivergedError, match="squares_sum of the network is not finite"):
        train(Large(), dataclasses.replace(CONFIG, total_steps=4096), out=tmp_path)


@pytest.mark.parametrize(
    ("learning_rate", "minibatch_size"), [(1e12, 16), (1e30, 1024), (1e300, 16), (1e300, 1024)]
)
def test_a_network_that_diverges_replaces_no_checkpoint(
    tmp_path: Path, learning_rate: float, minibatch_size: int
) -> None:
    config = dataclasses.replace(CONFIG, checkpoint_interval_s=0, update_epochs=1)
    good = train(VecXor(), dataclasses.replace(config, total_steps=128), out=tmp_path).net
    bad = dataclasses.replace(config, learning_rate=learning_rate, minibatch_size=minibatch_size)
    with pytest.raises(TrainingDivergedError, match=r"checkpoint has update \d\. Try a smaller"):
        train(VecXor(), bad, out=tmp_path, resume=True)
    kept = load_checkpoint(tmp_path)
    assert kept.training["update"] != 1 or _same(kept.net, good)
    assert np.isfinite(kept.net.act(VecXor().reset(0), greedy=True).logprobs).all()


@pytest.mark.slow
def test_one_run_at_a_time_has_a_folder(tmp_path: Path) -> None:
    vec = VecXor()

    def train_again(progress: TrainProgress) -> None:
        with pytest.raises(UsageError, match="another run of this process is training in"):
            train(VecXor(), CONFIG, out=tmp_path / "checkpoint" / "..")
        code = (
            "import sys; from entity_env.agents.ppo import PPOConfig, train\n"
            "from tests.agents.ppo.small_envs import VecXor\n"
            "train(VecXor(), PPOConfig(), out=sys.argv[1])"
        )
        command = [sys.executable, "-c", code, str(tmp_path)]
        other = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert f"is already training in {tmp_path}: process {os.getpid()} on" in other.stderr

    once = dataclasses.replace(CONFIG, total_steps=1)
    train(vec, once, out=tmp_path, on_update=train_again)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("checkpoint", "curves.jsonl", "run.json", "tensorboard")
    ]
    train(vec, once, out=tmp_path, resume=True)  # the lock has been released


@pytest.mark.parametrize("is_there", [True, False])
def test_a_place_that_is_taken_is_found_before_the_first_step(
    tmp_path: Path, is_there: bool
) -> None:
    class Untouched(VecXor):
        def reset(self, seed: int | None = None) -> VecObs:
            raise AssertionError("the environments were reset")

    if is_there:
        (tmp_path / "checkpoint" / "epoch_17").mkdir(parents=True)
        (tmp_path / "checkpoint" / "epoch_17" / "model.pt").write_text("weeks of work")
    else:
        tmp_path.joinpath("checkpoint").symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match=r"is not a checkpoint but holds 'epoch_17'|symbolic link"):
        train(Untouched(), CONFIG, out=tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    with pytest.raises(UsageError, match="cannot write a checkpoint to /dev/null"):
        train(Untouched(), CONFIG, out="/dev/null")


def test_an_error_saves_what_was_learnt(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, checkpoint_interval_s=0)

    def fail(progress: TrainProgress) -> None:
        if progress.update == 3:
            raise RuntimeError("the display broke")

    with pytest.raises(RuntimeError, match="the display broke"):
        train(VecXor(), config, out=tmp_path, on_update=fail)
    assert load_checkpoint(tmp_path).training["update"] == 3


def test_curves_are_written(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    train(VecXor(64), CONFIG, out=tmp_path)
    events = EventAccumulator(str(tmp_path / "tensorboard"))
    events.Reload()
    names = set(events.Tags()["scalars"])
    assert {
        "charts/steps_per_s",
        "episode/mean_reward",
        "episode/mean_length",
        "losses/policy_loss",
        "losses/value_loss",
        "losses/approx_kl",
        "losses/clip_fraction",
        "losses/explained_variance",
        "metrics/asked.mean",
        "metrics/episode/score.max",
    } <= names
    assert [event.step for event in events.Scalars("losses/entropy")] == [128, 256, 384, 512]


def test_settings_survive_json_and_nonsense_is_told() -> None:
    assert PPOConfig.from_json(CONFIG.to_json()) == CONFIG
    with pytest.raises(UsageError, match="no setting 'lr'"):
        PPOConfig.from_json({"lr": 1})
    with pytest.raises(UsageError, match=r"gamma must be a number from 0 to 1, got 1\.5"):
        PPOConfig(gamma=1.5)
    with pytest.raises(UsageError, match=r"total_steps must be an integer from 1 to .*, got 0"):
        PPOConfig(total_steps=0)


class _Leaving(Callback):
    """Exits in the third update, each time with a different exception."""

    def __init__(self, door: str, vec: VecXor) -> None:
        self.door, self.vec = door, vec

    def on_update(self, state: TrainState) -> None:
        if state.progress.update < 3:
            return
        if self.door == "exit":
            raise SystemExit(3)
        if self.door == "worker":
            raise WorkerError("worker 0 died")
        if self.door == "memory":
            raise MemoryError
        if self.door == "stop":
            state.stop("enough")

    def start(self, run: TrainingRun) -> None:
        """Makes the class usable as a recorder."""

    def write(self, step: int, points: Mapping[str, float]) -> None:
        if self.door == "recorder" and step >= 3 * CONFIG.num_steps * self.vec.num_rows:
            raise SystemExit(3)

    def close(self) -> None:
        """Nothing to close."""


@pytest.mark.parametrize("door", ["exit", "worker", "memory", "stop", "recorder", "curves"])
def test_every_way_out_saves(tmp_path: Path, door: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = dataclasses.replace(CONFIG, total_steps=10**6)
    vec = VecXor()
    leaving = _Leaving(door, vec)
    if door == "curves":
        lines = iter([None, None])

        def write(self: object, line: bytes) -> None:
            if next(lines, line) is not None:
                raise OSError(28, "No space left on device")

        monkeypatch.setattr(run_writer._Lines, "write", write)
    errors = (UsageError, WorkerError, MemoryError, OSError)
    with nullcontext() if door == "stop" else pytest.raises(errors):
        train(vec, config, out=tmp_path, callbacks=[leaving], recorders=[leaving])
    assert load_checkpoint(tmp_path).training["update"] == 3


@pytest.mark.parametrize("method", ["on_start", "on_step", "on_update", "on_end", "function"])
@pytest.mark.parametrize("raised", [SystemExit(3), GeneratorExit()], ids=["exit", "other"])
def test_an_exit_in_a_callback_is_an_error_that_names_it(
    method: str, raised: BaseException
) -> None:
    def leave(*_: object) -> None:
        raise raised

    callback = type("Leaves", (Callback,), {method: leave})()
    on_update = leave if method == "function" else None
    name = "on_update" if method == "function" else f"Leaves.{method}, a callback of the run"
    what = (
        "sys.exit(3) was called" if isinstance(raised, SystemExit) else "GeneratorExit was raised"
    )
    line = leave.__code__.co_firstlineno + 1
    message = f"{name}: {what} at {__file__}:{line} in leave: it ends the program"
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        train(VecXor(), CONFIG, callbacks=[callback], on_update=on_update)


def test_an_exit_in_the_function_that_makes_the_network_is_an_error() -> None:
    def leave(*_: object) -> Any:  # noqa: ANN401 - never returns
        sys.exit()

    with pytest.raises(UsageError, match=r"^policy: sys\.exit\(\) was called at .* in leave"):
        train(VecXor(), CONFIG, policy=leave)


def test_a_trained_agent_is_not_overwritten(tmp_path: Path) -> None:
    train(VecXor(), CONFIG, out=tmp_path)
    before = (tmp_path / "checkpoint" / "model.safetensors").read_bytes()
    message = "holds a trained agent: resume=True continues training it"
    with pytest.raises(UsageError, match=message):
        train(VecXor(), dataclasses.replace(CONFIG, seed=2), out=tmp_path)
    assert (tmp_path / "checkpoint" / "model.safetensors").read_bytes() == before


def test_schedules_and_the_time_left_follow_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr(ppo_run, "TimeLimit", functools.partial(TimeLimit, clock=clock))
    config = dataclasses.replace(
        CONFIG, total_steps=10**9, max_train_time_s=100.0, update_epochs=Schedule([(0, 4), (1, 1)])
    )
    seen = []

    def on_update(progress: TrainProgress) -> None:
        seen.append(progress)
        clock.now += 20

    result = train(VecXor(), config, on_update=on_update)
    assert [each.learning_rate for each in seen] == pytest.approx(
        [CONFIG.at(0).learning_rate * (1 - passed / 100) for passed in (0, 20, 40, 60, 80)]
    )
    assert [each.eta_s for each in seen] == [100, 80, 60, 40, 20]
    assert seen[-1].fraction == 0.8
    assert result.stop_reason == "max_train_time_s=100 is over"


def test_a_run_whose_time_is_over_at_once_says_how_long_it_took() -> None:
    result = train(VecXor(), dataclasses.replace(CONFIG, max_train_time_s=1e-9))
    assert result.progress.step == 0
    assert result.progress.elapsed_s > 0
    assert "no update was finished" in result.hints[0]


@pytest.mark.parametrize(
    ("step_s", "limit_s", "num_steps"),
    [
        (30, 59, 2),
        (60, 59, 0),
        pytest.param(6, 100, 17, marks=pytest.mark.slow),
        pytest.param(6, 80, 10, marks=pytest.mark.slow),
    ],
)
def test_a_run_learns_from_what_fits_in_its_time(
    monkeypatch: pytest.MonkeyPatch, step_s: int, limit_s: int, num_steps: int
) -> None:
    """Of rollouts of 10 steps: the last one counts if half of it, or nothing before it, is done."""
    vec, clock = VecXor(), Clock()
    monkeypatch.setattr(ppo_run, "TimeLimit", functools.partial(TimeLimit, clock=clock))
    config = dataclasses.replace(
        CONFIG, num_steps=10, total_steps=10**6, max_train_time_s=float(limit_s)
    )

    class Slow(Callback):
        def on_step(self, state: TrainState, obs: VecObs) -> None:
            clock.now += step_s

    result = train(vec, config, callbacks=[Slow()])
    assert result.progress.step == num_steps * vec.num_rows
    assert result.stop_reason == f"max_train_time_s={limit_s} is over"
    if not num_steps:
        assert "a step of all environments took 60 s" in result.hints[0]
        return

    class Again(Callback):
        def on_start(self, state: TrainState) -> None:
            state.stop_at(num_steps * vec.num_rows)

        def on_update(self, state: TrainState) -> None:
            ends.append(state.progress.step)
            if state.progress.step == num_steps * vec.num_rows:
                state.stop()

    ends: list[int] = []
    config = dataclasses.replace(config, max_train_time_s=None, anneal_learning_rate=False)
    train(vec, config, callbacks=[Again()])
    assert ends[-1] == num_steps * vec.num_rows


@pytest.mark.slow
def test_a_run_ends_after_its_time_and_has_it_anew(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, total_steps=10**9, max_train_time_s=0.5)
    steps = []
    for is_resumed in (False, True):
        result = train(VecXor(), config, out=tmp_path, resume=is_resumed)
        assert (result.stop_reason, result.is_interrupted) == (
            "max_train_time_s=0.5 is over",
            False,
        )
        assert load_checkpoint(tmp_path).training["step"] == result.progress.step
        steps.append(result.progress.step)
    assert steps[1] >= steps[0]
    about = read_about(tmp_path)
    assert (about["steps"], "ended" in about) == (steps[1], True)
    with pytest.raises(
        UsageError, match="max_train_time_s must be a number, 0 or more, or none, got -1"
    ):
        PPOConfig(max_train_time_s=-1)
