"""Peers: the processes that train one network together, over `torch.distributed`."""

from __future__ import annotations

import itertools
import json
import math
import os
import socket
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple, TypeVar

import numpy as np
import torch
import torch.distributed as dist

# Imported early, since optimizers would import it later. If a process group exists by then, default
# arguments in `torch.distributed.nn` keep the group and its threads until the interpreter exits,
# and a thread that still needs the interpreter aborts the process.
import torch.distributed.nn
from numpy.typing import NDArray
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store
from torch.distributed.rendezvous import rendezvous

from entity_env.agents.rogue_net.torch_net.embedding import InputNorm
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.training.process import RESTARTS
from entity_env.agents.training.run_folder import has_lock
from entity_env.authoring.game_traceback import summary_of
from entity_env.core.vec_obs import EntityBatch
from entity_env.errors import UsageError, WorkerError, shown

Report = TypeVar("Report")

_GRACE_S: Final = 10.0
"""Longest time in seconds to find out which ranks have left, and why."""
_POLL_S: Final = 0.05
_PROCESS: Final = ", process "
_MOST_S: Final = 1e8
"""Longest timeout: three years, in effect forever."""
_BLOCK: Final = 2048
"""Bytes of a report's first part, which has its length; any rest is sent separately."""
_LENGTH: Final = 8
_num_groups: Final = itertools.count()


class Moments(NamedTuple):
    """Number, mean, and sum of squared distances from the mean; 0 without values."""

    number: float
    mean: float
    squares: float

    @classmethod
    def of(cls, values: NDArray[np.floating]) -> Moments:
        """Moments of 1-D values, in float64."""
        numbers = values.astype(np.float64)
        mean = float(np.add.reduce(numbers)) / max(len(numbers), 1)
        numbers -= mean
        return cls(float(len(numbers)), mean, float(numbers @ numbers))

    @property
    def std(self) -> float:
        return math.sqrt(self.squares / max(self.number - 1, 1))


class Peers:
    """Processes that train one network together, each with its own environments.

    Every rank makes the same calls in the same order; each call waits for all ranks. This class is
    a group of one process, which exchanges nothing.

    Attributes:
        rank: number of this process, from 0; rank 0 writes files.
        size: number of processes.
    """

    rank = 0
    size = 1

    def moments(self, columns: Sequence[NDArray[np.floating]]) -> list[Moments]:
        """Moments over all ranks.

        `columns` are 1-D arrays of any length, equally many on every rank.
        """
        return [Moments.of(each) for each in columns]

    def sum_gradients(
        self, parameters: Sequence[Tensor], loss: float, figures: Tensor
    ) -> tuple[float, Tensor]:
        """Replaces gradients with their sums over all ranks; returns sums of losses and metrics.

        If no rank has a gradient for a parameter, it stays None and Adam skips it.
        """
        return loss, figures

    def gather_reports(self, report: Report) -> list[Report]:
        """The reports of all ranks, in rank order; a report must consist of JSON data."""
        return [report]

    def copy_from_first(self, net: Policy) -> None:
        """Copies the network of rank 0 to all ranks."""

    def update_statistics(self, net: Policy, batch: EntityBatch, *, restart: bool) -> None:
        """Adds the observations of all ranks to the network's statistics, in rank order.

        Statistics of `InputNorm` are exact; other buffers of a custom network are copied from rank
        0.
        """
        net.update_statistics(batch, restart=restart)


ALONE: Final = Peers()


class Ranks(Peers, ABC):
    """Several processes, based on two tensor operations: `sum` and `gather`."""

    @abstractmethod
    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks, bitwise equal on each; may overwrite `values`."""

    @abstractmethod
    def gather(self, values: Tensor) -> list[Tensor]:
        """The values of every rank, in rank order; shapes and dtypes must be equal."""

    def moments(self, columns: Sequence[NDArray[np.floating]]) -> list[Moments]:
        own = torch.tensor(super().moments(columns), dtype=torch.float64).reshape(-1, 3)
        counts, means, squares = torch.stack(self.gather(own)).numpy().transpose(2, 0, 1)
        totals = counts.sum(axis=0)
        shares = counts / np.maximum(totals, 1)
        # Python's sum adds in rank order: all ranks must get equal bits.
        mean = sum(shares * means)
        moments = np.stack((totals, mean, sum(squares + counts * (means - mean) ** 2)), axis=1)
        return [Moments(*each) for each in moments.tolist()]

    @torch.no_grad()
    def sum_gradients(
        self, parameters: Sequence[Tensor], loss: float, figures: Tensor
    ) -> tuple[float, Tensor]:
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        has_gradient = figures.new_tensor([float(p.grad is not None) for p in parameters])
        own = [each.reshape(-1) for each in gradients]
        flat = self.sum(torch.cat([*own, has_gradient, figures, figures.new_tensor([loss])]))
        sizes = [*(each.numel() for each in gradients), len(gradients), len(figures), 1]
        *sums, has_gradient, figures, total = torch.split(flat, sizes)
        for parameter, gradient, has in zip(parameters, sums, has_gradient.tolist(), strict=True):
            parameter.grad = gradient.view_as(parameter) if has else None
        return float(total), figures

    def gather_reports(self, report: Report) -> list[Report]:
        text = json.dumps(report).encode()
        length = len(text).to_bytes(_LENGTH, "big")
        first = self._gather_bytes((length + text)[:_BLOCK].ljust(_BLOCK, b"\0"))
        lengths = [int.from_bytes(each[:_LENGTH], "big") for each in first]
        texts = [each[_LENGTH:] for each in first]
        if (most := max(lengths)) > _BLOCK - _LENGTH:
            texts = self._gather_bytes(text.ljust(most, b"\0"))
        return [json.loads(each[:length]) for each, length in zip(texts, lengths, strict=True)]

    def _gather_bytes(self, data: bytes) -> list[bytes]:
        values = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
        return [each.numpy().tobytes() for each in self.gather(values)]

    def copy_from_first(self, net: Policy) -> None:
        self._copy_tensors(list(net.state_dict().values()))

    @torch.no_grad()
    def _copy_tensors(self, tensors: Sequence[Tensor]) -> None:
        if not tensors:
            return
        flat = torch.cat([each.detach().double().cpu().reshape(-1) for each in tensors])
        parts = torch.split(self.gather(flat)[0], [each.numel() for each in tensors])
        for tensor, values in zip(tensors, parts, strict=True):
            tensor.copy_(values.view_as(tensor))

    def update_statistics(self, net: Policy, batch: EntityBatch, *, restart: bool) -> None:
        norms = [module for module in net.modules() if isinstance(module, InputNorm)]
        before = [norm.take() for norm in norms]  # so that the update has only this batch
        net.update_statistics(batch, restart=restart)
        moments = [each.double().cpu().reshape(-1) for norm in norms for each in norm.buffers()]
        parts = self.gather(torch.cat([*moments, torch.zeros(0, dtype=torch.float64)]))
        for norm, old in zip(norms, before, strict=True):
            norm.put(old)
            if restart:
                norm.reset()
        sizes = [each.numel() for each in moments]
        for part in parts:
            each_part = iter(torch.split(part, sizes))
            for norm in norms:
                count, mean, squares_sum = (next(each_part).to(norm.mean.device) for _ in range(3))
                norm.merge(int(count), mean, squares_sum)
        own = {id(each) for norm in norms for each in norm.buffers()}
        self._copy_tensors([each for each in net.buffers() if id(each) not in own])


class TorchPeers(Ranks):
    """The ranks of the default process group, in their own group.

    Args:
        device: for the tensors of `sum`; `gather` uses the CPU. gloo connects CPUs, nccl GPUs.
        timeout_s: seconds that a rank waits for the others.

    Raises:
        WorkerError: a rank exited or did not answer in time, at creation or in a later call; the
            message names it.
    """

    def __init__(self, device: torch.device, timeout_s: float) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self._device = device
        self._noticed = False  # True if other ranks are lost: `close` reports no error then
        store = _get_default_store()
        self._store = PrefixStore(f"entity_env/{next(_num_groups)}", store)
        self._store.set(f"place/{self.rank}", f"{socket.gethostname()}{_PROCESS}{os.getpid()}")
        limit = _limit(timeout_s)
        self._group: dist.ProcessGroup | None
        self._sums: dist.ProcessGroup | None
        try:
            self._group = self._sums = dist.new_group(backend="gloo", timeout=limit)
            if device.type == "cuda":
                self._sums = dist.new_group(backend="nccl", timeout=limit)
        except RuntimeError as error:
            raise self._lost(error) from error

    def sum(self, values: Tensor) -> Tensor:
        shared = values.to(self._device) if self._sums is not self._group else values
        try:
            dist.all_reduce(shared, group=self._sums)
        except RuntimeError as error:
            raise self._lost(error) from error
        return shared

    def gather(self, values: Tensor) -> list[Tensor]:
        gathered = [torch.empty_like(values) for _ in range(self.size)]
        try:
            dist.all_gather(gathered, values, group=self._group)
        except RuntimeError as error:
            raise self._lost(error) from error
        return gathered

    def close(self, error: BaseException | None = None) -> None:
        """Leaves the group; ranks that wait for this one raise `WorkerError` naming `error`."""
        if error is not None and not self._noticed:
            with suppress(RuntimeError):
                self._store.set(f"left/{self.rank}", summary_of(error))
        groups = {id(group): group for group in (self._group, self._sums) if group is not None}
        self._group = self._sums = None
        with suppress(RuntimeError, AssertionError):  # the program closed its group before
            for group in groups.values():
                dist.destroy_process_group(group)

    def _lost(self, cause: RuntimeError) -> WorkerError:
        cause.__traceback__ = None  # frames of torch, which would keep the group and its threads
        try:
            found = self._missing()
        except RuntimeError:
            found = ["rank 0, or whichever process holds the group's store, is gone"]
        reason = "; ".join(found) or f"the ranks lost each other: {str(cause).splitlines()[0]}"
        self._noticed = True
        return WorkerError(reason)

    def _missing(self) -> list[str]:
        """The ranks that exited or do not answer, each with its place and the reason."""
        self._store.set(f"left/{self.rank}", "")
        others = {rank: self._place(rank) for rank in range(self.size) if rank != self.rank}
        end = time.monotonic() + _GRACE_S
        while True:
            reasons = {rank: self._reason(rank, place) for rank, place in others.items()}
            is_clear = any(reasons.values()) or None not in reasons.values()
            if is_clear or time.monotonic() >= end:
                break
            time.sleep(_POLL_S)
        if not is_clear:
            reasons = {rank: "does not answer" for rank, each in reasons.items() if each is None}
        return [
            f"rank {rank} of {self.size} ({others[rank]}): {reason}"
            for rank, reason in reasons.items()
            if reason
        ]

    def _place(self, rank: int) -> str:
        key = f"place/{rank}"
        return self._store.get(key).decode() if self._store.check([key]) else "at its start"

    def _reason(self, rank: int, place: str) -> str | None:
        """Why a rank left; "" = only because others did, None = it may not have left."""
        if self._store.check([f"left/{rank}"]):
            return self._store.get(f"left/{rank}").decode()
        host, _, process = place.rpartition(_PROCESS)
        is_gone = host == socket.gethostname() and not _is_running(int(process))
        return "its process ended" if is_gone else None


def _limit(timeout_s: float) -> timedelta:
    return timedelta(seconds=min(timeout_s, _MOST_S))


def _is_running(process: int) -> bool:
    """True if a process of this machine runs (zombies do not), or if the system cannot say."""
    if sys.platform == "win32":
        return True  # signal 0 would be Ctrl-C there
    else:
        with suppress(OSError):
            os.kill(process, 0)
            stat = Path(f"/proc/{process}/stat")
            return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
        return False


@contextmanager
def find_peers(device: torch.device, timeout_s: float) -> Iterator[Peers]:
    """Context with the ranks of the process group; `ALONE` if it is missing or has one rank."""
    is_group = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
    if not is_group:
        yield ALONE
        return
    peers = TorchPeers(device, timeout_s)
    try:
        yield peers
    except BaseException as error:
        peers.close(error)
        raise
    else:
        peers.close()


@contextmanager
def launched_group(size: int, timeout_s: float) -> Iterator[None]:
    """Context with a process group from torchrun's variables.

    Does nothing for one process, or if a group exists already.

    Args:
        size: number of processes.
        timeout_s: seconds to wait for the other ranks.

    Raises:
        WorkerError: other ranks did not join in time.
    """
    if size == 1 or dist.is_initialized():
        yield
        return
    limit = _limit(timeout_s)
    try:
        store, rank, size = next(rendezvous("env://", timeout=limit))
        # A prefix per attempt: torchrun's store survives restarts, with addresses of processes that
        # have ended.
        attempt = PrefixStore(f"entity_env/attempt {os.environ.get(RESTARTS, '0')}", store)
        dist.init_process_group("gloo", store=attempt, rank=rank, world_size=size, timeout=limit)
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise WorkerError(f"the {size} ranks did not find each other: {reason}") from error
    try:
        yield
    finally:
        dist.destroy_process_group()


def require_same_run(
    peers: Peers, num_rows: int, run: Mapping[str, object], out: Path | None
) -> int:
    """Checks that all ranks can train one network together; returns the total number of rows.

    Args:
        num_rows: of this rank's environments.
        run: values that must be equal on all ranks, as JSON by name.
        out: folder of the run, whose lock rank 0 holds; None = no folder.

    Raises:
        UsageError: ranks differ, or do not see `out`; the message names the rank.
    """
    own = {"release of entity_env": version("entity-env"), **run}
    reports = peers.gather_reports((num_rows, own))
    for rank, (_, other) in enumerate(reports):
        for name, value in reports[0][1].items():
            if other.get(name) != value:
                raise UsageError(
                    f"rank {rank} of {peers.size} must have the same {name} as rank 0: got "
                    f"{shown(other.get(name))}, rank 0 has {shown(value)}"
                )
    sees = peers.gather_reports(out is None or has_lock(out))
    if not all(sees):
        raise UsageError(
            f"rank {sees.index(False)} of {peers.size} does not see what rank 0 writes to "
            f"{out}: `out` must be a folder that all ranks share"
        )
    return sum(count for count, _ in reports)
