"""Reads a network from whatever keeps one: our checkpoint, or one of enn-trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from entity_env.agents.rogue_net.agent_file import (
    SUFFIX as AGENT_SUFFIX,
    is_agent_file,
    read_agent,
)
from entity_env.agents.rogue_net.checkpoint_folder import (
    CONFIG,
    MODEL,
    Header,
    find_checkpoint,
    read_header,
)
from entity_env.agents.rogue_net.enn_files import (
    CONFIG as ENN_CONFIG,
    SUFFIX,
    find_enn_checkpoint,
    is_enn_checkpoint,
)
from entity_env.agents.rogue_net.safetensors_file import MAX_HEADER, read_safetensors
from entity_env.agents.rogue_net.weights import Weights, expected_tensors, num_bytes
from entity_env.errors import CheckpointError, SchemaError
from entity_env.files import read_file


def find_network(path: Path) -> Path:
    """The folder or file to read: `path` itself, or the checkpoint of the training run in it.

    Raises:
        CheckpointError: there is none.
    """
    try:
        if is_agent_file(path):
            return path
        if (theirs := find_enn_checkpoint(path)) is not None:
            return theirs
        return find_checkpoint(path)
    except OSError as error:  # a name that is too long, a folder that may not be looked into
        raise CheckpointError(f"cannot read {path}: {error.strerror}") from error
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}. Of enn-trainer it reads a folder with {ENN_CONFIG}, or a file *{SUFFIX}; "
            f"an exported agent is a file *{AGENT_SUFFIX}"
        ) from error


def read_network(path: str | Path) -> Weights:
    """Reads a network without torch; what is read is checked to fit its own description.

    Args:
        path: a checkpoint folder, the folder of a training run, or a checkpoint, a
            training run or a `.roguenet` archive of enn-trainer, or a `.agent` file.

    Raises:
        CheckpointError: there is none, or it is damaged, or no network has such parts.
        MissingExtraError: a checkpoint of enn-trainer, and msgpack is not installed.
    """
    found = find_network(Path(path))
    if is_agent_file(found):
        return read_agent(found)
    if is_enn_checkpoint(found):
        # Here: a game that ships a checkpoint of ours does without, and starts the sooner.
        from entity_env.agents.rogue_net.enn_checkpoint import read_enn_checkpoint

        return read_enn_checkpoint(found)
    return read_model(found, read_header(found))


def read_model(folder: Path, header: Header) -> Weights:
    """The network in a checkpoint folder of ours.

    Raises:
        CheckpointError: it is missing, damaged, or does not fit its description.
    """
    path = folder / MODEL
    try:
        expected = expected_tensors(header.obs_space, header.action_space, header.config)
    except SchemaError as error:
        raise CheckpointError(f"{folder / CONFIG}: {error}") from error
    tensors = read_tensors(path, num_bytes(expected.values()))
    weights = Weights(header.obs_space, header.action_space, header.config, tensors)
    weights.require_fit(str(path), CONFIG)
    return weights


def read_tensors(path: Path, max_bytes: int) -> dict[str, NDArray[Any]]:
    """The tensors in one file of a checkpoint folder.

    Args:
        path: the file.
        max_bytes: how long the tensors may be together.

    Raises:
        CheckpointError: it cannot be read, is damaged or too long, or no regular file.
    """
    try:
        # A wrong network is better told by its shapes: twice the length is still read.
        content = read_file(path, 2 * max_bytes + MAX_HEADER)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error}; the file is missing or incomplete, copy the whole folder"
        ) from error
    return read_safetensors(content, str(path))
