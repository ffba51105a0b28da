"""Games whose episodes are recorded, with settings for short episodes."""

from hypothesis import strategies as st

from entity_env import Game
from entity_env.games import GAMES
from tests.helpers.continuous_games import bodies_game
from tests.helpers.tiny_games import TINY_GAMES

PACKAGE = {name: game for name, game in GAMES.items() if name != "pixel"}
"""Every game of the package except "pixel", which runs a user's file."""
ALL = PACKAGE | TINY_GAMES | {"bodies": bodies_game}

_INTEGERS = {
    "board_size": (6, 9),
    "height": (2, 12),
    "max_episode_steps": (1, 40),
    "max_rounds": (1, 2),
    "max_snake_length": (2, 10),
    "max_step": (1, 40),
    "num_bad": (1, 5),
    "num_good": (1, 5),
    "num_meteors": (1, 6),
    "num_players": (2, 4),
    "num_rounds": (1, 5),
    "num_snakes": (1, 3),
    "num_traps": (0, 5),
    "num_treasures": (1, 5),
    "sight": (0, 4),
    "width": (1, 9),
}


def with_random_settings(game: Game) -> st.SearchStrategy[Game]:
    """The game with random settings that keep its episodes short."""
    drawn: dict[str, st.SearchStrategy[object]] = {
        name: st.booleans() if parameter.annotation is bool else st.integers(*_INTEGERS[name])
        for name, parameter in game.parameters.items()
        if parameter.annotation is not str and game in PACKAGE.values()
    }
    return st.fixed_dictionaries(drawn).map(lambda chosen: game.with_settings(**chosen))
