"""Registry of the package's games; importing it loads all of them."""

from typing import Final

from entity_env import Game
from entity_env.games.azul import azul, azul_by_id
from entity_env.games.cherry_pick import cherry_pick
from entity_env.games.classic.play import cartpole, mountain_car, pendulum
from entity_env.games.meteor_shower import meteors
from entity_env.games.multi_snake import multi_snake
from entity_env.games.pixel.play import pixel_catch, pixel_grid, pixel_maze, pixel_rom
from entity_env.games.rock_paper_scissors import rock_paper_scissors
from entity_env.games.snake import snake
from entity_env.games.tic_tac_toe import tic_tac_toe
from entity_env.games.treasure_hunt import treasure_hunt

GAMES: Final[dict[str, Game]] = {
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
        cartpole,
        mountain_car,
        pendulum,
        meteors,
        pixel_grid,
        pixel_maze,
        pixel_catch,
        pixel_rom,
    )
}
"""Every game of this package, by name."""
