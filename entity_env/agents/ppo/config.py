"""Every setting of the trainer."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from types import UnionType
from typing import Final

from entity_env.agents.ppo.presets import named_preset, preset_for
from entity_env.agents.rogue_net.config import CNNConfig, MLPConfig, RogueNetConfig
from entity_env.core.vec_obs import VecEnvironment
from entity_env.errors import UsageError

RESTARTS: Final = "TORCHELASTIC_RESTART_COUNT"
"""Variable of the environment in which torchrun counts how often it started the ranks anew."""
_INTEGERS: Final = {
    "total_steps": (1, 2**63 - 1),
    "seed": (0, 2**63 - 1),
    "num_steps": (1, 10**6),
    "minibatch_size": (1, 2**31 - 1),
    "update_epochs": (1, 10**6),
    "microbatch_size": (1, 2**31 - 1),
    "warmup_steps": (0, 2**63 - 1),
    "num_threads": (1, 1024),
    "episode_window": (1, 10**9),
}
"""Smallest and largest value: a file must not make the trainer take all memory."""
_FLAGS: Final = (
    *("anneal_learning_rate", "norm_adv", "norm_returns", "clip_vloss", "anneal_entropy"),
)
_NUMBERS: Final = (
    *("learning_rate", "gamma", "gae_lambda", "clip_coef", "vf_coef", "ent_coef"),
    *("weight_decay", "max_grad_norm", "target_kl", "checkpoint_interval_s", "peer_timeout_s"),
)
_ENDLESS: Final = ("max_grad_norm", "checkpoint_interval_s", "target_kl")
"""Numbers that can be infinite: never."""


@dataclass(frozen=True)
class PPOConfig:
    """Every setting of the trainer; the defaults suit small games on a few cores.

    The number of environments is not here: it is a property of the `VecEnvironment`.

    Raises:
        UsageError: a setting that cannot work.
    """

    total_steps: int = 400_000
    """Decisions to learn from: one is all that one agent does on one observation."""
    seed: int = 1
    """Makes the network, the draws, the minibatches and the environments repeat themselves."""
    net: RogueNetConfig | MLPConfig | CNNConfig = field(default_factory=RogueNetConfig)
    """Kind and size of the network."""

    num_steps: int = 16
    """Steps of every environment in one rollout."""
    minibatch_size: int = 1024
    """Decisions in one step of the optimizer, about."""
    microbatch_size: int | None = None
    """Most decisions whose gradient is computed at a time, to need less memory; the gradients of a
    minibatch are added. None = all of a minibatch."""
    update_epochs: int = 3
    """How often each rollout is learnt from."""

    learning_rate: float = 0.003
    """Step size of Adam at the start."""
    anneal_learning_rate: bool = True
    """Whether the step size falls linearly to 0 over `total_steps`."""
    warmup_steps: int = 0
    """Decisions during which the step size first rises linearly to `learning_rate`."""
    gamma: float = 0.99
    """Discount of the reward, a decision."""
    gae_lambda: float = 0.95
    """Weight of longer returns in the advantage: 0 trusts the value, 1 the rewards."""

    clip_coef: float = 0.2
    """How far the probability of an action may move before its gradient is cut."""
    norm_adv: bool = True
    """Whether the advantages of a minibatch are shifted and scaled to mean 0, deviation 1."""
    norm_returns: bool = False
    """Whether values are learnt in units of the deviation of returns, see `ReturnStatistics`."""
    clip_vloss: bool = True
    """Whether the value's gradient is cut where it moved more than `clip_coef`, in such units."""
    vf_coef: float = 0.5
    """Weight of the value's loss."""
    ent_coef: float = 0.02
    """Reward for entropy, in nats a decision, at the start."""
    anneal_entropy: bool = True
    """Whether that reward falls linearly to 0 over `total_steps`."""
    weight_decay: float = 0.0
    """Decay of the parameters, a step of the optimizer and of its step size (AdamW)."""
    max_grad_norm: float = 2.0
    """Longest gradient that is followed as it is."""
    target_kl: float | None = None
    """Divergence from the rollout's policy that ends learning from it early; None = never."""

    device: str = "cpu"
    """Where torch computes."""
    num_threads: int | None = 1
    """Threads that torch computes with; None = as torch is set. Small networks gain little from a
    second one, and lose much of their speed when something else wants the core."""
    checkpoint_interval_s: float = 60.0
    """Seconds between checkpoints; one more is written at the end."""
    episode_window: int = 200
    """Episodes that the reported mean reward and length go over."""
    peer_timeout_s: float = 300.0
    """Seconds that a rank of a process group waits for the others."""

    def __post_init__(self) -> None:
        for name, (least, most) in _INTEGERS.items():
            value = getattr(self, name)
            if value is not None or name not in ("num_threads", "microbatch_size"):
                is_right = _is(value, int) and least <= value <= most
                _require(self, name, is_right, f"an integer from {least} to {most:.4g}")
        for name in _FLAGS:
            _require(self, name, type(getattr(self, name)) is bool, "True or False")
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None or name != "target_kl":
                is_number = _is(value, int | float) and value == value
                # Compared rather than converted: an integer may be larger than any float.
                is_endless = name in _ENDLESS and value in (math.inf, -math.inf)
                is_finite = is_number and (abs(value) <= sys.float_info.max or is_endless)
                _require(self, name, is_finite, "a finite number")
        for name in ("learning_rate", "clip_coef", "max_grad_norm", "peer_timeout_s"):
            _require(self, name, getattr(self, name) > 0, "above 0")
        for name in ("gamma", "gae_lambda"):
            _require(self, name, 0 <= getattr(self, name) <= 1, "between 0 and 1")
        _require(self, "device", type(self.device) is str, "a name")
        for name in ("vf_coef", "ent_coef", "weight_decay", "target_kl", "checkpoint_interval_s"):
            value = getattr(self, name)
            _require(self, name, value is None or value >= 0, "0 or more")
        is_size = isinstance(self.net, RogueNetConfig | MLPConfig | CNNConfig)
        _require(self, "net", is_size, "a RogueNetConfig, MLPConfig or CNNConfig")

    @classmethod
    def for_env(
        cls, vec: VecEnvironment, *, preset: str | None = None, **settings: object
    ) -> PPOConfig:
        """Settings that suit the kind of environment, with the given ones in their place.

        Args:
            vec: the environments.
            preset: name of one of `PRESETS`; None = the one that suits the spaces: "control" (an
                MLP, normalized returns) for observations of fixed size and no select action,
                "pictures" for those with a picture, "entities" for all others. All of them make
                more and smaller gradient steps than the defaults of this class.
            settings: fields of this class.

        Raises:
            UsageError: a preset or a setting that there is not, or one that cannot work.
        """
        _require_known(settings)
        found = named_preset(preset) if preset else preset_for(vec.obs_space(), vec.action_space())
        total_steps = settings.get("total_steps")
        if not isinstance(total_steps, int):  # refused by the class, unless there is none
            total_steps = None
        own = found.settings_for(vec.num_rows, total_steps)
        return cls(**{**own, **settings})

    def summary(self) -> str:
        """The settings that are changed most often, in one line."""
        names = (
            *("num_steps", "minibatch_size", "update_epochs", "learning_rate", "gamma", "ent_coef"),
            "norm_returns",
        )
        settings = ", ".join(f"{name} {getattr(self, name)}" for name in names)
        net = ", ".join(f"{name}={value}" for name, value in self.net.to_json().items())
        return f"{self.total_steps:,} steps, {settings}, {type(self.net).__name__}({net})"

    def to_json(self) -> dict[str, object]:
        """The settings as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> PPOConfig:
        """The settings that `to_json` gave.

        Raises:
            UsageError: a setting that this release does not know, or that cannot work.
        """
        _require_known(data)
        values = dict(data)
        net = values.pop("net", {})
        if not isinstance(net, dict):
            raise UsageError(f"the setting 'net' holds settings of its own, got {net!r}")
        try:
            kind = CNNConfig if "layers" in net else MLPConfig if "hidden" in net else None
            size = (kind or RogueNetConfig)(**net)
        except TypeError as error:  # a setting that is unknown
            raise UsageError(f"the setting 'net': {error}") from error
        return cls(net=size, **values)  # type: ignore[arg-type]  # checked by the class


def _require_known(settings: Mapping[str, object]) -> None:
    known = {each.name for each in fields(PPOConfig)}
    if unknown := sorted(set(settings) - known):
        raise UsageError(f"there is no setting {unknown[0]!r}; there are {sorted(known)}")


def _is(value: object, kind: type | UnionType) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _require(config: PPOConfig, name: str, is_right: bool, expected: str) -> None:
    if not is_right:
        raise UsageError(f"{name} must be {expected}, got {getattr(config, name)!r}")
