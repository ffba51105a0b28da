"""`agent_identity`: name and digest of an agent, as replays and datasets store them."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from entity_env.authoring.agent import Agent
from entity_env.authoring.load_module import split_file_name
from entity_env.core.files import code_digest, file_digest
from entity_env.errors import CheckpointError


def agent_identity(agent: Agent, name: str = "") -> dict[str, str]:
    """Name of an agent, and the SHA-256 of its network or bot file if it has one, as JSON.

    Args:
        name: the name that the agent was loaded by, such as a path; "" = the path of its network
            or, without one, its class name.
    """
    path = getattr(agent, "path", "")
    found = {"name": name or path or type(agent).__name__}
    with suppress(CheckpointError, OSError, ValueError):
        if path:
            # Late import: needs numpy.
            from entity_env.agents.rogue_net.checkpoints.folder import network_digest

            found["sha256"] = network_digest(Path(path))
        elif Path(name).is_file():
            found["sha256"] = file_digest(Path(name))
        elif (file := split_file_name(name)) is not None:
            found["sha256"] = code_digest(file[0])
    return found
