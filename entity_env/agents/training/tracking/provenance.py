"""Provenance in `run.json`: game and environments, machine, versions. Nothing is sent away."""

from __future__ import annotations

import platform
import re
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

from entity_env.authoring.game import Game
from entity_env.authoring.identity import about_game
from entity_env.core.validation import num_cores
from entity_env.core.vec_obs import VecEnvironment

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.torch_net.policy import Policy

_CPU_INFO: Final = Path("/proc/cpuinfo")
_MODEL: Final = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


def about_training(
    vec: VecEnvironment, net: Policy, num_ranks: int, given: Mapping[str, object]
) -> dict[str, object]:
    """Facts for `run.json` on the game, the environments and the computation.

    Args:
        num_ranks: number of ranks that train the network.
        given: further facts; take precedence.
    """
    import torch  # not needed for reading runs

    game = getattr(vec, "game", None)
    return {
        "entities": list(net.obs_space.entities),
        "actions": list(net.action_space),
        **(about_game(game) if isinstance(game, Game) and "identity" not in given else {}),
        "num_envs": getattr(vec, "num_envs", vec.num_rows),
        "num_rows": vec.num_rows,
        "num_ranks": num_ranks,
        "num_workers": getattr(vec, "num_workers", 0),
        "num_threads": torch.get_num_threads(),
        **net.origin,
        **given,
    }


def machine() -> dict[str, str | int]:
    """Host, operating system, processor model, and number of cores available to this process."""
    return {
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "num_cpus": num_cores(),
    }


def _cpu() -> str:
    """The processor model, or its architecture."""
    with suppress(OSError):
        if found := _MODEL.search(_CPU_INFO.read_text(errors="replace")):
            return found[1].strip()
    return platform.processor() or platform.machine()
