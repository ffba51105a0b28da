"""How fast are batches of one game, stepped with episodes under the caller's control?

The full loop on CartPole by random pushes made beforehand: step, observation, reward and flags
out, a mask built, what has ended reset; beside Gymnasium's `CartPoleVectorEnv`, `SyncVectorEnv` and
single environment, EnvPool, and our own numpy version. MountainCar and Pendulum: the step alone.
`operant_overhead`: what resets by the caller cost over steps that reset themselves, by processor
time and with nothing copied; `no_reset_overhead`: the same where the results of those steps are
copied to the caller's arrays. What `BatchVecEnv` costs over the loop by hand; and multi-snake on
1,024 boards beside entity-gym-rs.

One thread each, EnvPool's beside its caller's. Every contender lives in a process of its own and
sleeps unless it is its turn (`operant_overhead` needs none); a ratio is the median over rounds of
the ratio within a round.
"""

from __future__ import annotations

from benchmarks.batch_groups import classic, face, operant, snake, start
from benchmarks.batch_groups.plan import Groups, measure_groups
from benchmarks.common import report, rounds_and_json

_PACKAGES = ["entity-env", "numpy", "numba", "gymnasium", "envpool", "entity-gym-rs"]

GROUPS: Groups = {
    "first import": start.figures,
    "operant": operant.figures,
    "classic control": classic.figures,
    "as a VecEnv": face.figures,
    "multi-snake": snake.figures,
}
"""Measured one after another; each starts its contenders and ends them."""


def main() -> None:
    """Measures and reports."""
    num_rounds, as_json = rounds_and_json(__doc__ or "")
    figures = measure_groups(GROUPS, num_rounds)
    report("Batches of one game", figures, _PACKAGES, as_json)


if __name__ == "__main__":
    main()
