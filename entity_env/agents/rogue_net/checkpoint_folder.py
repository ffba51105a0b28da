"""A checkpoint is a folder, replaced as a whole.

    <path>/config.json         format version, size of the network, spaces, settings, progress
    <path>/model.safetensors   the network's parameters and statistics
    <path>/optimizer.safetensors   only what resuming needs: a shipped game can leave it out

Writing never touches a readable checkpoint before a newer one is complete on the disk:

1. everything is written to `<path>.new` and flushed,
2. `<path>` is renamed to `<path>.old`, if it exists,
3. `<path>.new` is renamed to `<path>`, and `<path>.old` removed.

A kill before 2 leaves `<path>`, between 2 and 3 only `<path>.old`, after 3 the new `<path>`. So
whoever reads takes `<path>`, or `<path>.old` where that is missing. One process at a time may
write to a path.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.errors import CheckpointError, EntityEnvError, shown
from entity_env.files import parse_json, read_file
from entity_env.space_json import spaces_from_json, spaces_to_json
from entity_env.spaces import ActionName, ActionSpace, ObsSpace

FORMAT = "entity_env.rogue_net"
VERSION = 1
SUBFOLDER = "checkpoint"
"""Where a training run keeps its checkpoint, inside the folder of the run."""

_MAX_BYTES = 4 << 20
CONFIG, MODEL, OPTIMIZER = "config.json", "model.safetensors", "optimizer.safetensors"


@dataclass(frozen=True)
class Header:
    """What `config.json` says.

    Args:
        obs_space, action_space: what the network was made for.
        config: its size.
        training: what the trainer noted, as JSON; empty when nothing was.
    """

    obs_space: ObsSpace
    action_space: Mapping[ActionName, ActionSpace]
    config: RogueNetConfig
    training: Mapping[str, object]

    def to_bytes(self) -> bytes:
        """The content of `config.json`."""
        data = {
            "format": FORMAT,
            "version": VERSION,
            "net": self.config.to_json(),
            "spaces": spaces_to_json(self.obs_space, self.action_space),
            "training": dict(self.training),
        }
        return (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode()


def find_checkpoint(path: Path) -> Path:
    """The folder to read: `path` itself, or the checkpoint of the training run in `path`.

    Raises:
        CheckpointError: there is none.
    """
    for place in (path, path / SUBFOLDER):
        for folder in (place, _beside(place, ".old")):
            if (folder / CONFIG).is_file():
                return folder
    what = "holds none" if path.is_dir() else "is no folder"
    raise CheckpointError(
        f"no checkpoint at {path}: expected a folder with {CONFIG} and {MODEL}, or a training run "
        f"with the folder {SUBFOLDER!r}; the path {what}"
    )


def read_header(folder: Path) -> Header:
    """Reads `config.json`.

    Raises:
        CheckpointError: it is truncated, of another version, or not ours.
    """
    path = folder / CONFIG
    try:
        data = parse_json(read_file(path, _MAX_BYTES))
    except (OSError, ValueError) as error:
        raise CheckpointError(f"cannot read {path}: {error}") from error
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise CheckpointError(f'{path} is no checkpoint of ours: it lacks "format": "{FORMAT}"')
    if data.get("version") != VERSION:
        raise CheckpointError(
            f"{path} has version {shown(data.get('version'))} of the format, expected {VERSION}: "
            "read it with the release that wrote it"
        )
    training = data.get("training")
    try:
        obs_space, action_space = spaces_from_json(data.get("spaces"))
        config = RogueNetConfig.from_json(data.get("net"))
    except EntityEnvError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not isinstance(training, dict):
        raise CheckpointError(f'{path}: expected an object under "training", got {shown(training)}')
    return Header(obs_space, action_space, config, training)


def write_folder(path: Path, files: Mapping[str, bytes]) -> None:
    """Replaces the folder `path` by one with these files, all or nothing.

    Raises:
        OSError: the disk is full or not writable; the previous folder stays readable.
    """
    new, old = _beside(path, ".new"), _beside(path, ".old")
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove(new)
    new.mkdir()
    for name, content in files.items():
        with open(new / name, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    _flush_folder(new)
    if path.exists():
        _remove(old)
        path.rename(old)
    new.rename(path)
    _flush_folder(path.parent)
    _remove(old)


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def _flush_folder(folder: Path) -> None:
    """Makes renames inside a folder survive a power cut; Windows cannot open folders."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
