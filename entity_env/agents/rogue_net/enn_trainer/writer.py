"""Writes checkpoints for enn-trainer and rogue-net."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from entity_env.agents.rogue_net.checkpoints.folder import (
    flush_folder,
    name_new,
    remove_new,
    require_place,
    write_new,
)
from entity_env.agents.rogue_net.enn_trainer.checkpoint import (
    AGENT,
    CONFIG,
    FILES,
    STATE,
    with_copies,
)
from entity_env.agents.rogue_net.enn_trainer.config import (
    LAST_VERSION,
    config_to_ron,
    spaces_to_ron,
)
from entity_env.agents.rogue_net.enn_trainer.msgpack_tensors import write_blob
from entity_env.agents.rogue_net.enn_trainer.ron import Struct, write_ron
from entity_env.agents.rogue_net.weights import Weights
from entity_env.errors import CheckpointError

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
        path: the folder, made if it does not exist. Of a checkpoint of enn-trainer in it only the
            same files are replaced.
        weights: the network.
        step: number of decisions that it was trained on.

    Raises:
        CheckpointError: rogue-net does not support it: a continuous action, or a name that its
            modules cannot have.
        MissingExtraError: msgpack is not installed.
        OSError: the disk is full or not writable; the previous checkpoint stays readable.
        UsageError: `path` is a file, or a folder with other files.
    """
    _require_names(weights)
    spaces = spaces_to_ron(weights.obs_space, weights.action_space)
    config = Struct(
        "TrainConfig",
        {
            "version": LAST_VERSION,
            "env": Struct("EnvConfig", {"id": "entity_env"}),
            "net": config_to_ron(weights.config),
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
            "optimizer": "<blob:msgpack>",  # read only to resume a training
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
    """Names that no module of torch, and so no entity or action of rogue-net, can have."""
    taken = _TAKEN.split()
    return [name for name in names if not name or "." in name or name in taken or name[0] == "_"]


def _require_names(weights: Weights) -> None:
    for name in refused_names([*weights.obs_space.entities, *weights.action_space]):
        raise CheckpointError(
            f"the name {name!r} cannot be that of a module of torch, so rogue-net cannot load "
            "such a network: rename the entity or the action"
        )
