"""Twenty games on which the defaults of `entity-env train` are measured.

Ten are for one agent (`single`), ten for several (`multi`). A module has a game of its own name and
a scripted player, `Scripted`. `python -m benchmarks.games` measures random moves and the scripted
players; `scores.json` has the figures of 100 episodes each.

Those of PettingZoo need packages: `pip install -c constraints.txt pettingzoo pygame mpe2 rlcard`.
"""

from benchmarks.games.registry import (
    BENCHMARK_GAMES as BENCHMARK_GAMES,
    BenchmarkGame as BenchmarkGame,
)

__all__ = ["BENCHMARK_GAMES", "BenchmarkGame"]
