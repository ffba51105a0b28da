"""Action distributions over labels, entities and real numbers.

The numbers of a continuous action follow a diagonal Gaussian, with bounds as in Huang et al., "The
37 Implementation Details of Proximal Policy Optimization" (2022), details 1 to 4 for continuous
actions (also CleanRL and Stable-Baselines3): the standard deviation is learned and does not depend
on the observation; samples are clipped only for the environment. Samples are in units of half the
range, from the middle of the bounds, so one initial network suits every space.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entity_env.agents.policy_agent import TIE
from entity_env.agents.rogue_net.numpy_net.distributions import (
    LARGEST_OUTPUT,
    middle_and_half,
    spread,
)
from entity_env.agents.rogue_net.torch_net.tensors import as_tensor
from entity_env.core.spaces import ActionName
from entity_env.errors import ProtocolError

FORBIDDEN = -1e30
"""Logit of a forbidden choice: finite, because 0 times infinity is NaN."""
HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)


def masked_log_softmax(logits: Tensor, allowed: NDArray[np.bool_] | None) -> Tensor:
    """Log-probabilities of `(num_actors, num_choices)` logits; finite where not allowed."""
    if not torch.is_grad_enabled():  # acting refuses what is not usable, see `require_usable`
        logits = logits.masked_fill(logits.abs() >= float(LARGEST_OUTPUT), math.nan)
    if allowed is not None:
        logits = logits.masked_fill(as_tensor(~allowed, logits.device), FORBIDDEN)
    # torch's CPU softmax is not vectorized over a short last dimension, see `_padded_attention`.
    return torch.log_softmax(logits.t(), dim=0).t()


@dataclass(frozen=True, slots=True)
class ActionDistribution(ABC):
    """Distribution of one action, for every actor.

    It draws *samples*, one per actor; an environment takes `actions(samples)`.

    Args:
        rows: `(num_actors,)` int64, the observation of each actor.
    """

    rows: Tensor

    def given(self, chosen: Mapping[ActionName, Tensor]) -> ActionDistribution:
        """The distribution after the samples of all earlier actions, by name."""
        return self

    @abstractmethod
    def best(self) -> Tensor:
        """Most probable sample of each actor."""

    @abstractmethod
    def draw(self, generator: torch.Generator | None) -> Tensor:
        """Random sample for each actor."""

    @abstractmethod
    def logprob(self, samples: Tensor) -> Tensor:
        """`(num_actors,)` float32 log-probability of each sample."""

    @abstractmethod
    def entropy(self) -> Tensor:
        """`(num_actors,)` float32 nats."""

    def weigh(self, samples: Tensor) -> tuple[Tensor, Tensor]:
        return self.logprob(samples), self.entropy()

    @abstractmethod
    def kl_from(self, teacher: Self) -> Tensor:
        """`(num_actors,)` float32 nats, KL(teacher || this); actors and masks must be equal."""

    @abstractmethod
    def agrees_with(self, teacher: Self) -> Tensor:
        """`(num_actors,)` bool: the most probable sample equals the teacher's.

        Continuous actions agree if every mean is at most one standard deviation of the teacher away
        from the teacher's mean.
        """

    @abstractmethod
    def actions(self, samples: Tensor) -> Tensor:
        """Samples in the units of the action space."""

    @abstractmethod
    def at_temperature(self, temperature: float) -> ActionDistribution:
        """The distribution with densities to the power of `1 / temperature`, normalized.

        It is more even at temperatures above 1, and more peaked below 1. A standard deviation is
        multiplied by the square root of the temperature.
        """


@dataclass(frozen=True, slots=True)
class CategoricalDistribution(ActionDistribution):
    """Categorical distribution over labels or entities; samples are `(num_actors,)` int64.

    Args:
        rows: `(num_actors,)` int64, the observation of each actor.
        logprobs: `(num_actors, num_options)` float32, normalized; where not allowed, finite with a
            probability of exactly 0. For a select action the choices are positions in the list of
            actees, padded to the longest list.
        options: `(num_actors, num_options)` the choices that are options of an actor, see
            `Choices`; None = all, in order.
        num_choices: with `options`, number of all choices.
    """

    logprobs: Tensor
    options: Tensor | None = None
    num_choices: int = 0

    def best(self) -> Tensor:
        probs = self.logprobs.exp()
        is_best = probs >= probs.amax(dim=1, keepdim=True) - TIE
        return self._choices(is_best.to(torch.uint8).argmax(dim=1))

    def probs_of_choices(self) -> NDArray[np.float32]:
        """`(num_actors, num_choices)`; 0 for choices other than the options."""
        options = None if self.options is None else self.options.cpu().numpy()
        return spread(self.logprobs.exp().cpu().numpy(), options, self.num_choices)

    def draw(self, generator: torch.Generator | None) -> Tensor:
        # An exponential race: choice i has the smallest `Exp(1) / p[i]` with probability p[i].
        # Exponential draws on the CPU can be 0, and 0 / 0 would win every race.
        race = torch.empty(self.logprobs.shape, device=self.logprobs.device)
        race = race.exponential_(generator=generator).clamp_min_(1e-30)
        return self._choices((self.logprobs.exp() / race).argmax(dim=1))

    def logprob(self, samples: Tensor) -> Tensor:
        if self.options is None:
            return self.logprobs.gather(1, samples.unsqueeze(1)).squeeze(1)
        # The first column: behind the last option, columns repeat choice 0.
        is_chosen = self.options == samples.unsqueeze(1)
        column = is_chosen.to(torch.uint8).argmax(dim=1, keepdim=True)
        found = self.logprobs.gather(1, column).squeeze(1)
        return found.masked_fill(~is_chosen.any(dim=1), FORBIDDEN)

    def entropy(self) -> Tensor:
        return -(self.logprobs.exp() * self.logprobs).sum(dim=1)

    def kl_from(self, teacher: Self) -> Tensor:
        # Where not allowed, both logarithms are finite, and the probability is 0.
        return (teacher.logprobs.exp() * (teacher.logprobs - self.logprobs)).sum(dim=1)

    def agrees_with(self, teacher: Self) -> Tensor:
        return self.best() == teacher.best()

    def actions(self, samples: Tensor) -> Tensor:
        return samples

    def at_temperature(self, temperature: float) -> CategoricalDistribution:
        # Keep logarithms of 0 finite, so 0 times them is 0.
        logits = (self.logprobs / temperature).clamp_min(FORBIDDEN)
        return replace(self, logprobs=torch.log_softmax(logits, dim=-1))

    def _choices(self, columns: Tensor) -> Tensor:
        if self.options is None:
            return columns
        return self.options.gather(1, columns.unsqueeze(1)).squeeze(1)


@dataclass(frozen=True, slots=True)
class GaussianDistribution(ActionDistribution):
    """Diagonal Gaussian; samples are `(num_actors, num_labels)` float32.

    Samples are not bounded; -1 is `low` and 1 is `high`. Densities and entropy refer to samples. In
    the units of the space, log-probabilities are lower, and entropy higher, by the sum of
    `log((high - low) / 2)`.

    Args:
        rows: `(num_actors,)` int64, the observation of each actor.
        mean: `(num_actors, num_labels)` float32.
        log_std: `(num_labels,)` float32, shared by all actors.
        low, high: `(num_labels,)` float32, the bounds in the units of the space.
    """

    mean: Tensor
    log_std: Tensor
    low: Tensor
    high: Tensor

    def best(self) -> Tensor:
        return self.mean

    def draw(self, generator: torch.Generator | None) -> Tensor:
        noise = torch.empty_like(self.mean).normal_(generator=generator)
        return self.mean + self.log_std.exp() * noise

    def logprob(self, samples: Tensor) -> Tensor:
        deviation = (samples - self.mean) * torch.exp(-self.log_std)
        return (-0.5 * deviation.square() - self.log_std - HALF_LOG_TWO_PI).sum(dim=1)

    def entropy(self) -> Tensor:
        each = self.log_std + (0.5 + HALF_LOG_TWO_PI)
        return each.sum().expand(len(self.mean))

    def kl_from(self, teacher: Self) -> Tensor:
        distance = (teacher.mean - self.mean) * torch.exp(-self.log_std)
        log_ratio = teacher.log_std - self.log_std
        each = 0.5 * ((2 * log_ratio).exp() + distance.square() - 1) - log_ratio
        return each.sum(dim=1)

    def agrees_with(self, teacher: Self) -> Tensor:
        is_near = (self.mean - teacher.mean).abs() <= teacher.log_std.exp()
        return is_near.all(dim=1)

    def actions(self, samples: Tensor) -> Tensor:
        middle, half = middle_and_half(self.low, self.high)
        inside = torch.clamp(middle + half * samples, self.low, self.high)
        # Separate: if half a range underflows to 0, infinity times it is NaN.
        above = torch.where(samples >= 1.0, self.high, inside)
        return torch.where(samples <= -1.0, self.low, above)

    def at_temperature(self, temperature: float) -> GaussianDistribution:
        return replace(self, log_std=self.log_std + 0.5 * math.log(temperature))


@dataclass(frozen=True, slots=True)
class DependentDistribution(ActionDistribution):
    """Distribution of an action that depends on earlier ones; cannot be sampled before them.

    Args:
        rows: `(num_actors,)` int64, the observation of each actor.
        make: the distribution, given the samples of all earlier actions.
    """

    make: Callable[[Mapping[ActionName, Tensor]], ActionDistribution]

    def given(self, chosen: Mapping[ActionName, Tensor]) -> ActionDistribution:
        return self.make(chosen)

    def at_temperature(self, temperature: float) -> DependentDistribution:
        make = self.make
        return replace(self, make=lambda chosen: make(chosen).at_temperature(temperature))

    def best(self) -> Tensor:
        raise self._error()

    def draw(self, generator: torch.Generator | None) -> Tensor:
        raise self._error()

    def logprob(self, samples: Tensor) -> Tensor:
        raise self._error()

    def entropy(self) -> Tensor:
        raise self._error()

    def kl_from(self, teacher: ActionDistribution) -> Tensor:
        raise self._error()

    def agrees_with(self, teacher: ActionDistribution) -> Tensor:
        raise self._error()

    def actions(self, samples: Tensor) -> Tensor:
        raise self._error()

    def _error(self) -> ProtocolError:
        return ProtocolError(
            "this action depends on others: call given(samples) of its distribution first"
        )


def sample_actions(
    distributions: Mapping[ActionName, ActionDistribution],
    *,
    greedy: bool,
    generator: torch.Generator | None,
) -> tuple[dict[ActionName, Tensor], dict[ActionName, ActionDistribution]]:
    """The most probable sample of each actor, or a random one, by action.

    Also returns the distributions that the samples are from: those after all earlier samples.
    """
    chosen: dict[ActionName, Tensor] = {}
    known: dict[ActionName, ActionDistribution] = {}
    for name, each in distributions.items():
        known[name] = own = each.given(chosen)
        chosen[name] = own.best() if greedy else own.draw(generator)
    return chosen, known


def given_samples(
    distributions: Mapping[ActionName, ActionDistribution], chosen: Mapping[ActionName, Tensor]
) -> dict[ActionName, ActionDistribution]:
    """Every distribution, given the samples of all earlier actions."""
    return {name: each.given(chosen) for name, each in distributions.items()}


def at_temperature(
    distributions: Mapping[ActionName, ActionDistribution], temperature: float
) -> dict[ActionName, ActionDistribution]:
    """See `ActionDistribution.at_temperature`."""
    return {name: each.at_temperature(temperature) for name, each in distributions.items()}
