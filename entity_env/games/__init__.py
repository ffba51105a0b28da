"""Games: each shows one thing, and knows nothing but the agents that it asks."""

from collections.abc import Callable
from dataclasses import dataclass

from entity_env.game import Game
from entity_env.games.cherry_pick import cherry_pick as cherry_pick
from entity_env.games.classic import CartPole, MountainCar, Pendulum
from entity_env.games.classic.play import (
    cartpole as cartpole,
    mountain_car as mountain_car,
    pendulum as pendulum,
)
from entity_env.games.multi_snake import multi_snake as multi_snake
from entity_env.games.rock_paper_scissors import rock_paper_scissors as rock_paper_scissors
from entity_env.games.snake import snake as snake
from entity_env.games.tic_tac_toe import tic_tac_toe as tic_tac_toe
from entity_env.games.treasure_hunt import treasure_hunt as treasure_hunt
from entity_env.vec.batch import BatchEnv

GAMES: dict[str, Game] = {
    game.name: game
    for game in (
        snake,
        multi_snake,
        treasure_hunt,
        cherry_pick,
        rock_paper_scissors,
        tic_tac_toe,
    )
}
"""Every game of this package, by name."""


@dataclass(frozen=True)
class BatchGame:
    """A game that is also there as a batch environment, for training.

    Args:
        game: what is played one at a time.
        batch: takes a number of environments, and the settings of the game by their names.
    """

    game: Game
    batch: Callable[..., BatchEnv]


BATCH_GAMES: dict[str, BatchGame] = {
    each.game.name: each
    for each in (
        BatchGame(cartpole, CartPole),
        BatchGame(mountain_car, MountainCar),
        BatchGame(pendulum, Pendulum),
    )
}
"""Every game of this package that is also a batch environment, by name."""
