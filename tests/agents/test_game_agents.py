"""Agents that come with a game: found by name, none by default, and one error for a wrong name."""

import pytest

from entity_env import Game, UsageError
from entity_env.agents import GameAgents, RandomAgent
from entity_env.agents.game_agents import game_agents
from entity_env.games import snake, tic_tac_toe


class Named(GameAgents):
    names = ("seven",)

    def load(self, name: str, seed: int) -> RandomAgent | None:
        return RandomAgent(seed=7) if name == "seven" else None


named = Named()


def of(players: str) -> Game:
    return Game(snake.play, entities=(), actions=(), name="snake", players=players)


def test_a_game_names_its_own() -> None:
    assert game_agents(of(f"{__name__}:named")) is named
    assert game_agents(of(f"{__name__}:named").with_settings(board_size=4)) is named


@pytest.mark.parametrize("players", ["no_such_module:named", __name__, f"{__name__}:Named"])
def test_a_wrong_name_is_one_error(players: str) -> None:
    with pytest.raises(UsageError, match="snake: players=") as raised:
        game_agents(of(players))
    assert "\n" not in str(raised.value)


def test_without_any_everything_is_as_it_is() -> None:
    own, agent = game_agents(snake), RandomAgent(seed=1)
    assert own.load("seven", 1) is None
    assert own.adapted(agent) is agent
    assert own.seated(snake, 3) is snake
    assert own.human(lambda observation, notes: None) is None
    assert own.summary(["a"], []) is None


def test_a_game_of_a_match_is_an_episode() -> None:
    agents = [RandomAgent(seed=seed) for seed in range(2)]
    result = game_agents(tic_tac_toe).play_match_game(tic_tac_toe, ["a", "b"], agents, seed=5)
    again = tic_tac_toe.play_episode(*[RandomAgent(seed=seed) for seed in range(2)], seed=5)
    assert result.names == ("a", "b")
    assert result.scores == tuple(episode.reward for episode in again)
