"""How a training run goes, for whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from entity_env.agents.rogue_net.torch_net.net import RogueNet


@dataclass(frozen=True, slots=True)
class Losses:
    """Means over the minibatches of one update; NaN where nothing was learnt from.

    Args:
        policy_loss: the clipped objective, to be made small.
        value_loss: half the squared error of the value.
        entropy: nats a decision.
        approx_kl: divergence of the new policy from the rollout's, (r - 1) - log r,
            http://joschu.net/blog/kl-approx.html.
        clip_fraction: share of decisions whose gradient was cut.
        explained_variance: 1 - Var(return - value) / Var(return) before the update.
    """

    policy_loss: float = float("nan")
    value_loss: float = float("nan")
    entropy: float = float("nan")
    approx_kl: float = float("nan")
    clip_fraction: float = float("nan")
    explained_variance: float = float("nan")


@dataclass(frozen=True, slots=True)
class TrainProgress:
    """Where a training run stands after an update.

    Args:
        step: decisions so far, those before a resume included.
        total: decisions at the end.
        update: rollouts learnt from so far.
        steps_per_s: decisions a second, over the last updates.
        mean_reward: mean episode reward over the last episodes; NaN before the first has ended.
        mean_length: mean number of actions of the same episodes.
        num_episodes: episodes that ended so far.
        losses: of the last update.
        learning_rate, ent_coef: as annealed for the last update.
        elapsed_s: seconds so far, those before a resume included.
        eta_s: seconds left at the present speed.
        metrics: means of the games' named numbers in the last rollout.
    """

    step: int
    total: int
    update: int = 0
    steps_per_s: float = 0.0
    mean_reward: float = float("nan")
    mean_length: float = float("nan")
    num_episodes: int = 0
    losses: Losses = field(default_factory=Losses)
    learning_rate: float = 0.0
    ent_coef: float = 0.0
    elapsed_s: float = 0.0
    eta_s: float = float("inf")
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TrainResult:
    """What a training run left.

    Args:
        net: the trained network.
        progress: where the run stood at its end.
        is_interrupted: Ctrl-C ended it before its time.
        checkpoint: the folder that was written last; None without `out`.
    """

    net: RogueNet
    progress: TrainProgress
    is_interrupted: bool = False
    checkpoint: Path | None = None
