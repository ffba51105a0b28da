"""Time budget, seed and counts of the attack suite."""

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

SECONDS_VARIABLE = "ENTITY_ENV_ATTACK_SECONDS"
"""Seconds that the whole suite may take, divided by the weights of its tests."""
SEED_VARIABLE = "ENTITY_ENV_ATTACK_SEED"
"""Repeats a run: the seed that it printed."""

SHARE_S = 0.1
"""Seconds of a test of weight 1 in `make test`."""


@dataclass
class Attack:
    """One attack test's time budget, random generator and counts.

    Args:
        seed: of `rng`.
        seconds: how long `rounds` goes on.
    """

    seed: int
    seconds: float
    counts: Counter[str] = field(default_factory=Counter)
    """What was tried, and how often; printed at the end of the run."""

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    @property
    def is_full(self) -> bool:
        """Runs in `make attack`, not as its small share in `make test`."""
        return SECONDS_VARIABLE in os.environ

    def rounds(self, least: int = 1, most: int | None = None) -> Iterator[int]:
        """0, 1, 2 … until the time is up, at least `least` and at most `most` numbers."""
        end = time.monotonic() + self.seconds
        number = 0
        while (number < least or time.monotonic() < end) and (most is None or number < most):
            yield number
            number += 1


def run_seed() -> int:
    """Seed of this run: as the variable says, 0 on CI, else drawn."""
    given = os.environ.get(SEED_VARIABLE)
    if given is not None:
        return int(given)
    is_repeatable = os.environ.get("CI") and SECONDS_VARIABLE not in os.environ
    return 0 if is_repeatable else random.SystemRandom().randrange(2**32)
