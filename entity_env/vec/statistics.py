"""Where the time of a VecEnv goes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VecStatistics:
    """Totals since a `VecEnv` was made; times in seconds.

    Args:
        num_steps: calls of `act` (or `recv`) that returned a batch.
        num_env_steps: environments stepped, over all of them.
        num_episodes: episodes that ended.
        games_s: spent in the games, reading what they show included.
        packing_s: spent on making batches of what was read.
        waiting_s: spent by the caller between one batch and the next actions.
        num_restarts: environments that were restarted after a failure.
    """

    num_steps: int
    num_env_steps: int
    num_episodes: int
    games_s: float
    packing_s: float
    waiting_s: float
    num_restarts: int

    def __str__(self) -> str:
        total = max(self.games_s + self.packing_s + self.waiting_s, 1e-9)
        parts = {"games": self.games_s, "packing": self.packing_s, "caller": self.waiting_s}
        shares = ", ".join(f"{name} {100 * part / total:.0f} %" for name, part in parts.items())
        return f"{self.num_env_steps:,} env steps, {self.num_episodes:,} episodes: {shares}"
