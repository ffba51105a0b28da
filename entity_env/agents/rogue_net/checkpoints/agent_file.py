"""`.agent` files: a network with its spaces in one file, for distribution.

    16 bytes   b"entity_env agent"
    4 bytes    version of the format; all numbers are little-endian
    32 bytes   SHA-256 of the rest
    8 bytes    length of the description
    ...        the description in JSON: `net`, sizes of the network; `spaces`; `operations`;
               `greedy` and `game`, see `Weights`, if they are known
    ...        the parameters, in the format of safetensors

`operations` is for readers in other languages: the operations of the network in order, each as
`[kind, inputs, output, layer, constants]`, see `rogue_net.operations`. This reader derives them
from `net` and `spaces`, and also reads older files, which have none. `spaces` does not say which
entities an action selects; the game names them in every observation.

Needs only numpy. The checksum detects damage, not forgery. Therefore nothing in the file is
executed, and everything in it is checked.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, Final

from entity_env.agents.rogue_net.checkpoints.safetensors import (
    MAX_HEADER,
    read_safetensors,
    write_safetensors,
)
from entity_env.agents.rogue_net.config import MAX_NUMBERS, net_from_json
from entity_env.agents.rogue_net.weights import Weights, facts_from_json, facts_to_json
from entity_env.core.files import parse_json, read_file, write_file
from entity_env.core.spaces import spaces_from_json, spaces_to_json
from entity_env.errors import CheckpointError, EntityEnvError

SUFFIX: Final = ".agent"
MAGIC: Final = b"entity_env agent"
VERSION: Final = 1

_CHECKSUM: Final = 20
"""Offset of the checksum; the checked content starts 32 bytes later."""
_BODY: Final = _CHECKSUM + 32
_MAX_DESCRIPTION: Final = 4 << 20
MAX_AGENT_BYTES: Final = 4 * MAX_NUMBERS + MAX_HEADER + _MAX_DESCRIPTION + _BODY + 8


def is_agent_file(path: Path) -> bool:
    """True if `path` is a file with the suffix of an agent."""
    return path.suffix == SUFFIX and path.is_file()


def write_agent(path: str | Path, weights: Weights) -> None:
    """Writes an agent to a file, atomically.

    Raises:
        CheckpointError: another suffix, or `read_agent` would refuse the file.
    """
    file = Path(path)
    if file.suffix != SUFFIX:
        raise CheckpointError(f"an agent file must be named *{SUFFIX}, got {file.name!r}")
    weights.require_fit("the network", "its description")
    content = agent_bytes(weights)
    agent_from_bytes(content, f"{file} (not written)")
    file.parent.stat()  # raises if there is no such folder, as `open` does
    write_file(file, content, is_durable=True)


def agent_bytes(weights: Weights) -> bytes:
    """Content of an `.agent` file; raises the errors of `Weights.operations`."""
    description = {
        "net": weights.config.to_json(),
        "spaces": spaces_to_json(weights.obs_space, weights.action_space),
        "operations": [each.to_json() for each in weights.operations()],
        **facts_to_json(weights),
    }
    text = json.dumps(description, ensure_ascii=False).encode()
    body = len(text).to_bytes(8, "little") + text + write_safetensors(weights.tensors)
    return MAGIC + VERSION.to_bytes(4, "little") + hashlib.sha256(body).digest() + body


def agent_checksum(content: bytes) -> str:
    """The checksum in the content of an `.agent` file, in hexadecimal digits."""
    return content[_CHECKSUM:_BODY].hex()


def read_agent(path: Path) -> Weights:
    """Reads an `.agent` file, and checks that its tensors fit its description.

    Raises:
        CheckpointError: the file cannot be read, is not an agent, or is damaged.
    """
    try:
        content = read_file(path, MAX_AGENT_BYTES)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    return agent_from_bytes(content, str(path))


def agent_from_bytes(content: bytes, where: str) -> Weights:
    """Reads the content of an `.agent` file; the tensors are read-only.

    `where` names the file in errors. Raises `CheckpointError` like `read_agent`.
    """
    if content[: len(MAGIC)] != MAGIC:
        raise CheckpointError(f"{where} is not an agent file: create one with `entity-env export`")
    version = int.from_bytes(content[len(MAGIC) : _CHECKSUM], "little")
    if version != VERSION:
        raise CheckpointError(
            f"{where} has version {version} of the format, expected {VERSION}: "
            "read it with the release that wrote it"
        )
    body = content[_BODY:]
    if hashlib.sha256(body).digest() != content[_CHECKSUM:_BODY]:
        raise CheckpointError(
            f"{where} is damaged: its checksum does not match; copy or export it again"
        )
    length = int.from_bytes(body[:8], "little")
    if len(body) < 8 or length > len(body) - 8:
        raise CheckpointError(
            f"{where} is damaged: its description of {length} bytes reaches beyond its end"
        )
    try:
        data = _description(body[8 : 8 + length])
        obs_space, action_space = spaces_from_json(data.get("spaces"))
        config = net_from_json(data.get("net"))
    except (ValueError, EntityEnvError) as error:
        raise CheckpointError(f"{where}: {error}") from error
    tensors = read_safetensors(body[8 + length :], where)
    weights = Weights(obs_space, action_space, config, tensors, *facts_from_json(data))
    weights.require_fit(where, "its description")
    return weights


def _description(text: bytes) -> dict[str, Any]:
    if len(text) > _MAX_DESCRIPTION:
        raise ValueError(f"the description has {len(text)} bytes, at most {_MAX_DESCRIPTION} fit")
    data = parse_json(text)
    if not isinstance(data, dict):
        raise ValueError(f"the description is not a JSON object but a {type(data).__name__}")
    return data
