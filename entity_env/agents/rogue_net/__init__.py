"""RogueNet, the entity transformer. Importing this package does not import torch.

Names that need torch are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from entity_env.agents.rogue_net.config import RogueNetConfig as RogueNetConfig
from entity_env.agents.rogue_net.layout import Batch as Batch, ObsBatch as ObsBatch
from entity_env.errors import MissingExtraError

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.torch_agent import NeuralAgent as NeuralAgent
    from entity_env.agents.rogue_net.torch_checkpoint import (
        Checkpoint as Checkpoint,
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
    )
    from entity_env.agents.rogue_net.torch_distributions import (
        ActionDistribution as ActionDistribution,
        CategoricalDistribution as CategoricalDistribution,
        GaussianDistribution as GaussianDistribution,
    )
    from entity_env.agents.rogue_net.torch_net import (
        Decisions as Decisions,
        Evaluation as Evaluation,
        RogueNet as RogueNet,
    )

_NEED_TORCH = {
    "ActionDistribution": "torch_distributions",
    "CategoricalDistribution": "torch_distributions",
    "Checkpoint": "torch_checkpoint",
    "Decisions": "torch_net",
    "Evaluation": "torch_net",
    "GaussianDistribution": "torch_distributions",
    "NeuralAgent": "torch_agent",
    "RogueNet": "torch_net",
    "load_checkpoint": "torch_checkpoint",
    "save_checkpoint": "torch_checkpoint",
}


def __getattr__(name: str) -> object:
    if name not in _NEED_TORCH:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        module = import_module(f"{__name__}.{_NEED_TORCH[name]}")
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise MissingExtraError(error.name, "train", f"{__name__}.{name}") from error
    return getattr(module, name)
