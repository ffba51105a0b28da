"""The games of pixels one at a time, for whoever plays them: a person, or a trained agent.

Each plays a batch of one, so what an agent learns in a `BatchVecEnv` is what it meets here. What is
seen and done is in `entity_env.games.pixel.entities`. Importing this does not import torch.

Reward:
    -0.01 a step, and the distance that the screen came nearer to the goal's; 10 for reaching it.
Ends when:
    two screens in a row match the goal.
Cut when:
    max_episode_steps steps were made.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from entity_env import Game, MissingExtraError, Obs
from entity_env.agents import Agent
from entity_env.games.pixel.entities import NUM_SCREEN, PRESS, Screen, Tile
from entity_env.vec.batch_env.batch_env import StepResult

if TYPE_CHECKING:
    from entity_env.games.pixel.env import PixelGoalEnv


def grid_batch(num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu") -> PixelGoalEnv:
    """Return `pixel:grid` as a batch; see `entity_env.games.pixel.batches.grid`.

    Raises:
        MissingExtraError: torch is not installed.
    """
    require_torch("pixel:grid")
    from entity_env.games.pixel import batches

    return batches.grid(num_envs, max_episode_steps=max_episode_steps, device=device)


def program_batch(
    name: str, num_envs: int, *, max_episode_steps: int = 40, device: str = "cpu"
) -> PixelGoalEnv:
    """Return a program as a batch; see `entity_env.games.pixel.batches.program`.

    Raises:
        MissingExtraError: torch or Warp is not installed.
    """
    require_torch(f"pixel:{name}")
    from entity_env.games.pixel import batches

    return batches.program(name, num_envs, max_episode_steps=max_episode_steps, device=device)


def play_grid(agent: Agent, *, seed: int, max_episode_steps: int = 40, device: str = "cpu") -> None:
    """Lead a figure through a grid of walls.

    Args:
        agent: who holds the buttons.
        seed: changes nothing: there is one start.
        max_episode_steps: steps after which the episode is cut.
        device: where torch computes.
    """
    play_env(agent, grid_batch(1, max_episode_steps=max_episode_steps, device=device), seed)


def play_maze(agent: Agent, *, seed: int, max_episode_steps: int = 40, device: str = "cpu") -> None:
    """Find the way through a maze on an XO-CHIP.

    Args:
        agent: who holds the buttons.
        seed: changes nothing: there is one start.
        max_episode_steps: steps after which the episode is cut.
        device: where the machine runs.
    """
    play_env(
        agent, program_batch("maze", 1, max_episode_steps=max_episode_steps, device=device), seed
    )


def play_catch(
    agent: Agent, *, seed: int, max_episode_steps: int = 40, device: str = "cpu"
) -> None:
    """Catch what falls, on an XO-CHIP.

    Args:
        agent: who holds the buttons.
        seed: changes nothing: there is one start.
        max_episode_steps: steps after which the episode is cut.
        device: where the machine runs.
    """
    play_env(
        agent, program_batch("catch", 1, max_episode_steps=max_episode_steps, device=device), seed
    )


def play_env(agent: Agent, env: PixelGoalEnv, seed: int) -> None:
    """Play one episode after another, until the agent has enough.

    Args:
        agent: is told of every end.
        env: a batch of one; closed at the end.
        seed: of the first episode.
    """
    try:
        while True:
            env.reset(seed)
            result, score = env.view(), 0.0
            while not result.is_done(0):
                button = agent.act(_obs(result, score, env.num_entities), PRESS)
                if button is None:
                    return
                result = env.step_no_reset_with_result(np.array([button.value]))
                score += float(result.rewards[0])
            obs = _obs(result, score, env.num_entities)
            agent.game_over(obs, truncated=not result.is_terminal(0))
            seed = agent.seed
    finally:
        env.close()


def _obs(result: StepResult, score: float, num_tiles: int) -> Obs:
    row = result.observations[0]
    tiles, screen = row[:-NUM_SCREEN].reshape(num_tiles, -1), row[-NUM_SCREEN:]
    return Obs(score).globals(Screen(*screen.tolist())).entities(tiles, of=Tile)


def require_torch(purpose: str) -> None:
    """Check that torch is there.

    Raises:
        MissingExtraError: it is not, and this is for what.
    """
    try:
        import torch  # noqa: F401 - only whether it is there
    except ModuleNotFoundError as error:
        raise MissingExtraError("torch", "pixel", purpose) from error


maze_batch: Callable[..., PixelGoalEnv] = partial(program_batch, "maze")
catch_batch: Callable[..., PixelGoalEnv] = partial(program_batch, "catch")
_game = partial(Game, entities=(Tile,), actions=(PRESS,), global_features=Screen)
pixel_grid: Game = _game(play_grid, name="pixel:grid")
pixel_maze: Game = _game(play_maze, name="pixel:maze")
pixel_catch: Game = _game(play_catch, name="pixel:catch")
