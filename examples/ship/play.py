"""Snake as you would ship it: the game, a trained agent, and nothing that only training needs.

python play.py [--seed N] [--frames N] [--fast]
"""

import argparse
import sys
import time
from pathlib import Path

from entity_env import Turn
from entity_env.agents import load_agent
from entity_env.games import snake

AGENT = Path(__file__).with_name("snake.agent")
SIGNS = {"Food": "*", "Segment": "o", "Head": "@"}
SIZE = 10


def draw(turn: Turn) -> str:
    board = [["."] * SIZE for _ in range(SIZE)]
    for name, sign in SIGNS.items():
        for x, y in turn.observation.features.get(name, ()):
            board[SIZE - 1 - int(y)][int(x)] = sign
    rows = "\n".join(" ".join(row) for row in board)
    return f"{rows}\nstep {turn.step}, score {turn.score:.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(description="A trained agent plays snake.")
    parser.add_argument("--seed", type=int, help="seed that repeats a game")
    parser.add_argument("--frames", type=int, default=1000, help="number of frames to draw at most")
    parser.add_argument("--fast", action="store_true", help="do not wait between frames")
    options = parser.parse_args()

    def show(turn: Turn) -> None:
        if turn.step < options.frames:
            home = "\x1b[H\x1b[J" if sys.stdout.isatty() else ""
            print(f"{home}{draw(turn)}\n", flush=True)
            time.sleep(0 if options.fast else 0.1)

    seed = time.time_ns() % 2**31 if options.seed is None else options.seed
    agent = load_agent(AGENT, temperature=0.5, seed=seed)
    [episode] = snake.run(agent, seed=seed, watch=show, board_size=SIZE)
    print(f"The snake ate {episode.reward:.0f} times in {episode.length} steps (seed {seed}).")


if __name__ == "__main__":
    main()
