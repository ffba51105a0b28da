"""Settings of behavioral cloning; reading them does not import torch."""

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
        UsageError: a setting that cannot work.
    """

    epochs: _Count = 100
    """Most epochs over the decisions that are learnt from."""
    patience: _Count = 10
    """Epochs without a better network after which learning ends, if they have 500 minibatches."""
    held_out: Annotated[float, Range(0, 1, is_below=True)] = 0.1
    """Share of the episodes, 0 to below 1, that are not learnt from: the network that gives their
    decisions the highest probability is kept. 0 = none; then the last network is kept."""
    minibatch_size: _Count = 64
    """Decisions in one step of the optimizer, about."""
    learning_rate: Annotated[float, Range(0, is_above=True)] = 0.001
    """Step size of Adam."""
    weight_decay: Annotated[float, Range(0)] = 0.0
    """Decay of the parameters, a step of the optimizer and of its step size (AdamW)."""
    max_grad_norm: Annotated[float, Range(0, is_above=True, is_endless=True)] = 2.0
    """Longest gradient that is followed as it is."""
    vf_coef: Annotated[float, Range(0)] = 0.5
    """Weight of the value's loss, in units of the returns' deviation; 0 = no value is learnt."""
    gamma: Annotated[float, Range(0, 1)] = 0.99
    """Discount of the reward, a decision, for the value."""
    net: RogueNetConfig | MLPConfig | CNNConfig | None = None
    """Kind and size of the network; None = the one that PPO has for such spaces."""
    seed: Annotated[int, Range(0, 2**63 - 1)] = 1
    """Makes the network, the held-out episodes and the minibatches repeat themselves."""
    device: str = "cpu"
    """Where torch computes."""
    num_threads: Annotated[int | None, Range(1)] = 1
    """Threads that torch computes with; None = as torch is set."""

    def __post_init__(self) -> None:
        check_settings(self)

    def to_json(self) -> dict[str, object]:
        """The settings as JSON."""
        return asdict(self)

    def net_for(self, spaces: Spaces) -> NetConfig:
        """Kind and size of the network for these spaces."""
        preset = preset_for(*spaces).settings
        size: NetConfig = self.net or preset.get("net", RogueNetConfig())
        if isinstance(size, RogueNetConfig) and preset.get("norm_returns"):
            return replace(size, value_scale=True)
        return size
