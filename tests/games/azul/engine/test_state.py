"""GameState: copies, equality, hashes, rotation, and conversion to dicts and back."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, strategies as st

from entity_env import SchemaError, UsageError
from entity_env.games.azul import GameState, Phase, apply_in_place, legal_actions, new_game
from tests.games.azul.recorded_games import board, position, reached, states, to_lines, uniform

Edit = Callable[[dict[str, Any]], object]


@given(state=states())
def test_a_copy_is_equal_and_on_its_own(state: GameState) -> None:
    other = state.copy()
    assert other == state
    assert hash(other) == hash(state)
    assert other.rng is state.rng
    key = json.dumps(state.to_dict())
    for action in legal_actions(state)[:1]:
        apply_in_place(other, action)
        assert other != state
    assert json.dumps(state.to_dict()) == key


@pytest.mark.parametrize(
    "copied", [copy.copy, copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))]
)
def test_the_copies_of_python_are_equal_too(copied: Callable[[GameState], GameState]) -> None:
    state = reached(3, 3, 40, to_lines)
    other = copied(state)
    assert other == state
    other.players[0].score += 1
    assert other != state


def test_equality_is_of_the_position_alone() -> None:
    one = new_game(2, rng=np.random.default_rng(1))
    other = new_game(2, rng=np.random.default_rng(1), draw=None)
    other.rng = np.random.default_rng(9)
    assert one == other
    assert len({one, other}) == 1
    assert one != new_game(2, rng=np.random.default_rng(2))
    assert one != "a state"


def change_wall(state: GameState) -> None:
    state.players[1].wall ^= 1


def change_floor(state: GameState) -> None:
    state.players[0].floor = (0,)


@pytest.mark.parametrize(
    "change",
    [
        change_wall,
        change_floor,
        lambda state: setattr(state, "current_player", 1),
        lambda state: setattr(state, "starting_player", 1),
        lambda state: setattr(state, "marker", 1),
        lambda state: setattr(state, "round", 2),
        lambda state: setattr(state, "end", "row"),
        lambda state: setattr(state, "factories", state.factories[::-1]),
        lambda state: setattr(state, "centre", (1, 0, 0, 0, 0)),
        lambda state: setattr(state, "bag", (1, 0, 0, 0, 0)),
        lambda state: setattr(state, "lid", (1, 0, 0, 0, 0)),
        lambda state: setattr(state.players[0], "score", 1),
        lambda state: state.players[0].set_line(0, 1, 1),
    ],
)
def test_everything_on_the_table_counts(change: Callable[[GameState], object]) -> None:
    state = new_game(2, rng=np.random.default_rng(1))
    other = state.copy()
    change(other)
    assert other != state
    assert state == new_game(2, rng=np.random.default_rng(1))


@given(state=states())
def test_to_a_dict_through_json_and_back(state: GameState) -> None:
    data = json.loads(json.dumps(state.to_dict()))
    back = GameState.from_dict(data, rng=state.rng)
    assert back == state
    assert back.rng is state.rng
    assert legal_actions(back) == legal_actions(state)


def test_a_state_from_a_dict_goes_on_alike() -> None:
    state = reached(5, 2, 30, uniform)
    back = GameState.from_dict(state.to_dict(), rng=np.random.default_rng(4))
    state.rng = np.random.default_rng(4)
    while not state.is_over:
        action = legal_actions(state)[0]
        apply_in_place(state, action)
        apply_in_place(back, action)
        assert back == state


def player(data: dict[str, Any], index: int = 0) -> dict[str, Any]:
    return cast("dict[str, Any]", data["players"][index])


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda data: data.pop("bag"), "bag must be there"),
        (lambda data: data.update(num_players=5), "num_players must be from 2 to 4, got 5"),
        (lambda data: data.update(current_player=2), "current_player must be from 0 to 1, got 2"),
        (lambda data: data.update(marker=-2), "marker must be from -1 to 1, got -2"),
        (lambda data: data.update(round=0), "round must be from 1"),
        (lambda data: data.update(round=True), "round must be from 1"),
        (lambda data: data.update(end="rows"), "end must be None or one of row, no_progress"),
        (lambda data: data.update(centre=[0] * 4), "centre must be 5 counts"),
        (lambda data: data.update(bag=[-1] * 5), "bag must be counts from 0 to 20"),
        (lambda data: data["factories"].pop(), "factories must be 5 items"),
        (lambda data: data.update(factories="12345"), "factories must be 5 items"),
        (lambda data: data["factories"].__setitem__(2, [5, 0, 0, 0, 0]), r"factories\[2\] must be"),
        (lambda data: data["bag"].__setitem__(1, 0), "must have 20 yellow tiles, got"),
        (lambda data: data["players"].__setitem__(1, []), r"players\[1\] must be a mapping"),
        (lambda data: player(data).pop("wall"), r"players\[0\].wall must be there"),
        (lambda data: player(data).update(score=-1), r"players\[0\].score must be from 0"),
        (lambda data: player(data).update(wall=2**25), r"players\[0\].wall must be from 0"),
        (lambda data: player(data).update(floor=[6]), r"players\[0\].floor must be colors"),
        (lambda data: player(data).update(floor=[5, 5]), "at most one marker"),
        (lambda data: player(data).update(floor=[0] * 8), "at most 7 tiles"),
        (
            lambda data: player(data)["lines"].__setitem__(0, [0, 2]),
            r"lines\[0\] must be \[-1, 0\]",
        ),
        (
            lambda data: player(data)["lines"].__setitem__(0, [0, 0]),
            r"lines\[0\] must be \[-1, 0\]",
        ),
        (
            lambda data: player(data)["lines"].__setitem__(0, [5, 1]),
            r"lines\[0\] must be \[-1, 0\]",
        ),
        (lambda data: player(data)["lines"].__setitem__(0, 3), "must be a color and a count"),
        (
            lambda data: player(data).update(wall=1, lines=[[0, 1], *[[-1, 0]] * 4]),
            "must not have a color of its wall row",
        ),
        (lambda data: data.update(factories=[[0] * 5] * 5), "must have 20"),
        (lambda data: data.update(end=np.zeros(2)), "end must be None or one of row"),
        (lambda data: data.update(end="row"), "on the table, or an end, got 'both'"),
        (
            lambda data: data["factories"].__setitem__(1, [1] * 5),
            r"factories\[1\] must be at most 4 tiles",
        ),
        (lambda data: player(data).update(floor=[5]), "must not have the marker if marker=-1"),
    ],
)
def test_a_dict_that_cannot_be(edit: Edit, message: str) -> None:
    data = new_game(2, rng=np.random.default_rng(1)).to_dict()
    edit(data)
    with pytest.raises(SchemaError, match=f"GameState.from_dict: .*{message}"):
        GameState.from_dict(data)


@pytest.mark.parametrize("data", [None, 5, [], "{}", [("bag", 1)]])
def test_what_is_no_dict(data: Any) -> None:  # noqa: ANN401
    with pytest.raises(SchemaError, match=r"GameState\.from_dict: data must be a mapping, got"):
        GameState.from_dict(data)


def test_the_marker_lies_on_one_floor() -> None:
    state = position([board(floor=[5, 0]), board()], centre=(0, 1, 0, 0, 0), marker=0)
    assert GameState.from_dict(state.to_dict()) == state
    state.marker = 1
    with pytest.raises(SchemaError, match=r"players\[0\].floor must not have the marker if"):
        GameState.from_dict(state.to_dict())


def test_an_empty_table_has_an_end() -> None:
    data = new_game(2, rng=np.random.default_rng(1)).to_dict()
    data.update(factories=[[0] * 5] * 5, bag=[20] * 5)
    with pytest.raises(SchemaError, match="must have tiles on the table, or an end"):
        GameState.from_dict(data)
    assert GameState.from_dict({**data, "end": "row"}).phase is Phase.GameOver


@given(state=states(), turns=st.integers(0, 3))
def test_rotation(state: GameState, turns: int) -> None:
    turns %= state.num_players
    other = state.rotated(turns)
    assert other.players[0].key() == state.players[turns].key()
    assert (other.current_player + turns) % state.num_players == state.current_player
    assert legal_actions(other) == legal_actions(state)
    back = other.rotated(state.num_players - turns if turns else 0)
    assert back == state
    assert other.starting_player_next_round == (
        (state.starting_player_next_round - turns) % state.num_players
    )


@pytest.mark.parametrize("player", [2, -1, 5, 1.0, True, None])
def test_there_is_no_such_seat_to_turn_to(player: int) -> None:
    state = new_game(2)
    with pytest.raises(UsageError, match="player must be an integer from 0 to 1: got"):
        state.rotated(player)


def test_a_state_shows_where_it_stands() -> None:
    state = new_game(2, rng=np.random.default_rng(1))
    assert repr(state) == (
        "GameState(num_players=2, round=1, current_player=0, scores=[0, 0], end=None)"
    )
    assert state.phase is Phase.FactoryOffer
    assert not state.is_over
