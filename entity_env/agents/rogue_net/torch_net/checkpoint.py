"""Saves and loads a network, with or without its training state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from torch import Tensor

from entity_env.agents.rogue_net.adapt import renamed
from entity_env.agents.rogue_net.checkpoints.agent_file import is_agent_file
from entity_env.agents.rogue_net.checkpoints.folder import (
    MODEL,
    OPTIMIZER,
    Header,
    network_digest,
    write_checkpoint,
)
from entity_env.agents.rogue_net.checkpoints.reader import (
    find_network,
    read_checkpoint,
    read_model,
    read_network,
)
from entity_env.agents.rogue_net.checkpoints.safetensors import read_safetensors
from entity_env.agents.rogue_net.config import (
    NetConfig,
    OwnNetConfig,
    require_same_net,
    state_width,
)
from entity_env.agents.rogue_net.enn_trainer.checkpoint import is_enn_checkpoint
from entity_env.agents.rogue_net.torch_net.embedding import InputNorm
from entity_env.agents.rogue_net.torch_net.mlp import make_policy, policy_of
from entity_env.agents.rogue_net.torch_net.policy import Policy
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor, as_tensors
from entity_env.agents.rogue_net.transfer import (
    require_transferable,
    transfer,
)
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.spaces import (
    ActionName,
    ActionSpace,
    ObsSpace,
    briefly,
    differences,
)
from entity_env.errors import CheckpointError, MissingExtraError, SchemaError

_LOGGER: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A network and its training state.

    Args:
        net: the network, on the CPU unless the caller passed it.
        training: settings, progress and random states as JSON; may be empty.
        optimizer: its tensors by name; may be empty.
        path: the folder or file it was read from.
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
    """Writes a checkpoint to the folder `path`, replacing the last one; other files stay.

    If the process is killed or the save fails, the previous checkpoint stays readable.

    Args:
        path: created with its parents if missing.
        net: on any device.
        training: state of the trainer, as JSON.
        optimizer: its tensors by name.

    Raises:
        CheckpointError: numbers are not finite, `load_checkpoint` would refuse the checkpoint, or
            the `config.json` to be replaced is damaged. In each case nothing was written.
        OSError: the disk is full or not writable, or another process has been writing there for a
            minute.
        MissingExtraError: safetensors is not installed.
        UsageError: `path` is a file, or a nonempty folder that is not a checkpoint.
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
    try:
        if not isinstance(header.config, OwnNetConfig):
            read_model(Path(path), header, files[MODEL])
    except CheckpointError as error:
        raise CheckpointError(
            f"cannot save to {path}, since it could not be read again: {error}; nothing was written"
        ) from error
    write_checkpoint(Path(path), header, files)


def not_finite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Names of tensors with numbers that are not finite."""
    return [name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())]


def load_checkpoint(path: str | Path, policy: Policy | None = None) -> Checkpoint:
    """Reads any path that `read_network` accepts, and checkpoints of your own class.

    An exported agent and a checkpoint of enn-trainer have no `training` and no `optimizer`:
    training can start from the network, but the run cannot be resumed.

    Args:
        policy: a network to load the tensors into; required for checkpoints of your own class.

    Raises:
        CheckpointError: the file is missing or damaged, or its tensors do not fit its description
            or `policy`.
        MissingExtraError: a checkpoint of enn-trainer needs msgpack.
    """
    found = find_network(Path(path))
    if is_enn_checkpoint(found) or is_agent_file(found):
        weights = read_network(found)
        return Checkpoint(_net(weights, found, policy), path=found)
    header, files = read_checkpoint(found, MODEL, OPTIMIZER)
    if policy is not None and isinstance(header.config, OwnNetConfig):
        net = _filled(policy, _tensors(files[MODEL], found / MODEL), found)
    else:
        net = _net(read_model(found, header, files[MODEL]), found, policy)
    optimizer = _tensors(files[OPTIMIZER], found / OPTIMIZER) if OPTIMIZER in files else {}
    return Checkpoint(net, header.training, optimizer, found)


def initialized_from(
    path: str | Path,
    *,
    adapt: bool = False,
    names: Mapping[str, str] | None = None,
    net: NetConfig | None = None,
    policy: Callable[[ObsSpace, Mapping[ActionName, ActionSpace]], Policy] | None = None,
) -> Callable[[ObsSpace, Mapping[ActionName, ActionSpace]], Policy]:
    """A function that makes networks with the weights of a trained one, for fine-tuning.

    `train(vec, config, policy=initialized_from("runs/old"))` starts a new run with this network,
    without an optimizer and with all counters at 0. Reads the file immediately.

    Args:
        path: as in `read_network`.
        adapt: the game may differ. New features, entity types, actions and choices start neutral or
            untrained, removed ones are dropped, and others are matched by name in any order:
            see the top of `transfer.py`. Differences are logged, and stored in `Policy.origin`,
            which `run.json` repeats. By default every difference is an error.
        names: maps names in the network to the game's, as for `load_agent`.
        net: required kind and size of the network; `dropout` and `value_scale` may differ from
            the checkpoint, and the new network takes them from `net`.
        policy: makes the network for a checkpoint of your own class, for equal spaces only;
            `adapt`, `names` and `net` are ignored.

    Returns:
        A function of an observation space and an action space; the network is on the CPU. It raises
        `CheckpointError` for spaces or sizes that do not fit, and names every difference.

    Raises:
        CheckpointError: the errors of `read_network`; or kind or size differ from `net`.
        MissingExtraError: a checkpoint of enn-trainer needs msgpack.
    """
    if policy is not None:
        return _OwnStart(find_network(Path(path)), policy)
    weights, identity = read_network(path), _identity(Path(path))
    weights = renamed(weights, names or {})
    if net is not None:
        require_same_net(weights.config, net, str(path))

    def make(obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]) -> Policy:
        spaces = obs_space, action_space
        changes = require_transferable(weights, spaces, adapt=adapt, where=str(path))
        if net is not None and state_width(net) > state_width(weights.config):
            changes = [*changes, "it can remember now: no effect at first"]
        try:
            made: Policy = make_policy(obs_space, action_space, net or weights.config)
            found = transfer(weights, made.weights())
        except (SchemaError, CheckpointError) as error:
            raise CheckpointError(f"{path} cannot be adapted: {error}") from error
        made.load_state_dict(as_tensors(found.tensors))
        for name, module in made.named_modules():
            if isinstance(module, InputNorm) and f"{name}." in found.is_new:
                module.go_on(as_tensor(found.is_new[f"{name}."], module.mean.device))
        for sentence in changes:
            _LOGGER.info("started from %s: %s", path, sentence)
        made.origin = {"init_from": {**identity, "changes": changes}}
        return made

    return make


def _identity(path: Path) -> dict[str, str]:
    """Path and SHA-256 of a network; only the path for a folder of enn-trainer."""
    with suppress(CheckpointError):
        return {"path": str(path), "sha256": network_digest(path)}
    return {"path": str(path)}


class _OwnStart:
    """`initialized_from` for a network of another class."""

    def __init__(
        self,
        found: Path,
        policy: Callable[[ObsSpace, Mapping[ActionName, ActionSpace]], Policy],
    ) -> None:
        self.header, files = read_checkpoint(found, MODEL)
        self.content, self.found, self.policy = files[MODEL], found, policy

    def __call__(
        self, obs_space: ObsSpace, action_space: Mapping[ActionName, ActionSpace]
    ) -> Policy:
        theirs = self.header.obs_space, self.header.action_space
        if differing := differences(theirs, (obs_space, action_space)):
            raise CheckpointError(
                f"{self.found} was trained for a different game: {briefly(differing)}. A network "
                "of a class of your own cannot be adapted"
            )
        tensors = _tensors(self.content, self.found / MODEL)
        made = _filled(self.policy(obs_space, action_space), tensors, self.found)
        made.origin = {"init_from": {**_identity(self.found), "changes": []}}
        return made


def _filled(policy: Policy, tensors: Mapping[str, Tensor], found: Path) -> Policy:
    try:
        policy.load_state_dict(tensors)
    except RuntimeError as error:
        raise CheckpointError(f"{found} does not fit the network: {error}") from error
    return policy


def _net(weights: Weights, found: Path, policy: Policy | None = None) -> Policy:
    if policy is not None:
        require_same_net(weights.config, policy.net_config, str(found))
        spaces = (weights.obs_space, weights.action_space), (policy.obs_space, policy.action_space)
        if differs := differences(*spaces):
            raise CheckpointError(f"{found} does not fit the network: {briefly(differs)}")
        return _filled(policy, as_tensors(weights.tensors), found)
    try:
        return policy_of(weights)
    except SchemaError as error:
        raise CheckpointError(f"{found}: {error}") from error


def require_safetensors() -> None:
    """Raises `MissingExtraError` if networks cannot be saved."""
    try:
        import safetensors.torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("safetensors", "train", "saving a network") from error


def _to_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    require_safetensors()
    import safetensors.torch

    return safetensors.torch.save(
        {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    )


def _tensors(content: bytes, path: Path) -> dict[str, Tensor]:
    return as_tensors(read_safetensors(content, str(path)))
