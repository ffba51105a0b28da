"""How fast are machines whose reward comes from their screens?

The reward beside plain float arithmetic and the memory's own speed; the XO-CHIP beside the plain
machine, its resets, whole environment steps, and how long the first start takes; a Game Boy on
PyBoy; and all of it on a GPU where there is one.

On the CPU one thread, whose processor time counts. A ratio is the median over rounds of the ratio
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
"""Measured one after another."""


def main() -> None:
    """Measures and reports."""
    num_rounds, as_json = rounds_and_json(__doc__ or "")
    figures = measure_groups(GROUPS, num_rounds)
    if not torch.cuda.is_available():
        print("there is no GPU, so nothing was measured on one", file=sys.stderr)
    report("Screens as rewards", figures, _PACKAGES, as_json)


if __name__ == "__main__":
    main()
