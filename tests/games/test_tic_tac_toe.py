"""The rules of tic_tac_toe."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import Obs, Turn
from entity_env.agents import RandomAgent
from entity_env.authoring.action_type import action_type
from entity_env.games import tic_tac_toe
from entity_env.games.tic_tac_toe import Empty, Mine, Square, Theirs, play
from tests.helpers.scripted_agent import ScriptedAgent

# In a magic square, exactly the lines add up to 15.
MAGIC = dict(zip(Square, (2, 7, 6, 9, 5, 1, 4, 3, 8), strict=True))


def has_line(squares: list[Square]) -> bool:
    numbers = [MAGIC[square] for square in squares]
    return any(
        a + b + c == 15
        for i, a in enumerate(numbers)
        for j, b in enumerate(numbers[:i])
        for c in numbers[:j]
    )


def squares(obs: Obs, cls: type) -> set[Square]:
    return {Square((thing.x, thing.y)) for thing in obs.of_class(cls)}


class Table:
    """Two agents that take squares in a given order, whichever starts."""

    def __init__(self, order: list[Square]) -> None:
        self.left = list(order)
        self.taken: list[tuple[int, Square]] = []
        self.agents = [ScriptedAgent(self.player(i)) for i in range(2)]

    def player(self, i: int) -> Callable[[Obs], Square]:
        def answer(obs: Obs) -> Square:
            self.check(obs, i)
            square = self.left.pop(0)
            self.taken.append((i, square))
            return square

        return answer

    def of(self, i: int) -> list[Square]:
        return [square for player, square in self.taken if player == i]

    def check(self, obs: Obs, i: int) -> None:
        assert squares(obs, Mine) == set(self.of(i))
        assert squares(obs, Theirs) == set(self.of(1 - i))
        assert squares(obs, Empty) == set(Square) - set(self.of(0)) - set(self.of(1))
        assert obs.masks is not None
        allowed = obs.masks[action_type(Square)]
        assert dict(zip(Square, allowed, strict=True)) == {
            square: square in squares(obs, Empty) for square in Square
        }


@given(seed=st.integers(0, 2**63 - 1), order=st.permutations(list(Square)))
def test_every_game_follows_the_rules(seed: int, order: list[Square]) -> None:
    table = Table(order)
    play(table.agents, seed=seed)
    players = [player for player, _ in table.taken]
    assert players == [(players[0] + i) % 2 for i in range(len(players))], "in turn"
    for end in range(len(players)):
        before = [square for player, square in table.taken[:end] if player == players[0]]
        others = [square for player, square in table.taken[:end] if player != players[0]]
        assert not has_line(before), "the game went on after a win"
        assert not has_line(others), "the game went on after a win"
    for i, agent in enumerate(table.agents):
        table.check(agent.end.obs, i)
        won, lost = has_line(table.of(i)), has_line(table.of(1 - i))
        assert agent.end.score == won - lost
        assert agent.end.gains == [0] * (len(agent.end.gains) - 1) + [won - lost]
        assert not agent.end.truncated
        assert won or lost or not table.left


@pytest.mark.parametrize(
    "line",
    [
        *("A1 B1 C1", "A2 B2 C2", "A3 B3 C3"),
        *("A1 A2 A3", "B1 B2 B3", "C1 C2 C3"),
        *("A1 B2 C3", "A3 B2 C1"),
    ],
)
def test_every_line_wins(line: str) -> None:
    mine = [Square[name] for name in line.split()]
    theirs = [square for square in Square if square not in mine]
    table = Table([square for pair in zip(mine, theirs, strict=False) for square in pair])
    play(table.agents, seed=1)
    first = table.taken[0][0]
    assert len(table.taken) == 5
    assert table.agents[first].end.score == 1
    assert table.agents[1 - first].end.score == -1


def test_a_full_board_is_a_draw() -> None:
    names = ("A1", "B1", "C1", "B2", "A2", "C2", "B3", "A3", "C3")
    table = Table([Square[name] for name in names])
    play(table.agents, seed=1)
    assert len(table.taken) == 9
    assert [agent.end.score for agent in table.agents] == [0, 0]


def test_either_agent_may_begin() -> None:
    begins = set()
    for seed in range(20):
        table = Table(list(Square))
        play(table.agents, seed=seed)
        begins.add(table.taken[0][0])
    assert begins == {0, 1}


def test_a_label_says_where_a_square_is() -> None:
    for square in Square:
        x, y = square.value
        assert square.name == "ABC"[x] + "123"[y]


def test_agents_are_told_what_is_taken() -> None:
    turns: list[Turn] = []
    agents = RandomAgent(seed=1), RandomAgent(seed=2)
    episodes = tic_tac_toe.run(*agents, episodes=20, watch=turns.append)
    for turn in turns:
        shown = turn.observation
        assert sum(len(rows) for rows in shown.features.values()) == 9
        if turn.episode is None:
            mask: Any = shown.actions["Square"]
            assert int(np.sum(mask.mask)) == len(shown.features["Empty"])
    assert {episode.reward for episode in episodes} == {-1, 0, 1}
    assert sum(episode.reward for episode in episodes) == 0


def test_the_declared_maximum_numbers_are_reached_and_not_exceeded() -> None:
    most = dict.fromkeys(("Empty", "Mine", "Theirs"), 0)

    def count(turn: Turn) -> None:
        for name in most:
            most[name] = max(most[name], turn.observation.num_entities(name))

    for seed in range(20):
        tic_tac_toe.run(RandomAgent(seed), RandomAgent(seed + 100), seed=seed, watch=count)
    assert most == tic_tac_toe.max_entities
