"""Games that ship with the package.

A single-file game imports only what a user's game would, and is self-contained: each file defines
the `Move` or `Food` that it needs. `azul`, `classic`, `meteor_shower`, `multi_snake_batch` and
`pixel` are packages, imported at first use, so a program that ships one game starts without the
rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entity_env.games.cherry_pick import cherry_pick as cherry_pick
from entity_env.games.multi_snake import (
    MULTI_SNAKE_NAMES as MULTI_SNAKE_NAMES,
    multi_snake as multi_snake,
)
from entity_env.games.rock_paper_scissors import rock_paper_scissors as rock_paper_scissors
from entity_env.games.snake import snake as snake
from entity_env.games.tic_tac_toe import tic_tac_toe as tic_tac_toe
from entity_env.games.treasure_hunt import treasure_hunt as treasure_hunt
from entity_env.lazy_imports import late_names

if TYPE_CHECKING:
    from entity_env.games.classic.play import (
        cartpole as cartpole,
        mountain_car as mountain_car,
        pendulum as pendulum,
    )
    from entity_env.games.meteor_shower.meteors import meteors as meteors
    from entity_env.games.pixel.play import (
        pixel_catch as pixel_catch,
        pixel_grid as pixel_grid,
        pixel_maze as pixel_maze,
        pixel_rom as pixel_rom,
    )
    from entity_env.games.registry import GAMES as GAMES

_LATE = {
    "cartpole": "classic.play",
    "meteors": "meteor_shower.meteors",
    "mountain_car": "classic.play",
    "pendulum": "classic.play",
    "pixel_catch": "pixel.play",
    "pixel_grid": "pixel.play",
    "pixel_maze": "pixel.play",
    "pixel_rom": "pixel.play",
    "GAMES": "registry",
}

__getattr__ = late_names(__name__, _LATE, extra="pixel")
