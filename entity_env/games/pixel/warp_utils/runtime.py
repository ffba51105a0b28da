"""Import of Warp, and launch of its kernels on torch's stream.

Warp is optional, and imported at first use. Compiled kernels are cached in the user's cache folder,
or in the folder named by the environment variable WARP_CACHE_PATH.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import ModuleType
from typing import TypeAlias

import torch
from torch import Tensor

from entity_env.errors import MissingExtraError, UsageError

Argument: TypeAlias = Tensor | tuple[Tensor, object] | int | float
"""A number, or a tensor, with the Warp type of its elements unless the dtype implies it."""


@cache
def import_warp() -> ModuleType:
    """The initialized Warp module; MissingExtraError if not installed."""
    try:
        import warp
    except ImportError as error:
        raise MissingExtraError("warp-lang", "pixel", "a Warp kernel") from error
    module: ModuleType = warp
    with quiet(module), _native_lines_without(b"NVIDIA CUDA driver"):
        module.init()
    return module


@contextmanager
def quiet(warp: ModuleType) -> Iterator[None]:
    """Limits Warp's log to errors: no banner, and no line per compiled module."""
    level = warp.config.log_level
    warp.config.log_level = warp.LOG_ERROR
    try:
        yield
    finally:
        warp.config.log_level = level


@contextmanager
def _native_lines_without(expected: bytes) -> Iterator[None]:
    """Drops lines that contain `expected` from the stderr of native code.

    Warp reports a missing driver on machines without a GPU; no setting turns that off.
    """
    sys.stderr.flush()
    kept = os.dup(2)
    with tempfile.TemporaryFile() as written:
        os.dup2(written.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            written.seek(0)
            os.write(2, b"".join(line for line in written if expected not in line))


def device_of(name: str | torch.device) -> torch.device:
    """The device, checked to work in both torch and Warp."""
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device: expected 'cpu' or 'cuda', got {name!r}") from error
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise UsageError(f"device: expected 'cpu' or 'cuda', got {str(device)!r}")
    return _cuda_device(device)


def _cuda_device(device: torch.device) -> torch.device:
    num_devices = torch.cuda.device_count() if torch.cuda.is_available() else 0
    num_devices = min(num_devices, int(import_warp().get_cuda_device_count()))
    if num_devices and ":" not in str(device):
        return torch.device("cuda", torch.cuda.current_device())
    if num_devices == 0 or device.index >= num_devices:
        raise UsageError(
            f"device: {str(device)!r} is not there, torch and Warp see {num_devices} CUDA devices: "
            "use 'cpu'"
        )
    return device


class BoundKernel:
    """Kernel bound to its arguments, for repeated launches.

    Launches neither allocate nor synchronize, so a CUDA graph can capture them.

    Args:
        dim: range of indices to launch over.
        device: device of the tensors, as returned by `device_of`.
        block_dim: threads per block; on the CPU a block is one thread.
    """

    def __init__(
        self,
        kernel: Callable[..., None],
        dim: int | tuple[int, ...],
        arguments: Sequence[Argument],
        device: torch.device,
        *,
        block_dim: int = 256,
    ) -> None:
        self._warp = warp = import_warp()
        self._device = device
        self._arguments = [each if isinstance(each, tuple) else (each, None) for each in arguments]
        self._stream: tuple[int, object] = -1, None
        own_device = warp.device_from_torch(device)
        with quiet(warp):
            self._command = warp.launch(
                kernel,
                dim=dim,
                inputs=[
                    warp.from_torch(value, dtype=kind, requires_grad=False)
                    if isinstance(value, Tensor)
                    else value
                    for value, kind in self._arguments
                ],
                device=own_device,
                block_dim=block_dim,
                record_cmd=True,
            )

    def set(self, index: int, tensor: Tensor) -> None:
        before, kind = self._arguments[index]
        if not isinstance(before, Tensor):
            raise UsageError(f"argument {index} is {before!r}, not a tensor")
        if before.data_ptr() == tensor.data_ptr() and before.stride() == tensor.stride():
            return
        described = self._warp.from_torch(tensor, dtype=kind, return_ctype=True)
        self._command.set_param_at_index_from_ctype(index, described)
        # Keeps the memory alive while its address is in use.
        self._arguments[index] = tensor, kind

    def launch(self) -> None:
        """Launches on torch's current stream."""
        if self._device.type == "cpu":
            self._command.launch()
        else:
            self._command.launch(stream=self._current_stream())

    def _current_stream(self) -> object:
        stream = torch.cuda.current_stream(self._device)
        if self._stream[0] != stream.cuda_stream:
            self._stream = stream.cuda_stream, self._warp.stream_from_torch(stream)
        return self._stream[1]
