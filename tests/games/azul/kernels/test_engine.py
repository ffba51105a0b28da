"""The rules, compared move by move with the oracle; compiled code, compared with its source."""

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env.core.seeding import splitmix64_int
from entity_env.games.azul import ENDS, FastGame, GameState, legal_actions, new_game, play_many
from entity_env.games.azul.engine.actions import ActionEncoder
from entity_env.games.azul.engine.engine import apply_in_place, deal
from entity_env.games.azul.engine.tile_draws import SplitMix
from entity_env.games.azul.kernels.engine import (
    bonus_points_packed,
    end_of_game_packed,
    is_legal_packed,
    placement_points_packed,
    rows_of,
    tile_walls_packed,
)
from entity_env.games.azul.kernels.heuristics import GREEDY, RUSH, best_action_id, potential_packed
from entity_env.games.azul.kernels.kernel import machine_code
from entity_env.games.azul.kernels.observation import OBS_SIZE
from entity_env.games.azul.players.mcts import Search, Tree
from tests.games.azul import oracle
from tests.games.azul.recorded_games import (
    NUM_PLAYERS,
    POLICIES,
    SEEDS,
    Policy,
    blocked,
    count_tiles,
    interpreted,
    play_on,
    states,
)

# The first calls compile, which takes a while on shared cores.
pytestmark = pytest.mark.timeout(240)

WALLS = st.integers(0, 2**25 - 1)
COUNTS = st.lists(st.integers(0, 20), min_size=5, max_size=5)


def check_game(seed: int, num_players: int, policy: Policy) -> None:
    """Plays a game with the oracle, on a state, and compiled; equal numbers deal equal tiles."""
    start = seed % num_players
    position = oracle.new_game(num_players, start, SplitMix(seed))
    state = new_game(num_players, starting_player=start, rng=SplitMix(seed))
    game = FastGame(num_players, starting_player=start, rng=SplitMix(seed))
    for now, actions, action in play_on(state, policy, random.Random(seed)):
        check_position(now, position, game)
        assert actions == oracle.legal_actions(position)
        oracle.play(position, action)
        game.play(ActionEncoder.encode(action))
    check_position(state, position, game)
    assert state.is_over
    assert legal_actions(state) == []


def check_position(state: GameState, position: oracle.Position, game: FastGame) -> None:
    assert state.to_dict() == position.to_dict()
    assert count_tiles(state) == [20] * 5
    # Includes data not in a state: `fits`, which is updated with every move, and unused bits.
    assert game.words.tolist() == state.words  # type: ignore[attr-defined]
    mask = game.legal_mask()
    assert np.flatnonzero(mask).tolist() == list(map(ActionEncoder.encode, legal_actions(state)))
    one_by_one = [is_legal_packed(state.words, *divmod(action_id, 30)) for action_id in range(300)]
    assert one_by_one == mask.tolist()
    assert GameState.from_dict(state.to_dict()).words == state.words


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(seed=SEEDS, num_players=NUM_PLAYERS, policy=st.sampled_from(POLICIES))
def test_whole_games(seed: int, num_players: int, policy: Policy) -> None:
    check_game(seed, num_players, policy)


@pytest.mark.slow
@pytest.mark.parametrize("num_players", [2, 3, 4])
@pytest.mark.parametrize("policy", POLICIES)
def test_many_whole_games(num_players: int, policy: Policy) -> None:
    for seed in range(40):
        check_game(seed, num_players, policy)


@settings(deadline=None)
@given(state=states(), seed=SEEDS)
def test_every_move_of_a_position(state: GameState, seed: int) -> None:
    assert legal_actions(state) == oracle.legal_actions(oracle.of(state, state.rng))
    for action in legal_actions(state)[::3]:
        position, after = oracle.of(state, SplitMix(seed)), state.copy()
        after.rng = SplitMix(seed)
        oracle.play(position, action)
        apply_in_place(after, action)
        assert after.to_dict() == position.to_dict()


@pytest.mark.parametrize("fours_left", [True, False])
def test_the_last_moves_of_games_that_could_go_on_for_ever(fours_left: bool) -> None:
    test_every_move_of_a_position.hypothesis.inner_test(blocked(fours_left), 0)  # type: ignore[attr-defined]


@settings(max_examples=60)
@given(state=states())
def test_a_tiling_at_any_time_of_a_round(state: GameState) -> None:
    """It depends only on lines and floors."""
    position = oracle.of(state, state.rng)
    for player in position.players:
        oracle.tile_wall(player, position.lid)
    tile_walls_packed(state.words)
    assert state.to_dict() == position.to_dict()
    end = end_of_game_packed(state.words)
    assert (ENDS[end - 1] if end else None) == oracle.end_of_game(position)


@settings(max_examples=40)
@given(bag=COUNTS, lid=COUNTS, seed=SEEDS, num_players=NUM_PLAYERS)
def test_a_deal_from_any_bag_and_lid(
    bag: list[int], lid: list[int], seed: int, num_players: int
) -> None:
    """Even if both run out and factories stay partly empty. A draw deals the same tiles."""
    state = new_game(num_players)
    state.bag, state.lid, state.factories = bag, lid, [(0,) * 5] * len(state.factories)
    position, other = oracle.of(state, SplitMix(seed)), state.copy()
    oracle.deal(position)
    deal(state.words, SplitMix(seed), None)
    assert state.to_dict() == position.to_dict()
    numbers = SplitMix(seed)

    def draw(counts: tuple[int, ...]) -> int:
        return int(np.repeat(range(5), counts)[int(numbers.uniform() * sum(counts))])

    deal(other.words, numbers, draw)
    assert other == state
    assert sum(map(sum, state.factories)) == min(4 * len(state.factories), sum(bag) + sum(lid))


@given(walls=st.lists(WALLS, min_size=1, max_size=3), place=st.integers(0, 24))
def test_any_wall(walls: list[int], place: int) -> None:
    """Includes walls with many tiles, on which something is complete."""
    wall = 0
    for more in walls:
        wall |= more
        cells = {divmod(cell, 5) for cell in range(25) if wall >> cell & 1}
        assert rows_of(wall) == oracle.rows_of(cells)
        assert bonus_points_packed(wall) == oracle.bonus(cells)
        before = cells - {divmod(place, 5)}
        points = placement_points_packed(wall & ~(1 << place), *divmod(place, 5))
        assert points == oracle.placement_points(before, *divmod(place, 5))


@pytest.mark.slow
@settings(max_examples=4, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), num_players=NUM_PLAYERS)
def test_playouts_are_random_games(seed: int, num_players: int) -> None:
    """Games from the numbers of SplitMix64; players take turns to start."""
    games = play_many(3, seed, num_players=num_players)
    for i in range(3):
        numbers = SplitMix(splitmix64_int(splitmix64_int(seed) + i))
        position = oracle.new_game(num_players, i % num_players, numbers)
        moves = []
        while position.end is None:
            actions = oracle.legal_actions(position)
            moves.append(actions[int(numbers.uniform() * len(actions))])
            oracle.play(position, moves[-1])
        assert games.scores[i].tolist() == [player.score for player in position.players]
        assert (games.moves[i], games.rounds[i]) == (len(moves), position.round)
        assert games.floor_moves[i] == sum(move.destination == 5 for move in moves)
        assert ENDS[games.ends[i]] == position.end


# ------------------------------------------------------------------------------ compiled


def arrays() -> tuple[Any, Any]:
    return np.zeros((4, OBS_SIZE), np.float32), np.zeros(300, np.bool_)


@settings(max_examples=60, deadline=None)
@given(state=states(), score=st.integers(0, 300), number=st.integers(1, 40))
def test_machine_code_shows_and_values_the_same(state: GameState, score: int, number: int) -> None:
    state.players[0].score, state.round = score, number
    mine, theirs = arrays(), arrays()
    status = FastGame.from_state(state).show(*mine)
    with interpreted():
        assert FastGame.from_state(state).show(*theirs) == status
    for compiled, plain in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(compiled, plain)
    words = np.array(state.words)
    for player in range(state.num_players):
        value = machine_code(potential_packed)(words, player)
        assert value == potential_packed(state.words, player)
    for idea in (GREEDY, RUSH) if not state.is_over else ():
        chosen = machine_code(best_action_id)(words, idea)
        assert chosen == best_action_id(state.words, idea)


@settings(max_examples=8, deadline=None)
@given(
    state=states(max_moves=90).filter(lambda state: not state.is_over),
    word=SEEDS,
    rounds=st.sampled_from((0, 1, 2)),
    max_nodes=st.sampled_from((250, 100_000)),
)
def test_machine_code_visits_the_same(
    state: GameState, word: int, rounds: int, max_nodes: int
) -> None:
    def searched() -> tuple[int, list[list[float]]]:
        tree = Tree.empty(max_nodes)
        search = Search(state, tree, rounds, word)
        for num_visits in (1, 11):
            search.run(num_visits)
        assert tree.visits[0] == 12
        assert int(tree.num_nodes[0]) <= max_nodes
        return search.num_moves, [array[: int(tree.num_nodes[0])].tolist() for array in tree[1:]]

    before = state.copy()
    compiled = searched()
    with interpreted():
        assert searched() == compiled
    assert state == before


@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**64 - 1), num_players=NUM_PLAYERS)
def test_machine_code_plays_out_the_same_games(seed: int, num_players: int) -> None:
    compiled = play_many(4, seed, num_players=num_players)
    with interpreted():
        plain = play_many(4, seed, num_players=num_players)
    for mine, theirs in zip(compiled, plain, strict=True):
        assert mine.dtype == np.int64
        np.testing.assert_array_equal(mine, theirs)
