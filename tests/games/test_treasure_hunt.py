"""The rules of treasure_hunt."""

import pytest
from hypothesis import given, strategies as st

from entity_env import Obs, UsageError
from entity_env.agents import RandomAgent
from entity_env.games import treasure_hunt
from entity_env.games.treasure_hunt import Explorer, Move, Trap, Treasure, play
from tests.helpers.scripted_agent import End, ScriptedAgent

Cell = tuple[int, int]
View = tuple[Cell, set[Cell], set[Cell]]


def explorer(obs: Obs) -> Explorer:
    assert isinstance(obs.global_features, Explorer)
    return obs.global_features


def place(obs: Obs) -> Cell:
    return explorer(obs).x, explorer(obs).y


def shown(obs: Obs, cls: type) -> set[Cell]:
    return {(thing.x, thing.y) for thing in obs.of_class(cls)}


def nearest(obs: Obs, cls: type) -> Move:
    """The move toward the nearest entity of a class."""
    x, y = place(obs)
    goal_x, goal_y = min(shown(obs, cls), key=lambda cell: abs(cell[0] - x) + abs(cell[1] - y))
    if x != goal_x:
        return Move.RIGHT if x < goal_x else Move.LEFT
    return Move.UP if y < goal_y else Move.DOWN


def watch(moves: list[Move], seed: int, board_size: int, sight: int) -> tuple[list[View], End]:
    """Makes exactly these moves, and returns all observations."""
    views: list[View] = []
    left = iter(moves)

    def view(obs: Obs) -> View:
        return place(obs), shown(obs, Treasure), shown(obs, Trap)

    def answer(obs: Obs) -> Move:
        views.append(view(obs))
        return next(left)

    agent = ScriptedAgent(answer)
    play(agent, seed=seed, board_size=board_size, sight=sight, max_step=len(moves))
    return [*views, view(agent.end.obs)], agent.end


@given(
    seed=st.integers(0, 2**63 - 1),
    board_size=st.integers(4, 8),
    sight=st.integers(0, 8),
    moves=st.lists(st.sampled_from(Move), min_size=1, max_size=40),
)
def test_every_step_follows_the_rules(
    seed: int, board_size: int, sight: int, moves: list[Move]
) -> None:
    everything, end = watch(moves, seed, board_size, sight=board_size)
    steps, _ = watch(moves, seed, board_size, sight)

    def near(here: Cell, cells: set[Cell]) -> set[Cell]:
        return {c for c in cells if max(abs(c[0] - here[0]), abs(c[1] - here[1])) <= sight}

    assert steps == [(at, near(at, gold), near(at, traps)) for at, gold, traps in everything]
    for move, before, after in zip(moves, everything, everything[1:], strict=False):
        (at, gold, traps), (then, gold_left, traps_left) = before, after
        x, y = at[0] + move.dx, at[1] + move.dy
        assert then == ((x, y) if 0 <= x < board_size and 0 <= y < board_size else at)
        assert gold_left == gold - {then}
        assert traps_left == traps
        assert at not in traps, "the game went on after a trap"
    at, gold, traps = everything[-1]
    assert end.score == 5 - len(gold)
    assert end.truncated == (bool(gold) and at not in traps)
    assert end.num_steps == len(everything) - 1
    if end.truncated:
        assert end.num_steps == len(moves)


@pytest.mark.parametrize("seed", range(5))
def test_all_treasures_end_the_hunt(seed: int) -> None:
    agent = ScriptedAgent(lambda obs: nearest(obs, Treasure))
    play(agent, seed=seed, num_treasures=3, num_traps=0, sight=8)
    assert agent.end.score == 3
    assert not agent.end.truncated
    assert set(agent.end.gains) <= {0, 1}
    assert agent.end.gains[-1] == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_trap_ends_the_hunt(seed: int) -> None:
    agent = ScriptedAgent(lambda obs: nearest(obs, Trap))
    play(agent, seed=seed, sight=8)
    assert not agent.end.truncated
    assert agent.end.score < 5
    assert place(agent.end.obs) in shown(agent.end.obs, Trap)


def test_a_hunt_is_cut() -> None:
    left: list[int] = []

    def answer(obs: Obs) -> Move:
        left.append(explorer(obs).steps_left)
        return Move.LEFT if len(left) % 2 else Move.RIGHT

    agent = ScriptedAgent(answer)
    play(agent, seed=1, num_treasures=1, num_traps=0, max_step=7)
    assert agent.end.truncated
    assert left == [7, 6, 5, 4, 3, 2, 1]
    assert explorer(agent.end.obs).steps_left == 0


def test_nothing_lies_on_another_thing() -> None:
    for seed in range(20):
        cells: list[Cell] = []

        def answer(obs: Obs, cells: list[Cell] = cells) -> None:
            cells.extend([place(obs), *shown(obs, Treasure), *shown(obs, Trap)])

        agent = ScriptedAgent(answer)
        play(agent, seed=seed, board_size=4, num_treasures=8, num_traps=7, sight=4)
        assert sorted(cells) == [(x, y) for x in range(4) for y in range(4)]
        assert agent.ends == []


def test_settings_are_set() -> None:
    game = treasure_hunt.with_settings(max_step="3", num_traps=0, num_treasures=1)
    episodes = game.run(RandomAgent(seed=1), episodes=20)
    assert max(episode.length for episode in episodes) == 3
    assert max(episode.reward for episode in episodes) <= 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_treasures": 0}, "at least 1"),
        ({"max_step": 0}, "at least 1"),
        ({"num_traps": -1}, "num_traps and sight 0"),
        ({"sight": -1}, "num_traps and sight 0"),
        ({"board_size": 0}, "too small"),
        ({"board_size": 3}, "board_size of 3 is too small"),
    ],
)
def test_settings_that_cannot_be_played_are_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        treasure_hunt.with_settings(**changes).run(RandomAgent(seed=1))
