"""Trains an agent to walk a maze on an emulated machine from its screen, and shows it playing.

Takes at most three minutes of training on one core; `make demo-pixel` runs it. The machine is an
XO-CHIP, and the reward is how much closer its screen gets to the goal screen. Your own programs
work the same way: record a goal with `entity-env capture-goal`, then use the game `pixel` with
`--set rom=FILE` and `--set goal=DIR`.
"""

import shutil
import statistics
import sys
from pathlib import Path

from rich.console import Console

from entity_env import Episode, Turn
from entity_env.agents import Agent, RandomAgent, load_agent
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.games import pixel_maze
from entity_env.games.pixel.xo_chip.programs import PROGRAMS
from examples.demo import command

SEED = 1
EVAL_EPISODES = 20
SHORTEST = len(PROGRAMS["maze"].solution) + 1  # the goal's screen must be seen twice


def main(
    out: Path = Path("runs/demo-pixel"), steps: int | None = None, limit_s: float = 180
) -> None:
    shutil.rmtree(out, ignore_errors=True)  # left by an earlier demo
    options = {"seed": SEED, "out": out, "max-time": f"{limit_s:g}"}
    if steps is not None:
        options["steps"] = steps
    command("train", "pixel:maze", *(f"--{name}={value}" for name, value in options.items()))
    print(f"\n{EVAL_EPISODES} episodes each; the shortest way takes {SHORTEST} steps:")
    print(f"  random agent   {describe(played(RandomAgent(seed=SEED)))}")
    print(f"  trained agent  {describe(played(load_agent(out, seed=SEED)))}", flush=True)
    [best] = played(load_agent(out, greedy=True, seed=SEED), episodes=1)
    print(f"  at its best    {describe([best])}", flush=True)
    if sys.stdout.isatty():
        command("play", "pixel:maze", "--agent", str(out), "--greedy", "--fps", "4")
    else:
        play_in_few_frames(load_agent(out, greedy=True, seed=SEED))
    print("\nNow walk it yourself:  entity-env play pixel:maze --agent human")


def played(agent: Agent, episodes: int = EVAL_EPISODES) -> list[Episode]:
    return pixel_maze.run(agent, seed=SEED, episodes=episodes)


def describe(episodes: list[Episode]) -> str:
    at_goal = [episode.length for episode in episodes if episode.terminated]
    reward = statistics.fmean(episode.reward for episode in episodes)
    steps = f", after {statistics.fmean(at_goal):.0f} steps" if at_goal else ""
    return f"reward {reward:6.2f}, at the goal {len(at_goal)} of {len(episodes)} times{steps}"


def play_in_few_frames(agent: Agent) -> None:
    """Draws every fifth step, because outside a terminal frames cannot replace one another."""
    with TerminalView(pixel_maze, Console()) as view:

        def watch(turn: Turn) -> None:
            if turn.step % 5 == 0 or turn.episode is not None:
                view(turn)

        pixel_maze.run(agent, seed=SEED, watch=watch)


if __name__ == "__main__":
    main()
