"""A guard that rejects operations that would wait for a device; it also works on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# Operations that read a value on the host, or derive a shape from values.
WAITING = (
    "aten._local_scalar_dense",
    "aten.item",
    "aten.nonzero",
    "aten.masked_select",
    "aten.unique",
    "aten._unique2",
    "aten.is_nonzero",
    "aten.equal",
    "aten.allclose",
)
INDEXED = ("aten.index", "aten.index_put", "aten.index_put_", "aten._index_put_impl_")
ON_TENSORS = ("cpu", "numpy", "tolist", "__array__", "__bool__", "__int__", "__float__", "item")
ON_WARP = ("synchronize", "synchronize_device", "synchronize_stream", "synchronize_event")


class HostCopy(AssertionError):
    """An operation copied to the host or waited."""


class _Guard(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - a torch operator
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        name = str(func).rsplit(".", 1)[0]
        if name in WAITING:
            raise HostCopy(name)
        if name in INDEXED and any(_is_bool(index) for index in args[1]):
            raise HostCopy(f"{name} by a mask")
        if name == "aten._to_copy" and _leaves_its_device(args[0], kwargs or {}):
            raise HostCopy(name)
        return func(*args, **(kwargs or {}))


def _is_bool(index: object) -> bool:
    return isinstance(index, Tensor) and index.dtype in (torch.bool, torch.uint8)


def _leaves_its_device(tensor: Tensor, kwargs: Mapping[str, Any]) -> bool:
    device = kwargs.get("device")
    return device is not None and torch.device(device).type != tensor.device.type


def _refused(name: str) -> Callable[..., object]:
    def refuse(*_: object, **__: object) -> object:
        raise HostCopy(name)

    return refuse


@contextmanager
def no_host_copies() -> Iterator[None]:
    """Raise `HostCopy` for any operation that copies to the host or waits."""
    import warp

    guard = _Guard()  # type: ignore[no-untyped-call]
    with pytest.MonkeyPatch.context() as patch, guard:
        for name in ON_TENSORS:
            patch.setattr(Tensor, name, _refused(f"Tensor.{name}"))
        for name in ON_WARP:
            patch.setattr(warp, name, _refused(f"warp.{name}"), raising=False)
        patch.setattr(warp.array, "numpy", _refused("warp.array.numpy"))
        yield
