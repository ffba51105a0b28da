"""Time budget, seed and counts of the attack suite."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

SECONDS_VARIABLE = "ENTITY_ENV_ATTACK_SECONDS"
"""Variable with the seconds for the whole suite, divided by the weights of its tests."""
SEED_VARIABLE = "ENTITY_ENV_ATTACK_SEED"
"""Variable that repeats a run: the seed that it printed."""

SHARE_S = 0.1
"""Seconds for a test of weight 1 in `make test`."""


@dataclass
class Attack:
    """One attack test's time budget, random generator and counts.

    Args:
        seed: of `rng`.
        seconds: duration of `rounds`.
    """

    seed: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    """Number of attempts by kind; printed at the end of the run."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @property
    def is_full(self) -> bool:
        """True in `make attack`, False for the small share in `make test`."""
        return SECONDS_VARIABLE in os.environ

    def rounds(self, least: int = 1, most: int | None = None) -> Iterator[int]:
        """Yields 0, 1, 2 … until the time is up, at least `least` and at most `most` numbers."""
        end = time.monotonic() + self.seconds
        number = 0
        while (number < least or time.monotonic() < end) and (most is None or number < most):
            yield number
            number += 1


def run_seed() -> int:
    """Seed of this run: from the variable, 0 on CI, else random."""
    given = os.environ.get(SEED_VARIABLE)
    if given is not None:
        return int(given)
    is_repeatable = os.environ.get("CI") and SECONDS_VARIABLE not in os.environ
    return 0 if is_repeatable else random.SystemRandom().randrange(2**32)
