"""Every game of this package by name; importing this loads all of them."""

from collections.abc import Callable
from dataclasses import dataclass

from entity_env.authoring.game import Game
from entity_env.games.azul import AzulSelfPlay, azul, azul_by_id
from entity_env.games.cherry_pick import cherry_pick
from entity_env.games.classic import CartPole, MountainCar, Pendulum
from entity_env.games.classic.play import cartpole, mountain_car, pendulum
from entity_env.games.meteor_shower import Meteors, meteors
from entity_env.games.multi_snake import multi_snake
from entity_env.games.pixel.play import (
    catch_batch,
    grid_batch,
    maze_batch,
    pixel_catch,
    pixel_grid,
    pixel_maze,
    pixel_rom,
    rom_batch,
)
from entity_env.games.rock_paper_scissors import rock_paper_scissors
from entity_env.games.snake import snake
from entity_env.games.tic_tac_toe import tic_tac_toe
from entity_env.games.treasure_hunt import treasure_hunt
from entity_env.vec.batch_env.batch_env import BatchEnv
from entity_env.vec.batch_env.source import BatchSource

GAMES: dict[str, Game] = {
    game.name: game
    for game in (
        snake,
        multi_snake,
        treasure_hunt,
        cherry_pick,
        rock_paper_scissors,
        tic_tac_toe,
        azul,
        azul_by_id,
    )
}
"""Every game of this package, by name."""


@dataclass(frozen=True)
class BatchGame:
    """A game that is also available as a batch environment, for training.

    Args:
        game: plays one environment.
        batch: makes a batch, given the number of environments and the settings of `game` by name.
    """

    game: Game
    batch: Callable[..., BatchEnv]


BATCH_GAMES: dict[str, BatchGame] = {
    each.game.name: each
    for each in (
        BatchGame(cartpole, CartPole),
        BatchGame(mountain_car, MountainCar),
        BatchGame(pendulum, Pendulum),
        BatchGame(meteors, Meteors),
        BatchGame(pixel_grid, grid_batch),
        BatchGame(pixel_maze, maze_batch),
        BatchGame(pixel_catch, catch_batch),
        BatchGame(pixel_rom, rom_batch),
    )
}
"""Every game of this package with a batch environment, by name."""

SELF_PLAY: dict[str, Callable[[Game], BatchSource | None]] = {azul.name: AzulSelfPlay.of}
"""By the name of a game, its environments for training by self-play, if its settings allow them."""
