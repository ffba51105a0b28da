"""Interrupted saves: at every line, at every file operation, and by kill -9."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import entity_env
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import (
    RogueNet,
    RogueNetConfig,
    load_checkpoint,
    save_checkpoint,
)
from entity_env.core.spaces import Entity, GlobalCategoricalActionSpace, ObsSpace
from entity_env.errors import CheckpointError
from tests.agents.ppo.small_envs import VecXor
from tests.attack.budget import Attack

PACKAGE = str(Path(entity_env.__file__).parent)
FILE_OPERATIONS = frozenset(
    {"open", "os.mkdir", "os.rename", "os.remove", "os.listdir", "os.truncate", "fcntl.flock"}
)
"""Audit events of a save's file operations."""
MINE = {"notes.txt": b"mine", "epoch_17/model.pt": b"weeks", "optimizer.bak": b"old"}


def _net(seed: int) -> RogueNet:
    torch.manual_seed(seed)
    obs_space = ObsSpace((), {"A": Entity(("x",))})
    actions = {"go": GlobalCategoricalActionSpace(("a", "b"))}
    return RogueNet(obs_space, actions, RogueNetConfig(d_model=4, n_layer=0, n_head=1))


NETS = [_net(seed) for seed in range(3)]


def _save(path: Path, number: int, *, has_optimizer: bool = True) -> None:
    optimizer = {"n": torch.tensor([float(number)])} if has_optimizer else None
    net = NETS[number % len(NETS)]
    save_checkpoint(path, net, training={"n": number}, optimizer=optimizer)


def _saved(path: Path) -> int:
    """The number of the save that is read; all parts must be from the same save."""
    found = load_checkpoint(path)
    number = found.training["n"]
    assert isinstance(number, int)
    assert not found.optimizer or found.optimizer["n"].tolist() == [number]
    ours = NETS[number % len(NETS)].state_dict()
    assert all(torch.equal(each, ours[name]) for name, each in found.net.state_dict().items())
    return number


def _with_my_files(path: Path) -> Path:
    for name, content in MINE.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


def _require_my_files(path: Path) -> None:
    assert {name: (path / name).read_bytes() for name in MINE} == MINE


@contextmanager
def _interrupted_at_line(number: int) -> Iterator[Callable[[], int]]:
    """Raises KeyboardInterrupt before the n-th executed line of this package."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:  # noqa: ANN401 - as `sys.settrace`
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            count += 1
            if count == number:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield lambda: count
    finally:
        sys.settrace(before)


@pytest.mark.attack(3.0)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_at_any_line_of_a_save(attack: Attack, tmp_path: Path) -> None:
    """The checkpoint is complete afterwards, the next save works, and no other files are lost."""
    path = tmp_path / "checkpoint"
    _save(path, 0)
    _with_my_files(path)
    last, line, step = 0, 0, 1 if attack.is_full else 7
    for i in attack.rounds(least=20):
        line += attack.rng.randint(1, step)
        number = i + 1
        with _interrupted_at_line(line) as lines:
            try:
                _save(path, number, has_optimizer=attack.rng.random() < 0.5)
                is_cut = False
            except KeyboardInterrupt:
                is_cut = True
        attack.counts["saves interrupted"] += is_cut
        found = _saved(path)
        assert found in ((last, number) if is_cut else (number,)), (attack.seed, line)
        last = found
        if not is_cut:
            assert line > lines() > 100
            line = 0
        _require_my_files(path)
    _save(path, 10**6)
    assert _saved(path) == 10**6
    assert {each.name for each in path.iterdir() if each.name.endswith(".new")} == set()


def _killed_in_child(path: Path, number: int, operation: int, *, has_optimizer: bool) -> bool:
    """Saves in a child that is killed before its n-th file operation; True if it was killed."""
    pid = os.fork()
    if pid == 0:
        left = operation

        def count(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal left
            if event in FILE_OPERATIONS:
                left -= 1
                if not left:
                    os._exit(9)

        try:
            sys.addaudithook(count)
            _save(path, number, has_optimizer=has_optimizer)
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code in (0, 9)
    return code == 9


@pytest.mark.slow
@pytest.mark.attack(2.0)
@pytest.mark.skipif(sys.platform == "win32", reason="forks")
def test_a_process_that_ends_at_any_operation_on_files(attack: Attack, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    _save(path, 0)
    _with_my_files(path)
    last, operation = 0, 0
    for i in attack.rounds(least=30):
        operation += 1
        number = i + 1
        has_optimizer = attack.rng.random() < 0.5
        is_cut = _killed_in_child(path, number, operation, has_optimizer=has_optimizer)
        attack.counts["saves killed"] += is_cut
        found = _saved(path)
        assert found in ((last, number) if is_cut else (number,)), (attack.seed, operation)
        if not is_cut:
            assert operation > 10
            operation = 0
        last = found
        if attack.rng.random() < 0.3:
            _save(path, number)
            last = number
            assert _saved(path) == number
        _require_my_files(path)


TRAINING = """
import sys, torch
from entity_env.agents.ppo import PPOConfig, train
from entity_env.agents.rogue_net import RogueNetConfig
from tests.agents.ppo.small_envs import VecXor
net = RogueNetConfig(d_model=4, n_layer=1, n_head=1)
config = PPOConfig(total_steps=10**9, net=net, num_steps=2, minibatch_size=16,
                   update_epochs=1, checkpoint_interval_s=0.0)
train(VecXor(8), config, out=sys.argv[1], resume=sys.argv[2] == "1",
      on_update=lambda progress: print(progress.update, flush=True))
"""


@pytest.mark.attack(1.0)
@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_training_that_is_killed_goes_on(attack: Attack, tmp_path: Path) -> None:
    """After `kill -9`, the checkpoint is from one of the last two reported updates."""
    last = 0
    for i in attack.rounds(most=None if attack.is_full else 1):
        command = [sys.executable, "-c", TRAINING, str(tmp_path), str(int(i > 0))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = 0
            for _ in range(attack.rng.randint(2, 40)):
                told = int(process.stdout.readline())
            for _ in range(attack.rng.randrange(20_000)):
                pass
            process.send_signal(signal.SIGKILL)
            told = max([told, *map(int, process.stdout.read().split())])
        attack.counts["training runs killed"] += 1
        training = load_checkpoint(tmp_path).training
        update, step = training["update"], training["step"]
        assert isinstance(update, int)
        assert isinstance(step, int)
        assert told - 1 <= update <= told + 1, attack.seed
        assert update > last
        net = RogueNetConfig(d_model=4, n_layer=1, n_head=1)
        config = PPOConfig(total_steps=step + 1, net=net, num_steps=2, minibatch_size=16)
        resumed = train(VecXor(8), config, out=tmp_path, resume=True)
        last = resumed.progress.update
        assert last == update + 1


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGKILL")
def test_a_run_that_is_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    code = TRAINING.replace("checkpoint_interval_s=0.0", "checkpoint_interval_s=1e6")
    command = [sys.executable, "-c", code, str(tmp_path), "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline()
        process.send_signal(signal.SIGKILL)
    net = RogueNetConfig(d_model=4, n_layer=1, n_head=1)
    config = PPOConfig(total_steps=32, net=net, num_steps=2, minibatch_size=16)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        train(VecXor(8), config, out=tmp_path, resume=True)
    assert train(VecXor(8), config, out=tmp_path).progress.step == 32
    assert load_checkpoint(tmp_path).training["step"] == 32
