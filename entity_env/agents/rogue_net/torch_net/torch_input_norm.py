"""Normalizes features by the mean and standard deviation of all that were seen in training."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLIP = 5.0
"""Normalized features are cut at this many standard deviations."""


class InputNorm(nn.Module):
    """Shifts and scales every feature by running statistics, and cuts what is far out.

    The statistics change only in `update`, never in `forward`.

    Buffers: `count` (a scalar), `mean` and `squares_sum` (`(num_features,)`, the sum of squared
    distances from the mean), all float32.
    """

    count: Tensor
    mean: Tensor
    squares_sum: Tensor

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.tensor(0.0))
        self.register_buffer("mean", torch.zeros(num_features))
        self.register_buffer("squares_sum", torch.zeros(num_features))
        self._state: list[tuple[int, int]] = []
        """The buffers, and how often each has changed, when they were last looked at."""
        self._known: tuple[Tensor, Tensor] | None = None

    @torch.no_grad()
    def update(self, features: Tensor, *, restart: bool = False) -> None:
        """Counts a batch `(num_entities, num_features)`; `restart` forgets all before it.

        Merges the moments of two sets as in Chan, Golub & LeVeque, "Updating Formulae and a
        Pairwise Algorithm for Computing Sample Variances" (1979).
        """
        if restart:
            for buffer in (self.count, self.mean, self.squares_sum):
                buffer.zero_()
        if not len(features):
            return
        batch = features.double()
        mean = batch.mean(dim=0)
        squares = (batch - mean).square().sum(dim=0)
        old_count = self.count.double()
        count = old_count + len(batch)
        delta = mean - self.mean.double()
        self.mean.add_(delta * (len(batch) / count))
        self.squares_sum.add_(squares + delta.square() * (old_count * len(batch) / count))
        self.count.copy_(count)

    def forward(self, features: Tensor) -> Tensor:
        """Normalizes `(num_entities, num_features)`; raw but cut before two rows were counted."""
        scale = self._scale()
        if scale is None:
            return features.clamp(-CLIP, CLIP)
        mean, deviation = scale
        return features.sub(mean).div_(deviation).clamp_(-CLIP, CLIP)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Mean and deviation that features are normalized with; 0 and 1 if none were counted."""
        return self._scale() or (torch.zeros_like(self.mean), torch.ones_like(self.mean))

    def _scale(self) -> tuple[Tensor, Tensor] | None:
        """Mean and deviation, worked out anew when the statistics have changed."""
        buffers = (self.count, self.mean, self.squares_sum)
        if any(each.is_inference() for each in buffers):  # of these nobody counts the changes
            return self._compute_scale()
        state = [(id(each), each._version) for each in buffers]
        if state != self._state:
            self._known = self._compute_scale()
            self._state = state
        return self._known

    @torch.no_grad()
    def _compute_scale(self) -> tuple[Tensor, Tensor] | None:
        if not self.count > 1:
            return None
        deviation = torch.sqrt(self.squares_sum / (self.count - 1))
        return self.mean.clone(), deviation.masked_fill(deviation == 0, 1.0)
