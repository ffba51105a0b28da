"""FeatureExtractor: its table, relative seats, nothing hidden."""

import re
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, strategies as st
from numpy.typing import NDArray

from entity_env import UsageError
from entity_env.games.azul import (
    Action,
    FeatureExtractor,
    GameState,
    apply_action,
    apply_in_place,
    features,
    legal_actions,
    new_game,
)
from entity_env.games.azul.features import SLICES
from entity_env.games.azul.kernels.observation import OBS_SIZE
from tests.games.azul.recorded_games import board, position, reached, states, to_lines

FEATURES = FeatureExtractor()


def part(row: NDArray[np.float32], name: str) -> list[float]:
    return [float(value) for value in row[SLICES[name]]]


@given(state=states(), player=st.integers(0, 3))
def test_shape_and_type(state: GameState, player: int) -> None:
    row = FEATURES.encode(state, player % state.num_players)
    assert row.shape == (FEATURES.obs_size,) == (OBS_SIZE,) == (306,)
    assert row.dtype == np.float32
    assert np.isfinite(row).all()
    assert row.min() >= 0
    assert row.max() <= 5


def test_the_slices_follow_one_another_and_are_those_of_the_table() -> None:
    slices = list(SLICES.values())
    assert slices[0].start == 0
    assert slices[-1].stop == OBS_SIZE
    assert all(before.stop == after.start for before, after in pairwise(slices))
    table = re.findall(r"^\| (\d+)(?::(\d+))? \| `(\w+)` \|", features.__doc__ or "", re.MULTILINE)
    assert len(table) == len(SLICES)
    for start, stop, name in table:
        assert SLICES[name] == slice(int(start), int(stop or int(start) + 1))


@given(state=states(), player=st.integers(0, 3))
def test_seats_are_relative(state: GameState, player: int) -> None:
    player %= state.num_players
    row = FEATURES.encode(state, player)
    np.testing.assert_array_equal(row, FEATURES.encode(state.rotated(player), 0))


@given(state=states())
def test_rows_of_absent_players_are_zero(state: GameState) -> None:
    row = FEATURES.encode(state, 0)
    for seat in range(4):
        assert row[SLICES[f"player_{seat}"]].any() == (seat < state.num_players)


def test_a_position_by_hand() -> None:
    mine = board(score=25, lines=[(0, 1), (4, 1)], wall=[(2, 3)], floor=[5, 1])
    other = board(score=7, wall=[(0, 0)])
    state = position(
        [other, mine],
        centre=(0, 3, 0, 0, 0),
        factories=[(0, 0, 4, 0, 0), (1, 1, 1, 1, 0)],
        lid=(0, 0, 0, 10, 0),
        marker=1,
        current_player=1,
    )
    row = FEATURES.encode(state, 1)
    assert part(row, "factories") == [0, 0, 1, 0, 0, 0.25, 0.25, 0.25, 0.25] + [0] * 36
    assert part(row, "centre") == pytest.approx([0, 0.15, 0, 0, 0])
    assert part(row, "marker_in_centre") == [0]
    assert part(row, "bag") == pytest.approx([17 / 20, 15 / 20, 15 / 20, 8 / 20, 19 / 20])
    assert part(row, "lid") == pytest.approx([0, 0, 0, 0.5, 0])
    me = part(row, "player_0")
    assert me[:13] == [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0.5]
    assert me[13:31] == [0] * 18
    assert [i for i, cell in enumerate(me[31:56]) if cell] == [5 * 2 + 0]
    assert me[56:] == pytest.approx([2 / 7, 1, 0.25])
    them = part(row, "player_1")
    assert them[:31] == [1] + [0] * 30
    assert [i for i, cell in enumerate(them[31:56]) if cell] == [0]
    assert them[56:] == pytest.approx([0, 0, 0.07])
    assert part(row, "turn") == [1, 0, 0, 0]
    assert part(row, "began") == [0, 1, 0, 0]
    assert part(row, "round") == pytest.approx([0.05])


@given(state=states(), seed=st.integers(0, 99))
def test_what_will_be_drawn_cannot_be_seen(state: GameState, seed: int) -> None:
    other = state.copy()
    other.rng = np.random.default_rng(seed)
    other.draw = lambda bag: 0
    np.testing.assert_array_equal(FEATURES.encode(other, 0), FEATURES.encode(state, 0))


def test_whatever_a_move_changes_can_be_seen() -> None:
    state = reached(4, 3, 20, to_lines)
    rows = {FEATURES.encode(state, 0).tobytes()}
    actions = legal_actions(state)
    rows |= {FEATURES.encode(apply_action(state, action), 0).tobytes() for action in actions}
    assert len(rows) == len(actions) + 1


def counts(row: NDArray[np.float32], name: str, scale: int) -> tuple[int, ...]:
    return tuple(round(value * scale) for value in part(row, name))


def decoded(row: NDArray[np.float32]) -> dict[str, object]:
    """A position decoded from an observation; tiles on floors are only counted."""
    players = [part(row, f"player_{seat}") for seat in range(4)]
    present = [player for player in players if player[0]]
    tiles = counts(row, "factories", 4)
    return {
        "factories": tuple(tiles[5 * i : 5 * i + 5] for i in range(2 * len(present) + 1)),
        "centre": counts(row, "centre", 20),
        "bag": counts(row, "bag", 20),
        "lid": counts(row, "lid", 20),
        "turn": part(row, "turn").index(1),
        "began": part(row, "began").index(1),
        "round": round(part(row, "round")[0] * 20),
        "marker": [player[57] for player in present].index(1)
        if not part(row, "marker_in_centre")[0]
        else -1,
        "players": [decoded_player(player) for player in present],
    }


def decoded_player(values: list[float]) -> tuple[object, ...]:
    lines = []
    for line in range(5):
        *colours, full = values[1 + 6 * line : 7 + 6 * line]
        lines.append((colours.index(1) if full else -1, round(full * (line + 1))))
    wall = sum(1 << cell for cell in range(25) if values[31 + cell])
    return lines, wall, round(values[56] * 7), round(values[58] * 100)


@given(state=states(), player=st.integers(0, 3))
def test_a_position_can_be_read_from_what_is_seen(state: GameState, player: int) -> None:
    """Only the colors on floors are lost, which do not matter for a move."""
    state = state.rotated(player % state.num_players)
    assert decoded(FEATURES.encode(state, 0)) == {
        "factories": state.factories,
        "centre": state.centre,
        "bag": state.bag,
        "lid": state.lid,
        "turn": state.current_player,
        "began": state.starting_player,
        "round": state.round,
        "marker": state.marker,
        "players": [
            (
                list(zip(each.line_colours, each.line_counts, strict=True)),
                each.wall,
                len(each.floor),
                each.score,
            )
            for each in state.players
        ],
    }


@pytest.mark.parametrize("player", [2, -1, 0.0, True])
def test_a_player_that_is_not_there(player: int) -> None:
    with pytest.raises(UsageError, match="player must be an integer from 0 to 1: got"):
        FEATURES.encode(new_game(2), player)


def test_a_finished_game_can_be_encoded() -> None:
    row = [(0, colour) for colour in range(1, 5)]
    state = position([board(lines=[(0, 1)], wall=row), board()], centre=(0, 0, 1, 0, 0), marker=1)
    apply_in_place(state, Action(9, 2, 5))
    assert state.is_over
    assert part(FEATURES.encode(state, 0), "turn") == [1, 0, 0, 0]
