"""Twenty games on which the defaults of `entity-env train` are measured.

Ten are for one agent (`single`), ten for several (`multi`). A module has a game with the module's
name and a scripted player, `Scripted`. `python -m benchmarks.games` measures random play and the
scripted players; `scores.json` has the figures.

The PettingZoo games need `pip install -c constraints.txt pettingzoo pygame mpe2 rlcard`.
"""

from benchmarks.games.registry import (
    BENCHMARK_GAMES as BENCHMARK_GAMES,
    BenchmarkGame as BenchmarkGame,
)

__all__ = ["BENCHMARK_GAMES", "BenchmarkGame"]
