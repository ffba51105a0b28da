"""Saves and loads a network, with or without the state of its training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torch import Tensor

from entity_env.agents.rogue_net.checkpoints.agent_file import is_agent_file
from entity_env.agents.rogue_net.checkpoints.folder import (
    MODEL,
    OPTIMIZER,
    Header,
    write_checkpoint,
)
from entity_env.agents.rogue_net.checkpoints.reader import (
    find_network,
    read_checkpoint,
    read_model,
    read_network,
)
from entity_env.agents.rogue_net.checkpoints.safetensors import read_safetensors
from entity_env.agents.rogue_net.config import OwnNetConfig
from entity_env.agents.rogue_net.enn_trainer.checkpoint import is_enn_checkpoint
from entity_env.agents.rogue_net.torch_net.mlp import policy_of
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.rogue_net.torch_net.tensors import as_tensors
from entity_env.agents.rogue_net.weights import Weights
from entity_env.errors import CheckpointError, MissingExtraError, SchemaError


@dataclass(frozen=True)
class Checkpoint:
    """A network, and the state of its training.

    Args:
        net: the network, on the CPU; its spaces and size are `net.obs_space`, `net.action_space`
            and `net.config`.
        training: settings, progress and random states as JSON; empty when there are none.
        optimizer: tensors of the optimizer by name; empty when there are none.
        path: the folder or file that it was read from.
    """

    net: Policy
    training: Mapping[str, object] = field(default_factory=dict)
    optimizer: Mapping[str, Tensor] = field(default_factory=dict)
    path: Path | None = None


def save_checkpoint(
    path: str | Path,
    net: Policy,
    *,
    training: Mapping[str, object] | None = None,
    optimizer: Mapping[str, Tensor] | None = None,
) -> None:
    """Replaces the checkpoint in the folder `path`; other files in it stay.

    If the process is killed or the save fails, the previous checkpoint stays readable.

    Args:
        path: the folder of the checkpoint; it and its parents are created.
        net: the network, on any device.
        training: state of the trainer, as JSON.
        optimizer: tensors of the optimizer, by name.

    Raises:
        CheckpointError: a tensor holds numbers that are not finite.
        OSError: the disk is full or not writable, or another process has been writing there for a
            minute.
        MissingExtraError: safetensors is not installed.
        UsageError: `path` is a file, or a folder that holds something and is no checkpoint.
    """
    header = Header(net.obs_space, net.action_space, net.net_config, training or {})
    parts = {MODEL: net.state_dict(), OPTIMIZER: optimizer or {}}
    for name, tensors in parts.items():
        for key in not_finite(tensors):
            raise CheckpointError(
                f"cannot save to {path}: {key!r} of {name} holds numbers that are not finite; "
                "nothing was written"
            )
    files = {name: _to_bytes(tensors) for name, tensors in parts.items() if tensors}
    write_checkpoint(Path(path), header, files)


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors with a number that is not finite."""
    return [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]


def load_checkpoint(path: str | Path, policy: Policy | None = None) -> Checkpoint:
    """Reads a checkpoint folder, that of the training run in the folder `path`, or enn-trainer's.

    A checkpoint of enn-trainer has no `training` and no `optimizer`: training can start from its
    network, but its run cannot be resumed.

    Args:
        path: the folder or file.
        policy: a network of your own class, which takes the tensors; others are made here.

    Raises:
        CheckpointError: it is missing, damaged, or its tensors do not fit its own description.
        MissingExtraError: a checkpoint of enn-trainer, and msgpack is not installed.
    """
    found = find_network(Path(path))
    if is_enn_checkpoint(found) or is_agent_file(found):
        return Checkpoint(_net(read_network(found), found), path=found)
    header, files = read_checkpoint(found, MODEL, OPTIMIZER)
    if policy is not None and isinstance(header.config, OwnNetConfig):
        net = _filled(policy, files[MODEL], found)
    else:
        net = _net(read_model(found, header, files[MODEL]), found)
    optimizer = _tensors(files[OPTIMIZER], found / OPTIMIZER) if OPTIMIZER in files else {}
    return Checkpoint(net, header.training, optimizer, found)


def _filled(policy: Policy, content: bytes, found: Path) -> Policy:
    try:
        policy.load_state_dict(_tensors(content, found / MODEL))
    except RuntimeError as error:
        raise CheckpointError(f"{found} does not fit the network: {error}") from error
    return policy


def _net(weights: Weights, found: Path) -> Policy:
    try:
        return policy_of(weights)
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


def _tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    return as_tensors(read_safetensors(content, str(path)))
