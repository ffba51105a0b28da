"""Azul's look: the position is reconstructed from any player's observation, and drawn."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from entity_env import Observation, Turn
from entity_env.agents import RandomAgent
from entity_env.games.azul import (
    AgentInput,
    AzulGame,
    GameState,
    GreedyAgent,
    RushAgent,
    azul,
    azul_by_id,
    describe_move,
    draw_state,
    legal_actions,
)
from entity_env.games.azul.engine.actions import ActionEncoder
from entity_env.games.azul.engine.rules import MARKER
from entity_env.games.azul.entities import MoveId
from entity_env.games.azul.look import look, move_of, position_of
from entity_env.games.azul.players.named import players
from entity_env.games.azul.viewer import UNKNOWN
from entity_env.views import Scene, SeenObservation, Spot, find_look
from tests.games.azul.recorded_games import observation_of, states

SPACE = azul.obs_space()
SEATS = st.integers(0, 3)


def seen_by(state: GameState, seat: int) -> SeenObservation:
    player = seat % state.num_players
    return SeenObservation(observation_of(state, player), SPACE, player)


def floors(state: GameState) -> list[Counter[bool]]:
    return [Counter(tile == MARKER for tile in player.floor) for player in state.players]


def without_floors(state: GameState) -> GameState:
    copy = state.copy()
    for player in copy.players:
        player.floor = []
    return copy


@given(state=states(), seat=SEATS)
def test_the_position_comes_back_from_what_any_player_sees(state: GameState, seat: int) -> None:
    """Except for the tiles on the floors, which are not observed."""
    seen = seen_by(state, seat)
    found = position_of(seen)
    if state.is_over or seen.agent_id != state.current_player:
        found.current_player = state.current_player
    assert without_floors(found) == without_floors(state)
    assert floors(found) == floors(state)
    tiles, others = (Counter(t for p in s.players for t in p.floor) for s in (state, found))
    assert tiles == others


@given(state=states(), seat=SEATS)
def test_no_tile_is_drawn_that_may_lie_elsewhere(state: GameState, seat: int) -> None:
    drawn = position_of(seen_by(state, seat), has_unknown=True)
    for player, shown in zip(state.players, drawn.players, strict=True):
        assert len(shown.floor) == len(player.floor)
        if UNKNOWN not in shown.floor:
            assert sorted(shown.floor) == sorted(player.floor)


@settings(max_examples=30)
@given(state=states(max_moves=100))
def test_agents_choose_the_same_as_by_the_position_itself(state: GameState) -> None:
    if state.is_over:
        return
    rng, nothing, mask = np.random.default_rng(1), np.zeros(0, np.float32), np.ones(300, np.bool_)
    found = position_of(seen_by(state, state.current_player))
    for agent in (GreedyAgent(), RushAgent()):
        chosen = [
            agent.select_action(AgentInput(nothing, mask, state.current_player, each), rng)
            for each in (state, found)
        ]
        assert chosen[0] == chosen[1]


@given(state=states(max_moves=100))
def test_an_option_is_described_as_the_move_that_it_is(state: GameState) -> None:
    if state.is_over:
        return
    options = seen_by(state, state.current_player)["Option"]
    moves = [ActionEncoder.encode(action) for action in legal_actions(state)]
    assert [move_of(option) for option in options] == moves
    assert look.describe is not None
    for option, move in zip(options, moves, strict=True):
        assert look.describe(option) == f"{option['count']:g} {describe_move(move)}"


@given(state=states(), seat=SEATS)
def test_the_text_is_the_drawing_of_the_position(state: GameState, seat: int) -> None:
    seen = seen_by(state, seat)
    if not state.is_over and seen.agent_id != state.current_player:
        return
    assert look.draw_text is not None
    drawn = look.draw_text(seen, 80)
    assert drawn is not None
    lines = drawn.plain.split("\n")
    theirs = draw_state(state, colours=False).split("\n")
    assert len(lines) == len(theirs)
    for mine, other in zip(lines, theirs, strict=True):
        assert mine.rstrip() == other.rstrip() or "Floor" in mine


@settings(max_examples=30)
@given(state=states(), seat=SEATS)
def test_the_picture_has_all_tiles_within_its_bounds(state: GameState, seat: int) -> None:
    seen = seen_by(state, seat)
    assert callable(look.size)
    assert look.ground is not None
    assert look.draw is not None
    scene = Scene(*look.size(seen))
    look.ground(scene)
    look.draw(seen, scene)
    for shape in scene.shapes:
        x, y = shape.center
        assert 0 <= x <= scene.width
        assert 0 <= y <= scene.height
    tiles = [
        shape
        for shape in scene.shapes
        if shape.kind == "rect" and shape.stroke and shape.size == (0.72, 0.72)
    ]
    on_sources = sum(map(sum, state.factories)) + sum(state.centre)
    on_boards = sum(sum(p.line_counts) + p.wall.bit_count() for p in state.players)
    assert len(tiles) == on_sources + on_boards
    assert len({shape.center for shape in tiles}) == len(tiles), "none hides another"


def rounded(place: Sequence[float | str]) -> tuple[float, float]:
    return round(float(place[0]), 6), round(float(place[1]), 6)


@settings(max_examples=30)
@given(state=states(max_moves=100))
def test_a_move_points_from_its_tiles_to_a_free_place(state: GameState) -> None:
    """In two steps, each with its words."""
    if state.is_over:
        return
    seen = seen_by(state, state.current_player)
    assert callable(look.size)
    assert look.draw is not None
    assert look.spots is not None
    scene = Scene(*look.size(seen))
    look.draw(seen, scene)
    tiles = {rounded(shape.center) for shape in scene.shapes if shape.size == (0.72, 0.72)}
    found = set()
    for option in seen["Option"]:
        start, end = look.spots(seen, "SelectOption", None, option)
        assert isinstance(start, Spot)
        assert isinstance(end, Spot)
        action = ActionEncoder.decode(move_of(option))
        assert rounded(start) in tiles
        line = state.players[seen.agent_id].line_counts
        is_free = action.destination < 5 and line[action.destination] <= action.destination
        assert not is_free or rounded(end) not in tiles
        words = f"{start.words} to {end.words}"
        assert words == f"{option['count']:g} {describe_move(move_of(option))}"
        by_id = look.spots(seen, "MoveId", None, [*MoveId][move_of(option)].name)
        assert by_id == [start, end]
        found.add((start, end))
    assert len(found) == len(seen["Option"])


def test_an_observation_without_a_table_has_no_text() -> None:
    nothing = Observation(reward=0, terminated=True, features={})
    assert look.draw_text is not None
    assert look.draw_text(SeenObservation(nothing, SPACE), 80) is None


@pytest.mark.parametrize("game", [azul, azul_by_id])
def test_named_agents_play_both_games(game: AzulGame) -> None:
    assert find_look(game).draw_text is look.draw_text
    agents = [players.load("greedy", 1), players.load("random", 2)]
    turns: list[Turn] = []
    episodes = game.run(*[a for a in agents if a is not None], watch=turns.append, max_rounds=2)
    ends = [turn for turn in turns if turn.episode is not None]
    summary = players.summary(["greedy", "random"], ends)
    scores = [f"{e.reward:g}" for e in episodes]
    assert summary == f"greedy {scores[0]}, random {scores[1]}; truncated after 2 rounds"


def test_the_winner_is_named() -> None:
    turns: list[Turn] = []
    agents = [RandomAgent(seed=seed) for seed in range(2)]
    one, other = azul.run(*agents, seed=3, watch=turns.append)
    summary = players.summary(["a", "b"], [turn for turn in turns if turn.episode is not None])
    winner = "a" if one.reward > other.reward else "b"
    assert summary.startswith(f"a {one.reward:g}, b {other.reward:g}; won by {winner} after ")
    assert summary.endswith("(a row is full)")
