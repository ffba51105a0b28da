"""`entity-env bench`: steps per second of a game on this machine."""

from __future__ import annotations

import time
from collections.abc import Sequence

import click
import numpy as np

from entity_env.agents import RandomAgent, random_actions
from entity_env.authoring.game import Game
from entity_env.authoring.local_run import Turn
from entity_env.cli.load_game import game_errors, is_batch, load_game, make_vec_env
from entity_env.cli.options import ENVS, FiniteRange, game_argument, set_option


@click.command()
@game_argument
@click.option("--num-envs", type=ENVS, default=64, show_default=True, help="Number of copies.")
@click.option(
    "--seconds",
    type=FiniteRange(min=0, min_open=True),
    default=2.0,
    show_default=True,
    help="Duration of each of the two measurements.",
)
@set_option
def bench(game: str, num_envs: int, seconds: float, settings: Sequence[str]) -> None:
    """Measure the steps per second of a game with random actions: one copy, then many."""
    chosen = load_game(game, settings)
    with game_errors(chosen):
        click.echo(f"one game, called directly  {_direct(chosen, seconds):>12,.0f} steps/s")
        rate, statistics = _vectorized(chosen, num_envs, seconds)
        copies = f"{num_envs} copies in a {'BatchVecEnv' if is_batch(chosen) else 'VecEnv'}"
        click.echo(f"{copies:<25}  {rate:>12,.0f} steps/s  ({statistics})")


def _direct(game: Game, seconds: float) -> float:
    """Actions per second of random agents in `Game.run`."""
    num_steps = 0

    def count(turn: Turn) -> None:
        nonlocal num_steps
        num_steps += turn.episode is None

    agents = [RandomAgent(seed) for seed in range(game.num_agents)]
    start_s = time.perf_counter()
    episode = 0
    while time.perf_counter() - start_s < seconds:
        game.run(*agents, seed=episode, watch=count)
        episode += 1
    return num_steps / (time.perf_counter() - start_s)


def _vectorized(game: Game, num_envs: int, seconds: float) -> tuple[float, str]:
    """Environment steps per second of many copies, and the statistics of the `VecEnv`."""
    rng = np.random.default_rng(0)
    with make_vec_env(game, num_envs) as vec:
        space = vec.action_space()
        obs = vec.reset()
        start_s = time.perf_counter()
        num_steps = 0
        while time.perf_counter() - start_s < seconds:
            obs = vec.act(random_actions(obs, space, rng))
            num_steps += num_envs
        return num_steps / (time.perf_counter() - start_s), str(vec.statistics())
