"""How fast are batches of one game if the caller resets the environments?

- CartPole with precomputed random pushes, the full loop: step; read observations, rewards and
  flags; build a mask; reset the finished environments. Compared with Gymnasium's
  `CartPoleVectorEnv`, `SyncVectorEnv` and single environment, EnvPool, and our own numpy version.
- MountainCar and Pendulum: the step alone.
- `operant_overhead`: extra processor time of resets by the caller over automatic resets, with
  nothing copied. `no_reset_overhead`: the overhead when the automatic resets copy
  their results to the caller's arrays.
- `BatchVecEnv` compared with a hand-written loop.
- Multi-snake on 1,024 boards, compared with entity-gym-rs.

Most contenders have one thread, run in separate processes and sleep unless they are being measured.
EnvPool has one or two threads in addition to its caller's: the faster counts. The modules of
`batch_groups` describe other exceptions. A ratio is the median over rounds of the ratio within a
round.
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
"""Measured in this order; each group starts and stops its contenders."""


def main() -> None:
    """Measures and reports."""
    num_rounds, as_json = rounds_and_json(__doc__ or "")
    figures = measure_groups(GROUPS, num_rounds)
    report("Batches of one game", figures, _PACKAGES, as_json)


if __name__ == "__main__":
    main()
