"""Small trained agents for the games of the gallery, and their best episodes.

    python -m tools.docs.games --train [GAME ...]

trains them by `RECIPES`, and writes examples/gallery/GAME.agent and the scores in
docs/results/scores.json. Each agent takes a few minutes on one core at most.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from entity_env.agents import Agent, PolicyAgent, RandomAgent, load_agent
from entity_env.replay import Replay, ReplayWriter
from entity_env.views import Animation
from tools.golden_replays import GAMES_BY_NAME, ROOT, slug

AGENTS: Final = ROOT / "examples" / "gallery"
SEED: Final = 1
_EPISODES: Final = 30
"""Number of episodes from which the best is shown, see `best_seed`."""


class Recipe(NamedTuple):
    """How a small agent is trained.

    Args:
        steps: decisions to train on.
        options: further options of `entity-env train`.
    """

    steps: int
    options: tuple[str, ...] = ()


def _net(d_model: int, n_head: int = 2) -> str:
    """Option for a network with one attention block."""
    sizes = f"d_model={d_model}, n_layer=1, n_head={n_head}, d_qk={min(d_model, 16)}"
    return f"--set-train=net={{{sizes}}}"


_MLP: Final = "--set-train=net.hidden=[24, 24]"
RECIPES: Final[Mapping[str, Recipe]] = {
    "multi_snake": Recipe(400_000, (_net(16),)),
    "treasure_hunt": Recipe(200_000, (_net(16),)),
    "cherry_pick": Recipe(50_000, (_net(8),)),
    "rock_paper_scissors": Recipe(25_000, (_net(8),)),
    "tic_tac_toe": Recipe(60_000, (_net(16),)),
    "cartpole": Recipe(60_000, (_MLP,)),
    "mountain_car": Recipe(300_000, (_MLP,)),
    "pendulum": Recipe(200_000, (_MLP,)),
    "meteors": Recipe(80_000, (_net(16),)),
    "pixel:grid": Recipe(50_000, (_net(8, 1),)),
    "pixel:maze": Recipe(60_000, (_net(8, 1),)),
    "pixel:catch": Recipe(60_000, (_net(8, 1),)),
}
"""Recipes for small networks; all other settings are the defaults of the game. Agents without a
file in `AGENTS` have not been trained yet."""
TRAINED: Final[Mapping[str, str]] = {
    **{name: f"examples/gallery/{slug(name)}.agent" for name in RECIPES},
    "azul": "examples/azul/azul.agent",
    "snake": "examples/ship/snake.agent",
}
"""Path of each game's agent from the root of the repository; the file may not exist yet."""


def is_trained(name: str) -> bool:
    """True if the file of a game's agent exists; other games are shown with a random agent."""
    return name in TRAINED and (ROOT / TRAINED[name]).exists()


def agent_of(name: str) -> PolicyAgent:
    """The trained agent of a game; it samples its actions with a fixed seed."""
    agent = load_agent(ROOT / TRAINED[name], seed=SEED)
    if not isinstance(agent, PolicyAgent):
        raise TypeError(f"{TRAINED[name]} computes no probabilities: {type(agent).__name__}")
    return agent


def train(name: str) -> float:
    """Trains the agent of a game and writes its file; returns seconds of processor time."""
    recipe = RECIPES[name]
    began = _children_s()
    with TemporaryDirectory() as folder:
        out = f"{folder}/run"
        # With one process and compiled code from the start, the seed repeats the run.
        words = ["train", name, "--out", out, "--steps", str(recipe.steps), "--seed", str(SEED)]
        words += ["--num-workers", "0", "--compile", "wait", "--eval-interval", "0"]
        _entity_env(*words, *recipe.options)
        taken_s = _children_s() - began
        AGENTS.mkdir(exist_ok=True)
        _entity_env("export", out, str(ROOT / TRAINED[name]))
    return taken_s


def _entity_env(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "entity_env", *words], check=True, stdout=sys.stderr)


def _children_s() -> float:
    used = os.times()
    return used.children_user + used.children_system


def replay(name: str, seed: int) -> Replay:
    """An episode of the trained agent, or of a random one; all other agents are random."""
    game = GAMES_BY_NAME[name]
    agents: list[Agent] = [RandomAgent(seed=10 * seed + i) for i in range(game.num_agents)]
    names = ["random"] * game.num_agents
    if is_trained(name):
        agents[0], names[0] = agent_of(name), str(ROOT / TRAINED[name])
    writer = ReplayWriter(agents=names)
    game.run(*agents, seed=seed, watch=writer)
    return writer.replays[0]


def best_seed(name: str) -> int:
    """The seed of the episode that is shown, which has the highest reward of several."""
    number = 5 if name.startswith(("azul", "pixel")) else _EPISODES
    return max(range(number), key=lambda seed: replay(name, seed).rewards[0] or 0.0)


def animation(name: str, seed: int) -> Animation:
    """The pictures of an episode, with the probabilities and values of a trained agent."""
    return replay(name, seed).animation(thinker=agent_of(name) if is_trained(name) else None)
