"""The trainer learns, repeats itself, reports, stops and goes on."""

from __future__ import annotations

import dataclasses
import os
import signal
import threading
from pathlib import Path

import pytest
import safetensors.torch
import torch

from entity_env.agents.ppo import PPOConfig, TrainProgress, train
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig, load_checkpoint
from entity_env.errors import CheckpointError, UsageError
from entity_env.vec_obs import VecActions, VecEnvironment, VecObs
from tests.ppo_envs import VecCherryPick, VecSigns, VecTurns, VecXor

SMALL = RogueNetConfig(d_model=16, n_layer=1)
CONFIG = PPOConfig(
    total_steps=512,
    net=SMALL,
    num_steps=2,
    minibatch_size=64,
    learning_rate=0.005,
)


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


def _same(a: RogueNet, b: RogueNet) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return all(torch.equal(ours[name], theirs[name]) for name in ours)


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
    # Each decision is counted once, those on the first batch too.
    assert result.net.state_dict()["embedding.embeddings.Input.0.count"] == 512
    assert not result.is_interrupted
    assert result.checkpoint is None


def test_the_last_rollout_is_no_longer_than_needed() -> None:
    result = train(VecXor(64), dataclasses.replace(CONFIG, total_steps=300))
    assert result.progress.step == 320


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


def test_early_stop_by_divergence() -> None:
    strict = dataclasses.replace(CONFIG, target_kl=-1.0, update_epochs=50, learning_rate=1e-6)
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
    """Whose `reset` only repeats the last batch, so that going on is exact."""

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
            raise KeyboardInterrupt


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


def test_resuming_what_is_done_does_nothing(tmp_path: Path) -> None:
    first = train(VecXor(), CONFIG, out=tmp_path)
    again = train(VecXor(), CONFIG, out=tmp_path, resume=True)
    assert _same(first.net, again.net)
    assert again.progress.step == 512


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


def test_what_cannot_be_resumed_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name that folder"):
        train(VecXor(), CONFIG, resume=True)
    with pytest.raises(CheckpointError, match="no checkpoint at"):
        train(VecXor(), CONFIG, out=tmp_path, resume=True)
    train(VecXor(), CONFIG, out=tmp_path)
    with pytest.raises(CheckpointError, match="the checkpoint has the entity 'Input', the game"):
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
    with pytest.raises(CheckpointError, match="can only be played"):
        train(VecXor(), CONFIG, out=tmp_path, resume=True)


class Signalling(VecXor):
    """Sends Ctrl-C to this process in the middle of its third step."""

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
    with pytest.raises(UsageError, match=r"gamma must be between 0 and 1, got 1\.5"):
        PPOConfig(gamma=1.5)
    with pytest.raises(UsageError, match=r"total_steps must be an integer from 1 to .*, got 0"):
        PPOConfig(total_steps=0)
