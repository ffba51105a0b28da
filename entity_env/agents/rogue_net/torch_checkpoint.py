"""Saves and loads a RogueNet, with or without what resuming its training needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from entity_env.agents.rogue_net.checkpoint_folder import (
    MODEL,
    OPTIMIZER,
    Header,
    find_checkpoint,
    read_header,
    write_folder,
)
from entity_env.agents.rogue_net.torch_net import RogueNet
from entity_env.errors import CheckpointError, SchemaError


@dataclass(frozen=True)
class Checkpoint:
    """A network and what was saved beside it.

    Args:
        net: the network, on the CPU; its spaces and size are `net.obs_space`, `net.action_space`
            and `net.config`.
        training: settings, progress and random states as JSON; empty when there are none.
        optimizer: tensors of the optimizer by name; empty when there are none.
        path: the folder that it was read from.
    """

    net: RogueNet
    training: Mapping[str, object] = field(default_factory=dict)
    optimizer: Mapping[str, Tensor] = field(default_factory=dict)
    path: Path | None = None


def save_checkpoint(
    path: str | Path,
    net: RogueNet,
    *,
    training: Mapping[str, object] | None = None,
    optimizer: Mapping[str, Tensor] | None = None,
) -> None:
    """Replaces the checkpoint folder `path`; a kill at any moment leaves the last one readable.

    Args:
        path: the folder itself; folders above it are made.
        net: the network, on any device.
        training: what the trainer notes, made of what JSON knows.
        optimizer: tensors that only resuming needs, by name.

    Raises:
        OSError: the disk is full or not writable; the previous checkpoint stays readable.
    """
    header = Header(net.obs_space, net.action_space, net.config, training or {})
    files = {"config.json": header.to_bytes(), MODEL: _to_bytes(net.state_dict())}
    if optimizer:
        files[OPTIMIZER] = _to_bytes(optimizer)
    write_folder(Path(path), files)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads a checkpoint folder, or that of the training run in the folder `path`.

    Raises:
        CheckpointError: it is missing, truncated, or its tensors do not fit its own description.
    """
    folder = find_checkpoint(Path(path))
    header = read_header(folder)
    try:
        net = RogueNet(header.obs_space, header.action_space, header.config)
    except SchemaError as error:
        raise CheckpointError(f"{folder}: {error}") from error
    tensors = _read(folder / MODEL)
    _require_fit(folder / MODEL, net, tensors)
    net.load_state_dict(dict(tensors))
    optimizer = _read(folder / OPTIMIZER) if (folder / OPTIMIZER).exists() else {}
    return Checkpoint(net, header.training, optimizer, folder)


def _to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    return safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )


def _read(path: Path) -> dict[str, Tensor]:
    try:
        return safetensors.torch.load(path.read_bytes())
    except (OSError, SafetensorError, ValueError) as error:
        raise CheckpointError(
            f"cannot read {path}: {error}; the file is missing or incomplete, copy the whole folder"
        ) from error


def _require_fit(path: Path, net: RogueNet, tensors: Mapping[str, Tensor]) -> None:
    """Compares names, shapes and dtypes with those of the network that `config.json` describes."""
    expected = net.state_dict()
    faults = [f"{name} is missing" for name in expected if name not in tensors]
    faults += [f"{name} belongs to no part of the network" for name in tensors.keys() - expected]
    for name in expected.keys() & tensors.keys():
        want, got = expected[name], tensors[name]
        if (want.shape, want.dtype) != (got.shape, got.dtype):
            faults.append(
                f"{name} has shape {tuple(got.shape)} of {got.dtype}, "
                f"expected {tuple(want.shape)} of {want.dtype}"
            )
    if faults:
        more = f", and {len(faults) - 5} more" if len(faults) > 5 else ""
        raise CheckpointError(
            f"{path} does not fit the network in config.json: {'; '.join(sorted(faults)[:5])}{more}"
        )
