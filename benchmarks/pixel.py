"""How fast are machines with rewards from their screens?

- The reward, compared with plain float arithmetic and with memory bandwidth.
- The XO-CHIP: compared with the plain machine; resets; whole environment steps; the first start.
- A Game Boy on PyBoy.
- All of it on a GPU, if there is one.

On the CPU, figures are processor time of one thread. A ratio is the median over rounds of the ratio
within a round.
"""

from __future__ import annotations

import sys

import torch

from benchmarks.batch_groups.plan import Groups, measure_groups
from benchmarks.common import report, rounds_and_json
from benchmarks.pixel_groups import game_boy, gpu, reward, xo

_PACKAGES = ["entity-env", "numpy", "torch", "warp-lang", "pyboy"]

GROUPS: Groups = {
    "reward": reward.figures,
    "XO-CHIP": xo.figures,
    "Game Boy": game_boy.figures,
    "GPU": gpu.figures,
}
"""Measured in this order."""


def main() -> None:
    """Measures and reports."""
    num_rounds, as_json = rounds_and_json(__doc__ or "")
    figures = measure_groups(GROUPS, num_rounds)
    if not torch.cuda.is_available():
        print("there is no GPU, so nothing was measured on one", file=sys.stderr)
    report("Screens as rewards", figures, _PACKAGES, as_json)


if __name__ == "__main__":
    main()
