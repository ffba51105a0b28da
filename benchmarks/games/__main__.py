"""Table of random and scripted play: `python -m benchmarks.games [--write] [NAME ...]`.

In a game for several agents, both play against random opponents; the last two columns are for the
same players against the scripted one. `normalized` scales scores by the last two columns of a game.
"""

from __future__ import annotations

import argparse
import json

from benchmarks.games.measure import SCORES, scores_of
from benchmarks.games.registry import BENCHMARK_GAMES, BenchmarkGame


def line_of(game: BenchmarkGame, scores: dict[str, dict[str, float]]) -> str:
    """One line of the table."""
    columns = [f"{each['score']:9.2f} ± {each['half']:6.2f}" for each in scores.values()]
    columns += [""] * (4 - len(columns))
    rest = f"{scores['random']['length']:7.1f} {scores['random']['decisions_per_s']:8.0f}"
    mark = "held out" if game.held_out else ""
    return (
        f"{game.name:14} {game.score:11} {' '.join(f'{each:18}' for each in columns)} {rest} {mark}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="games; default: all installed")
    parser.add_argument("--episodes", type=int, default=400)
    parser.add_argument("--write", action="store_true", help=f"update {SCORES.name}")
    options = parser.parse_args()
    kept = json.loads(SCORES.read_text()) if SCORES.exists() else {}
    heads = ("random", "scripted", "random : scripted", "scripted : scripted")
    print(
        f"{'game':14} {'scored by':11} {' '.join(f'{each:18}' for each in heads)}  length     per s"
    )
    for name in options.names or BENCHMARK_GAMES:
        game = BENCHMARK_GAMES[name]
        if not game.is_installed:
            print(f"{name:14} needs {', '.join(game.needs)}")
            continue
        kept[name] = scores_of(game, options.episodes)
        print(line_of(game, kept[name]), flush=True)
    if options.write:
        SCORES.write_text(json.dumps(kept, indent=2) + "\n")


if __name__ == "__main__":
    main()
