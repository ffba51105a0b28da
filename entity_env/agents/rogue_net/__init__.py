"""RogueNet, the entity transformer, in torch and in numpy, with its configuration and checkpoints.

Importing this package does not import torch: names that need torch load on first use. Training
belongs to `ppo`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.agents.rogue_net.batch_layout import Batch as Batch, ObsBatch as ObsBatch
from entity_env.agents.rogue_net.checkpoints.reader import read_network as read_network
from entity_env.agents.rogue_net.config import (
    CNNConfig as CNNConfig,
    MLPConfig as MLPConfig,
    RelposEncodingConfig as RelposEncodingConfig,
    RogueNetConfig as RogueNetConfig,
    TranslationConfig as TranslationConfig,
)
from entity_env.agents.rogue_net.weights import Weights as Weights
from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.enn_trainer.checkpoint import (
        write_enn_checkpoint as write_enn_checkpoint,
    )
    from entity_env.agents.rogue_net.numpy_net.agent import NumpyAgent as NumpyAgent
    from entity_env.agents.rogue_net.numpy_net.net import NumpyNet as NumpyNet
    from entity_env.agents.rogue_net.onnx_net.file import write_onnx as write_onnx
    from entity_env.agents.rogue_net.torch_net.agent import NeuralAgent as NeuralAgent
    from entity_env.agents.rogue_net.torch_net.checkpoint import (
        Checkpoint as Checkpoint,
        initialized_from as initialized_from,
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
    )
    from entity_env.agents.rogue_net.torch_net.distributions import (
        ActionDistribution as ActionDistribution,
        CategoricalDistribution as CategoricalDistribution,
        GaussianDistribution as GaussianDistribution,
    )
    from entity_env.agents.rogue_net.torch_net.net import (
        Decisions as Decisions,
        Evaluation as Evaluation,
        PolicyOutput as PolicyOutput,
        RogueNet as RogueNet,
    )

_LATE = {
    "NumpyAgent": "numpy_net.agent",
    "NumpyNet": "numpy_net.net",
    "write_enn_checkpoint": "enn_trainer.checkpoint",
    "write_onnx": "onnx_net.file",
    "ActionDistribution": "torch_net.distributions",
    "CategoricalDistribution": "torch_net.distributions",
    "Checkpoint": "torch_net.checkpoint",
    "Decisions": "torch_net.net",
    "Evaluation": "torch_net.net",
    "GaussianDistribution": "torch_net.distributions",
    "PolicyOutput": "torch_net.net",
    "NeuralAgent": "torch_net.agent",
    "RogueNet": "torch_net.net",
    "initialized_from": "torch_net.checkpoint",
    "load_checkpoint": "torch_net.checkpoint",
    "save_checkpoint": "torch_net.checkpoint",
}

__getattr__ = late_names(__name__, _LATE)
