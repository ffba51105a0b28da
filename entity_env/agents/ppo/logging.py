"""How a training run goes, for whoever watches it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

import numpy as np

from entity_env.core.vec_obs import Metric, VecObs
from entity_env.errors import MissingExtraError, UsageError

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


class CurveWriter:
    """Writes one point a curve and update.

    Args:
        folder: where the event files go; None writes nothing.

    Raises:
        MissingExtraError: tensorboard is not installed.
        UsageError: the folder cannot be written.
    """

    def __init__(self, folder: Path | None) -> None:
        self._writer = None
        if folder is not None:
            try:
                # Here and not above: it takes a second to import.
                from torch.utils.tensorboard import SummaryWriter
            except ImportError as error:
                raise MissingExtraError("tensorboard", "train", "writing curves") from error
            try:
                self._writer = SummaryWriter(str(folder))
            except OSError as error:
                raise UsageError(f"cannot write curves to {folder}: {error}") from error

    def __enter__(self) -> CurveWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, progress: TrainProgress, metrics: Mapping[str, Metric]) -> None:
        """Writes a point of every curve at `progress.step`; what is NaN is left out."""
        if self._writer is None:
            return
        points = {
            "charts/steps_per_s": progress.steps_per_s,
            "charts/learning_rate": progress.learning_rate,
            "charts/ent_coef": progress.ent_coef,
            "episode/mean_reward": progress.mean_reward,
            "episode/mean_length": progress.mean_length,
            "episode/count": float(progress.num_episodes),
            **{f"losses/{name}": value for name, value in asdict(progress.losses).items()},
            **{f"metrics/{name}.mean": metric.mean for name, metric in metrics.items()},
            **{f"metrics/{name}.min": metric.min for name, metric in metrics.items()},
            **{f"metrics/{name}.max": metric.max for name, metric in metrics.items()},
        }
        for name, value in points.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, progress.step)


class EpisodeMeter:
    """Counts episodes and the games' metrics.

    Args:
        window: episodes that the means go over.
    """

    def __init__(self, window: int) -> None:
        self._rewards: deque[float] = deque(maxlen=window)
        self._lengths: deque[int] = deque(maxlen=window)
        self.num_episodes = 0
        self.metrics: dict[str, Metric] = {}

    def add(self, obs: VecObs) -> None:
        """Counts the episodes that ended with this batch, and its metrics."""
        for episode in obs.episodes:
            self._rewards.append(episode.reward)
            self._lengths.append(episode.length)
            for name, value in episode.metrics.items():
                self.metrics.setdefault(f"episode/{name}", Metric()).push(value)
        self.num_episodes += len(obs.episodes)
        for name, metric in obs.metrics.items():
            total = self.metrics.setdefault(name, Metric())
            total.count += metric.count
            total.sum += metric.sum
            total.min = min(total.min, metric.min)
            total.max = max(total.max, metric.max)

    def start_rollout(self) -> None:
        """Forgets the metrics of the rollout before; the episodes stay."""
        self.metrics = {}

    @property
    def mean_reward(self) -> float:
        """Mean reward of the last episodes; NaN when there are none."""
        return float(np.mean(self._rewards)) if self._rewards else float("nan")

    @property
    def mean_length(self) -> float:
        """Mean number of actions of the last episodes; NaN when there are none."""
        return float(np.mean(self._lengths)) if self._lengths else float("nan")
