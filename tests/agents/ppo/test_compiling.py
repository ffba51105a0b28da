"""Training starts in torch while a child compiles, switches once, and leaves no child behind.

In most of these tests the child is a different program; the exceptions are the slow test and the
one that runs the child's job in this process, whose kernels are in the cache of the tests.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import os
import pickle
import select
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from entity_env.agents.ppo import (
    Callback,
    PPOConfig,
    TrainState,
    compiling,
    train,
)
from entity_env.agents.ppo.compiling import KernelSwitch
from entity_env.agents.rogue_net import RogueNet, RogueNetConfig
from entity_env.agents.rogue_net.torch_net import tensors
from entity_env.agents.rogue_net.torch_net.tensors import has_kernels
from entity_env.agents.training.rollout_buffer import Rollout
from entity_env.agents.training.tracking.runs import read_about
from entity_env.core import validation
from entity_env.errors import UsageError
from tests.agents.ppo.small_envs import VecSigns, VecXor

pytest.importorskip("numba")

CONFIG = PPOConfig(
    total_steps=640,
    net=RogueNetConfig(d_model=16, n_layer=1),
    num_steps=2,
    minibatch_size=64,
    compile="background",
)
DONE, FOREVER, FAILING = "pass", "import os; os.read(0, 1)", "raise SystemExit('no room')"


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces the compiler by another program, and hides the kernels in the cache."""

    def run(code: str) -> None:
        monkeypatch.setattr(compiling, "_CHILD", code)
        monkeypatch.setattr(compiling, "_must_compile", lambda net: True)

    return run


class Watcher(Callback):
    """Records after every update whether kernels are used; then waits for the child."""

    def __init__(self) -> None:
        self.seen: list[tuple[bool, bool]] = []

    def on_update(self, run: TrainState) -> None:
        self.seen.append((has_kernels(), run.progress.is_compiling))
        if (process := process_of(run)) is not None:
            process.wait()


def process_of(run: TrainState) -> subprocess.Popen[bytes] | None:
    process: subprocess.Popen[bytes] | None = vars(run)["kernels"]._child
    return process


@pytest.mark.slow
def test_a_run_changes_over_when_the_child_is_done(child: Callable[[str], None]) -> None:
    child(DONE)
    watcher = Watcher()
    train(VecXor(64), CONFIG, callbacks=[watcher])
    # The first update starts the child, the second finds it finished.
    assert watcher.seen == [
        (False, True),
        (True, True),
        (True, False),
        (True, False),
        (True, False),
    ]
    assert has_kernels()


@pytest.mark.slow
def test_a_child_that_fails_is_reported_and_its_work_is_done_here(
    child: Callable[[str], None], caplog: pytest.LogCaptureFixture
) -> None:
    child(FAILING)
    watcher = Watcher()
    with caplog.at_level(logging.WARNING):
        train(VecXor(64), CONFIG, callbacks=[watcher])
    assert "compiling in a child process failed: exit code 1, no room" in caplog.messages
    assert watcher.seen[-1] == (True, False)


@pytest.mark.slow
def test_without_a_process_it_is_done_here(
    child: Callable[[str], None],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise BlockingIOError("no more processes")

    child(DONE)
    monkeypatch.setattr(compiling, "start_group", fail)
    watcher = Watcher()
    train(VecXor(64), CONFIG, callbacks=[watcher])
    assert "no child process can compile: no more processes" in caplog.messages
    assert watcher.seen[-1] == (True, False)


@pytest.mark.slow
@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt])
def test_the_child_ends_with_the_run(
    child: Callable[[str], None], error: type[BaseException] | None
) -> None:
    child(FOREVER)
    found: list[subprocess.Popen[bytes]] = []

    class Failing(Callback):
        def on_update(self, run: TrainState) -> None:
            process = process_of(run)
            if run.progress.update == 2 and process is not None:
                assert process.poll() is None
                found.append(process)
                if error is KeyboardInterrupt:
                    signal.raise_signal(signal.SIGINT)
                elif error is not None:
                    raise error

    if error is RuntimeError:
        with pytest.raises(RuntimeError):
            train(VecXor(64), CONFIG, callbacks=[Failing()])
    else:
        train(VecXor(64), CONFIG, callbacks=[Failing()])
    assert found[0].returncode == -signal.SIGKILL
    assert has_kernels()


@pytest.mark.slow
def test_never_is_torch_to_the_end() -> None:
    watcher = Watcher()
    train(VecXor(64), dataclasses.replace(CONFIG, compile="never"), callbacks=[watcher])
    assert watcher.seen == [(False, False)] * 5
    assert has_kernels()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "step"), [("background", 256), ("wait", 0), ("never", None)])
def test_run_json_says_from_which_step_compiled_code_ran(
    child: Callable[[str], None], tmp_path: Path, mode: str, step: int | None
) -> None:
    child(DONE)
    config = dataclasses.replace(CONFIG, compile=mode)
    train(VecXor(64), config, out=tmp_path, callbacks=[Watcher()])
    assert read_about(tmp_path)["compiled_from_step"] == step


@pytest.mark.slow
def test_a_run_that_ends_before_the_child_had_no_compiled_code(
    child: Callable[[str], None], tmp_path: Path
) -> None:
    child(FOREVER)
    train(VecXor(64), CONFIG, out=tmp_path)
    assert read_about(tmp_path)["compiled_from_step"] is None


@pytest.mark.slow
@pytest.mark.parametrize("is_cold", [True, False])
def test_a_number_of_steps_repeats_a_run_that_changed_over(
    child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, is_cold: bool
) -> None:
    child(DONE)
    first = train(VecXor(64), CONFIG, callbacks=[Watcher()]).net.state_dict()
    monkeypatch.setattr(compiling, "_must_compile", lambda net: is_cold)
    watcher = Watcher()
    config = dataclasses.replace(CONFIG, compile=256)
    again = train(VecXor(64), config, callbacks=[watcher]).net.state_dict()
    assert [seen for seen, _ in watcher.seen] == [False, True, True, True, True]
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.slow
def test_a_run_that_goes_on_after_its_change_has_kernels_at_once(tmp_path: Path) -> None:
    config = dataclasses.replace(CONFIG, compile=256)
    train(VecXor(64), dataclasses.replace(config, total_steps=384), out=tmp_path)
    watcher = Watcher()
    train(VecXor(64), config, out=tmp_path, resume=True, callbacks=[watcher])
    assert watcher.seen[0][0]
    assert read_about(tmp_path)["compiled_from_step"] == 256


def weights(mode: str) -> dict[str, torch.Tensor]:
    return train(VecSigns(), dataclasses.replace(CONFIG, compile=mode)).net.state_dict()


@pytest.mark.slow
@pytest.mark.parametrize("is_cached", [True, None], ids=["cached", "nowhere to keep it"])
def test_without_anything_to_wait_for_a_seed_repeats_itself(
    monkeypatch: pytest.MonkeyPatch, is_cached: bool | None
) -> None:
    monkeypatch.setattr("entity_env.core.numba_utils.is_cached", lambda _: is_cached)
    monkeypatch.setattr(compiling.KernelSwitch, "_start_child", None)
    ours, theirs = weights("background"), weights("wait")
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize(
    ("config", "is_worth"),
    [
        (RogueNetConfig(d_model=16), True),
        (RogueNetConfig(d_model=256), False),
        (RogueNetConfig(d_model=16, dropout=0.1), False),
        (RogueNetConfig(d_model=16, pooling="mean"), False),
    ],
)
def test_only_networks_that_are_compiled_whole_have_a_child(
    monkeypatch: pytest.MonkeyPatch, config: RogueNetConfig, is_worth: bool
) -> None:
    monkeypatch.setattr("entity_env.core.numba_utils.is_cached", lambda _: False)
    vec = VecXor(4)
    net = RogueNet(vec.obs_space(), vec.action_space(), config)
    assert KernelSwitch("background", net).is_compiling is is_worth
    assert not KernelSwitch("wait", net).is_compiling
    monkeypatch.setattr(validation, "has_numba", lambda: False)
    monkeypatch.setattr(tensors, "has_numba", lambda: False)
    assert not KernelSwitch("background", net).is_compiling


@pytest.mark.slow
def test_the_job_of_the_child_is_an_update_that_can_be_sent(
    child: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rollouts: list[Rollout] = []
    child(DONE)
    advance = KernelSwitch.advance

    def advancing(
        self: KernelSwitch, net: RogueNet, rollout: Rollout, config: PPOConfig, step: int
    ) -> bool:
        job = compiling._Job(
            net.obs_space, net.action_space, net.config, compiling._head(rollout), config.at(0)
        )
        copied = pickle.loads(pickle.dumps(job))
        copied.run()
        rollouts.append(copied.rollout)
        return advance(self, net, rollout, config.at(0), step)

    monkeypatch.setattr(KernelSwitch, "advance", advancing)
    train(VecXor(200), dataclasses.replace(CONFIG, total_steps=400))
    assert len(rollouts[0]) == 256
    np.testing.assert_array_equal(rollouts[0].b_inds, np.arange(256))


def test_another_mode_is_refused() -> None:
    with pytest.raises(
        UsageError, match="compile must be one of wait, background, never, or an integer"
    ):
        PPOConfig(compile="x")
    for number in (0, -1, True, 2**63):
        with pytest.raises(UsageError, match="compile must be"):
            PPOConfig(compile=number)


SCRIPT = """
import json, sys
from numba.core import event
from entity_env.agents.ppo import Callback, PPOConfig, train
from entity_env.agents.rogue_net import RogueNetConfig
from tests.agents.ppo.small_envs import VecXor

if __name__ == "__main__":
    compiled = event.RecordingListener()
    event.register("numba:compile", compiled)

    class Watcher(Callback):
        def on_update(self, run):
            if run.progress.update == 1:
                print(run.kernels._child.pid, flush=True)
                if sys.argv[1:] == ["wait"]:
                    run.kernels._child.wait()

    config = PPOConfig(total_steps=640 if sys.argv[1:] == ["wait"] else 10**9, num_steps=2,
        net=RogueNetConfig(d_model=16, n_layer=1), minibatch_size=64, compile="background")
    result = train(VecXor(64), config, callbacks=[Watcher()])
    print(json.dumps([result.progress.is_compiling, len(compiled.buffer)]))
"""


def start(folder: Path, *args: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *args], stdout=subprocess.PIPE, text=True, env=environment
    )


@pytest.mark.slow
@pytest.mark.timeout(300)  # all kernels with an empty cache: 20 s on an idle core
def test_all_that_a_run_needs_is_compiled_by_the_child(tmp_path: Path) -> None:
    with start(tmp_path, "wait") as process:
        output, _ = process.communicate()
    assert json.loads(output.splitlines()[-1]) == [False, 0]
    assert list(tmp_path.rglob("block.to_out_backward-*.nbc"))


@pytest.mark.slow
def test_a_killed_run_takes_the_compiler_with_it(tmp_path: Path) -> None:
    with start(tmp_path) as process:
        assert process.stdout is not None
        assert hasattr(os, "pidfd_open")
        compiler = os.pidfd_open(int(process.stdout.readline()))
        process.kill()
        process.wait()
    try:
        assert select.select([compiler], [], [], 10.0)[0]
    finally:
        os.close(compiler)
