"""Checkpoints of training runs, and the lock of their folder."""

from __future__ import annotations

import json
import logging
import math
import os
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import UnionType
from typing import Final, TextIO

import torch
from torch import Tensor

from entity_env.agents.ppo.config import PPOConfig
from entity_env.agents.ppo.learner import Learner, ReturnStatistics
from entity_env.agents.rogue_net.checkpoints.folder import SUBFOLDER, find_checkpoint, prepare_place
from entity_env.agents.rogue_net.torch_net.checkpoint import (
    Checkpoint,
    not_finite,
    save_checkpoint,
)
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.errors import CheckpointError, TrainingDivergedError, UsageError

if sys.platform != "win32":  # there two runs in one folder are not kept apart
    import fcntl

LOCK: Final = ".entity_env.lock"
"""File in the folder of a run during training; it names the process."""
_LOCK_TRIES: Final = 50
_MOST: Final = 2**63 - 1
_log: Final = logging.getLogger(__name__)
_held: Final[dict[str, int]] = {}
"""Folders of runs of this process: locks of the system only separate processes."""

GENERATOR = "generator"
"""Name of the random state among the optimizer's tensors; parameters have dots in their names."""


@contextmanager
def run_folder(out: Path | None) -> Iterator[None]:
    """Locks the folder of a run, and prepares its checkpoint folder; None = no folder."""
    if out is None:
        yield
        return
    prepare_place(out / SUBFOLDER)
    key = str(out.resolve())
    if _held.get(key) == os.getpid():
        raise UsageError(f"another run of this process is training in {out}: choose another folder")
    with _locked(out / LOCK):
        _held[key] = os.getpid()
        try:
            yield
        finally:
            del _held[key]


def require_new_run(out: Path) -> None:
    """Raises `UsageError` if a folder has a checkpoint, which a new run would overwrite."""
    try:
        found = find_checkpoint(out)
    except CheckpointError:
        return
    raise UsageError(
        f"{found} holds a trained agent: resume=True goes on training it, or choose another folder"
    )


def has_lock(out: Path) -> bool:
    """Whether this process sees that a run trains in a folder; waits, for drives of a network."""
    if sys.platform == "win32":
        return True
    for _ in range(_LOCK_TRIES):
        if (out / LOCK).exists():
            return True
        time.sleep(0.1)
    return False


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds a lock that ends with this process, not with its children."""
    if sys.platform == "win32":
        yield
        return
    with _open_locked(path) as file:
        holder = {"pid": os.getpid(), "host": socket.gethostname()}
        text = json.dumps({**holder, "since": time.strftime("%Y-%m-%d %H:%M:%S")})
        try:
            file.truncate(0)
            with suppress(OSError):  # a full disk; the lock holds without
                os.write(file.fileno(), text.encode())
            yield
        finally:
            if os.getpid() == holder["pid"]:  # not a child that unwinds a copy of this
                path.unlink(missing_ok=True)


def _open_locked(path: Path) -> TextIO:
    while True:
        try:
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - returned
        except OSError as error:
            raise UsageError(f"cannot write to {path.parent}: {error}") from error
        try:
            _take_lock(file, path.parent)
            is_there = path.exists() and os.path.samestat(os.fstat(file.fileno()), path.stat())
        except BaseException:
            file.close()
            raise
        if is_there:
            return file
        file.close()  # the last holder of the lock has just removed the file


def _take_lock(file: TextIO, out: Path) -> None:
    try:
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        file.seek(0)
        who = "another process"
        with suppress(ValueError, TypeError, KeyError):
            holder = json.loads(file.read(1000))
            who = f"process {holder['pid']} on {holder['host']}, since {holder['since']}"
        raise UsageError(
            f"a run is already training in {out}: {who}; wait for its end, or choose another folder"
        ) from None
    except OSError as error:
        _log.warning("%s is on a drive without locks: start no second run there (%s)", out, error)


def save_learner(
    path: Path,
    learner: Learner,
    config: PPOConfig,
    *,
    resumable: bool = True,
    notes: Mapping[str, object] | None = None,
) -> None:
    """Writes a checkpoint from which `load_learner` goes on, if it is to be resumable."""
    optimizer = _optimizer_tensors(learner) if resumable else {}
    for tensors in (learner.net.state_dict(), optimizer):
        if bad := not_finite(tensors):
            raise TrainingDivergedError(f"{bad[0]} of the network is not finite")
    save_checkpoint(
        path,
        learner.net,
        training={
            "config": config.to_json(),
            "step": learner.step,
            "update": learner.update,
            "num_episodes": learner.num_episodes,
            "elapsed_s": learner.elapsed_s,
            "rng": learner.rng.bit_generator.state,
            "returns": [learner.returns.mean, learner.returns.square, learner.returns.count],
            **({} if notes is None else {"notes": dict(notes)}),
        },
        optimizer=optimizer,
    )


def load_learner(checkpoint: Checkpoint, learner: Learner) -> None:
    """Puts a checkpoint's state into `learner`, whose network has the same size and spaces."""
    training = checkpoint.training
    if GENERATOR not in checkpoint.optimizer or "update" not in training:
        raise CheckpointError(
            f"{checkpoint.path} cannot be resumed: it has no state of a run, as networks that were "
            "cloned, kept along a run or shipped without their optimizer; a new run begins with "
            "it: entity-env train --init-from, or initialized_from(path)"
        )
    try:
        step, update, num_episodes = (
            int(_number(training, key, int)) for key in ("step", "update", "num_episodes")
        )
        elapsed_s = float(_number(training, "elapsed_s", int | float))
        learner.rng.bit_generator.state = _object(training, "rng")
        learner.returns = _returns(training)
        learner.generator.set_state(checkpoint.optimizer[GENERATOR].cpu())
        _fill_optimizer(learner.optimizer, learner.net, checkpoint.optimizer)
    except (KeyError, TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise CheckpointError(
            f"{checkpoint.path} cannot be resumed: what the trainer noted is missing or does not "
            f"fit ({type(error).__name__}: {error})"
        ) from error
    learner.step, learner.update, learner.num_episodes = step, update, num_episodes
    learner.elapsed_s = elapsed_s
    learner.net.load_state_dict(checkpoint.net.state_dict())


def _number(training: Mapping[str, object], key: str, kinds: type | UnionType) -> float:
    value = training[key]
    is_bool = isinstance(value, bool)
    if isinstance(value, int | float) and isinstance(value, kinds) and not is_bool:
        number: float = value
        if 0 <= number <= _MOST:
            return number
    name = "an integer" if kinds is int else "a number"
    raise ValueError(f"{key} is {repr(value)[:40]}, not {name} from 0 to 2**63 - 1")


def _returns(training: Mapping[str, object]) -> ReturnStatistics:
    given = training.get("returns", [0.0, 0.0, 0])  # earlier releases had none
    if not isinstance(given, list) or len(given) != 3:
        raise TypeError(f"returns is {repr(given)[:40]}, not three numbers")
    mean, square, count = (float(each) for each in given)
    if not (math.isfinite(mean) and 0 <= square < math.inf and 0 <= count < math.inf):
        raise ValueError(f"returns is {repr(given)[:40]}, not three finite numbers")
    return ReturnStatistics(mean, square, int(count))


def _object(training: Mapping[str, object], key: str) -> dict[str, object]:
    value = training[key]
    if not isinstance(value, dict):
        raise TypeError(f"{key} is {repr(value)[:40]}, not an object")
    return value


def _optimizer_tensors(learner: Learner) -> dict[str, Tensor]:
    tensors = {GENERATOR: learner.generator.get_state()}
    for name, parameter in learner.net.named_parameters():
        # A parameter that had no gradient yet has no state.
        for key, value in learner.optimizer.state.get(parameter, {}).items():
            tensors[f"{name}.{key}"] = value
    return tensors


def _fill_optimizer(
    optimizer: torch.optim.Adam, net: Policy, tensors: Mapping[str, Tensor]
) -> None:
    for name, parameter in net.named_parameters():
        found = {
            key: tensors[f"{name}.{key}"]
            for key in ("step", "exp_avg", "exp_avg_sq")
            if f"{name}.{key}" in tensors
        }
        if not found:
            continue
        shapes = {value.shape for key, value in found.items() if key != "step"}
        step = found.get("step", parameter)
        is_step = step.shape == () and bool(step >= 0)
        dtypes = {value.dtype for value in found.values()}
        is_fit = len(found) == 3 and shapes == {parameter.shape} and dtypes == {parameter.dtype}
        if not is_fit or not is_step or not_finite(found):
            raise ValueError(f"the optimizer's state of {name} does not fit it")
        optimizer.state[parameter] = {
            key: value.to(parameter.device) for key, value in found.items()
        }
