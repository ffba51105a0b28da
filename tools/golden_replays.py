"""Records one replay per game, for the tests and for the pictures of the docs.

    python tools/golden_replays.py [GAME ...]

Writes tests/data/replays/GAME.replay: the best episode of several seeds, by an agent in `examples`
if there is one, else by random agents. Run it after an intended change of a game's rules.
"""

import sys
from pathlib import Path

from entity_env import Game
from entity_env.agents import Agent, RandomAgent, load_agent
from entity_env.games import GAMES
from entity_env.replay import Replay, record

ROOT = Path(__file__).parents[1]
OUT = ROOT / "tests" / "data" / "replays"
TRAINED = {"snake": "examples/ship/snake.agent", "azul": "examples/azul/azul.agent"}
MAX_DECISIONS = 100
GAMES_BY_NAME = {name: game for name, game in GAMES.items() if name != "pixel"}
"""All games except the one that runs a user's file."""


def slug(name: str) -> str:
    """Name of a game's files, without suffix."""
    return name.replace(":", "_")


def agents_of(game: Game, seed: int) -> list[Agent]:
    agents: list[Agent] = [RandomAgent(seed=10 * seed + i) for i in range(game.num_agents)]
    if game.name in TRAINED:
        agents[0] = load_agent(ROOT / TRAINED[game.name], seed=1)
    return agents


def best(game: Game, num_seeds: int) -> Replay:
    """The replay with the highest reward among those short enough for an animation, else of all."""

    def rank(replay: Replay) -> tuple[bool, float]:
        return len(replay) <= MAX_DECISIONS, replay.rewards[0] or 0.0

    return max((record(game, *agents_of(game, i), seed=i) for i in range(num_seeds)), key=rank)


def main() -> None:
    OUT.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or GAMES_BY_NAME:
        replay = best(GAMES_BY_NAME[name], 5 if name.startswith(("azul", "pixel")) else 200)
        path = OUT / f"{slug(name)}.replay"
        replay.save(path)
        sys.stdout.write(f"{path.relative_to(ROOT)}: {replay}, {path.stat().st_size} bytes\n")


if __name__ == "__main__":
    main()
