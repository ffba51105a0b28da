"""Whole games between all agents: invariants, checked step by step."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env.games.azul import (
    AzulAgent,
    EnvStep,
    GameResult,
    GameState,
    GreedyAgent,
    MCTSAgent,
    RandomAgent,
    RushAgent,
    play_game,
    winners,
)
from entity_env.games.azul.kernels.engine import rows_of
from tests.games.azul.recorded_games import SEEDS, count_tiles

# The first search compiles, which takes half a minute on shared cores.
pytestmark = pytest.mark.timeout(240)

AGENTS: dict[str, AzulAgent] = {
    "random": RandomAgent(),
    "greedy": GreedyAgent(),
    "rush": RushAgent(),
    "search": MCTSAgent(rollouts=3, rounds=0),
}
TABLES = st.lists(st.sampled_from(sorted(AGENTS)), min_size=2, max_size=4)


def watched(
    names: Sequence[str], seed: int, starting_player: int = 0, max_rounds: int | None = None
) -> tuple[GameResult, list[EnvStep]]:
    steps: list[EnvStep] = []
    agents = [AGENTS[name] for name in names]
    result = play_game(
        agents,
        names=names,
        seed=seed,
        starting_player=starting_player,
        max_rounds=max_rounds,
        watch=steps.append,
    )
    return result, steps


def states_of(steps: Sequence[EnvStep]) -> list[GameState]:
    states = [step.state for step in steps]
    assert None not in states
    return [state for state in states if state is not None]


@settings(max_examples=10)
@given(names=TABLES, seed=SEEDS)
def test_no_tile_is_lost(names: list[str], seed: int) -> None:
    _, steps = watched(names, seed)
    for state in states_of(steps):
        assert count_tiles(state) == [20] * 5
        assert min(state.bag + state.lid + state.centre) >= 0
        markers = [player.floor.count(5) for player in state.players]
        assert sum(markers) <= 1
        if sum(markers):
            assert state.marker == markers.index(1)


@settings(max_examples=10)
@given(names=TABLES, seed=SEEDS)
def test_boards_are_as_the_rules_want_them(names: list[str], seed: int) -> None:
    _, steps = watched(names, seed)
    for state in states_of(steps):
        for player in state.players:
            assert player.score >= 0
            assert len(player.floor) <= 7
            for row in range(5):
                colour, count = player.line_colours[row], player.line_counts[row]
                assert 0 <= count <= row + 1
                assert (count == 0) == (colour == -1)
                if count:
                    assert not player.wall >> 5 * row + (row + colour) % 5 & 1


@settings(max_examples=10)
@given(names=TABLES, seed=SEEDS)
def test_walls_only_grow_and_only_when_a_round_ends(names: list[str], seed: int) -> None:
    _, steps = watched(names, seed)
    for before, after in pairwise(states_of(steps)):
        for old, new in zip(before.players, after.players, strict=True):
            assert old.wall & ~new.wall == 0
            if old.wall != new.wall or old.score != new.score:
                assert after.round == before.round + 1 or after.is_over
            assert ((new.wall ^ old.wall) & 0b11111).bit_count() <= 1, "one tile a row"
        if after.round == before.round and not after.is_over:
            assert after.current_player == (before.current_player + 1) % len(names)
            assert (after.bag, after.starting_player) == (before.bag, before.starting_player)


@settings(max_examples=10)
@given(names=TABLES, seed=SEEDS)
def test_the_result_is_that_of_the_last_state(names: list[str], seed: int) -> None:
    result, steps = watched(names, seed)
    last = states_of(steps)[-1]
    assert result.names == tuple(names)
    assert list(result.scores) == last.scores
    assert result.rows == tuple(rows_of(player.wall) for player in last.players)
    assert (result.end, result.num_rounds) == (last.end, last.round)
    assert result.num_moves == len(steps) - 1
    first = [seat for seat, share in enumerate(result.shares) if share]
    assert first == winners(last)
    assert sum(result.shares) == pytest.approx(1)
    assert result.num_rounds >= 5, "a row takes five tilings"
    totals = np.sum([step.rewards for step in steps], axis=0)
    assert totals.tolist() == [*result.scores, *[0] * (4 - len(names))]


@settings(max_examples=6)
@given(names=TABLES, seed=SEEDS, start=st.integers(0, 3))
def test_who_begins_begins(names: list[str], seed: int, start: int) -> None:
    start %= len(names)
    _, steps = watched(names, seed, starting_player=start)
    assert steps[0].current_player == start
    assert states_of(steps)[0].starting_player == start


@settings(max_examples=6)
@given(names=TABLES, seed=SEEDS, max_rounds=st.integers(1, 4))
def test_a_game_may_be_cut(names: list[str], seed: int, max_rounds: int) -> None:
    result, steps = watched(names, seed, max_rounds=max_rounds)
    assert result.end is None
    assert result.num_rounds == max_rounds + 1
    assert steps[-1].truncated
    assert not steps[-1].legal_action_mask.any()
    whole, all_steps = watched(names, seed)
    assert whole.num_moves > result.num_moves
    same = [step.last_action for step in all_steps[: len(steps)]]
    assert same == [step.last_action for step in steps]
