"""Settings of behavioral cloning; importing this module does not import torch."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Annotated, TypeAlias

from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, NetConfig, RogueNetConfig
from entity_env.agents.training.presets import preset_for
from entity_env.core.spaces import Spaces
from entity_env.core.validation import Range, check_settings

_Count: TypeAlias = Annotated[int, Range(1, 10**9)]


@dataclass(frozen=True)
class CloneConfig:
    """Settings of behavioral cloning.

    Raises:
        UsageError: a setting is invalid.
    """

    epochs: _Count = 100
    """Largest number of epochs over the training decisions."""
    patience: _Count = 10
    """Epochs without a better network after which training ends, if they include at least 500
    minibatches. No effect if `held_out` is 0."""
    held_out: Annotated[float, Range(0, 1, is_below=True)] = 0.1
    """Share of the episodes, from 0 to below 1, that are held out of training. The network that
    gives their decisions the highest probability is kept; with 0, the last network is kept."""
    minibatch_size: _Count = 64
    """Approximate number of decisions per optimizer step."""
    learning_rate: Annotated[float, Range(0, is_above=True)] = 0.001
    """Step size of Adam."""
    weight_decay: Annotated[float, Range(0)] = 0.0
    """Weight decay of AdamW: each optimizer step multiplies the parameters by 1 minus the product
    of this number and the step size."""
    max_grad_norm: Annotated[float, Range(0, is_above=True, is_endless=True)] = 2.0
    """Largest norm of the gradient. Longer gradients are scaled down to it."""
    vf_coef: Annotated[float, Range(0)] = 0.5
    """Weight of the value loss, which is in units of the returns' variance. 0 = do not train the
    value."""
    gamma: Annotated[float, Range(0, 1)] = 0.99
    """Discount of the reward per decision, for the value."""
    net: RogueNetConfig | MLPConfig | CNNConfig | None = None
    """Kind and size of the network. None = those that PPO uses for one agent with these spaces."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 1
    """Seed of the network, the held-out episodes and the minibatches."""
    device: str = "cpu"
    """Device that torch uses, such as cpu or cuda."""
    num_threads: Annotated[int | None, Range(1)] = 1
    """Number of threads that torch uses. None = torch's own setting."""

    def __post_init__(self) -> None:
        check_settings(self)

    def to_json(self) -> dict[str, object]:
        return asdict(self)

    def net_for(self, spaces: Spaces) -> NetConfig:
        preset = preset_for(*spaces).settings
        size: NetConfig = self.net or preset.get("net", RogueNetConfig())
        if isinstance(size, RogueNetConfig) and preset.get("norm_returns"):
            return replace(size, value_scale=True)
        return size
