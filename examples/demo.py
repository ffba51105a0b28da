"""Trains an agent to play snake, compares it with a random agent, and shows it playing.

Takes half a minute on two cores, and twice that the first time; `make demo` runs it. The commands
it prints work for every game, including yours.
"""

import shlex
import shutil
import statistics
import sys
from pathlib import Path

from rich.console import Console

from entity_env import Turn
from entity_env.agents import Agent, RandomAgent, load_agent
from entity_env.cli import main as entity_env
from entity_env.cli.display.terminal_view import TerminalView
from entity_env.games import snake

SEED = 1
EVAL_EPISODES = 100


def main(out: Path = Path("runs/demo"), steps: int = 200_000) -> None:
    shutil.rmtree(out, ignore_errors=True)  # left by an earlier demo
    options: dict[str, object] = {"steps": steps, "seed": SEED, "out": out}
    # Snake is learned sooner with fewer, larger updates than the defaults, which suit all games.
    options |= {"learning-rate": 0.003, "ent-coef": 0.02}
    settings = [f"--set-train={each}" for each in ("minibatch_size=1024", "target_kl=0.3")]
    words = [f"--{name}={value}" for name, value in options.items()]
    command("train", "snake", *words, *settings)
    compare(load_agent(out, seed=SEED))
    if sys.stdout.isatty():
        command("play", "snake", "--agent", str(out), "--episodes", "3", "--fps", "15")
    else:
        play_in_few_frames(load_agent(out, seed=SEED))
    print("\nNow play it yourself:  entity-env play snake --agent human")


def command(*words: str) -> None:
    """Runs `entity-env` as a shell would; exits the demo if the command fails."""
    print(f"\n$ entity-env {shlex.join(words)}", flush=True)
    try:
        entity_env(words)
    except SystemExit as end:
        if end.code:
            raise


def compare(trained: Agent) -> None:
    print(f"\nMean reward of {EVAL_EPISODES} episodes:")
    random = mean_reward(RandomAgent(seed=SEED))
    print(f"  random agent   {random:6.2f}")
    mean = mean_reward(trained)
    ratio = f", {mean / random:.0f} times as much" if random else ""
    print(f"  trained agent  {mean:6.2f}{ratio}", flush=True)


def mean_reward(agent: Agent) -> float:
    episodes = snake.run(agent, seed=SEED, episodes=EVAL_EPISODES)
    return statistics.fmean(episode.reward for episode in episodes)


def play_in_few_frames(agent: Agent) -> None:
    """Draws every tenth step, because outside a terminal frames cannot replace one another."""
    with TerminalView(snake, Console()) as view:

        def watch(turn: Turn) -> None:
            if turn.step % 10 == 0 or turn.episode is not None:
                view(turn)

        snake.run(agent, seed=SEED, watch=watch)


if __name__ == "__main__":
    main()
