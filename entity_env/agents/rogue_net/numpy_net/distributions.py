"""Action distributions of a batch, in numpy; see `torch_net.distributions`."""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from entity_env.agents.policy_agent import TIE
from entity_env.core.ragged import Floats
from entity_env.core.spaces import ContinuousActionSpace
from entity_env.errors import CheckpointError

_HALF_LOG_TWO_PI: Final = np.float32(0.5 * math.log(2 * math.pi))
FORBIDDEN: Final = np.float32(-1e30)
"""Logit of a forbidden choice: finite, since probability 0 times infinity is NaN."""
LARGEST_OUTPUT: Final = np.float32(1e30)
"""Larger logits, means, values and states cannot be used: they would reach `FORBIDDEN`."""
_MOST_LOG: Final = np.float32(60)
"""Of a deviation, which is then far beyond all bounds, but finite."""


def are_usable(results: Floats) -> bool:
    """True if all numbers are below `LARGEST_OUTPUT`, and none is NaN."""
    return bool(np.maximum.reduce(np.abs(results), axis=None, initial=0) < LARGEST_OUTPUT)


def require_usable(results: Floats, what: str) -> Floats:
    """Returns results of a network, unless they cannot be used.

    Raises:
        CheckpointError: a number is not below `LARGEST_OUTPUT`, or is NaN.
    """
    if are_usable(results):
        return results
    wrong = results[~(np.abs(results) < LARGEST_OUTPUT)]
    raise CheckpointError(
        f"the network computes {wrong.flat[0]:g} for {what}: its parameters are too large for this "
        "observation, train it again"
    )


def deviations(log_std: Floats) -> Floats:
    """Standard deviations of a continuous action from their logarithms."""
    found: Floats = np.exp(np.minimum(log_std, _MOST_LOG))
    return found


@dataclass(frozen=True, slots=True)
class CategoricalArrays:
    """Categorical distribution over labels or entities, for every actor.

    Args:
        rows: `(num_actors,)` int64, the observation of each actor.
        logprobs: `(num_actors, num_options)` float32, normalized; where not allowed, finite with a
            probability of exactly 0.
        options: `(num_actors, num_options)` the choices that are options of an actor, see
            `Choices`; None = all, in order.
        num_choices: with `options`, number of all choices.
    """

    rows: NDArray[np.int64]
    logprobs: Floats
    options: NDArray[np.int64] | None = None
    num_choices: int = 0

    @classmethod
    def of(
        cls,
        rows: NDArray[np.int64],
        logits: Floats,
        allowed: NDArray[np.bool_] | None,
        options: NDArray[np.int64] | None = None,
        num_choices: int = 0,
    ) -> CategoricalArrays:
        """Normalizes logits over the allowed choices; None = all."""
        if allowed is not None:
            logits = np.where(allowed, logits, FORBIDDEN)
        return cls(rows, _log_softmax(logits), options, num_choices)

    @property
    def probs(self) -> Floats:
        """`(num_actors, num_options)` float32."""
        probs: Floats = np.exp(self.logprobs)
        return probs

    @property
    def probs_of_choices(self) -> Floats:
        """`(num_actors, num_choices)` float32; 0 for choices other than the options."""
        return spread(self.probs, self.options, self.num_choices)

    def choose(self, greedy: bool, rng: np.random.Generator) -> NDArray[np.int64]:
        return self._choices(choose_label(self.probs, greedy, rng))

    def race(self, exponential: Floats) -> tuple[NDArray[np.int64], Floats, Floats]:
        """Draws a sample for each actor, as `CategoricalDistribution.draw` does.

        `exponential` is `(num_actors, num_options)` exponential draws. Returns `(num_actors,)`
        each: the samples, the log-probabilities of the samples, and the entropies.
        """
        probs = self.probs
        samples = (probs / np.maximum(exponential, np.float32(1e-30))).argmax(axis=1)
        entropy: Floats = -np.add.reduce(probs * self.logprobs, axis=1)
        logprobs = self.logprobs[np.arange(len(samples)), samples]
        return self._choices(samples), logprobs, entropy

    def changes(self, num_rows: int) -> Floats:
        """Differences among observations that have the same actors and choices.

        Returns:
            `(num_rows,)` the total variation distance to the distribution of the first
            observation; of the actor for which it is largest.
        """
        probs = _by_row(self.probs, num_rows)
        moved: Floats = np.abs(probs - probs[:1]).sum(axis=2).max(axis=1, initial=0.0)
        return np.float32(0.5) * moved

    def at_temperature(self, temperature: float) -> CategoricalArrays:
        """The probabilities to the power of `1 / temperature`, normalized."""
        logits = np.maximum(self.logprobs / np.float32(temperature), FORBIDDEN)
        return replace(self, logprobs=_log_softmax(logits))

    def _choices(self, columns: NDArray[np.int64]) -> NDArray[np.int64]:
        if self.options is None:
            return columns
        choices: NDArray[np.int64] = self.options[np.arange(len(columns)), columns]
        return choices


@dataclass(frozen=True, slots=True)
class GaussianArrays:
    """Normal distribution of every actor's numbers, in units where -1 is `low` and 1 is `high`.

    Args:
        rows: `(num_actors,)` int64, the observation of each actor.
        mean: `(num_actors, num_labels)` float32.
        log_std: `(num_labels,)` float32.
        low, high: `(num_labels,)` float32, the bounds in the units of the space.
    """

    rows: NDArray[np.int64]
    mean: Floats
    log_std: Floats
    low: Floats
    high: Floats

    def choose(self, greedy: bool, rng: np.random.Generator) -> Floats:
        """`(num_actors, num_labels)` in the units of the space: the mean, or a sample; clipped."""
        samples: Floats = self.mean
        if not greedy:
            noise = rng.standard_normal(self.mean.shape, dtype=np.float32)
            samples = samples + deviations(self.log_std) * noise
        return self.actions(samples)

    def shift(self, normal: Floats) -> tuple[Floats, Floats, Floats]:
        """Turns `(num_actors, num_labels)` standard normal draws into samples.

        Returns the samples, `(num_actors,)` log-densities of the samples, and `(num_actors,)`
        entropies.
        """
        deviation = deviations(self.log_std)
        each = np.float32(-0.5) * np.square(normal) - self.log_std - _HALF_LOG_TWO_PI
        entropy = np.add.reduce(self.log_std + (np.float32(0.5) + _HALF_LOG_TWO_PI))
        logprobs: Floats = np.add.reduce(each, axis=1)
        return self.mean + deviation * normal, logprobs, np.full_like(logprobs, entropy)

    def actions(self, samples: Floats) -> Floats:
        """Samples in the units of the space, within its bounds."""
        middle, half = middle_and_half(self.low, self.high)
        # Samples beyond the bounds, even infinite ones, become exactly the bounds below.
        within = np.clip(samples, -1.0, 1.0)
        inside = np.clip(middle + half * within, self.low, self.high)
        above = np.where(samples >= 1.0, self.high, inside)
        actions: Floats = np.where(samples <= -1.0, self.low, above)
        return actions

    def changes(self, num_rows: int) -> Floats:
        """As for `CategoricalArrays`."""
        mean = _by_row(self.mean / deviations(self.log_std), num_rows)
        # Of normal distributions with equal deviations.
        distance = np.linalg.norm(mean - mean[:1], axis=2).max(axis=1, initial=0.0)
        return np.array([math.erf(each / math.sqrt(8)) for each in distance], np.float32)

    def at_temperature(self, temperature: float) -> GaussianArrays:
        """The density to the power of `1 / temperature`, normalized."""
        return replace(self, log_std=self.log_std + np.float32(0.5 * math.log(temperature)))

    def units(self, actions: Floats) -> Floats:
        """Inverse of `actions`, from -1 to 1; 0 where float32 cannot tell the bounds apart."""
        _, half = middle_and_half(self.low, self.high)
        place = (actions - self.low) / np.where(half > 0, half, np.float32(1))
        return np.where(half > 0, np.clip(place - np.float32(1.0), -1.0, 1.0), np.float32(0))


Distribution: TypeAlias = CategoricalArrays | GaussianArrays


class Chooser:
    """Chooses the values of actions, and remembers them.

    Args:
        greedy: the most probable choice, or the mean, instead of a sample.
        temperature: see `at_temperature`.
    """

    def __init__(
        self,
        rng: np.random.Generator | None = None,
        *,
        greedy: bool = True,
        temperature: float = 1.0,
    ) -> None:
        self._rng, self._greedy, self._temperature = rng or _NO_DRAWS, greedy, temperature
        self.chosen: dict[str, NDArray[np.int64] | Floats] = {}
        self.distributions: dict[str, Distribution] = {}
        """Those that the choices are from, at the temperature."""

    def choose(self, action: str, distribution: Distribution) -> NDArray[np.int64] | Floats:
        """`(num_actors,)` choices or `(num_actors, num_labels)` numbers, in units of the space."""
        found = self.chosen.get(action)
        if found is None:
            if self._temperature != 1.0:
                distribution = distribution.at_temperature(self._temperature)
            self.distributions[action] = distribution
            found = self.chosen[action] = distribution.choose(self._greedy, self._rng)
        return found


_NO_DRAWS: Final = np.random.default_rng(0)
"""Not drawn from."""


def choose_label(probs: Floats, greedy: bool, rng: np.random.Generator) -> NDArray[np.int64]:
    """`(num_actors,)`: every actor's most probable choice (see `TIE`), or a sample."""
    if greedy or not len(probs):
        return first_of_best(probs) if probs.size else np.zeros(0, np.int64)
    if len(probs) == 1:  # the most common case, faster in Python
        sums = list(accumulate(probs[0].tolist()))
        return np.array([bisect_right(sums, rng.random() * sums[-1])])
    # Inverse transform sampling, with cumulative sums in float64.
    total = probs.cumsum(axis=1, dtype=np.float64)
    point = rng.random((len(probs), 1)) * total[:, -1:]
    drawn: NDArray[np.int64] = (total <= point).sum(axis=1)
    return drawn


def spread(probs: Floats, options: NDArray[np.int64] | None, num_choices: int) -> Floats:
    """Probabilities of all choices from those of the options, see `CategoricalArrays`."""
    if options is None:
        return probs
    of_choices = np.zeros((len(probs), num_choices), np.float32)
    actors, columns = np.nonzero(probs)  # columns behind the last option have none
    of_choices[actors, options[actors, columns]] = probs[actors, columns]
    return of_choices


def first_of_best(probs: Floats) -> NDArray[np.int64]:
    """`(num_actors,)`: the first choice whose probability is the highest, up to `TIE`."""
    top = np.maximum.reduce(probs, axis=1, keepdims=True)
    best: NDArray[np.int64] = (probs >= top - np.float32(TIE)).argmax(axis=1)
    return best


def middle_and_half(
    low: Any,  # noqa: ANN401 - numbers, arrays or tensors
    high: Any,  # noqa: ANN401
) -> tuple[Any, Any]:
    """The middle and half the length of the range between bounds, of the same type as these."""
    low, high = 0.5 * low, 0.5 * high  # the sum of two float32 can overflow
    return low + high, high - low


def bounds(space: ContinuousActionSpace) -> tuple[Floats, Floats]:
    """`low` and `high`, `(num_labels,)` float32 each."""
    return np.array(space.low, dtype=np.float32), np.array(space.high, dtype=np.float32)


def _by_row(of_actors: Floats, num_rows: int) -> Floats:
    return of_actors.reshape(num_rows, len(of_actors) // num_rows, of_actors.shape[1])


def _log_softmax(logits: Floats) -> Floats:
    # `reduce` itself: the methods `max` and `sum` take twice as long for few numbers.
    shifted = logits - np.maximum.reduce(logits, axis=-1, keepdims=True, initial=-np.inf)
    normed: Floats = shifted - np.log(np.add.reduce(np.exp(shifted), axis=-1, keepdims=True))
    return normed
