"""Checkpoints of enn-trainer: a folder, or a `.roguenet` archive of its files.

    config.ron            the training configuration; `net` describes the network
    state.ron             the spaces
    state.agent.msgpack   the parameters

Other files (of the optimizer, of a value network) are ignored. The format is from the source of
enn-trainer 0.1.16 and of hyperstate 0.4.4, its checkpoint library. Nothing in a file is executed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.rogue_net.checkpoints.folder import (
    flush_folder,
    name_new,
    remove_new,
    require_place,
    write_new,
)
from entity_env.agents.rogue_net.enn_trainer.config import (
    LAST_VERSION,
    config_from_ron,
    config_to_ron,
    spaces_from_ron,
    spaces_to_ron,
)
from entity_env.agents.rogue_net.enn_trainer.msgpack_tensors import read_blob, write_blob
from entity_env.agents.rogue_net.enn_trainer.ron import Struct, parse_ron, write_ron
from entity_env.agents.rogue_net.operations import RELPOS
from entity_env.agents.rogue_net.weights import Weights
from entity_env.core.files import read_file
from entity_env.errors import CheckpointError

CONFIG: Final = "config.ron"
STATE: Final = "state.ron"
AGENT: Final = "state.agent.msgpack"
FILES: Final = (CONFIG, STATE, AGENT)
SUFFIX: Final = ".roguenet"
LATEST: Final = "latest-step*"
"""Pattern for the checkpoints of a training run."""
MAX_BYTES: Final = 1 << 30
_BLOB: Final = "<blob:msgpack>"
_MAX_MEMBERS: Final = 1000
_MAX_PATH: Final = 1 << 16


def is_enn_checkpoint(path: Path) -> bool:
    """True for a folder with a `config.ron`, or a file with an archive's suffix."""
    return (path / CONFIG).is_file() or (path.suffix == SUFFIX and path.is_file())


def find_enn_checkpoint(path: Path) -> Path | None:
    """`path` if it is a checkpoint, else the newest checkpoint in it, a training run; or None."""
    newest_first = sorted(path.glob(LATEST), reverse=True)
    return next((place for place in (path, *newest_first) if is_enn_checkpoint(place)), None)


def read_enn_checkpoint(path: Path) -> Weights:
    """Reads a folder or an archive.

    Raises:
        CheckpointError: a file is missing or damaged, or does not describe a network.
        MissingExtraError: msgpack is not installed.
    """
    if path.is_dir():
        return parse_enn_checkpoint({name: _read(path / name) for name in FILES}, str(path))
    members = read_tar(_read(path), str(path))
    missing = [name for name in FILES if name not in members]
    if missing:
        raise CheckpointError(
            f"{path} lacks {missing[0]}: it holds {', '.join(sorted(members)) or 'nothing'}"
        )
    return parse_enn_checkpoint({name: bytes(members[name]) for name in FILES}, str(path))


def parse_enn_checkpoint(files: Mapping[str, bytes], where: str) -> Weights:
    """Reads the contents of `FILES`, by name; `where` is their folder or archive, for errors.

    Raises as `read_enn_checkpoint`.
    """
    config_name, state_name, agent_name = (f"{where}{os.sep}{name}" for name in FILES)
    state = parse_ron(files[STATE], state_name)
    if not isinstance(state, Struct):
        raise CheckpointError(f"{state_name}: expected State(…), got {type(state).__name__}")
    agent = state.fields.get("agent")
    if agent != _BLOB:
        raise CheckpointError(
            f"{state_name}: the agent is kept as {str(agent)[:40]!r}, expected {_BLOB!r}: older "
            "forms are pickles, which could run any code; save it with hyperstate 0.4 or later"
        )
    obs_space, action_space = spaces_from_ron(state, state_name)
    config = config_from_ron(parse_ron(files[CONFIG], config_name), config_name)
    tensors = _without_copies(read_blob(files[AGENT], agent_name), config.n_layer, agent_name)
    weights = Weights(obs_space, action_space, config, tensors)
    weights.require_fit(agent_name, config_name)
    return weights


def read_tar(content: bytes, where: str) -> dict[str, memoryview]:
    """The content of every regular file by its base name.

    Uses `tarfile` only to parse single headers: on some Python releases, a crafted archive takes
    minutes or more memory than available (CVE-2024-6232, CVE-2025-8194).
    """
    import tarfile  # only archives need it

    members: dict[str, memoryview] = {}
    at, path, block = 0, None, tarfile.BLOCKSIZE
    for _ in range(_MAX_MEMBERS):
        place, header = f"{where}: byte {at}", content[at : at + block]
        if header == bytes(block):
            return members
        try:
            info = tarfile.TarInfo.frombuf(header, "utf-8", "replace")
        except tarfile.HeaderError as error:
            raise CheckpointError(
                f"{place}: {error}: the archive is incomplete, or not an uncompressed tar archive"
            ) from error
        data = memoryview(content)[at + block : at + block + info.size]
        if info.size != len(data):
            raise CheckpointError(
                f"{place}: a file of {info.size} bytes is beyond the end of the archive"
            )
        at += block + -(-info.size // block) * block
        if info.type in (tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE):
            path = _long_path(info.type, bytes(data[:_MAX_PATH]), place) or path
            continue
        if info.type in (tarfile.XGLTYPE, tarfile.GNUTYPE_LONGLINK):
            continue
        name = (path or info.name).rstrip("/").rpartition("/")[2]
        path = None
        if info.isdir():
            continue
        if not info.isreg() or info.type == tarfile.GNUTYPE_SPARSE:
            raise CheckpointError(
                f"{where}: {name!r} is not a regular file but of type {info.type!r}: pack plain "
                "files"
            )
        if name in members:
            raise CheckpointError(f"{where} holds more than one file {name!r}")
        members[name] = data
    raise CheckpointError(f"{where} has more than {_MAX_MEMBERS} members, or no end")


def _long_path(kind: bytes, content: bytes, place: str) -> str | None:
    """The next member's path, if this extended header has it, else None; refuses sparse files."""
    if kind == b"L":
        return content.partition(b"\0")[0].decode(errors="replace")
    for record in content.split(b"\n"):  # "length key=value"
        key, _, value = record.partition(b" ")[2].partition(b"=")
        if key.startswith(b"GNU.sparse."):
            raise CheckpointError(f"{place}: a sparse file: pack plain files, without --sparse")
        if key == b"path":
            return value.decode(errors="replace")
    return None


def with_copies(weights: Weights) -> dict[str, NDArray[Any]]:
    """The tensors as in rogue-net: every block has copies of the relative position tensors."""
    shared = {name: t for name, t in weights.tensors.items() if name.startswith(RELPOS)}
    tensors = dict(weights.tensors)
    for i in range(weights.rogue_net_config().n_layer):
        tensors |= {_copy_of(name, i): tensor for name, tensor in shared.items()}
    return tensors


def _without_copies(
    tensors: dict[str, NDArray[Any]], n_layer: int, where: str
) -> dict[str, NDArray[Any]]:
    """Drops the copies of relative position tensors, which must equal the originals."""
    shared = [name for name in tensors if name.startswith(RELPOS)]
    for name in shared:
        for i in range(n_layer):
            copy = tensors.pop(_copy_of(name, i), None)
            if copy is None or not _are_same(copy, tensors[name]):
                raise CheckpointError(
                    f"{where}: {_copy_of(name, i)[:200]} is missing, or differs from "
                    f"{name[:200]}, of which it must be a copy"
                )
    return tensors


def _are_same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool(np.array_equal(a, b))


def _copy_of(name: str, block: int) -> str:
    return f"backbone.blocks.{block}.attn.relpos_encoding.{name.removeprefix(RELPOS)}"


def _read(path: Path) -> bytes:
    try:
        return read_file(path, MAX_BYTES)
    except OSError as error:
        raise CheckpointError(
            f"cannot read {path}: {error.strerror or error}; a checkpoint of enn-trainer is "
            f"{', '.join(FILES)}: copy the whole folder"
        ) from error


# Attributes of torch's ModuleDict, which holds the parts of rogue-net by name.
_TAKEN: Final = """
    T_destination add_module apply bfloat16 buffers call_super_init children clear compile cpu
    cuda double dump_patches eval extra_repr float forward get_buffer get_extra_state get_parameter
    get_submodule half ipu items keys load_state_dict modules mtia named_buffers named_children
    named_modules named_parameters parameters pop register_backward_hook register_buffer
    register_forward_hook register_forward_pre_hook register_full_backward_hook
    register_full_backward_pre_hook register_load_state_dict_post_hook
    register_load_state_dict_pre_hook register_module register_parameter
    register_state_dict_post_hook register_state_dict_pre_hook requires_grad_ set_extra_state
    set_submodule share_memory state_dict to to_empty train training type update values xpu
    zero_grad
"""


def write_enn_checkpoint(path: str | Path, weights: Weights, *, step: int = 0) -> None:
    """Writes a checkpoint of enn-trainer to the folder `path`, without an optimizer.

    Args:
        path: created if missing. In an existing checkpoint of enn-trainer, only `FILES` are
            replaced.
        step: number of decisions that the network was trained on.

    Raises:
        CheckpointError: rogue-net does not support the network: a continuous action, pooling, or a
            name that its modules cannot have.
        MissingExtraError: msgpack is not installed.
        OSError: the disk is full or not writable; the previous checkpoint stays readable.
        SchemaError: the network is not a RogueNet.
        UsageError: `path` is a file, or a folder with files but no checkpoint of enn-trainer.
    """
    _require_names(weights)
    weights = weights.as_rogue_net()
    spaces = spaces_to_ron(weights.obs_space, weights.action_space)
    config = Struct(
        "TrainConfig",
        {
            "version": LAST_VERSION,
            "env": Struct("EnvConfig", {"id": "entity_env"}),
            "net": config_to_ron(weights.rogue_net_config()),
            "optim": Struct("OptimizerConfig"),
            "ppo": Struct("PPOConfig"),
            "rollout": Struct("RolloutConfig"),
            "name": "entity_env",
        },
    )
    state = Struct(
        "State",
        {
            "step": step,
            "restart": 0,
            "next_eval_step": None,
            "agent": "<blob:msgpack>",
            "value_function": None,
            "optimizer": "<blob:msgpack>",  # read only to resume training
            "vf_optimizer": None,
            **spaces,
        },
    )
    files = {
        CONFIG: write_ron(config).encode(),
        STATE: write_ron(state).encode(),
        AGENT: write_blob(with_copies(weights)),
    }
    folder, save = Path(path), secrets.token_hex(8)
    require_place(folder, lambda place: all((place / name).is_file() for name in FILES))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        write_new(folder, files, save)
        name_new(folder, files, save)
        flush_folder(folder)
    finally:
        remove_new(folder, FILES)


def refused_names(names: Iterable[str]) -> list[str]:
    """Those of the names that rogue-net cannot use, because torch modules cannot have them."""
    taken = _TAKEN.split()
    return [name for name in names if not name or "." in name or name in taken or name[0] == "_"]


def _require_names(weights: Weights) -> None:
    for name in refused_names([*weights.obs_space.entities, *weights.action_space]):
        raise CheckpointError(
            f"a module of torch cannot have the name {name!r}, so rogue-net cannot load the "
            "network: rename the entity or the action"
        )
