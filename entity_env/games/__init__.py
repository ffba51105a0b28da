"""Games: each shows one thing, and knows nothing but the agents that it asks."""

from entity_env.game import Game
from entity_env.games.cherry_pick import cherry_pick as cherry_pick
from entity_env.games.multi_snake import multi_snake as multi_snake
from entity_env.games.rock_paper_scissors import rock_paper_scissors as rock_paper_scissors
from entity_env.games.snake import snake as snake
from entity_env.games.tic_tac_toe import tic_tac_toe as tic_tac_toe
from entity_env.games.treasure_hunt import treasure_hunt as treasure_hunt

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
