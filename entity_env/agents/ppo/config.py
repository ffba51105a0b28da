"""Every setting of the trainer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields

from entity_env.agents.rogue_net.config import RogueNetConfig
from entity_env.errors import UsageError


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
    net: RogueNetConfig = field(default_factory=RogueNetConfig)
    """Size of the network."""

    num_steps: int = 16
    """Steps of every environment in one rollout."""
    minibatch_size: int = 1024
    """Decisions in one step of the optimizer, about."""
    update_epochs: int = 3
    """How often each rollout is learnt from."""

    learning_rate: float = 0.003
    """Step size of Adam at the start."""
    anneal_learning_rate: bool = True
    """Whether the step size falls linearly to 0 over `total_steps`."""
    gamma: float = 0.99
    """Discount of the reward, a decision."""
    gae_lambda: float = 0.95
    """Weight of longer returns in the advantage: 0 trusts the value, 1 the rewards."""

    clip_coef: float = 0.2
    """How far the probability of an action may move before its gradient is cut."""
    norm_adv: bool = True
    """Whether the advantages of a minibatch are shifted and scaled to mean 0, deviation 1."""
    clip_vloss: bool = True
    """Whether the value's gradient is cut where it moved more than `clip_coef`."""
    vf_coef: float = 0.5
    """Weight of the value's loss."""
    ent_coef: float = 0.02
    """Reward for entropy, in nats a decision, at the start."""
    anneal_entropy: bool = True
    """Whether that reward falls linearly to 0 over `total_steps`."""
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

    def __post_init__(self) -> None:
        at_least_one = ("total_steps", "num_steps", "minibatch_size", "update_epochs")
        for name in (*at_least_one, "episode_window"):
            _require(self, name, getattr(self, name) >= 1, "at least 1")
        _require(self, "num_threads", self.num_threads is None or self.num_threads >= 1, ">= 1")
        _require(self, "seed", self.seed >= 0, "0 or more")
        for name in ("learning_rate", "clip_coef", "max_grad_norm"):
            _require(self, name, getattr(self, name) > 0, "above 0")
        for name in ("gamma", "gae_lambda"):
            _require(self, name, 0 <= getattr(self, name) <= 1, "between 0 and 1")

    def to_json(self) -> dict[str, object]:
        """The settings as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, object]) -> PPOConfig:
        """The settings that `to_json` gave.

        Raises:
            UsageError: a setting that this release does not know.
        """
        known = {each.name for each in fields(cls)}
        if unknown := sorted(set(data) - known):
            raise UsageError(f"there is no setting {unknown[0]!r}; there are {sorted(known)}")
        values = dict(data)
        net = values.pop("net", {})
        if not isinstance(net, dict):
            raise UsageError(f"the setting 'net' holds settings of its own, got {net!r}")
        return cls(net=RogueNetConfig(**net), **values)  # type: ignore[arg-type]  # checked above


def _require(config: PPOConfig, name: str, is_right: bool, expected: str) -> None:
    if not is_right:
        raise UsageError(f"{name} must be {expected}, got {getattr(config, name)!r}")
