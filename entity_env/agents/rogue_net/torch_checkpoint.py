"""Saves and loads a RogueNet, with or without what resuming its training needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor

from entity_env.agents.rogue_net.agent_file import is_agent_file
from entity_env.agents.rogue_net.checkpoint_folder import (
    CONFIG,
    MODEL,
    OPTIMIZER,
    Header,
    read_header,
    write_folder,
)
from entity_env.agents.rogue_net.enn_files import is_enn_checkpoint
from entity_env.agents.rogue_net.reading import find_network, read_model, read_network, read_tensors
from entity_env.agents.rogue_net.torch_net import RogueNet
from entity_env.agents.rogue_net.torch_tensors import as_tensor
from entity_env.agents.rogue_net.weights import Weights
from entity_env.errors import CheckpointError, MissingExtraError, SchemaError


@dataclass(frozen=True)
class Checkpoint:
    """A network and what was saved beside it.

    Args:
        net: the network, on the CPU; its spaces and size are `net.obs_space`, `net.action_space`
            and `net.config`.
        training: settings, progress and random states as JSON; empty when there are none.
        optimizer: tensors of the optimizer by name; empty when there are none.
        path: the folder or file that it was read from.
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
        MissingExtraError: safetensors is not installed.
    """
    header = Header(net.obs_space, net.action_space, net.config, training or {})
    files = {CONFIG: header.to_bytes(), MODEL: _to_bytes(net.state_dict())}
    if optimizer:
        files[OPTIMIZER] = _to_bytes(optimizer)
    write_folder(Path(path), files)


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Reads a checkpoint folder, that of the training run in the folder `path`, or enn-trainer's.

    One of enn-trainer has no `training` and no `optimizer`: what it learnt can be gone on from, but
    its training run cannot.

    Raises:
        CheckpointError: it is missing, damaged, or its tensors do not fit its own description.
        MissingExtraError: a checkpoint of enn-trainer, and msgpack is not installed.
    """
    found = find_network(Path(path))
    if is_enn_checkpoint(found) or is_agent_file(found):
        return Checkpoint(_net(read_network(found), found), path=found)
    header = read_header(found)
    net = _net(read_model(found, header), found)
    size = sum(tensor.nbytes for tensor in net.state_dict().values())
    optimizer = _read(found / OPTIMIZER, 2 * size) if (found / OPTIMIZER).exists() else {}
    return Checkpoint(net, header.training, optimizer, found)


def _net(weights: Weights, found: Path) -> RogueNet:
    try:
        return RogueNet.of(weights)
    except SchemaError as error:
        raise CheckpointError(f"{found}: {error}") from error


def _to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    try:
        import safetensors.torch
    except ModuleNotFoundError as error:
        raise MissingExtraError("safetensors", "train", "saving a network") from error
    return safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )


def _read(path: Path, max_bytes: int) -> dict[str, Tensor]:
    cpu = torch.device("cpu")
    return {name: as_tensor(tensor, cpu) for name, tensor in read_tensors(path, max_bytes).items()}
