"""Starting Warp, and launching its kernels on the stream that torch uses.

Warp is imported when it is first asked for: whoever has no use for kernels need not have it.
Compiled kernels are kept in the user's cache folder, which the environment variable
WARP_CACHE_PATH moves.
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

# A tensor and the type that a kernel takes its elements for, or a number.
Argument: TypeAlias = tuple[Tensor, object] | int | float


@cache
def import_warp() -> ModuleType:
    """Import Warp, and return it.

    Raises:
        MissingExtraError: it is not installed.
    """
    try:
        import warp
    except ImportError as error:
        raise MissingExtraError("warp-lang", "pixel", "A world of kernels") from error
    module: ModuleType = warp
    with quiet(module), _native_lines_without(b"NVIDIA CUDA driver"):
        module.init()
    return module


@contextmanager
def quiet(warp: ModuleType) -> Iterator[None]:
    """Let Warp say nothing but errors: no banner, and no line for each module that it compiles."""
    level = warp.config.log_level
    warp.config.log_level = warp.LOG_ERROR
    try:
        yield
    finally:
        warp.config.log_level = level


@contextmanager
def _native_lines_without(expected: bytes) -> Iterator[None]:
    """Let native code write to stderr whatever it wants but lines with these words.

    That there is no driver is no news on a machine without a GPU, and Warp has no setting for it.
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
    """Return a device that both torch and Warp can use.

    Raises:
        MissingExtraError: Warp is not installed.
        UsageError: there is no such device.
    """
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
    """A kernel with its arguments, ready to be launched again and again.

    Nothing is allocated and nothing waits after construction, so that launches can be captured in
    a CUDA graph.

    Args:
        kernel: from a module of kernels.
        dim: what it is launched over.
        arguments: tensors, each with the type of its elements, and numbers.
        device: where the tensors lie, as `device_of` returns it.
        block_dim: threads in a block; on the CPU a block is one thread.
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
        self._arguments = list(arguments)
        self._stream: tuple[int, object] = -1, None
        own_device = warp.device_from_torch(device)
        with quiet(warp):
            self._command = warp.launch(
                kernel,
                dim=dim,
                inputs=[self._described(argument) for argument in arguments],
                device=own_device,
                block_dim=block_dim,
                record_cmd=True,
            )

    def set(self, index: int, tensor: Tensor) -> None:
        """Use another tensor of the same shape and dtype from now on, by its index."""
        known = self._arguments[index]
        if not isinstance(known, tuple):
            raise UsageError(f"argument {index} is {known!r}, not a tensor")
        before = known[0]
        if before.data_ptr() == tensor.data_ptr() and before.stride() == tensor.stride():
            return
        described = self._warp.from_torch(tensor, dtype=known[1], return_ctype=True)
        self._command.set_param_at_index_from_ctype(index, described)
        # Kept as long as its address is in use.
        self._arguments[index] = tensor, known[1]

    def launch(self) -> None:
        """Launch it on torch's current stream."""
        if self._device.type == "cpu":
            self._command.launch()
        else:
            self._command.launch(stream=self._current_stream())

    def _described(self, argument: Argument) -> object:
        if not isinstance(argument, tuple):
            return argument
        return self._warp.from_torch(argument[0], dtype=argument[1], requires_grad=False)

    def _current_stream(self) -> object:
        stream = torch.cuda.current_stream(self._device)
        if self._stream[0] != stream.cuda_stream:
            self._stream = stream.cuda_stream, self._warp.stream_from_torch(stream)
        return self._stream[1]
