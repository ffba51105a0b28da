"""Reads a network: checkpoint folders, `.agent` files, enn-trainer's files."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Final

from entity_env.agents.rogue_net.checkpoints.agent_file import (
    SUFFIX as AGENT_SUFFIX,
    is_agent_file,
    read_agent,
)
from entity_env.agents.rogue_net.checkpoints.folder import (
    CONFIG,
    MODEL,
    OPTIMIZER,
    Header,
    find_checkpoint,
    read_header,
)
from entity_env.agents.rogue_net.checkpoints.safetensors import MAX_HEADER, read_safetensors
from entity_env.agents.rogue_net.config import MAX_NUMBERS, OwnNetConfig
from entity_env.agents.rogue_net.enn_trainer.checkpoint import (
    CONFIG as ENN_CONFIG,
    SUFFIX,
    find_enn_checkpoint,
    is_enn_checkpoint,
    read_enn_checkpoint,
)
from entity_env.agents.rogue_net.weights import (
    Weights,
    expected_tensors,
    facts_from_json,
    num_bytes,
)
from entity_env.core.files import read_file
from entity_env.errors import CheckpointError, SchemaError

_MAX_READS: Final = 1000


def find_network(path: Path) -> Path:
    """Path of the network: `path` itself, or, if it is a training run, the checkpoint in it.

    Raises `CheckpointError` if there is none.
    """
    try:
        if is_agent_file(path):
            return path
        if (theirs := find_enn_checkpoint(path)) is not None:
            return theirs
        return find_checkpoint(path)
    except OSError as error:  # the name is too long, or the folder unreadable
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}; or, from enn-trainer, a folder with {ENN_CONFIG} or a file *{SUFFIX}; or an "
            f"exported agent, a file *{AGENT_SUFFIX}"
        ) from error


def read_network(path: str | Path) -> Weights:
    """Reads a network without torch, and checks that its tensors fit its description.

    Args:
        path: a checkpoint folder, a training run, an `.agent` file, or a checkpoint, training run
            or `.roguenet` archive of enn-trainer.

    Raises:
        CheckpointError: there is no network, or it is damaged or of a custom class.
        MissingExtraError: a checkpoint of enn-trainer needs msgpack.
    """
    found = find_network(Path(path))
    if is_agent_file(found):
        return read_agent(found)
    if is_enn_checkpoint(found):
        return read_enn_checkpoint(found)
    header, files = read_checkpoint(found, MODEL)
    return read_model(found, header, files[MODEL])


def read_checkpoint(folder: Path, *names: str) -> tuple[Header, dict[str, bytes]]:
    """Reads `config.json` and other files of a checkpoint folder, all from one save.

    Leaves out files that the save lacks. Retries if another process saves meanwhile. Raises
    `CheckpointError` if a file cannot be read.
    """
    before = _places(folder, names)
    for _ in range(_MAX_READS):
        failure: CheckpointError | None = None
        files: dict[str, bytes] = {}
        try:
            most = _max_bytes(folder, before[0])
            files = {name: _read(place, most) for name, place in before[1].items()}
        except CheckpointError as error:
            failure = error
        header, places = after = _places(folder, names)
        if (header.save, places) == (before[0].save, before[1]):
            if failure is not None:
                raise failure
            return header, files
        before = after
    raise CheckpointError(f"cannot read {folder}: it keeps changing")


def read_model(folder: Path, header: Header, content: bytes) -> Weights:
    """Reads the content of `model.safetensors`, and checks that it fits the header."""
    tensors = read_safetensors(content, str(folder / MODEL))
    facts = facts_from_json(header.training)
    weights = Weights(header.obs_space, header.action_space, header.config, tensors, *facts)
    weights.require_fit(str(folder / MODEL), CONFIG)
    return weights


def _places(folder: Path, names: Iterable[str]) -> tuple[Header, dict[str, Path]]:
    header = read_header(folder)
    places = {name: header.place_of(folder, name) for name in names}
    is_there = {
        name: place
        for name, place in places.items()
        if place is not None and (name != OPTIMIZER or place.exists())
    }
    return header, is_there


def _max_bytes(folder: Path, header: Header) -> int:
    """Size limit of a file: that of the optimizer, which has two numbers per parameter."""
    if isinstance(header.config, OwnNetConfig):
        return 8 * MAX_NUMBERS + MAX_HEADER
    try:
        expected = expected_tensors(header.obs_space, header.action_space, header.config)
    except SchemaError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    return 2 * num_bytes(expected.values()) + MAX_HEADER


def _read(path: Path, max_bytes: int) -> bytes:
    try:
        return read_file(path, max_bytes)
    except FileNotFoundError as error:
        raise CheckpointError(f"cannot read {path}: {error}; copy the whole folder") from error
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
