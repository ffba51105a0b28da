"""PPO: one trainer. Importing this package does not import torch.

Names that need torch are loaded when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from entity_env.agents.ppo.config import PPOConfig as PPOConfig
from entity_env.agents.ppo.progress import (
    Losses as Losses,
    TrainProgress as TrainProgress,
    TrainResult as TrainResult,
)
from entity_env.errors import MissingExtraError

if TYPE_CHECKING:
    from entity_env.agents.ppo.trainer import train as train


def __getattr__(name: str) -> object:
    if name != "train":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return import_module(f"{__name__}.trainer").train
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "safetensors"):
            raise
        raise MissingExtraError(error.name, "train", "training") from error
