"""Writes a training run's curves for TensorBoard."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

from entity_env.agents.ppo.logging import TrainProgress
from entity_env.core.vec_obs import Metric
from entity_env.errors import MissingExtraError, UsageError


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
